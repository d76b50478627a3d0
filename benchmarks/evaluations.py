"""Measure what held-out evaluations take next to their own rollouts, at the size of `nano`.

    python benchmarks/evaluations.py [--steps 16] [--every 8] [--rows 256]

One training evaluates on a held-out split. Its time is divided into that of the attempts at held-out problems, the rest
of the evaluations (prompts, grading, the interval, the log), and the training itself. The result is the rest as a share
of the training. The settings are those of benchmarks/training.py.
"""

import argparse
import os
import sys
import tempfile
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import training

from proofmill.artifacts import jobs
from proofmill.training import run
from proofmill.training.rollouts.held_out import HeldOut


class Watch:
    """A clock of calls, in wall seconds."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0

    def around(self, called: Any) -> Any:
        """Return a function that calls another and adds its time."""

        def timed(*values: Any, **named: Any) -> Any:
            start = time.monotonic()
            try:
                return called(*values, **named)
            finally:
                self.seconds, self.calls = self.seconds + time.monotonic() - start, self.calls + 1

        return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--every", type=int, default=8, help="steps between two evaluations")
    parser.add_argument("--rows", type=int, default=256, help="held-out problems, one attempt each")
    options = parser.parse_args()
    training.ENTRIES["problems/held-out"] = {"source": "arithmetic", "split": "dev", "rows": options.rows}
    training.ENTRIES["grpo/timed"] |= {"evaluate": "problems/held-out", "evaluate-every": options.every}
    whole, evaluations, attempts = Watch(), Watch(), Watch()
    evaluate = HeldOut.evaluate

    def watched(self: HeldOut, step: int, sample: Any, describe: Any) -> Any:
        return evaluate(self, step, attempts.around(sample), describe)

    HeldOut.evaluate, run.train = evaluations.around(watched), whole.around(run.train)  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        training.configure(training.data())
        for name in training.data():
            training.make(name)
        training.configure(
            {**training.data(), "grpo/timed": {**training.ENTRIES["grpo/timed"], "steps": options.steps}}
        )
        sys.argv = ["grpo.py", "grpo/timed"]
        import proofmill.grpo

        jobs.run(proofmill.grpo.main)
        os.chdir("/")
    rest, trained = evaluations.seconds - attempts.seconds, whole.seconds - evaluations.seconds
    print(
        f"{options.steps} steps in {trained:.1f} s; {evaluations.calls} evaluations of {options.rows} attempts: attempts "
        f"{attempts.seconds:.1f} s, the rest {rest:.2f} s, {rest / trained:.1%} of the training"
    )


if __name__ == "__main__":
    main()
