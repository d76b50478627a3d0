"""Weights in this process: an artifact model served by transformers or by vLLM, without a server in between.

How we differ from calling the libraries directly:
1. A sample's randomness comes from its own question (Gumbel noise seeded by it), not from its place in a batch: a run
   that was killed and resumed samples what an unbroken run samples. On a CPU vLLM draws the same noise from the same
   seed, so that sampled texts agree between the two engines.
2. With transformers, questions are batched the same way whether or not some of them are answered already; vLLM is fed
   step by step, and each answer is journaled when it is finished, not when its batch is.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar

from proofmill.calls import Asking, Question
from proofmill.journal import Answer
from proofmill.tables import Table

BATCH = 256
FED = 1024  # requests that vLLM has at most at a time; filled up again at half of it, twice what runs at once
# On a CPU: a per-request seed together with a chunked prefill kills the engine, so prompts must fit one batch; the default
# share of memory is not to be had.
VLLM_ON_CPU = {
    "enforce_eager": True,
    "dtype": "float32",
    "gpu_memory_utilization": 0.1,
    "max_num_batched_tokens": 65536,
}
VLLM_ALWAYS = {"max_num_seqs": 256}


class _Local:
    """What the two ways of serving weights in this process share."""

    price: ClassVar[dict[str, float]] = {"input": 0.0, "output": 0.0}
    max_parked = 0.0

    def answer(self, questions: Iterator[Question], asking: Asking) -> None:
        for question, answer in self.answers(list(questions)):
            asking.take(question, answer)

    def read(self, answer: Answer) -> Answer:
        return answer

    def _named(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> list[dict[str, Any]] | None:
        """Tokens as text with their log-probabilities, where they were asked for."""
        if logprobs is None:
            return None
        return [{"token": self.tokenizer.decode([i]), "logprob": p} for i, p in zip(ids, logprobs, strict=False)]


class TransformersEngine(_Local):
    """Weights in this process through transformers."""

    def __init__(self, table: Table, threads: int = 1):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(threads)
        self.model, folder = table.model, table.weights()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self.opening = THOUGHT if opens_thought(self.tokenizer) else ""
        precision = "auto" if self.device == "cuda" else torch.float32  # bfloat16 is slower than float32 on a CPU
        self.network = AutoModelForCausalLM.from_pretrained(folder, dtype=precision).to(self.device).eval()
        self.context = self.network.config.max_position_embeddings

    def batches(self, questions: Iterable[Question]) -> Iterator[Sequence[Question]]:
        """Questions of one length together: less padding, and a batch ends when its longest answer does."""
        ordered = sorted(
            questions, key=lambda q: (q.temperature, q.max_tokens, sum(len(text) for _, text in q.messages), q.key)
        )
        for start in range(0, len(ordered), BATCH):
            yield ordered[start : start + BATCH]

    def answers(self, questions: Sequence[Question]) -> Iterator[tuple[Question, Answer]]:
        groups: dict[tuple, list[Question]] = {}
        for q in questions:
            groups.setdefault((q.temperature, q.top_p, q.max_tokens, q.logprobs), []).append(q)
        for sampling, group in groups.items():
            yield from self._generate(group, *sampling)

    def _generate(
        self, questions: list[Question], temperature: float, top_p: float, max_tokens: int, logprobs: bool
    ) -> Iterator[tuple[Question, Answer]]:
        import torch
        from transformers import LogitsProcessorList

        start = time.monotonic()
        prompts = render(self.tokenizer, questions)
        lengths = [len(p) for p in prompts]
        fitting = [i for i, length in enumerate(lengths) if length + max_tokens <= self.context]
        for i in sorted(set(range(len(questions))) - set(fitting)):
            detail = f"{lengths[i]} + {max_tokens} tokens exceed the context of {self.context}"
            yield questions[i], Answer("", "end", "too-long", prompt_tokens=lengths[i], detail=detail)
        if not fitting:
            return
        asked = [questions[i] for i in fitting]
        batch = self.tokenizer.pad({"input_ids": [prompts[i] for i in fitting]}, return_tensors="pt").to(self.device)
        noise = [SeededNoise([q.row_seed for q in asked], temperature, top_p)] if temperature else []
        with torch.inference_mode():
            out = self.network.generate(
                **batch,
                do_sample=False,
                logits_processor=LogitsProcessorList(noise),
                max_new_tokens=max_tokens,
                pad_token_id=self.tokenizer.pad_token_id,
                return_dict_in_generate=True,
                output_logits=logprobs,
            )
        rows = out.sequences[:, batch["input_ids"].shape[1] :]
        chosen = _logprobs(out.logits, rows) if logprobs else [None] * len(rows)
        ends = self.network.generation_config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends])
        seconds = (time.monotonic() - start) / len(asked)
        for question, row, i, probabilities in zip(asked, rows.tolist(), fitting, chosen, strict=True):
            end = next((place for place, token in enumerate(row) if token in ends), None)
            tokens = len(row) if end is None else end + 1
            text = self.tokenizer.decode(row[:end], skip_special_tokens=True)
            yield (
                question,
                Answer(
                    self.opening + text,
                    "length" if end is None else "end",
                    prompt_tokens=lengths[i],
                    tokens=tokens,
                    cost=0.0,
                    seconds=round(seconds, 4),
                    model=self.model,
                    finish="length" if end is None else "stop",
                    logprobs=self._named(row[:tokens], probabilities),
                ),
            )


def _logprobs(logits: Sequence[Any], chosen: Any) -> list[list[float]]:
    """Log-probability of each chosen token (row, step) under the model itself, before temperature and noise."""
    import torch

    steps = [scores.float().log_softmax(dim=-1).gather(1, chosen[:, [i]]) for i, scores in enumerate(logits)]
    return torch.cat(steps, dim=1).tolist()


class SeededNoise:
    """Sampling as an arg-max: Gumbel noise on the logits of each row, from that row's own generator.

    The arg-max of logits/T + Gumbel noise is distributed as a draw from softmax(logits/T) (Gumbel 1954; Maddison et al.
    2014, "A* Sampling"). Greedy decoding with this processor is therefore sampling, one seed a row.
    """

    def __init__(self, seeds: Sequence[int], temperature: float, top_p: float = 1.0):
        import torch
        from transformers import TopPLogitsWarper

        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.temperature = temperature
        self.warper = TopPLogitsWarper(top_p) if top_p < 1 else None

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch

        scores = scores / self.temperature
        if self.warper is not None:
            scores = self.warper(input_ids, scores)
        exponential = torch.stack([torch.empty(scores.shape[-1]).exponential_(generator=g) for g in self.generators])
        return scores - exponential.log().to(scores.device)


class VllmEngine(_Local):
    """Weights in this process through vLLM."""

    def __init__(self, table: Table, arguments: str = ""):
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the engine in this process: no server to lose
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # more collapses throughput at times on a CPU
        import torch
        from vllm import LLM

        self.model, folder = table.model, table.weights()
        options = {**VLLM_ALWAYS, **({} if torch.cuda.is_available() else VLLM_ON_CPU), **vllm_options(arguments)}
        self.llm = LLM(model=str(folder), disable_log_stats=True, **options)
        self.tokenizer = self.llm.get_tokenizer()
        self.opening = THOUGHT if opens_thought(self.tokenizer) else ""
        self.engine = self.llm.llm_engine
        self.context = self.engine.model_config.max_model_len

    def batches(self, questions: Iterable[Question]) -> Iterator[Iterable[Question]]:
        yield questions

    def answer(self, questions: Iterator[Question], asking: Asking) -> None:
        """Keep the engine fed from the questions, step by step, and take each answer when it is finished."""
        running: dict[str, tuple[Question, int, float]] = {}  # prompt tokens, and when it was added
        while True:
            if len(running) <= FED // 2 and not asking.stop.why:
                more = list(islice(questions, FED - len(running)))
                if not more and not running:
                    return
                for question, ids in zip(more, render(self.tokenizer, more), strict=True):
                    self._add(question, ids, running, asking)
            if not running:
                if asking.stop.why:
                    return
                continue  # none of them fitted
            for output in self.engine.step():
                if output.finished:
                    question, length, start = running.pop(output.request_id)
                    asking.take(question, self._read(output.outputs[0], length, time.monotonic() - start))

    def _add(self, question: Question, ids: list[int], running: dict[str, tuple], asking: Asking) -> None:
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        if len(ids) + question.max_tokens > self.context:
            detail = f"{len(ids)} + {question.max_tokens} tokens exceed the context of {self.context}"
            asking.take(question, Answer("", "end", "too-long", prompt_tokens=len(ids), detail=detail))
            return
        sampling = SamplingParams(
            temperature=question.temperature,
            top_p=question.top_p,
            max_tokens=question.max_tokens,
            seed=question.row_seed % 2**63,
            logprobs=0 if question.logprobs else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self.engine.add_request(question.key, TokensPrompt(prompt_token_ids=ids), sampling)
        running[question.key] = (question, len(ids), time.monotonic())

    def _read(self, made: Any, prompt_tokens: int, seconds: float) -> Answer:
        chosen = made.logprobs and [p[t].logprob for t, p in zip(made.token_ids, made.logprobs, strict=True)]
        return Answer(
            self.opening + made.text,
            "length" if made.finish_reason == "length" else "end",
            prompt_tokens=prompt_tokens,
            tokens=len(made.token_ids),
            cost=0.0,
            seconds=round(seconds, 4),
            model=self.model,
            finish=made.finish_reason or "",
            logprobs=self._named(made.token_ids, chosen),
        )


THOUGHT = "<think>\n"


def opens_thought(tokenizer: Any) -> bool:
    """Whether the chat template itself writes the tag that opens the reasoning: what is generated then lacks it."""
    asked = [{"role": "user", "content": "?"}]
    return tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False).rstrip().endswith("<think>")


def vllm_flags() -> list[str]:
    """The options of the engine in this process as flags of vLLM's server."""
    import torch

    options = {**VLLM_ALWAYS, **({} if torch.cuda.is_available() else VLLM_ON_CPU)}
    named = [(f"--{name.replace('_', '-')}", value) for name, value in options.items()]
    return [part for flag, value in named for part in ([flag] if value is True else [flag, str(value)])]


def vllm_options(arguments: str) -> dict[str, Any]:
    """Flags of vLLM's server, as a profile has them, as options of the engine in this process: only those that are given."""
    import argparse
    import shlex

    from vllm import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return vars(parser.parse_args(shlex.split(arguments))) if arguments else {}


def render(tokenizer: Any, questions: Sequence[Question]) -> list[list[int]]:
    """Token ids of each conversation in the chat template that is kept with the weights; once for the samples of one prompt."""
    rendered: list[list[int]] = []
    for place, question in enumerate(questions):
        if place and question.messages == questions[place - 1].messages:
            rendered.append(rendered[-1])
            continue
        conversation = [{"role": role, "content": content} for role, content in question.messages]
        rendered.append(
            tokenizer.apply_chat_template(conversation, add_generation_prompt=True, tokenize=True, return_dict=False)
        )
    return rendered
