"""Cut the power of complete runs: a recorded run is cut at random moments, and finished by the same command.

    python benchmarks/power_cuts.py 10

The recipe has every kind of artifact once (tests/fixtures/project.py). A cut leaves those results that a disk may have
(tests/fixtures/power_cut.py). For each cut the script prints its moment, the number of tables at that time, and whether
all tables and paid outputs equal those of the uninterrupted run. It exits with 1 if one does not.
"""

import random
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/fixtures"))

from power_cut import recorded, recorder  # noqa: E402
from project import CHAIN, Project  # noqa: E402
from proofmill.schema.kinds import KINDS  # noqa: E402
from proofmill.schema.names import kind_of  # noqa: E402

SETTINGS = {"PROOFMILL_SAVE_STEPS": "4", "HF_HUB_OFFLINE": "1"}


def main(cuts: int, seed: int = 25) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder, failed = Path(place), 0
        uninterrupted = Project(folder / "uninterrupted", CHAIN)
        uninterrupted.results.mkdir()
        command = ["env", "-C", str(uninterrupted.folder), *uninterrupted.snakemake_command("chain")]
        recording = recorded(command, uninterrupted.results, folder / "log", recorder(folder), **SETTINGS)
        names = [name for name in uninterrupted.config.recipes["chain"] if kind_of(name) in KINDS]
        print(f"{recording.end:,} events of an uninterrupted run, {len(names)} tables")
        draw = random.Random(seed)
        for cut in range(cuts):
            end = 1 + int((cut + draw.random()) / cuts * recording.end)
            project = Project(folder / "cut", CHAIN)
            recording.cut(end, draw, project.results)
            there = sum(project.table(name).path.exists() for name in names)
            done = project.snakemake("chain", **SETTINGS)
            wrong = (
                [name for name in names if not same(uninterrupted, project, name)] if done.returncode == 0 else names
            )
            traces = done.stdout.count("Traceback")
            again = project.planned("chain") if done.returncode == 0 else set()
            bad = bool(done.returncode or wrong or traces or again)
            print(
                f"after event {end:,}: {there} tables; exit code {done.returncode}, {len(wrong)} tables differ, "
                f"{traces} tracebacks, {len(again)} rebuilt by one more run",
                flush=True,
            )
            if bad:
                failed += 1
                print(done.stdout[-3000:])
            shutil.rmtree(project.folder)
    sys.exit(bool(failed))


def same(uninterrupted: Project, project: Project, name: str) -> bool:
    """Return whether table, weights and requests equal those of the uninterrupted run."""
    ours, theirs = project.table(name), uninterrupted.table(name)
    asked = not theirs.calls.exists() or sorted(project.journal(name)) == sorted(uninterrupted.journal(name))
    return ours.content == theirs.content and asked


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
