"""Whole runs after a cut of the power: a recorded run is cut at moments drawn, and finished by the same command.

    python benchmarks/power_cuts.py 10

The recipe has every kind of artifact once (tests/fixtures/project.py). A cut leaves of its results what the disk may
have (tests/fixtures/power_cut.py). Printed of each: when it was, how many tables were there, and whether all tables and
paid answers are those of the unbroken run afterwards. It exits with 1 where one is not.
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
        unbroken = Project(folder / "unbroken", CHAIN)
        unbroken.results.mkdir()
        command = ["env", "-C", str(unbroken.folder), *unbroken.snakemake_command("chain")]
        recording = recorded(command, unbroken.results, folder / "log", recorder(folder), **SETTINGS)
        names = [name for name in unbroken.book.recipes["chain"] if kind_of(name) in KINDS]
        print(f"{recording.end:,} events of an unbroken run, {len(names)} tables")
        draw = random.Random(seed)
        for cut in range(cuts):
            end = 1 + int((cut + draw.random()) / cuts * recording.end)
            project = Project(folder / "cut", CHAIN)
            recording.cut(end, draw, project.results)
            there = sum(project.table(name).path.exists() for name in names)
            done = project.snakemake("chain", **SETTINGS)
            wrong = [name for name in names if not same(unbroken, project, name)] if done.returncode == 0 else names
            traces = done.stdout.count("Traceback")
            again = project.planned("chain") if done.returncode == 0 else set()
            bad = bool(done.returncode or wrong or traces or again)
            print(
                f"after event {end:,}: {there} tables there; exit code {done.returncode}, {len(wrong)} tables differ, "
                f"{traces} tracebacks, {len(again)} made by one more run",
                flush=True,
            )
            if bad:
                failed += 1
                print(done.stdout[-3000:])
            shutil.rmtree(project.folder)
    sys.exit(bool(failed))


def same(unbroken: Project, project: Project, name: str) -> bool:
    """Whether table, weights and questions are those of the unbroken run."""
    ours, theirs = project.table(name), unbroken.table(name)
    asked = not theirs.calls.exists() or sorted(project.journal(name)) == sorted(unbroken.journal(name))
    return ours.content == theirs.content and asked


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
