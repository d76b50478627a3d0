"""Ratios, clip shares, entropy and divergence over the trained tokens of an optimizer step, on all devices.

Differences from TRL: values are those of the step's tokens. TRL averages the means of micro-batches.
"""

import math
from typing import Any

import torch

SUMS = ("tokens", "ratio", "ratio^2", "entropy", "low", "high", "kl", "teacher")


def summarize(
    trained: torch.Tensor,
    ratios: torch.Tensor,
    entropies: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    kl: torch.Tensor | None,
    gaps: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return a micro-batch's SUMS over trained tokens, the largest ratio, and the extreme clip shares of its rollouts.

    `low` and `high` say which tokens are clipped, `kl` and `gaps` have the divergences from reference and teacher. Flat tokens have no rollouts, and so no extreme shares (NaN).
    """
    per_token = [torch.ones_like(ratios), ratios, ratios**2, entropies, low, high]
    per_token += [torch.zeros_like(ratios) if values is None else values for values in (kl, gaps)]
    masked = torch.where(trained, torch.stack([values.to(ratios.dtype) for values in per_token]), 0.0)
    extremes = ratios.new_tensor([0.0, math.nan, math.nan])
    if ratios.numel():
        extremes[0] = masked[1].max()
    if ratios.dim() == 2 and len(ratios):
        tokens_N, low_N, high_N = (masked[SUMS.index(name)].sum(dim=1) for name in ("tokens", "low", "high"))
        extremes[1] = torch.where(tokens_N > 0, low_N / tokens_N, math.inf).min()
        extremes[2] = torch.where(tokens_N > 0, high_N / tokens_N, -math.inf).max()
    return torch.cat([masked.flatten(1).sum(dim=1), extremes])


class TokenStatistics:
    """Statistics of a step's micro-batches."""

    def __init__(self) -> None:
        self.micro_batches: list[torch.Tensor] = []

    def add(self, sums: torch.Tensor) -> None:
        """Add what `summarize` returned for a micro-batch."""
        self.micro_batches.append(sums)

    def finish(self, accelerator: Any, kl: bool = False, teacher: bool = False) -> dict[str, float]:
        """Return the metrics of the step over all devices, and start the next step; empty if no token was trained on."""
        gathered = accelerator.gather(torch.stack(self.micro_batches)).cpu()
        self.micro_batches.clear()
        sums = dict(zip(SUMS, gathered[:, : len(SUMS)].double().sum(dim=0).tolist(), strict=True))
        largest, low, high = gathered[:, len(SUMS) :].unbind(dim=1)
        if not (tokens := sums["tokens"]):
            return {}
        metrics = {
            "kl": sums["kl"] / tokens if kl else math.nan,
            "teacher/kl": sums["teacher"] / tokens if teacher else math.nan,
            "entropy": sums["entropy"] / tokens,
            "clip_ratio/low_mean": sums["low"] / tokens,
            "clip_ratio/high_mean": sums["high"] / tokens,
            "clip_ratio/region_mean": (sums["low"] + sums["high"]) / tokens,
            "clip_ratio/low_min": low.min().item(),
            "clip_ratio/high_max": high.max().item(),
            "ratio/mean": sums["ratio"] / tokens,
            "ratio/max": largest.max().item(),
            # (sum r)^2 / (n sum r^2): 1 on policy, near 0 if few tokens have all the weight
            "ratio/effective-share": sums["ratio"] ** 2 / max(tokens * sums["ratio^2"], 1e-12),
        }
        return {name: value for name, value in metrics.items() if not math.isnan(value)}
