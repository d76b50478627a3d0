"""Write an exported package: tasks, grader, rubrics, plugins, card, and a wheel of this project.

OUT/pyproject.toml, OUT/README.md         the package and its card: sources with licenses, fingerprints, how to install
OUT/wheels/proofmill-<version>.whl        this project, which is on no index under this version
OUT/<package>/tasks.jsonl, grader.json    read by graded_tasks.py
OUT/<package>/__init__.py                 what the framework looks for
"""

import base64
import hashlib
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import proofmill
from proofmill.artifacts.joins import schemes_of
from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.config import plugins
from proofmill.config.config import Config
from proofmill.config.identity import parts_of
from proofmill.graders.escalation import graders_of
from proofmill.graders.program_graders import PROGRAMS, gradable
from proofmill.planning.attack_plan import Aim, aim_at
from proofmill.prompts import templates
from proofmill.public_data.locations import local_path
from proofmill.publishing import cards
from proofmill.publishing.cards import TEMPLATES, TableCard
from proofmill.publishing.private import Private
from proofmill.schema import references
from proofmill.schema.entries.response_entries import Grades
from proofmill.schema.errors import SettingError
from proofmill.schema.ids import digest
from proofmill.schema.names import kind_of

COLUMNS = ("problem", "statement", "answer", "solution", "question_type", "level", "origin")  # of `problems`
SOURCE = Path(proofmill.__file__).parent


@dataclass(frozen=True)
class Framework:
    """A framework: its distribution, the text of a package's module for it, and how to run it."""

    requires: str
    module: Callable[[str], str]
    command: str  # how the card says to run it
    entry_points: str = ""


FRAMEWORKS = {
    "inspect": Framework(
        "inspect_ai>=0.3.245",
        lambda name: (
            f"""
from inspect_ai import Task, task

from proofmill.exports.for_inspect import build_task


@task
def {name}() -> Task:
    \"\"\"Return the task.\"\"\"
    return build_task(Path(__file__).parent)
"""
        ),
        "inspect eval {name}/{name} --model openai/gpt-5-mini",
        '\n[project.entry-points.inspect_ai]\n{name} = "{name}"\n',
    ),
    "verifiers": Framework(
        "verifiers>=0.4,<0.5",
        lambda name: (
            f"""
from proofmill.exports.for_verifiers import ProofTaskset


class Tasks(ProofTaskset):
    \"\"\"The tasks of this package.\"\"\"

    package = "{name}"


__all__ = ["Tasks"]
"""
        ),
        "vf-eval {name} --env.agent.harness.id null --env.agent.runtime.type subprocess --model MODEL -n 8",
    ),
    "trl": Framework(
        "trl>=1.16",
        lambda _: (
            """
from proofmill.exports.for_trl import build_dataset, build_reward

reward = build_reward(Path(__file__).parent)


def dataset():
    \"\"\"Return the tasks as a `datasets.Dataset`.\"\"\"
    return build_dataset(Path(__file__).parent)
"""
        ),
        'python -c "from {name} import dataset, reward; print(dataset())"',
    ),
    "nemo-gym": Framework(
        "nemo-gym>=0.4,<0.5",
        lambda name: (
            f"""
from proofmill.exports.for_nemo_gym import ProofServer


class Server(ProofServer):
    \"\"\"The resources server of this package.\"\"\"

    package = "{name}"


if __name__ == "__main__":
    Server.run_webserver()
"""
        ),
        "python -m {name}   # as the `entrypoint` of a resources server; {name}/data.jsonl has its rows",
    ),
}


def export(config: Config, name: str, to: str, out: Path, results: Path) -> str:
    """Write a package with the tasks and the grader of an entry of grpo, grades or scores; return the package's name.

    Raises SettingError for an entry that cannot be exported, TableError if a table is missing or out of date.
    """
    if kind_of(name) not in ("grpo", "grades", "scores"):
        raise SettingError(
            f"export {name}: expected an entry of grpo, grades or scores, which has problems and a grader."
        )
    if out.exists():
        raise SettingError(f"{out}: already exists; expected a new folder. Remove it, or choose another one.")
    aim = aim_at(config, name)
    needed = list(dict.fromkeys(table for pair in aim.tables for table in pair if table))
    States(config, results).require_done(needed, f"Nothing was written. Run: snakemake {' '.join(needed)}")
    package = Package(config, aim, to, results)
    contents = package.contents()
    for path, content in contents.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes(content)
    return package.name


@dataclass(frozen=True)
class Package:
    """The package of an aim: a grader, its rubric, and tables of problems with their schemes."""

    config: Config
    aim: Aim
    to: str
    results: Path

    @property
    def name(self) -> str:
        words = re.sub(r"\W+", "_", f"proofmill_{self.aim.name}").lower()
        return words.strip("_")  # pip refuses a name that ends in `_`

    def contents(self) -> dict[str, bytes]:
        """Return all files by path. Raises TableError if one has a key of this environment."""
        framework, private = FRAMEWORKS[self.to], Private(self.config.entries.values(), self.results)
        tasks = list(map(private.clean, self._tasks()))
        if not tasks:
            raise SettingError(
                f"export {self.aim.name}: no problem has what the grader needs; expected an answer, tests or a scheme."
            )
        files = self._own_files
        grader = {
            "grader": self.aim.grader,
            "prompt": self._locate(self.aim.prompt),
            "schemes": any(schemes for _, schemes in self.aim.tables),
            "plugins": [f"plugins/{path}" for path in plugins.list_files()[0] if f"plugins/{path}" in files],
            "declared": {
                other: self._locate_fields(json.loads(references.canonical(entry)))
                for other, entry in self._used.items()
            },
        }
        lines = "".join(f"{json.dumps(task, ensure_ascii=False)}\n" for task in tasks).encode()
        texts = {
            f"{self.name}/tasks.jsonl": lines,
            f"{self.name}/grader.json": json.dumps(grader, indent=1, ensure_ascii=False).encode(),
            f"{self.name}/__init__.py": f'"""{self.aim.name} of proofmill."""\n\nfrom pathlib import Path\n{framework.module(self.name)}'.encode(),
            **{f"{self.name}/{path}": file.read_bytes() for path, file in files.items()},
            "pyproject.toml": self._project(framework).encode(),
            "README.md": private.clean(self._card(framework, len(tasks), digest(lines.decode(), grader))).encode(),
        }
        if self.to == "nemo-gym":
            rows = ({"responses_create_params": {"input": t["messages"]}, "problem": t["problem"]} for t in tasks)
            texts[f"{self.name}/data.jsonl"] = "".join(
                f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows
            ).encode()
        for path, content in texts.items():
            private.check(path, content)
        return {**texts, **build_wheel()}

    # --------------------------------------------------------------------------------------------------------- tasks

    def _tasks(self) -> Iterator[dict[str, Any]]:
        """Yield the problems that the grader can grade, each once, with the messages that a solver gets."""
        prompt, system = self._find_prompt()
        seen: set[str] = set()
        for problems, schemes in self.aim.tables:
            by_problem = schemes_of(lambda name: Table(name, self.results), schemes) if schemes else None
            for row in Table(problems, self.results).rows(*COLUMNS):
                if (
                    row["problem"] in seen
                    or row["question_type"] == "chat"
                    or not gradable(self.aim.grader, row, by_problem)
                ):
                    continue
                seen.add(row["problem"])
                content = templates.fill(prompt, {"statement": row["statement"]})
                yield {
                    **row,
                    "question_type": row["question_type"] or "proof",
                    "scheme": (by_problem or {}).get(row["problem"]),
                    "messages": [*system, {"role": "user", "content": content}],
                }

    def _find_prompt(self) -> tuple[str, list[dict[str, str]]]:
        """Return the prompt that a solver gets, and its system message, if any."""
        entry = self.config.entries[self.aim.name]
        if kind_of(self.aim.name) == "scores":
            entry = self.config.entries[entry.grades[0]]
        if isinstance(entry, Grades):
            entry = self.config.entries[entry.responses]
        system = getattr(entry, "system", None)
        return entry.prompt or "solve-any", [{"role": "system", "content": templates.plain(system)}] if system else []

    # -------------------------------------------------------------------------------------------------------- grader

    @cached_property
    def _used(self) -> dict[str, Any]:
        """The models and graders that the grader uses, by name. Raises SettingError for one that cannot be exported."""
        used = references.list_used(Grades("", grader=self.aim.grader), self.config.declared)
        for name, entry in used.items():
            if getattr(entry, "weights", None):
                raise SettingError(
                    f"export {self.aim.name}: {name} has the weights of {entry.weights}, which a package cannot contain; expected a "
                    "judge with an `id`. Serve the weights, and declare a judge with that id."
                )
        return used

    @cached_property
    def _compares_answers(self) -> bool:
        """True if the grader compares final answers as mathematics. Raises SettingError if the framework excludes that."""
        graders = graders_of(self.aim.grader, self.aim.prompt, self.config.declared)
        reads = {PROGRAMS[judge].reads for grader in graders for judge in grader.judges if judge in PROGRAMS}
        compares = bool(reads & {"strict", "flexible"})
        if compares and self.to == "nemo-gym":
            raise SettingError(
                f"export {self.aim.name}: {self.aim.grader} compares final answers with antlr4-python3-runtime 4.13, and NeMo-Gym needs "
                "4.9 (omegaconf 2.3); expected a grader without final answers, or another framework."
            )
        return compares

    @cached_property
    def _own_files(self) -> dict[str, Path]:
        """The user's own rubrics and plugins, by their paths in the package."""
        named = [self.aim.prompt, *(getattr(entry, "prompt", None) for entry in self._used.values())]
        own = {name: local_path(name) for name in named if name and templates.is_path(name)}
        if published := [n for n in named if n and not templates.is_path(n) and templates.prompt(n).address]:
            raise SettingError(
                f"export {self.aim.name}: the text of `{published[0]}` is published elsewhere and not copied; expected a rubric of "
                "this project or of your own. Set another one."
            )
        files = {str(self._locate(name)): path for name, path in own.items()}
        if parts_of(Grades("", grader=self.aim.grader), self.config.declared):
            files |= {f"plugins/{path}": file for path, file in plugins.list_files()[1].items()}
        return files

    def _locate(self, prompt: str | None) -> str | None:
        """Return a rubric's name, or its path in the package."""
        if prompt is None or not templates.is_path(prompt):
            return prompt
        return f"prompts/{digest(prompt)[:8]}-{Path(prompt).name}"

    def _locate_fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        prompt = fields.get("prompt")
        return {**fields, "prompt": self._locate(prompt)} if prompt else fields

    # ---------------------------------------------------------------------------------------------------------- files

    def _project(self, framework: Framework) -> str:
        """Return pyproject.toml."""
        extra = "[verifier]" if self._compares_answers else ""
        requires = json.dumps([f"proofmill{extra}=={proofmill.__version__}", framework.requires])
        return (
            '[build-system]\nrequires = ["setuptools>=77"]\nbuild-backend = "setuptools.build_meta"\n\n'
            f'[project]\nname = "{self.name.replace("_", "-")}"\nversion = "0.1.0"\nreadme = "README.md"\n'
            f"dependencies = {requires}\n{framework.entry_points.replace('{name}', self.name)}\n"
            f'[tool.setuptools]\npackages = ["{self.name}"]\n\n[tool.setuptools.package-data]\n{self.name} = ["**/*"]\n'
        )

    def _card(self, framework: Framework, tasks: int, fingerprint: str) -> str:
        """Return the card."""
        names = dict.fromkeys(name for pair in self.aim.tables for name in pair if name)
        every = dict.fromkeys(o for name in names for o in (name, *references.ancestors(self.config.entries, name)))
        tables = [Table(name, self.results) for name in every if Table(name, self.results).path.exists()]
        origins = list(cards.origins_of(TableCard(table.name, table.stamp, table.height) for table in tables))
        judges = [name for name, entry in self._used.items() if kind_of(name) == "api" and not entry.program]
        return TEMPLATES.get_template("export.md").render(
            name=self.name,
            entry=self.aim.name,
            to=self.to,
            tasks=tasks,
            tables=list(names),
            grader=self.aim.grader,
            fingerprint=fingerprint,
            origins=origins or ["The stamps name no source."],
            judges=judges,
            command=framework.command.replace("{name}", self.name),
            version=proofmill.__version__,
        )


# ------------------------------------------------------------------------------------------------------------ the wheel


def build_wheel() -> dict[str, bytes]:
    """Return a wheel of the code that runs, by its path: installed or in a clone, without a build."""
    info = f"proofmill-{proofmill.__version__}.dist-info"
    about = metadata.distribution("proofmill").read_text("METADATA") or ""
    files = {
        f"proofmill/{path.relative_to(SOURCE).as_posix()}": path.read_bytes()
        for path in sorted(SOURCE.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.relative_to(SOURCE).parts[0] != "project"
    }
    files[f"{info}/METADATA"] = about.encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: proofmill\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = [f"{path},sha256={_hash(content)},{len(content)}" for path, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]).encode()
    packed = _zip(files)
    return {f"wheels/proofmill-{proofmill.__version__}-py3-none-any.whl": packed}


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _zip(files: dict[str, bytes]) -> bytes:
    """Return a zip archive whose bytes depend on the files alone."""
    from io import BytesIO

    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
