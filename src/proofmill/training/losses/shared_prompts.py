"""Log-probabilities of completions whose prompts are read once, however many completions a prompt has.

The rollouts of a group have one prompt. A pass over whole rows computes it again for each of them. Here the different
prompts are passed first. Their keys and values are copied to all completions, and the gradients of the copies add up.
Log-probabilities and gradients are the same up to rounding.

From: Prefix Grouper (Liu et al. 2025, arXiv 2506.05433). There, a model's attention is changed; here, its cache of keys
and values is enough.
"""

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

WORTH = 0.75  # maximum share of the tokens of whole rows: two passes have costs of their own


def can_share(model: Any) -> bool:
    """Return whether a model's prompts can be shared: it caches keys and values of all tokens, and recomputes none.

    Dropout would be the same for all copies of a prompt, so a model with dropout is passed as before.
    """
    layers = {type(layer) for layer in DynamicCache(config=model.config).layers}
    dropout = any(isinstance(module, torch.nn.Dropout) and module.p for module in model.modules())
    return layers == {DynamicLayer} and not model.is_gradient_checkpointing and not dropout


def are_worth_it(ids: torch.Tensor, attention: torch.Tensor, count: int) -> bool:
    """Return whether reading prompts once saves enough; the last `count` columns of `ids` (N, L) are completions."""
    rows, width = len(ids), ids.size(1) - count - 1
    if width < 1:
        return False
    first, _ = _prompts(ids, attention, width)
    return len(first) * width + rows * (count + 1) <= WORTH * rows * ids.size(1)


def score(model: Any, ids: torch.Tensor, attention: torch.Tensor, count: int) -> Any:
    """Return TRL's fused output for the last `count` columns of `ids` (N, L)."""
    width = ids.size(1) - count - 1  # the last token of a prompt predicts the first one of each completion
    first, place = _prompts(ids, attention, width)
    backbone = (model.get_base_model() if hasattr(model, "get_base_model") else model).base_model
    cache = backbone(ids[first, :width], attention_mask=attention[first, :width], use_cache=True).past_key_values
    cache.batch_select_indices(place)
    rest = ids[:, width:]
    labels = rest.masked_fill(attention[:, width:] == 0, -100)
    labels[:, 0] = -100
    return model(rest, attention_mask=attention, past_key_values=cache, labels=labels, fused_lm_head=True)


def _prompts(ids: torch.Tensor, attention: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a row of each different prompt (U,) and the prompt of each row (N,); padding belongs to a prompt."""
    _, place = torch.cat([ids[:, :width], attention[:, :width]], dim=1).unique(dim=0, return_inverse=True)
    rows = torch.arange(len(ids), device=ids.device)
    return rows.new_zeros(int(place.max()) + 1).scatter(0, place, rows), place
