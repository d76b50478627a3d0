"""Idle groups: groups of rollouts without a learning signal, because their rewards are equal or too few are scored.

From: dynamic sampling (DAPO, Yu et al. 2025, arXiv 2503.14476, section 3.2): further problems are sampled until every
group of the batch has a signal.

Differences from the original:
1. The rounds of sampling are bounded. Groups that stay idle are left out of the loss and of its denominators.
2. Metrics of a step describe its first round alone: they stay those of the problems as drawn.
3. Every group stays in the rollout log, with its `use`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from proofmill.training.rollout_rewards import EQUAL

TRAINED, IDLE, SPARE = "trained", "idle", "spare"  # uses of a group


def find_live(totals_PG: np.ndarray) -> np.ndarray:
    """Return which groups P have a learning signal: two scored attempts (NaN is unscored) and different totals."""
    scored_PG = ~np.isnan(totals_PG)
    spread_P = np.where(scored_PG, totals_PG, -np.inf).max(axis=1) - np.where(scored_PG, totals_PG, np.inf).min(axis=1)
    return np.asarray((scored_PG.sum(axis=1) >= 2) & (spread_P >= EQUAL))


def name_uses(live_P: np.ndarray, needed: int) -> list[str]:
    """Return the use of each group of a round in which the first `needed` groups with a signal are trained on."""
    rank_P = np.cumsum(live_P)
    return [(TRAINED if rank <= needed else SPARE) if live else IDLE for live, rank in zip(live_P, rank_P, strict=True)]


def rows_of(outputs: Mapping[str, torch.Tensor], which: Sequence[int]) -> Iterator[dict[str, torch.Tensor]]:
    """Yield rows of a rollout batch without padding, on the CPU."""
    for row in which:
        lengths = {side: int(outputs[f"{side}_lengths"][row]) for side in ("prompt", "completion")}
        yield {
            name: (value[row] if value.dim() == 1 else _trim(name, value[row], lengths)).cpu()
            for name, value in outputs.items()
            if value.dim()
        }


def put(
    outputs: Mapping[str, torch.Tensor], rows: Mapping[int, Mapping[str, torch.Tensor]], pad: int
) -> dict[str, Any]:
    """Return a rollout batch with some of its rows replaced, padded to the longest: prompts on the left."""
    result = dict(outputs)
    for name, value in outputs.items():
        if not value.dim():
            continue
        if value.dim() == 2:
            width = max(value.shape[1], *(len(row[name]) for row in rows.values()))
            filler = pad if name.endswith("_ids") else 0
            missing = (width - value.shape[1], 0) if name.startswith("prompt") else (0, width - value.shape[1])
            value = torch.nn.functional.pad(value, missing, value=filler)
        result[name] = value = value.clone()
        for place, row in rows.items():
            if value.dim() == 1:
                value[place] = row[name].to(value)
            else:
                new = row[name].to(value)
                value[place] = pad if name.endswith("_ids") else 0
                start = value.shape[1] - len(new) if name.startswith("prompt") else 0
                value[place, start : start + len(new)] = new
    return result


def _trim(name: str, row: torch.Tensor, lengths: Mapping[str, int]) -> torch.Tensor:
    return row[len(row) - lengths["prompt"] :] if name.startswith("prompt") else row[: lengths["completion"]]
