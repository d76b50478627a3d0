"""Replies of servers, read into typed and bounded records: the one door through which a server's words come in.

    Chat, Response    the records of the two protocols, with the fields that we read
    read              bytes -> Reply
    UnreadableReply   what is no reply: no JSON, other types, no choice

How we differ from the client's own types:
1. Fields that we do not read may hold anything; those that we read have their type, or the reply is unreadable.
2. A count of tokens is believed only if it can be true: not missing, negative, NaN, or far above what was sent and
   allowed. The text of such a reply counts all the same.
3. A finish word is believed if it is in a closed list (calls/exchange.py). Every other word, null or none is a failure.
4. A count that is too small for the text is not believed either: `1 + 1` for 400 bytes.
5. Only the choice of index 0 is read, and of its parts only those of a known type. Thoughts are reasoning, not answer.
"""

import json
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import msgspec

from proofmill.calls.exchange import Question, ending
from proofmill.schema.reasons import Reason, Stop

# A server's template adds tokens to what we send, and some servers do not keep the limit: a count is believed up to
# this many times, and this much above, what it should be at most.
TIMES, ABOVE = 10, 10_000
CHAT_COUNTS, RESPONSE_COUNTS = ("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens")
# A token adds at most this many bytes to what zlib makes of a text. Measured with the vocabulary of Qwen2: 1.0 to 2.8
# bytes for prose, formulas and code, 0.6 to 1.5 in four other scripts, 8.3 for a list of long English words, 0.04 in a loop.
TOKEN_BYTES, OVERHEAD = 16, 16
# Types of the parts of a message, without `_`.
TEXT, THOUGHT = {"text", "outputtext"}, {"thinking", "reasoning", "reasoningtext", "redactedthinking", "summarytext"}


class UnreadableReply(Exception):
    """A reply that is none; the message says what was found."""


class ErrorReply(Exception):
    """An error sent as a success: the server's message, and its status if it names one."""

    def __init__(self, message: str, status: int | None):
        super().__init__(_clean(message))
        self.status = status


# ----------------------------------------------------------------------------------------------- the two protocols


class Part(msgspec.Struct):
    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    thinking: "str | list[Part] | None" = None  # Anthropic's text, Mistral's parts
    reasoning: str | None = None
    logprobs: Any = None  # of interest where they were asked for

    @property
    def kind(self) -> str:
        return self.type.replace("_", "").lower()


class Message(msgspec.Struct):
    content: str | list[Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None


class Token(msgspec.Struct):
    token: str
    logprob: float


class Logprobs(msgspec.Struct):
    content: list[Token] | None = None


class Choice(msgspec.Struct):
    message: Message
    index: int = 0
    finish_reason: str | None = None
    logprobs: Any = None  # of interest where they were asked for


class Chat(msgspec.Struct):
    """A Chat Completion."""

    choices: Annotated[list[Choice], msgspec.Meta(min_length=1)]
    usage: Any = None
    model: Any = None


class Item(msgspec.Struct):
    type: str
    content: list[Part] | None = None
    summary: list[Part] | None = None


class Incomplete(msgspec.Struct):
    reason: str | None = None


class Response(msgspec.Struct):
    """A Response of the Responses API."""

    output: list[Item]
    status: str | None = None
    incomplete_details: Incomplete | None = None
    usage: Any = None
    model: Any = None


# ---------------------------------------------------------------------------------------------------------- one reply


class Usage(NamedTuple):
    """Tokens: read, of these cached, written, of these reasoning."""

    prompt: int
    cached: int
    written: int
    thought: int


@dataclass(frozen=True)
class Reply:
    """What a server said, under our names. `usage` is None when it is missing or cannot be believed."""

    text: str
    reasoning: str | None
    stop: Stop
    reason: Reason  # ok or refused; provider for a finish word that is no proper end
    finish: str
    usage: Usage | None
    model: str
    logprobs: list[dict[str, Any]] | None


def read(raw: bytes, protocol: str, question: Question) -> Reply:
    """The reply to a question. Raises UnreadableReply, or ErrorReply for an error that was sent as a success."""
    try:
        body = json.loads(raw)
        if isinstance(body, dict) and _says(body.get("error")):
            raise _error(body["error"])
        reader = _response if protocol == "responses" else _chat
        return reader(body, question)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        start = raw[:80].decode(errors="replace")
        said = _clean(str(error)[:200])
        raise UnreadableReply(f"{type(error).__name__}: {said}; it begins with {start!r}") from error


def usage_of(raw: bytes, question: Question) -> Usage | None:
    """Return the usage that a failure reports; None for any bytes that report none, or none that can be true."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    usage = body.get("usage") if isinstance(body, dict) else None
    counts = (_counted(usage, *names) for names in (CHAT_COUNTS, RESPONSE_COUNTS))
    return next((believed for each in counts if (believed := _believed(each, question, ""))), None)


def _chat(body: Any, question: Question) -> Reply:
    reply = msgspec.convert(body, Chat)
    choice = next((choice for choice in reply.choices if choice.index == 0), None)
    if choice is None:
        raise ValueError("no choice has index 0")
    message = choice.message
    parts = message.content if isinstance(message.content, list) else [Part(text=message.content)]
    if unknown := next((part.type for part in parts if part.kind not in TEXT | THOUGHT | {"refusal"}), None):
        raise ValueError(f"a part of the unknown type `{unknown[:40]}`")
    refusal = message.refusal or "".join(part.refusal or "" for part in parts)
    return _reply(
        text=refusal or _joined(part for part in parts if part.kind in TEXT),
        reasoning=message.reasoning_content or message.reasoning or _joined(p for p in parts if p.kind in THOUGHT),
        finish=choice.finish_reason or "",
        refused=bool(refusal),
        usage=_counted(reply.usage, *CHAT_COUNTS),
        tokens=(msgspec.convert(choice.logprobs, Logprobs | None) or Logprobs()).content if question.logprobs else None,
        model=reply.model,
        question=question,
    )


def _joined(parts: Iterable[Part]) -> str:
    """Return the texts of parts, and of the parts inside thoughts."""
    inner = ((p, _joined(p.thinking) if isinstance(p.thinking, list) else p.thinking) for p in parts)
    return "".join(part.text or part.reasoning or thought or "" for part, thought in inner)


def _response(body: Any, question: Question) -> Reply:
    """The reasoning is the whole text if the server sends it, else a summary."""
    reply = msgspec.convert(body, Response)
    parts = [part for item in reply.output if item.type == "message" for part in item.content or []]
    thoughts = [item.content or item.summary or [] for item in reply.output if item.type == "reasoning"]
    refusals = [part.refusal for part in parts if part.type == "refusal" and part.refusal]
    tokens = [msgspec.convert(part.logprobs, list[Token] | None) or [] for part in parts] if question.logprobs else []
    return _reply(
        text="".join(refusals or [part.text or "" for part in parts if part.type == "output_text"]),
        reasoning="\n".join(part.text or "" for thought in thoughts for part in thought),
        finish=(reply.incomplete_details and reply.incomplete_details.reason) or reply.status or "",
        refused=bool(refusals),
        usage=_counted(reply.usage, *RESPONSE_COUNTS),
        tokens=[token for part in tokens for token in part],
        model=reply.model,
        question=question,
    )


def _reply(
    *,
    text: str | None,
    reasoning: str | None,
    finish: str,
    refused: bool,
    usage: tuple | None,
    tokens: list[Token] | None,
    model: Any,
    question: Question,
) -> Reply:
    text, reasoning = _clean(text or ""), _clean(reasoning or "")
    if any(not math.isfinite(token.logprob) for token in tokens or ()):
        raise ValueError("a log-probability is no finite number")
    stop, reason = ending(finish)
    return Reply(
        text=text,
        reasoning=reasoning or None,
        stop=stop,
        reason=Reason.REFUSED if refused and reason == Reason.OK else reason,
        finish=_clean(finish)[:64],
        usage=_believed(usage, question, text + reasoning),
        model=_clean(model)[:200] if isinstance(model, str) else "",
        logprobs=[{"token": _clean(t.token), "logprob": t.logprob} for t in tokens] if tokens else None,
    )


def _clean(text: str) -> str:
    """The text without halves of surrogate pairs, which a server sends that cuts inside a character."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _says(error: Any) -> bool:
    """Return whether the field `error` says anything: some servers send it empty with every answer."""
    return any(error.values()) if isinstance(error, dict) else bool(error)


def _error(error: Any) -> ErrorReply:
    fields = error if isinstance(error, dict) else {}
    code = str(fields.get("code", fields.get("status")))
    status = int(code) if code.isdecimal() and 400 <= int(code[:4]) <= 599 else None
    return ErrorReply(str(fields.get("message") or error)[:500], status)


# ------------------------------------------------------------------------------------------------------- what is counted


def _counted(usage: Any, read: str, written: str) -> tuple[Any, Any, Any, Any] | None:
    """The four counts as they were sent: read, cached, written, reasoning."""
    if not isinstance(usage, dict):
        return None
    details = [usage.get(f"{name}_details") for name in (read, written)]
    cached, thought = (
        part.get(name, 0) if isinstance(part, dict) else 0
        for part, name in zip(details, ("cached_tokens", "reasoning_tokens"), strict=True)
    )
    return usage.get(read), cached, usage.get(written), thought


def least(text: str) -> int:
    """Return a number of tokens that no tokenizer goes below: what zlib makes of a text, at TOKEN_BYTES a token."""
    return max(0, len(zlib.compress(text.encode(errors="replace"), 1)) - OVERHEAD) // TOKEN_BYTES


def _believed(counts: tuple | None, question: Question, wrote: str) -> Usage | None:
    """Return the counts, unless they cannot be true for the question and what was written."""
    if counts is None or counts[0] is None or counts[2] is None:
        return None
    numbers = [number for value in counts or () if (number := _count(value)) is not None]
    if len(numbers) < len(Usage._fields):
        return None
    prompt, cached, written, thought = numbers
    if thought > written:  # xAI counts reasoning apart
        written += thought
    most = max(TIMES * question.max_tokens + ABOVE, len(wrote.encode(errors="replace")))
    possible = (
        max(1, least("".join(content for _, content in question.messages))) <= prompt <= TIMES * question.size + ABOVE
        and cached <= prompt
        and max(bool(wrote), least(wrote)) <= written <= most
    )
    return Usage(prompt, cached, written, thought) if possible else None


def _count(value: Any) -> int | None:
    """A number of tokens, 0 for null; None for what is none."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53 or value != int(value):
        return None
    return int(value)
