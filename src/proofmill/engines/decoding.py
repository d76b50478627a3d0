"""Generate token by token with a transformers model; rows that have ended leave the batch.

`generate(custom_generate=decode)` prepares prompts, cache and sampling settings for any causal model of transformers,
and calls `decode` instead of its own loop. From the same random state both draw the same tokens, as long as their
probabilities agree up to rounding. `torch.multinomial` divides the probabilities by exponential noise and takes the
largest. So the noise is drawn for all rows here too, and used for the open ones.

Differences from transformers' `_sample`:
1. A row that has ended leaves the batch, and its keys and values leave the cache. There, the batch keeps its size to
   the last token. Caches without keys and values (linear attention) keep all rows.
2. Adjacent copies of a prompt, as in a group of attempts, are read once. If dropout is active while sampling (an
   adapter's), the copies share its noise for the prompt.
3. On request, the log-probabilities of the chosen tokens are kept, not the logits of all tokens.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

Draw = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # scores of rows, indices of these rows -> their tokens
Ended = Callable[[int, list[int]], None]  # index of a row, tokens that follow its prompt


def sample_with_ours(model: Any, **options: Any) -> None:
    """Make a model's `generate` sample with `decode` and these options, also when a wrapper (an adapter, TRL) calls it."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    base.generate = partial(base.generate, custom_generate=partial(decode, **options))


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
    """Return the prompts with their continuations, padded on the right.

    `draw` chooses the tokens, by default as `generate` would. For each token of the longest row, `logprobs` gets the
    log-probabilities (N,) of the chosen tokens: the model's own at temperature `heat`, before top-k, top-p or min-p; 0
    for rows that ended. (`generate` would take an argument called `temperature` from its own configuration.)
    `ended` is called at once for each row that meets a stopping criterion.
    """
    count, width = input_ids.shape
    draw = draw or (Multinomial(count) if generation_config.do_sample else greedy)
    pad = 0 if generation_config._pad_token_tensor is None else int(generation_config._pad_token_tensor)
    written = input_ids.new_full((count, generation_config.max_length), pad)
    written[:, :width] = input_ids
    rows, ids, last = torch.arange(count, device=input_ids.device), written.clone(), generation_config.max_length - 1
    on = torch.ones_like(rows, dtype=torch.bool)
    leave = can_drop_rows(kwargs)
    logits, kwargs = _prefill(model, input_ids, kwargs) if leave else _pass(model, input_ids, kwargs, first=True)
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
            rows, ids, on, kwargs = rows[going], ids[going], on[going], _select_rows(kwargs, going)
        logits, kwargs = _pass(model, ids[:, : end + 1], kwargs)
    return written[:, : end + 1]


def greedy(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the most likely token of each row."""
    return scores.argmax(dim=-1)


class Multinomial:
    """Sampling from the softmax of the scores, with the same noise as `torch.multinomial` for a batch of `count`."""

    def __init__(self, count: int):
        self.count = count

    def __call__(self, scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        noise = scores.new_empty(self.count, scores.shape[-1]).exponential_()
        return (scores.softmax(dim=-1) / noise[rows]).argmax(dim=-1)


class SeededNoise:
    """Sampling as an arg-max: Gumbel noise on the logits of each row, from the row's own generator.

    The arg-max of logits/T + Gumbel noise is distributed as a draw from softmax(logits/T) (Gumbel 1954; Maddison et al.
    2014, "A* Sampling"). The samples of a row have one seed. Tokens are excluded in vLLM's order: first by `min_p`,
    then all but `top_k`, then those outside the nucleus of the rest.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        temperature: float,
        top_p: float = 1.0,
        top_k: int | None = None,
        min_p: float | None = None,
    ):
        from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.temperature = temperature
        self.warpers = [MinPLogitsWarper(min_p)] if min_p else []
        self.warpers += [TopKLogitsWarper(top_k)] if top_k else []
        self.warpers += [TopPLogitsWarper(top_p)] if top_p < 1 else []

    def __call__(self, scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return the tokens of these rows (`Draw`)."""
        scores = scores / self.temperature
        for warper in self.warpers:
            scores = warper(None, scores)
        exponential = torch.empty(scores.shape)
        for index, row in enumerate(rows.tolist()):
            exponential[index].exponential_(generator=self.generators[row])
        return (scores - exponential.log_().to(scores.device)).argmax(dim=-1)


def can_drop_rows(kwargs: dict[str, Any]) -> bool:
    """Return whether rows can be removed from the cache."""
    layers = getattr(kwargs.get("past_key_values"), "layers", None) or [None]
    return {*map(type, layers)} <= {DynamicLayer, DynamicSlidingWindowLayer}


def _select_rows(kwargs: dict[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    """Return the inputs of a pass for some of the rows; the cache drops the others."""
    kwargs["past_key_values"].batch_select_indices(rows)
    return {name: value[rows] if isinstance(value, torch.Tensor) else value for name, value in kwargs.items()}


def _prefill(model: Any, ids: torch.Tensor, kwargs: dict[str, Any]) -> tuple[torch.Tensor, dict[str, Any]]:
    """Run the first pass, with adjacent equal rows read once."""
    _, place, sizes = torch.cat([ids, kwargs["attention_mask"]], dim=1).unique_consecutive(
        dim=0, return_inverse=True, return_counts=True
    )
    first = sizes.cumsum(0) - sizes
    logits, kwargs = _pass(model, ids[first], _select_rows(kwargs, first), first=True)
    return logits[place], _select_rows(kwargs, place)


def _pass(
    model: Any, ids: torch.Tensor, kwargs: dict[str, Any], first: bool = False
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return the next-token logits of each row in float32, and the inputs of the next pass."""
    new = 1 if kwargs["use_cache"] and not first else None
    inputs = model.prepare_inputs_for_generation(ids, next_sequence_length=new, is_first_iteration=first, **kwargs)
    outputs = model(**inputs, return_dict=True)
    return outputs.logits[:, -1].float(), model._update_model_kwargs_for_generation(outputs, kwargs)
