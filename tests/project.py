"""A project of its own in a folder that is thrown away: Snakefile, rules, a configuration, results; and how it is run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl

from proofmill import journal as journals
from proofmill import kinds, recipes
from proofmill.tables import Table

ROOT = Path(__file__).parent.parent
LOCAL = ("--profile", "workflow/profiles/local")

# Every kind once, small enough to be made again and again: about half a minute on two cores.
CHAIN = """
chain:
  api/referee: {id: referee-1, program: referee, price: {input: 0, output: 0}, temperature: 0, max-tokens: 1024}
  problems/bench: {source: arithmetic, part: test, rows: 24}
  problems/threads: {source: arithmetic-threads, rows: 60, keep: [has-problem, has-solution]}
  labels/threads: {problems: problems/threads, model: api/referee}
  problems/train: {source: problems/threads, labels: labels/threads, keep: [labelled, {statement-length: [10, 200]}]}
  schemes/train: {problems: problems/train, model: api/referee}
  base/tiny: {source: scratch, problems: problems/bench, hidden: 32, layers: 1, heads: 1, feed-forward: 32}
  examples/cold: {problems: problems/train}
  sft/cold: {model: base/tiny, examples: examples/cold, steps: 40, batch: 4, learning-rate: 3.0e-3, log-every: 4}
  responses/cold: {problems: problems/train, model: sft/cold, attempts: 6, max-tokens: 32}
  grades/cold: {responses: responses/cold, schemes: schemes/train, grader: api/referee}
  grader/pair: {judges: [api/referee, api/referee], prompt: grade-strict}
  grades/jury: {responses: responses/cold, schemes: schemes/train, grader: grader/pair}
  overlaps/cold: {problems: [problems/train], against: [problems/bench]}
  grpo/cold:
    model: sft/cold
    problems: problems/train
    schemes: schemes/train
    grader: api/referee
    rewards: {grade: 1, format: 0.1}
    unscored: drop
    group: 2
    problems-per-step: 4
    steps: 16
    iterations: 2
    max-tokens: 24
    learning-rate: 1.0e-3
  scores/cold: {grades: [grades/cold], measures: [avg-at-k, full-mark-rate, format-rate]}
"""


class Project:
    """A copy of the pipeline with one configuration. Every run is the real command line in a process of its own."""

    def __init__(self, folder: Path, config: str | None = None, overlay: str | None = None):
        self.folder, self.results = folder, folder / "results"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "Snakefile", folder)
        shutil.copytree(ROOT / "workflow", folder / "workflow")
        shutil.copytree(ROOT / "data", folder / "data")
        self.config = folder / "config.yaml"
        self.config.write_text(config or (ROOT / "config.yaml").read_text(encoding="utf-8"), encoding="utf-8")
        self.overlay = ("--configfile", overlay) if overlay else ()

    # ------------------------------------------------------------------------------------------------------- running

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess:
        """A command in this project's folder, to its end."""
        return subprocess.run(
            [str(part) for part in command],
            cwd=self.folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def snakemake(self, *arguments: str, profile: tuple = LOCAL, **environment: str) -> subprocess.CompletedProcess:
        return self.run(*self.snakemake_command(*arguments, profile=profile), **environment)

    def snakemake_command(self, *arguments: str, profile: tuple = LOCAL) -> list[str]:
        return [sys.executable, "-m", "snakemake", *arguments, *profile, *self.overlay]

    def made(self, *arguments: str, profile: tuple = LOCAL, **environment: str) -> list[str]:
        """Run Snakemake to a good end; the artifacts whose jobs ran."""
        done = self.snakemake(*arguments, profile=profile, **environment)
        assert done.returncode == 0, done.stdout
        return _outputs(done.stdout)

    def planned(self, *arguments: str, **environment: str) -> set[str]:
        """The artifacts that a dry run says would be made."""
        return set(self.made(*arguments, "-n", **environment))

    def job(self, name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        """One artifact without Snakemake."""
        return self.run(*self.job_command(name, *arguments), **environment)

    def job_command(self, name: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", f"proofmill.{kinds.kind_of(name)}", name, *self.overlay, *arguments]

    # ------------------------------------------------------------------------------------------------------- reading

    @property
    def book(self) -> recipes.Book:
        """The configuration as it stands now, expanded."""
        return recipes.expand(recipes.read(self.config, *(self.folder / path for path in self.overlay[1:])))

    def with_descendants(self, *names: str) -> set[str]:
        """These artifacts and all that are made from them, at any distance, of the recipes that contain them."""
        book = self.book
        return {n for n in book.entries if n in names or set(names) & set(kinds.ancestors(book.entries, n))}

    def table(self, name: str) -> Table:
        return Table(name, self.results)

    def frame(self, name: str) -> pl.DataFrame:
        return self.table(name).scan().collect()

    def journal(self, name: str) -> list[str]:
        """The keys of an artifact's journal."""
        return journals.frame(self.table(name).calls)["key"].to_list()

    def edit(self, old: str, new: str) -> None:
        """Change one place of the configuration, as with an editor."""
        text = self.config.read_text(encoding="utf-8")
        assert old in text
        self.config.write_text(text.replace(old, new, 1), encoding="utf-8")

    def forget(self, name: str) -> None:
        """As if this artifact had never been asked for: no table, no weights, no kept copy, no journal, no checkpoint."""
        table = self.table(name)
        table.path.unlink(missing_ok=True)
        for folder in (table.folder, table.calls, table.scratch, self.results / "kept" / name):
            shutil.rmtree(folder, ignore_errors=True)


def copy_of(project: Project, folder: Path) -> Project:
    """A second project in the same state, times of the files included."""
    shutil.copytree(project.folder, folder, symlinks=True)
    twin = object.__new__(Project)
    twin.folder, twin.results, twin.config = folder, folder / "results", folder / "config.yaml"
    twin.overlay = project.overlay
    return twin


def _outputs(log: str) -> list[str]:
    """Artifacts in the `output:` lines of what Snakemake says of its jobs."""
    lines = [line.strip() for line in log.splitlines() if line.strip().startswith("output: results/")]
    return [line.split()[1].rstrip(",").removeprefix("results/").removesuffix(".parquet") for line in lines]


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
