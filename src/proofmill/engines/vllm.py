"""vLLM in this process, fed step by step: an output is journaled as soon as it is finished."""

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
from proofmill.calls.model_requests import ModelOutput, ModelRequest
from proofmill.engines import vllm_memory
from proofmill.engines.local import LocalEngine, render
from proofmill.prompts import chat_templates
from proofmill.runtime.progress import log
from proofmill.schema.errors import ServiceError
from proofmill.schema.reasons import Reason, StopReason
from proofmill.text.reasoning import OPENING, opens_thought

FED = 1024  # maximum requests in vLLM; refilled at half of it, which is twice the number that runs at once


class VllmEngine(LocalEngine):
    """Weights in this process through vLLM."""

    def __init__(self, table: Table, arguments: str = "", threads: int = 1, log: Path | None = None):
        """Create the engine; `log` gets vLLM's output while it starts, and is removed afterwards."""
        from transformers import AutoTokenizer

        self.table, self.arguments, self.threads = table, arguments, threads
        self.log = log or table.scratch / "vllm.log"
        self.model, self.folder = table.model, table.weights()
        self.tokenizer = chat_templates.require_template(AutoTokenizer.from_pretrained(self.folder), table.name)
        self.opening = OPENING if opens_thought(self.tokenizer) else ""
        self.ends = sampling.ends(self.folder, self.tokenizer)

    @cached_property
    def llm(self) -> Any:
        """vLLM, started for the first request; a stage with all outputs in the journal starts none."""
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # run the engine in this process
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads sometimes collapse throughput on a CPU
        import torch

        name, options = self.table.name, vllm_options(self.arguments)
        self.fit = vllm_memory.fit(name, self.folder, options, self.threads, torch.cuda.is_available())
        if self.fit.notice:
            log(name, self.fit.notice)
        with starting(name, self.log):
            from vllm import LLM  # slow import

            options = {**self.fit.options, "disable_log_stats": True, "generation_config": "vllm"}
            llm = LLM(model=str(self.folder), **options)
        self.tokenizer = llm.get_tokenizer()
        return llm

    @property
    def engine(self) -> Any:
        return self.llm.llm_engine

    def batches(self, requests: Iterable[ModelRequest]) -> Iterator[Iterable[ModelRequest]]:
        yield requests

    def answer(self, requests: Iterator[ModelRequest], asking: Asking) -> None:
        """Feed the engine with requests, step by step, and take each output when it is finished."""
        running: dict[str, tuple[ModelRequest, int, float]] = {}  # by key: request, prompt tokens, start
        while True:
            if len(running) <= FED // 2 and not asking.stop.why:
                more = list(islice(requests, FED - len(running)))
                if not more and not running:
                    return
                for request, ids in zip(more, render(self.tokenizer, more), strict=True):
                    self._add(request, ids, running, asking)
            if not running:
                if asking.stop.why:
                    return
                continue  # no request fit the context
            for output in self.engine.step():
                if output.finished:
                    request, length, start = running.pop(output.request_id)
                    asking.take(request, self._read(output.outputs[0], length, time.monotonic() - start))

    def _add(self, request: ModelRequest, ids: list[int], running: dict[str, tuple], asking: Asking) -> None:
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        context = self.engine.model_config.max_model_len
        if len(ids) + request.max_tokens > context:
            vllm_memory.check_length(self.fit, self.model, len(ids) + request.max_tokens)
            detail = f"{len(ids)} + {request.max_tokens} tokens exceed the context of {context}"
            asking.take(
                request, ModelOutput("", StopReason.END, Reason.TOO_LONG, prompt_tokens=len(ids), detail=detail)
            )
            return
        setting = SamplingParams(
            **request.sampling,
            stop=list(request.stop),
            stop_token_ids=self.ends,
            max_tokens=request.max_tokens,
            seed=request.row_seed % 2**63,
            logprobs=0 if request.logprobs else None,
            skip_special_tokens=False,  # text that a grader does not see could be used to cheat
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self.engine.add_request(request.key, TokensPrompt(prompt_token_ids=ids), setting)
        running[request.key] = (request, len(ids), time.monotonic())

    def _read(self, output: Any, prompt_tokens: int, seconds: float) -> ModelOutput:
        chosen = output.logprobs and [p[t].logprob for t, p in zip(output.token_ids, output.logprobs, strict=True)]
        return ModelOutput(
            self.opening + output.text,
            StopReason.LENGTH if output.finish_reason == "length" else StopReason.END,
            prompt_tokens=prompt_tokens,
            tokens=len(output.token_ids),
            cost=0.0,
            seconds=round(seconds, 4),
            model=self.model,
            finish_reason=output.finish_reason or "",
            logprobs=self._with_text(output.token_ids, chosen),
        )


@contextmanager
def starting(name: str, log: Path) -> Iterator[None]:
    """Write vLLM's log to a file instead of the terminal. Raises ServiceError in one message if it does not start."""
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
        f"{name}: vLLM does not start ({reason}); expected an engine for these weights. Its full output is in {log}. Fix "
        "its flags in `engine_args` of the profile, or set the engine to `transformers`."
    )


ERROR = re.compile(
    r"^(?:\(.*?\) )?(?:ERROR .*?\] )?\s*(?:[a-z_]+\.)*([A-Z]\w*(?:Error|Exception)): (\d+ validation error.*\n.+|.+)$",
    re.MULTILINE,
)
FOLLOWING = ("Engine core initialization failed", "Engine process failed to start")


def reason_in(log: str) -> str:
    """Return the first error of a log that is not the consequence of another; its last line if it has no error."""
    errors = [message for _, message in ERROR.findall(log) if not message.startswith(FOLLOWING)]
    lines = log.strip().splitlines() or ["no output"]
    reason = errors[0] if errors else lines[-1]
    return reason.rpartition("\n")[2].partition(" [type=")[0].strip()[:400]  # pydantic's reason is on its second line


def flags(options: Mapping[str, Any]) -> list[str]:
    """Return options of the in-process engine as flags of vLLM's server."""
    arguments = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        arguments += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return arguments


def vllm_options(arguments: str) -> dict[str, Any]:
    """Return a profile's flags of vLLM's server as options of the in-process engine; unset flags are left out."""
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
