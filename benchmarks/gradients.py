"""Compare gradients of every objective, estimator and option with the papers' formulas in float64.

    python benchmarks/gradients.py

The formulas are those of tests/training/test_losses.py, which are written rollout by rollout and share no code with the
losses. Each cell is the largest error over all options, on policy and stale, padded and packed, as a share of the
gradient's norm.
"""

import sys
from itertools import product
from pathlib import Path

import torch

from proofmill.training.losses.policy import Objective
from proofmill.training.losses.registry import ESTIMATORS, OBJECTIVES

sys.path.insert(0, str(Path(__file__).parent.parent / "tests/training"))
import test_losses


def largest_error(loss: str, objective: str, precision: torch.dtype) -> float:
    """Return the largest relative error of a gradient over all options."""
    errors = []
    for further, shift, flat in product(test_losses.OPTIONS, (0.0, 0.4), (False, True)):
        if "dual_clip" in further and objective in ("reinforce", "cispo"):
            continue
        kinds = Objective(low=0.2, high=0.3, entropy=0.0, loss=loss, objective=objective, **further)
        (_, found), (_, wanted) = test_losses.both_gradients(kinds, shift, flat, precision)
        ours, theirs = (torch.cat([part.double().flatten() for part in parts]) for parts in (found, wanted))
        errors.append(((ours - theirs).norm() / theirs.norm()).item())
    return max(errors)


def main() -> None:
    """Print a row for each objective and a column for each estimator."""
    print(f"| objective | {' | '.join(f'`{loss}`' for loss in ESTIMATORS)} |")
    print("|---" * (len(ESTIMATORS) + 1) + "|")
    for objective in OBJECTIVES:
        cells = []
        for loss in ESTIMATORS:
            double, single = (largest_error(loss, objective, kind) for kind in (torch.float64, torch.float32))
            cells.append(f"{double:.0e}, {single:.0e}")
        print(f"| `{objective}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
