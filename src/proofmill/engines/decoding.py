"""One token at a time with a transformers model, as `generate` would draw it, for the rows that have not ended.

`generate(custom_generate=decode)` prepares prompts, cache and the way of sampling for any causal model of transformers,
and calls `decode` in the place of its own loop. From the same random state both draw the same tokens, as long as their
probabilities agree to rounding: `torch.multinomial` divides them by exponential noise and takes the largest, so that
the noise is drawn for all rows here too, and used for those that go on.

How we differ from transformers' `_sample`:
1. A row that has ended leaves the batch, and its keys and values the cache. There, a batch is as large at its last token
   as at its first. States that are no keys and values (linear attention) keep all rows.
2. Copies of a prompt that stand side by side, as in a group of attempts, are read once. Where dropout is active while
   sampling (an adapter's), they share its noise in what is read.
3. The log-probabilities of chosen tokens are kept, if they are asked for, and not the logits of all tokens.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

Draw = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # scores of rows, and which rows these are -> their tokens
Ended = Callable[[int, list[int]], None]  # a row, and the tokens that follow its prompt


def sample_with_ours(model: Any, ended: Ended | None = None) -> None:
    """Make a model's `generate` sample with `decode`, also where a wrapper (an adapter, TRL) calls it."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    base.generate = partial(base.generate, custom_generate=partial(decode, ended=ended))


def decode(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    draw: Draw | None = None,
    logprobs: list[torch.Tensor] | None = None,
    ended: Ended | None = None,
    heat: float = 1.0,
    **kwargs: Any,
) -> torch.Tensor:
    """The prompts with what follows them, padded on the right.

    `draw` chooses the tokens, by default as `generate` would. `logprobs` takes for each token of the longest row the
    log-probabilities N of the chosen tokens under the model itself at the temperature `heat`, before anything is left
    out; 0 for rows that ended. (`generate` would take an argument called `temperature` from its own configuration.)
    `ended` hears of each row that ends by itself, at once.
    """
    count, width = input_ids.shape
    draw = draw or (Multinomial(count) if generation_config.do_sample else likeliest)
    pad = 0 if generation_config._pad_token_tensor is None else int(generation_config._pad_token_tensor)
    written = input_ids.new_full((count, generation_config.max_length), pad)
    written[:, :width] = input_ids
    rows, ids, last = torch.arange(count, device=input_ids.device), written.clone(), generation_config.max_length - 1
    on = torch.ones_like(rows, dtype=torch.bool)
    leave = selectable(kwargs)
    logits, kwargs = _read(model, input_ids, kwargs) if leave else _pass(model, input_ids, kwargs, first=True)
    for end in range(width, last + 1):
        tokens = draw(logits_processor(ids[:, :end], logits.clone()), rows).masked_fill(~on, pad)
        ids[:, end] = written[rows, end] = tokens
        if logprobs is not None:
            chosen = (logits / heat).log_softmax(dim=-1).gather(1, tokens[:, None]).squeeze(1) * on
            logprobs.append(chosen.new_zeros(count).index_copy(0, rows, chosen))
        before, on = on, on & ~stopping_criteria(ids[:, : end + 1], None)
        if ended:
            for row in rows[before & ~on].tolist():
                ended(row, written[row, width : end + 1].tolist())
        if end == last or not on.any():
            break
        if leave and not on.all():
            going = on.nonzero().squeeze(1)
            rows, ids, on, kwargs = rows[going], ids[going], on[going], _selected(kwargs, going)
        logits, kwargs = _pass(model, ids[:, : end + 1], kwargs)
    return written[:, : end + 1]


def likeliest(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Greedy decoding."""
    return scores.argmax(dim=-1)


class Multinomial:
    """Draws from the softmax of the scores, by the very numbers that `torch.multinomial` uses for a batch of `count`."""

    def __init__(self, count: int):
        self.count = count

    def __call__(self, scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        noise = scores.new_empty(self.count, scores.shape[-1]).exponential_()
        return (scores.softmax(dim=-1) / noise[rows]).argmax(dim=-1)


def selectable(kwargs: dict[str, Any]) -> bool:
    """Whether rows can be taken out of what a pass needs."""
    layers = getattr(kwargs.get("past_key_values"), "layers", None) or [None]
    return {*map(type, layers)} <= {DynamicLayer, DynamicSlidingWindowLayer}


def _selected(kwargs: dict[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    """What a pass needs for some of the rows; the cache keeps no others."""
    kwargs["past_key_values"].batch_select_indices(rows)
    return {name: value[rows] if isinstance(value, torch.Tensor) else value for name, value in kwargs.items()}


def _read(model: Any, ids: torch.Tensor, kwargs: dict[str, Any]) -> tuple[torch.Tensor, dict[str, Any]]:
    """The first pass, over each of several equal neighbours once."""
    _, place, sizes = torch.cat([ids, kwargs["attention_mask"]], dim=1).unique_consecutive(
        dim=0, return_inverse=True, return_counts=True
    )
    first = sizes.cumsum(0) - sizes
    logits, kwargs = _pass(model, ids[first], _selected(kwargs, first), first=True)
    return logits[place], _selected(kwargs, place)


def _pass(
    model: Any, ids: torch.Tensor, kwargs: dict[str, Any], first: bool = False
) -> tuple[torch.Tensor, dict[str, Any]]:
    """The logits that follow each row, in float32, and what the next pass needs."""
    new = 1 if kwargs["use_cache"] and not first else None
    inputs = model.prepare_inputs_for_generation(ids, next_sequence_length=new, is_first_iteration=first, **kwargs)
    outputs = model(**inputs, return_dict=True)
    return outputs.logits[:, -1].float(), model._update_model_kwargs_for_generation(outputs, kwargs)
