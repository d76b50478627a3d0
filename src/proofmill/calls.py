"""One row of a journal is one answer of a model; this module is the only way to ask a model anything.

    JournalError   the journal cannot be written: another job holds it, the disk is full or read-only

A journal is the file results/calls/<kind>/<name>/answers.jsonl: one JSON object a line, the key first, appended the
moment an answer arrives and synced to disk with the first answer that comes a second after the last sync, or at the end. A key is a digest of what decides the answer: model
id and weights, messages, sampling, sample index. So a changed prompt asks only its own rows again, a changed
concurrency asks none, and a reverted edit finds its old answers.

How it differs from the caches of its kind:
1. The unit is one call, not one stage: added rows ask nothing that was asked before.
2. A line torn by a kill, or damaged, is one answer to be asked again, not a broken journal.
3. One writer: the lock is the operating system's, so that it goes with the process that held it, requeued or killed.
4. Failures are not written: a rerun asks them again, while the table has the reason.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from proofmill import locks
from proofmill.locks import WAIT_SECONDS
from proofmill.progress import Progress, say
from proofmill.tables import digest

SYNC_SECONDS = 1.0


class JournalError(Exception):
    """The journal cannot be written: where: what was found; expected what. What to do."""


@dataclass(frozen=True)
class Question:
    """What a model is asked: the conversation, how to sample, and which of several samples this is.

    `model` is whatever identifies the weights: a server's model id, or the digest of an artifact's weights.
    """

    model: str
    messages: tuple[tuple[str, str], ...]  # (role, content)
    temperature: float | None = None
    top_p: float = 1.0
    max_tokens: int = 4096
    seed: int = 0
    sample: int = 0

    @cached_property
    def key(self) -> str:
        """What decides the answer; a field at its default is left out, so that a new one changes no old key."""
        return digest({f.name: v for f in fields(self) if (v := getattr(self, f.name)) != f.default})

    @cached_property
    def row_seed(self) -> int:
        """A seed for this sample alone, so that it does not matter what it is batched with."""
        return int(digest("seed", self.model, self.messages, self.seed, self.sample)[:15], 16)


@dataclass(frozen=True)
class Answer:
    """What came back. `stop` is end, length or error; `reason` is ok, or why there is no text (refused, provider, ...)."""

    text: str
    stop: str
    reason: str = "ok"
    reasoning: str | None = None
    prompt_tokens: int = 0
    tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0
    attempts: int = 1
    model: str = ""
    detail: str = ""


class Engine(Protocol):
    """Whatever answers questions: a server, or weights in this process."""

    model: str

    def batches(self, questions: Sequence[Question]) -> Iterator[Sequence[Question]]:
        """The questions in the groups in which they are asked; the same for the same questions, cached or not."""
        ...

    def answers(self, questions: Sequence[Question]) -> Iterator[tuple[Question, Answer]]:
        """Answers as they arrive, in any order."""
        ...

    def read(self, answer: Answer) -> Answer:
        """An answer of the journal as it is to be understood; the journal has it as it came."""
        ...


class Journal:
    """All answers of one artifact by key. A context manager: while it is open nobody else writes here."""

    def __init__(self, folder: Path):
        self.path = folder / "answers.jsonl"
        self._places: dict[str, int] = {}
        self._synced = time.monotonic()

    def __enter__(self) -> "Journal":
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror}; expected a journal that can be written.") from error
        self._lock()
        self._index()
        return self

    def __exit__(self, *_: Any) -> None:
        os.fsync(self._file)
        os.close(self._file)  # releases the lock

    def __contains__(self, question: Question) -> bool:
        return question.key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, question: Question) -> Answer:
        place = self._places[question.key]
        line = b""
        while not line.endswith(b"\n"):
            line += os.pread(self._file, 65536, place + len(line))
            line = line[: line.find(b"\n") + 1] or line
        values = json.loads(line)
        return Answer(**{name: values[name] for name in Answer.__dataclass_fields__ if name in values})

    def add(self, question: Question, answer: Answer) -> None:
        line = json.dumps({"key": question.key, **asdict(answer)}, ensure_ascii=False).encode() + b"\n"
        place = os.lseek(self._file, 0, os.SEEK_END)
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise JournalError(
                f"{self.path}: {error.strerror}; expected room for one more answer. Make room and run again."
            ) from error
        if written < len(line):
            os.ftruncate(self._file, place)
            raise JournalError(
                f"{self.path}: the disk took {written} of {len(line)} bytes; expected room for one more answer."
            )
        self._places[question.key] = place
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        os.fsync(self._file)
        self._synced = time.monotonic()

    def _lock(self) -> None:
        """Take the lock, waiting a while for a job that is being stopped to let go of it."""
        if not locks.take(self._file, str(self.path), WAIT_SECONDS):
            os.close(self._file)
            raise JournalError(
                f"{self.path}: another process has been writing here for {WAIT_SECONDS:g} s; expected one writer. "
                "Wait for that job or cancel it, then run again."
            )

    def _index(self) -> None:
        """Find the whole lines; cut off a torn last one; pass over what is damaged."""
        place, damaged = 0, 0
        with open(self.path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    os.ftruncate(self._file, place)
                    break
                if line.startswith(b'{"key": "') and line.endswith(b"}\n") and _is_json(line):
                    self._places[line[9:25].decode()] = place
                else:
                    damaged += 1
                place += len(line)
        if damaged:
            say(str(self.path), f"{damaged} damaged lines are passed over; their questions are asked again")


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def ask(
    journal: Journal, engine: Engine, questions: Iterable[Question], name: str, quiet: bool = False
) -> list[Answer]:
    """Answers to all questions in their order; only those that are not in the journal are asked.

    An answer with stop `error` is a failure that may pass (its `reason` says which); it is not written to the journal.
    """
    questions = list(questions)
    progress = Progress(name, len(questions), "calls")
    failed: dict[str, Answer] = {}
    for batch in engine.batches(questions):
        missing = list({q.key: q for q in batch if q not in journal}.values())
        if cached := len(batch) - len(missing):
            progress.add(cached, cached=cached)
        for question, answer in engine.answers(missing):
            if answer.stop == "error":
                failed[question.key] = answer
            else:
                journal.add(question, answer)
            progress.add(failed=answer.stop == "error", tokens=answer.tokens, cost=answer.cost or 0)
    if not quiet:
        progress.close()
    return [failed[q.key] if q.key in failed else engine.read(journal[q]) for q in questions]


def split_reasoning(answer: Answer, delimiters: Sequence[str]) -> Answer:
    """Move the reasoning part of the text to `reasoning`: what stands before the first delimiter that occurs.

    Without any delimiter in the text and without reasoning sent apart, all of it is reasoning and the answer is empty:
    it was cut off while thinking (specification of the benchmark's client, section on reasoning).
    """
    if not delimiters or answer.reasoning is not None:
        return answer
    for delimiter in delimiters:
        if delimiter in answer.text:
            reasoning, _, text = answer.text.rpartition(delimiter)
            return replace(answer, text=text.strip(), reasoning=reasoning)
    return replace(answer, text="", reasoning=answer.text)
