"""A process that samples rollouts with transformers while a training runs, with the latest weights for each batch."""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.utils import logging

from proofmill.calls import sampling
from proofmill.engines.decoding import SeededNoise, decode, greedy
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.sources import models
from proofmill.training.asynchronous.sampler import RolloutRequest, SampledRollout, Tell, derive_seed

Waiting = tuple[int, Sequence[int], int, float]  # group, prompt, place, temperature


@dataclass(frozen=True)
class Settings:
    """Settings of a sampling process; it samples at most `rows` rollouts at once."""

    folder: str
    rows: int
    threads: int
    seed: int
    pad: int
    ends: Sequence[int]
    max_tokens: int
    temperature: float
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float | None = None

    @classmethod
    def of(cls, entry: Grpo, folder: Path, threads: int, tokenizer: Any) -> "Settings":
        rows = entry.mini_batches * entry.problems_per_step * entry.group_size
        drawn = {name: getattr(entry, name) for name in ("max_tokens", "temperature", "top_p", "top_k", "min_p")}
        pad, ends = tokenizer.pad_token_id, sampling.ends(folder, tokenizer)
        return cls(str(folder), rows, threads, entry.seed, pad, ends, **drawn)


def serve(settings: Settings, shared: dict[str, torch.Tensor], step: Any, changes: Any, pipe: Any) -> None:
    """Sample the requests that arrive in `pipe` and send back each attempt, as long as the training runs."""
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # only the training handles them: it needs rollouts to finish its step
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_training, daemon=True).start()
    logging.disable_progress_bar()  # its lock between processes would survive a kill
    torch.set_num_threads(settings.threads)
    model = load_model(settings)
    weights, policy = dict(model.named_parameters()), -1
    waiting: deque[Waiting] = deque()
    while True:
        while not waiting or pipe.poll():
            requests: Sequence[RolloutRequest] = pipe.recv()
            for request in requests:
                heat = settings.temperature if request.temperature is None else request.temperature
                waiting.extend((request.group, request.prompt, place, heat) for place in request.places)
        if step[0] != policy or changes[0] % 2:
            policy = copy_weights(weights, shared, step, changes)
        alike = takewhile(lambda one: one[3] == waiting[0][3], islice(waiting, settings.rows))
        batch = [waiting.popleft() for _ in [*alike]]
        sample(model, settings, batch, policy, pipe.send)


def load_model(settings: Settings) -> Any:
    """Return the model without its own generation settings, which the log-probabilities do not include."""
    model = AutoModelForCausalLM.from_pretrained(settings.folder, **models.in_float32(Path(settings.folder))).eval()
    sampling.neutralize(model.generation_config)
    return model


def copy_weights(weights: dict[str, torch.Tensor], shared: dict[str, torch.Tensor], step: Any, changes: Any) -> int:
    """Copy the shared weights and return their step. Repeat the copy if they changed meanwhile."""
    while True:
        before = changes[0]
        if before % 2 == 0:
            policy = step[0]
            with torch.no_grad():
                for name, weight in shared.items():
                    weights[name].copy_(weight)
            if changes[0] == before:
                return policy
        time.sleep(0.001)


def sample(model: Any, settings: Settings, batch: Sequence[Waiting], policy: int, tell: Tell) -> None:
    """Sample an attempt for each prompt with the weights after step `policy`; pass each to `tell` as it ends."""
    width, heat = max(len(prompt) for _, prompt, _, _ in batch), batch[0][3]
    ids = torch.tensor([[settings.pad] * (width - len(prompt)) + [*prompt] for _, prompt, _, _ in batch])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for _, prompt, _, _ in batch])
    logprobs: list[torch.Tensor] = []
    open_rows = set(range(len(batch)))

    def on_end(row: int, written: list[int]) -> None:
        open_rows.discard(row)
        group, _, place, _ = batch[row]
        drawn = torch.stack([of_rows[row] for of_rows in logprobs[: len(written)]])
        tell(SampledRollout(group, place, policy, np.array(written, "i4"), drawn.numpy()))

    config = GenerationConfig(
        do_sample=True,
        temperature=heat or 1.0,
        top_p=settings.top_p,
        top_k=settings.top_k or 0,
        min_p=settings.min_p,
        max_new_tokens=settings.max_tokens,
        eos_token_id=[*settings.ends],
        pad_token_id=settings.pad,
    )
    noise = SeededNoise([derive_seed(settings.seed, group, place) for group, _, place, _ in batch], temperature=1)
    draw = noise if heat else greedy
    ours = partial(decode, draw=draw, ended=on_end, logprobs=logprobs, heat=heat or 1.0)
    with torch.inference_mode():
        written = model.generate(ids, attention_mask=mask, generation_config=config, custom_generate=ours)
    for row in sorted(open_rows):  # truncated
        on_end(row, written[row, width:].tolist())


def _end_with_training() -> None:
    parent = parent_process()
    assert parent is not None, "the training started this process"
    parent.join()
    os._exit(1)
