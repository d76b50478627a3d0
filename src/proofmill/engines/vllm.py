"""Weights in this process through vLLM, fed step by step: an answer is journaled as soon as it is finished."""

import logging
import os
import re
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from proofmill.artifacts.tables import Table
from proofmill.calls import sampling
from proofmill.calls.calls import Asking
from proofmill.calls.exchange import Answer, Question
from proofmill.engines import fitting
from proofmill.engines.local import LocalEngine, render
from proofmill.prompts import chat_templates
from proofmill.runtime.progress import say
from proofmill.schema.errors import ServiceError
from proofmill.schema.reasons import Reason, Stop
from proofmill.text.reasoning import OPENING, opens_thought

FED = 1024  # most requests that vLLM holds; refilled at half of that, which is twice what runs at once


class VllmEngine(LocalEngine):
    """Weights in this process through vLLM."""

    def __init__(self, table: Table, arguments: str = "", threads: int = 1, log: Path | None = None):
        """`log` gets what vLLM says while it starts; it is removed once vLLM has started."""
        from transformers import AutoTokenizer

        self.table, self.arguments, self.threads = table, arguments, threads
        self.log = log or table.scratch / "vllm.log"
        self.model, self.folder = table.model, table.weights()
        self.tokenizer = chat_templates.required(AutoTokenizer.from_pretrained(self.folder), table.name)
        self.opening = OPENING if opens_thought(self.tokenizer) else ""
        self.ends = sampling.ends(self.folder, self.tokenizer)

    @cached_property
    def llm(self) -> Any:
        """vLLM, started when the first question is asked: a stage whose answers are all there needs none."""
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the engine in this process: no server to lose
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # more collapses throughput at times on a CPU
        import torch

        name, options = self.table.name, vllm_options(self.arguments)
        self.fit = fitting.fit(name, self.folder, options, self.threads, torch.cuda.is_available())
        if self.fit.said:
            say(name, self.fit.said)
        with starting(name, self.log):
            from vllm import LLM  # takes its time

            options = {**self.fit.options, "disable_log_stats": True, "generation_config": "vllm"}
            llm = LLM(model=str(self.folder), **options)
        self.tokenizer = llm.get_tokenizer()
        return llm

    @property
    def engine(self) -> Any:
        return self.llm.llm_engine

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

        context = self.engine.model_config.max_model_len
        if len(ids) + question.max_tokens > context:
            fitting.check_length(self.fit, self.model, len(ids) + question.max_tokens)
            detail = f"{len(ids)} + {question.max_tokens} tokens exceed the context of {context}"
            asking.take(question, Answer("", Stop.END, Reason.TOO_LONG, prompt_tokens=len(ids), detail=detail))
            return
        setting = SamplingParams(
            **question.sampling,
            stop=list(question.stop),
            stop_token_ids=self.ends,
            max_tokens=question.max_tokens,
            seed=question.row_seed % 2**63,
            logprobs=0 if question.logprobs else None,
            skip_special_tokens=False,  # what a grader does not see is a place to hide in
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self.engine.add_request(question.key, TokensPrompt(prompt_token_ids=ids), setting)
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


@contextmanager
def starting(name: str, log: Path) -> Iterator[None]:
    """What vLLM logs inside goes to a file instead of the terminal. ServiceError in one message when it does not start."""
    log.parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")  # its own handlers would write to the terminal as well
    handler, logger = logging.FileHandler(log, mode="w"), logging.getLogger("vllm")
    level, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    except (ValueError, RuntimeError, OSError, NotImplementedError, AssertionError, KeyError) as error:
        traceback.print_exc(file=handler.stream)
        raise ServiceError(_not_started(name, reason_in(traceback.format_exc()), log)) from error
    finally:
        handler.close()
        logger.removeHandler(handler)
        logger.setLevel(max(level, logging.WARNING))
        logger.propagate = propagates
    log.unlink(missing_ok=True)


def _not_started(name: str, reason: str, log: Path) -> str:
    return (
        f"{name}: vLLM does not start ({reason}); expected an engine for these weights. All that it said is in {log}. Its "
        "flags are `engine_args` of the profile; the engine `transformers` needs none."
    )


ERROR = re.compile(
    r"^(?:\(.*?\) )?(?:ERROR .*?\] )?\s*(?:[a-z_]+\.)*([A-Z]\w*(?:Error|Exception)): (\d+ validation error.*\n.+|.+)$",
    re.MULTILINE,
)
FOLLOWING = ("Engine core initialization failed", "Engine process failed to start")


def reason_in(log: str) -> str:
    """The first error of a log that is not only the consequence of another; its last line if there is none."""
    found = [message for _, message in ERROR.findall(log) if not message.startswith(FOLLOWING)]
    lines = log.strip().splitlines() or ["it said nothing"]
    reason = found[0] if found else lines[-1]
    return reason.rpartition("\n")[2].partition(" [type=")[0].strip()[:400]  # pydantic's reason is on its second line


def flags(options: Mapping[str, Any]) -> list[str]:
    """Options of the engine in this process as flags of vLLM's server."""
    said = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        said += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return said


def vllm_options(arguments: str) -> dict[str, Any]:
    """Flags of vLLM's server, from a profile, as options of the engine in this process; unset flags are left out."""
    if not arguments:
        return {}
    import argparse
    import shlex

    from vllm import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return vars(parser.parse_args(shlex.split(arguments)))
