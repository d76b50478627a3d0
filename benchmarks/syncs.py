"""Measure the cost of surviving power cuts: the same work with our syncs and without them, in turns.

    python benchmarks/syncs.py

The work is: a journal that takes 20,000 outputs of 1 kB; a stage that calls a judge for 200 threads, with the tables
before and after it; a training of 40 steps with a checkpoint every four. Each number is the best of five. Without
syncs, `runtime/durable.py` waits for nothing; the journal's own sync, once a second, stays on. Then a checkpoint of 1
GB in four files is synced, digested and checked.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/fixtures"))

from mill import SMALL, Mill
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelOutput
from proofmill.runtime import durable
from proofmill.training import checkpoints

TRIALS = 5
STAGES = {
    "problems/p": {"source": "arithmetic-threads", "rows": 200, "keep": ["has-statement"]},
    "labels/l": {"problems": "problems/p", "model": "api/referee"},
    "problems/q": {"source": "problems/p", "labels": "labels/l", "keep": ["labeled"]},
}
TRAINING = {**SMALL, "sft/cold": {**SMALL["sft/cold"], "steps": 40}}


def journal(folder: Path) -> None:
    with Journal(folder / "calls") as opened:
        for number in range(20_000):
            opened.add(SimpleNamespace(key=f"{number:0>32}"), ModelOutput("x" * 1000, "end"))


def stages(folder: Path) -> None:
    Mill(folder, **STAGES).make(*STAGES)


def training(results: Path) -> Callable[[Path], None]:
    """Return a function that trains in a folder with finished parents, each time with another seed."""
    Mill(results, **TRAINING).make("problems/train", "base/tiny", "examples/cold")
    seeds = iter(range(1, 100))

    def trained(_: Path) -> None:
        seed = next(seeds)
        Mill(results, **TRAINING, **{f"sft/{seed}": {**TRAINING["sft/cold"], "seed": seed}}).make(f"sft/{seed}")

    return trained


def seconds(work: Callable[[Path], None]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        work(Path(folder))
        return time.perf_counter() - start


def main() -> None:
    import os

    os.environ["PROOFMILL_SAVE_STEPS"] = "4"
    sync = durable.sync
    with tempfile.TemporaryDirectory() as results:
        for name, work in {"journal": journal, "stages": stages, "training": training(Path(results))}.items():
            best = {True: 1e9, False: 1e9}
            for trial in range(2 * TRIALS):
                durable.sync = sync if trial % 2 else lambda path: None
                best[bool(trial % 2)] = min(best[bool(trial % 2)], seconds(work))
            print(
                f"{name}: {best[False]:.2f} s without syncs, {best[True]:.2f} s with them: {best[True] / best[False]:.2f}"
            )
        durable.sync = sync
        folder = Path(results) / "checkpoints/checkpoint-1"
        folder.mkdir(parents=True)
        for part in range(4):
            (folder / f"{part}.bin").write_bytes(os.urandom(2**28))
        start = time.perf_counter()
        durable.sync_tree(folder)
        synced = time.perf_counter()
        checkpoints.seal(folder, {})
        sealed = time.perf_counter()
        assert checkpoints.unseal(folder) == {}
        took = synced - start, sealed - synced, time.perf_counter() - sealed
        print("1 GB: sync {:.1f} s, digests {:.1f} s, check {:.1f} s".format(*took))


if __name__ == "__main__":
    main()
