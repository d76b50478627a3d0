"""Check that an engine samples with the weights that are trained, by the tokens that it has just sampled.

Right after a hand-over both have the same weights, so their log-probabilities of these tokens differ by rounding only.
If a part of the weights was not sent, or the engine samples at another temperature, all ratios of the loss are wrong and
the training still runs. The check needs no further model pass: the loss computes both numbers anyway.
"""

from collections.abc import Callable

import torch

from proofmill.schema.errors import ServiceError

# Nats a token, mean over a rollout. vLLM in bfloat16 differs by 0.002 to 0.004 (docs/training.md).
MOST = 0.3
SHORTEST = 8  # tokens of a rollout that is checked; a single token may differ more


def require_same(
    name: str, ours_NT: torch.Tensor, engine_NT: torch.Tensor, tokens_NT: torch.Tensor, read: Callable[[int], str]
) -> None:
    """Raise ServiceError if the log-probabilities of a rollout's tokens differ; `read` returns the prompt of a row."""
    known_NT = tokens_NT & ~engine_NT.isnan()  # vLLM may give no log-probability of a single token
    counts_N, known_N = tokens_NT.sum(dim=1), known_NT.sum(dim=1)
    ours_N, engine_N, apart_N = (
        torch.where(known_NT, values, 0.0).sum(dim=1) / known_N
        for values in (ours_NT, engine_NT, (ours_NT - engine_NT).abs())
    )
    apart_N = torch.where(2 * known_N < counts_N, torch.nan, apart_N)
    apart_N = torch.where(counts_N >= SHORTEST, apart_N, 0.0)
    if not len(apart_N) or apart_N.max() <= MOST:  # NaN is a fault
        return
    row = int(apart_N.nan_to_num(torch.inf).argmax())
    raise ServiceError(
        f"{name}: right after the engine has received the weights, its tokens of a rollout have a mean log-probability of "
        f"{engine_N[row]:.3f}, and of {ours_N[row]:.3f} by the trained weights (mean difference {apart_N[row]:.3f}; prompt: "
        f"`{read(row)[-80:]}`); expected at most {MOST}. The engine samples with other weights or at another temperature: "
        "restart it (docs/training.md has the --logprobs-mode of a server) and rerun the same command to resume, or sample with "
        "`engine: transformers`."
    )
