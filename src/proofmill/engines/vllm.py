"""Weights in this process through vLLM, fed step by step: an answer is journaled as soon as it is finished."""

import os
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from proofmill.artifacts.tables import Table
from proofmill.calls.calls import Asking
from proofmill.calls.exchange import Answer, Question
from proofmill.engines.local import LocalEngine, render
from proofmill.prompts import chat_templates
from proofmill.schema.reasons import Reason, Stop
from proofmill.text.reasoning import OPENING, opens_thought

FED = 1024  # most requests that vLLM holds; refilled at half of that, which is twice what runs at once
# On a CPU: a per-request seed together with a chunked prefill kills the engine, so prompts must fit one batch; the
# default share of memory is not available.
VLLM_ON_CPU = {
    "enforce_eager": True,
    "dtype": "float32",
    "gpu_memory_utilization": 0.1,
    "max_num_batched_tokens": 65536,
}
VLLM_ALWAYS = {"max_num_seqs": 256}


class VllmEngine(LocalEngine):
    """Weights in this process through vLLM."""

    def __init__(self, table: Table, arguments: str = ""):
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the engine in this process: no server to lose
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # more collapses throughput at times on a CPU
        import torch
        from transformers import AutoTokenizer

        self.model, folder = table.model, table.weights()
        chat_templates.required(AutoTokenizer.from_pretrained(folder), table.name)
        from vllm import LLM  # takes its time

        options = {**VLLM_ALWAYS, **({} if torch.cuda.is_available() else VLLM_ON_CPU), **vllm_options(arguments)}
        self.llm = LLM(model=str(folder), disable_log_stats=True, **options)
        self.tokenizer = self.llm.get_tokenizer()
        self.opening = OPENING if opens_thought(self.tokenizer) else ""
        self.engine = self.llm.llm_engine
        self.context = self.engine.model_config.max_model_len

    def batches(self, questions: Iterable[Question]) -> Iterator[Iterable[Question]]:
        yield questions

    def answer(self, questions: Iterator[Question], asking: Asking) -> None:
        """Keep the engine fed from the questions, step by step, and take each answer when it is finished."""
        running: dict[str, tuple[Question, int, float]] = {}  # by key: question, prompt tokens, start
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
                continue  # no question fitted the context
            for output in self.engine.step():
                if output.finished:
                    question, length, start = running.pop(output.request_id)
                    asking.take(question, self._read(output.outputs[0], length, time.monotonic() - start))

    def _add(self, question: Question, ids: list[int], running: dict[str, tuple], asking: Asking) -> None:
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        if len(ids) + question.max_tokens > self.context:
            detail = f"{len(ids)} + {question.max_tokens} tokens exceed the context of {self.context}"
            asking.take(question, Answer("", Stop.END, Reason.TOO_LONG, prompt_tokens=len(ids), detail=detail))
            return
        sampling = SamplingParams(
            temperature=question.temperature,
            top_p=question.top_p,
            top_k=question.top_k or 0,
            min_p=question.min_p or 0.0,
            stop=list(question.stop),
            max_tokens=question.max_tokens,
            seed=question.row_seed % 2**63,
            logprobs=0 if question.logprobs else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self.engine.add_request(question.key, TokensPrompt(prompt_token_ids=ids), sampling)
        running[question.key] = (question, len(ids), time.monotonic())

    def _read(self, output: Any, prompt_tokens: int, seconds: float) -> Answer:
        chosen = output.logprobs and [p[t].logprob for t, p in zip(output.token_ids, output.logprobs, strict=True)]
        return Answer(
            self.opening + output.text,
            Stop.LENGTH if output.finish_reason == "length" else Stop.END,
            prompt_tokens=prompt_tokens,
            tokens=len(output.token_ids),
            cost=0.0,
            seconds=round(seconds, 4),
            model=self.model,
            finish=output.finish_reason or "",
            logprobs=self._named(output.token_ids, chosen),
        )


def vllm_flags() -> list[str]:
    """The options of the engine in this process, as flags of vLLM's server."""
    import torch

    options = {**VLLM_ALWAYS, **({} if torch.cuda.is_available() else VLLM_ON_CPU)}
    named = [(f"--{name.replace('_', '-')}", value) for name, value in options.items()]
    return [part for flag, value in named for part in ([flag] if value is True else [flag, str(value)])]


def vllm_options(arguments: str) -> dict[str, Any]:
    """Flags of vLLM's server, from a profile, as options of the engine in this process; unset flags are left out."""
    import argparse
    import shlex

    from vllm import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return vars(parser.parse_args(shlex.split(arguments))) if arguments else {}
