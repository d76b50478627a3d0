"""One engine answers questions with one model: a server reached over the OpenAI protocol, or weights in this process.

Every engine gives the same table, apart from sampling noise. What a model is stands in the entry; which engine serves
it, and where a server is, stand in the profile and the environment:

    PROOFMILL_<NAME>_URL, PROOFMILL_<NAME>_KEY   where api/<name> is reached, and its key
    PROOFMILL_CONCURRENCY                        calls in flight to one server (32)
    PROOFMILL_TIMEOUT                            seconds for one call, from the moment it starts (600)

How we differ from calling the libraries directly:
1. A sample's randomness comes from its own question (Gumbel noise seeded by its key), not from its place in a batch:
   a run that was killed and resumed samples what an unbroken run samples.
   On a CPU vLLM draws the same noise from the same seed, so that sampled texts agree between the two engines.
2. Questions are batched the same way whether or not some of them are answered already.
"""

import asyncio
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from proofmill import kinds
from proofmill.calls import Answer, Engine, Question, split_reasoning
from proofmill.recipes import RecipeError
from proofmill.tables import Table

BATCH = 256
ATTEMPTS = 6
TOO_LONG = (
    "context_length_exceeded",
    "maximum context length",
    "context length",
    "prompt is too long",
    "too many tokens",
)
REFUSED = ("content_filter", "content management policy", "usage policy", "usage policies")
SAME_FAILURES = 3  # a server that refuses the same question this often in the same words will refuse it again


@contextmanager
def open_engine(model: str, apis: Mapping[str, Any], parent: Table, engine: str, threads: int) -> Iterator[Engine]:
    """The engine for a model reference: `api/...` is reached, an artifact is loaded from its table's weights."""
    with ExitStack() as stack:
        if kinds.kind_of(model) == "api":
            yield stack.enter_context(open_api(model, apis[model]))
        elif engine == "vllm":
            yield VllmEngine(parent)
        else:
            yield TransformersEngine(parent, threads)


# --------------------------------------------------------------------------------------------------------- a remote API


@contextmanager
def open_api(name: str, api: Any) -> Iterator["ApiEngine"]:
    """A remote model; one that is a program of this project is started on a loopback port and stopped again."""
    variable = f"PROOFMILL_{name.partition('/')[2].upper().replace('-', '_').replace('.', '_')}"
    url, key, started = os.environ.get(f"{variable}_URL"), os.environ.get(f"{variable}_KEY", "none"), False
    with ExitStack() as stack:
        if url is None and api.program == "referee":
            from proofmill.referee import serve

            url, started = stack.enter_context(serve(api.id)), True
        if url is None:
            raise RecipeError(
                f"{name}: the environment has no {variable}_URL; expected the address of the server, such as "
                f"https://host/v1. Set it, and {variable}_KEY if the server wants a key."
            )
        engine = ApiEngine(name, api, url, key, own=started)
        stack.callback(engine.close)
        yield engine


class ApiEngine:
    """A model behind the OpenAI protocol."""

    def __init__(self, name: str, api: Any, url: str, key: str, own: bool = False):
        import openai

        self.name, self.api, self.model = name, api, api.id
        self._openai = openai
        self._runner = asyncio.Runner()
        self._client = openai.AsyncOpenAI(
            base_url=url,
            api_key=key,
            max_retries=0,
            timeout=float(os.environ.get("PROOFMILL_TIMEOUT", "600")),
            # A proxy of the environment does not know the loopback address of a program that was started here.
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False) if own else None,
        )
        self._limit = max(1, int(os.environ.get("PROOFMILL_CONCURRENCY", "32")))

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def batches(self, questions: Sequence[Question]) -> Iterator[Sequence[Question]]:
        yield questions

    def answers(self, questions: Sequence[Question]) -> Iterator[tuple[Question, Answer]]:
        """Answers as they arrive: a fixed number of workers, each with one call in flight.

        A worker asks again when its answer has been taken (and is in the journal), so that a kill loses at most as many
        answers as there may be calls in flight.
        """
        loop = self._runner.get_loop()
        queue, waiting = asyncio.Queue(), iter(questions)

        async def worker() -> None:
            for question in waiting:  # one iterator shared by all workers
                answer, taken = await self._answer(question), loop.create_future()
                await queue.put((question, answer, taken))
                await taken

        workers = [loop.create_task(worker()) for _ in range(min(self._limit, len(questions)))]
        try:
            left = len(questions)
            while left:
                for question, answer, taken in self._runner.run(_arrived(queue, workers)):
                    yield question, answer
                    taken.set_result(None)
                    left -= 1
        finally:
            for task in workers:
                task.cancel()

    async def _answer(self, question: Question) -> Answer:
        start, failures = time.monotonic(), []
        while True:
            try:
                reply = await self._client.chat.completions.create(**self._request(question))
                return self._read(reply, time.monotonic() - start, len(failures) + 1)
            except self._openai.APIError as error:
                failures.append(_failure(error))
            except ValueError as error:  # a body that is no JSON, or no chat completion
                failures.append(("provider", True, f"unreadable reply: {error}"))
            reason, may_pass, detail = failures[-1]
            same = [f[2] for f in failures].count(detail)
            if not may_pass or len(failures) >= ATTEMPTS or (same >= SAME_FAILURES and reason == "provider"):
                stop = "error" if reason in ("provider", "rate-limit", "timeout") else "end"
                return Answer("", stop, reason, attempts=len(failures), seconds=time.monotonic() - start, detail=detail)
            await asyncio.sleep(random.uniform(0.5, 1.0) * min(30.0, 0.5 * 2 ** len(failures)))

    def _request(self, question: Question) -> dict:
        request = {
            "model": self.model,
            "messages": [{"role": role, "content": content} for role, content in question.messages],
            "max_tokens": question.max_tokens,
            "top_p": question.top_p,
            "seed": question.row_seed % 2**31,
        }
        return request if question.temperature is None else {**request, "temperature": question.temperature}

    def _read(self, reply: Any, seconds: float, attempts: int) -> Answer:
        if not getattr(reply, "choices", None):
            raise ValueError("no choices")
        choice, usage = reply.choices[0], reply.usage
        prompt_tokens, tokens = (usage.prompt_tokens, usage.completion_tokens) if usage else (0, 0)
        price = self.api.price
        return Answer(
            text=_writable(choice.message.content) or "",
            stop="length" if choice.finish_reason == "length" else "end",
            reason="refused"
            if choice.finish_reason == "content_filter" or getattr(choice.message, "refusal", None)
            else "ok",
            reasoning=_writable(
                getattr(choice.message, "reasoning_content", None) or getattr(choice.message, "reasoning", None)
            ),
            prompt_tokens=prompt_tokens,
            tokens=tokens,
            cost=None
            if price == "unknown" or not usage
            else (prompt_tokens * price["input"] + tokens * price["output"]) / 1e6,
            seconds=round(seconds, 4),
            attempts=attempts,
            model=reply.model or "",
        )

    def read(self, answer: Answer) -> Answer:
        return split_reasoning(answer, self.api.delimiters)


def _writable(text: str | None) -> str | None:
    """A server that cuts an answer inside a character sends half of a surrogate pair, which no file can hold."""
    return None if text is None else text.encode("utf-8", "replace").decode()


async def _arrived(queue: asyncio.Queue, workers: Sequence[asyncio.Task]) -> list:
    """What has arrived, at least one answer; when there is none, the exception that a worker died of."""
    if queue.empty():
        getter = asyncio.ensure_future(queue.get())
        while not getter.done():
            await asyncio.wait([getter, *(w for w in workers if not w.done())], return_when=asyncio.FIRST_COMPLETED)
            for worker in workers:
                if worker.done() and worker.exception():
                    getter.cancel()
                    raise worker.exception()
        first = [getter.result()]
    else:
        first = []
    return first + [queue.get_nowait() for _ in range(queue.qsize())]


def _failure(error: Any) -> tuple[str, bool, str]:
    """(reason, may pass when tried again, what the server said) of a failed call."""
    status, text = getattr(error, "status_code", None), f"{error} {getattr(error, 'body', None) or ''}"[:500]
    if type(error).__name__ == "APITimeoutError":
        return "timeout", True, "timed out"
    if status is None:
        return "provider", True, text
    if status == 429:
        return "rate-limit", True, text
    if status in (400, 413, 422) and any(words in text.lower() for words in TOO_LONG):
        return "too-long", False, text
    if status in (400, 403) and any(words in text.lower() for words in REFUSED):
        return "refused", False, text
    return "provider", status >= 500 or status in (408, 409), text


# ------------------------------------------------------------------------------------------------ weights in this process


class _Local:
    """What the two ways of serving weights in this process share."""

    def read(self, answer: Answer) -> Answer:
        return answer


class TransformersEngine(_Local):
    """Weights in this process through transformers."""

    def __init__(self, table: Table, threads: int = 1):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(threads)
        self.model, folder = table.model, table.weights()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        precision = "auto" if self.device == "cuda" else torch.float32  # bfloat16 is slower than float32 on a CPU
        self.network = AutoModelForCausalLM.from_pretrained(folder, dtype=precision).to(self.device).eval()
        self.context = self.network.config.max_position_embeddings

    def batches(self, questions: Sequence[Question]) -> Iterator[Sequence[Question]]:
        """Questions of one length together: less padding, and a batch ends when its longest answer does."""
        ordered = sorted(
            questions, key=lambda q: (q.temperature, q.max_tokens, sum(len(text) for _, text in q.messages), q.key)
        )
        for start in range(0, len(ordered), BATCH):
            yield ordered[start : start + BATCH]

    def answers(self, questions: Sequence[Question]) -> Iterator[tuple[Question, Answer]]:
        groups: dict[tuple, list[Question]] = {}
        for question in questions:
            groups.setdefault((question.temperature, question.top_p, question.max_tokens), []).append(question)
        for (temperature, top_p, max_tokens), group in groups.items():
            yield from self._generate(group, temperature, top_p, max_tokens)

    def _generate(
        self, questions: list[Question], temperature: float, top_p: float, max_tokens: int
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
            )
        ends = self.network.generation_config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends])
        seconds = (time.monotonic() - start) / len(asked)
        for question, row, i in zip(asked, out[:, batch["input_ids"].shape[1] :].tolist(), fitting, strict=True):
            end = next((place for place, token in enumerate(row) if token in ends), None)
            text = self.tokenizer.decode(row[:end], skip_special_tokens=True)
            yield (
                question,
                Answer(
                    text,
                    "length" if end is None else "end",
                    prompt_tokens=lengths[i],
                    tokens=len(row) if end is None else end + 1,
                    cost=0.0,
                    seconds=round(seconds, 4),
                    model=self.model,
                ),
            )


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

    def __init__(self, table: Table):
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the engine in this process: no server to lose
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # more collapses throughput at times on a CPU
        import torch
        from vllm import LLM

        self.model, folder = table.model, table.weights()
        on_gpu = torch.cuda.is_available()
        # On a CPU: a per-request seed together with a chunked prefill kills the engine, so prompts must fit one batch.
        cpu = {
            "enforce_eager": True,
            "dtype": "float32",
            "gpu_memory_utilization": 0.1,
            "max_num_batched_tokens": 65536,
        }
        self.llm = LLM(model=str(folder), max_num_seqs=256, disable_log_stats=True, **({} if on_gpu else cpu))
        self.tokenizer = self.llm.get_tokenizer()
        self.context = self.llm.llm_engine.model_config.max_model_len

    def batches(self, questions: Sequence[Question]) -> Iterator[Sequence[Question]]:
        for start in range(0, len(questions), 4 * BATCH):
            yield questions[start : start + 4 * BATCH]

    def answers(self, questions: Sequence[Question]) -> Iterator[tuple[Question, Answer]]:
        from vllm import SamplingParams, TokensPrompt

        if not questions:
            return
        start = time.monotonic()
        prompts = render(self.tokenizer, questions)
        asked = []
        for question, ids in zip(questions, prompts, strict=True):
            if len(ids) + question.max_tokens > self.context:
                detail = f"{len(ids)} + {question.max_tokens} tokens exceed the context of {self.context}"
                yield question, Answer("", "end", "too-long", prompt_tokens=len(ids), detail=detail)
            else:
                asked.append((question, ids))
        sampling = [
            SamplingParams(
                temperature=q.temperature,
                top_p=q.top_p,
                max_tokens=q.max_tokens,
                seed=q.row_seed % 2**63,
                skip_special_tokens=True,
            )
            for q, _ in asked
        ]
        outputs = self.llm.generate([TokensPrompt(prompt_token_ids=ids) for _, ids in asked], sampling, use_tqdm=False)
        seconds = (time.monotonic() - start) / max(len(asked), 1)
        for (question, ids), output in zip(asked, outputs, strict=True):
            made = output.outputs[0]
            yield (
                question,
                Answer(
                    made.text,
                    "length" if made.finish_reason == "length" else "end",
                    prompt_tokens=len(ids),
                    tokens=len(made.token_ids),
                    cost=0.0,
                    seconds=round(seconds, 4),
                    model=self.model,
                ),
            )


def render(tokenizer: Any, questions: Sequence[Question]) -> list[list[int]]:
    """Token ids of each conversation in the chat template that is kept with the weights."""
    conversations = [[{"role": role, "content": content} for role, content in q.messages] for q in questions]
    return [
        tokenizer.apply_chat_template(c, add_generation_prompt=True, tokenize=True, return_dict=False)
        for c in conversations
    ]
