"""Server replies, parsed and validated into typed, bounded records. All server text enters through this module.

    Chat, Response, Embeddings    the records of the protocols, with the fields that are used
    read                          bytes -> Reply
    UnreadableReply               raised for an invalid reply: not JSON, other types, no choice

Differences from the client's own types:
1. Unused fields may hold anything; used fields have their type, or the reply is unreadable.
2. A token count is accepted only if it is plausible: not missing, negative, NaN, or far above the request and its
   limit. Otherwise only the usage is discarded; the text of the reply still counts.
3. A finish reason is accepted if it is in a closed list (calls/model_requests.py). Any other one, null or none is a failure.
4. A count that is too small for the text is implausible, too: `1 + 1` for 400 bytes. Tokens that only the total has
   were written: some servers count reasoning nowhere else.
5. Only the choice with index 0 is read, and only its parts of known types. Thoughts are reasoning, not answer.
"""

import base64
import json
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from proofmill.calls.model_requests import ModelRequest, ending
from proofmill.decontamination.embeddings import pack
from proofmill.schema.reasons import Reason, StopReason

# A server's template adds tokens to the request, and some servers exceed the limit. So a count may be up to this many
# times its expected maximum, plus this.
TIMES, ABOVE = 10, 10_000
CHAT_COUNTS, RESPONSE_COUNTS = ("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens")
# A token adds at most this many bytes to the size of a text under zlib. Measured with the vocabulary of Qwen2: 1.0 to
# 2.8 bytes for prose, formulas and code, 0.6 to 1.5 in four other scripts, 8.3 for a list of long English words, 0.04
# in a loop.
TOKEN_BYTES, OVERHEAD = 16, 16
# Types of the parts of a message, without `_`.
TEXT, THOUGHT = {"text", "outputtext"}, {"thinking", "reasoning", "reasoningtext", "redactedthinking", "summarytext"}


class UnreadableReply(Exception):
    """An invalid reply; the message says what it contains instead."""


class ErrorReply(Exception):
    """An error sent as a success: the server's message, and its status if it names one."""

    def __init__(self, message: str, status: int | None):
        super().__init__(_clean(message))
        self.status = status


# ----------------------------------------------------------------------------------------------- the two protocols


class ReplyPart(msgspec.Struct):
    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    thinking: "str | list[ReplyPart] | None" = None  # Anthropic's text, Mistral's parts
    reasoning: str | None = None
    logprobs: Any = None  # checked only if the request asks for them

    @property
    def kind(self) -> str:
        return self.type.replace("_", "").lower()


class Message(msgspec.Struct):
    content: str | list[ReplyPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None


class TokenLogprob(msgspec.Struct):
    token: str
    logprob: float


class Logprobs(msgspec.Struct):
    content: list[TokenLogprob] | None = None


class Choice(msgspec.Struct):
    message: Message
    index: int = 0
    finish_reason: str | None = None
    logprobs: Any = None  # checked only if the request asks for them


class Chat(msgspec.Struct):
    """A Chat Completion."""

    choices: Annotated[list[Choice], msgspec.Meta(min_length=1)]
    usage: Any = None
    model: Any = None


class Item(msgspec.Struct):
    type: str
    content: list[ReplyPart] | None = None
    summary: list[ReplyPart] | None = None


class Vector(msgspec.Struct):
    index: int
    embedding: list[float] | str  # numbers, or Base64 of little-endian 32-bit floats


class Embeddings(msgspec.Struct):
    """The vectors of the inputs of a request."""

    data: list[Vector]
    usage: Any = None
    model: Any = None


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
    """Token counts: prompt, of these cached, output, of these reasoning."""

    prompt: int
    cached: int
    written: int
    thought: int


@dataclass(frozen=True)
class ServerReply:
    """The content of a reply, independent of the protocol. `usage` is None if it is missing or implausible."""

    text: str
    reasoning: str | None
    stop_reason: StopReason
    reason: Reason  # ok or refused; provider for an unknown finish reason
    finish_reason: str
    usage: Usage | None
    model: str
    logprobs: list[dict[str, Any]] | None


def read(raw: bytes, protocol: str, request: ModelRequest) -> ServerReply:
    """Parse the reply to a request. Raises UnreadableReply, or ErrorReply for an error that was sent as a success."""
    try:
        body = json.loads(raw)
        if isinstance(body, dict) and is_error(body.get("error")):
            raise _error(body["error"])
        return READERS[protocol](body, request)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        start = raw[:80].decode(errors="replace")
        message = _clean(str(error)[:200])
        raise UnreadableReply(f"{type(error).__name__}: {message}; it begins with {start!r}") from error


def usage_of(raw: bytes, request: ModelRequest) -> Usage | None:
    """Return the usage in the body of a failure; None if it has none, or if it is implausible."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    usage = body.get("usage") if isinstance(body, dict) else None
    counts = (_counts_of(usage, *names) for names in (CHAT_COUNTS, RESPONSE_COUNTS))
    return next((usage_of_call for each in counts if (usage_of_call := _plausible(each, request, ""))), None)


def _chat(body: Any, request: ModelRequest) -> ServerReply:
    reply = msgspec.convert(body, Chat)
    choice = next((choice for choice in reply.choices if choice.index == 0), None)
    if choice is None:
        raise ValueError("no choice has index 0")
    message = choice.message
    parts = message.content if isinstance(message.content, list) else [ReplyPart(text=message.content)]
    if unknown := next((part.type for part in parts if part.kind not in TEXT | THOUGHT | {"refusal"}), None):
        raise ValueError(f"a part of the unknown type `{unknown[:40]}`")
    refusal = message.refusal or "".join(part.refusal or "" for part in parts)
    return _reply(
        text=refusal or _join(part for part in parts if part.kind in TEXT),
        reasoning=message.reasoning_content or message.reasoning or _join(p for p in parts if p.kind in THOUGHT),
        finish=choice.finish_reason or "",
        refused=bool(refusal),
        usage=_counts_of(reply.usage, *CHAT_COUNTS),
        tokens=(msgspec.convert(choice.logprobs, Logprobs | None) or Logprobs()).content if request.logprobs else None,
        model=reply.model,
        request=request,
    )


def _join(parts: Iterable[ReplyPart]) -> str:
    """Return the joined texts of parts, and of the parts inside thoughts."""
    inner = ((p, _join(p.thinking) if isinstance(p.thinking, list) else p.thinking) for p in parts)
    return "".join(part.text or part.reasoning or thought or "" for part, thought in inner)


def _response(body: Any, request: ModelRequest) -> ServerReply:
    """Read a Response. Its reasoning is the full text if the server sends it, else a summary."""
    reply = msgspec.convert(body, Response)
    parts = [part for item in reply.output if item.type == "message" for part in item.content or []]
    thoughts = [item.content or item.summary or [] for item in reply.output if item.type == "reasoning"]
    refusals = [part.refusal for part in parts if part.type == "refusal" and part.refusal]
    tokens = (
        [msgspec.convert(part.logprobs, list[TokenLogprob] | None) or [] for part in parts] if request.logprobs else []
    )
    return _reply(
        text="".join(refusals or [part.text or "" for part in parts if part.type == "output_text"]),
        reasoning="\n".join(part.text or "" for thought in thoughts for part in thought),
        finish=(reply.incomplete_details and reply.incomplete_details.reason) or reply.status or "",
        refused=bool(refusals),
        usage=_counts_of(reply.usage, *RESPONSE_COUNTS),
        tokens=[token for part in tokens for token in part],
        model=reply.model,
        request=request,
    )


def _embeddings(body: Any, request: ModelRequest) -> ServerReply:
    """Read one vector for each input, in the order of the inputs, normalized."""
    reply = msgspec.convert(body, Embeddings)
    data, number = sorted(reply.data, key=lambda vector: vector.index), len(request.messages)
    if (indices := [vector.index for vector in data]) != list(range(number)):
        raise ValueError(f"{len(data)} vectors, with the indices {str(indices)[:40]}, for {number} inputs")
    vectors = [
        np.frombuffer(base64.b64decode(e, validate=True), "<f4")
        if isinstance(e := each.embedding, str)
        else np.array(e)
        for each in data
    ]
    if len(sizes := {len(vector) for vector in vectors}) > 1 or 0 in sizes:
        raise ValueError(f"vectors of {' and '.join(map(str, sorted(sizes)))} dimensions")
    norms = [math.hypot(*vector) for vector in vectors]
    if odd := [place for place, norm in enumerate(norms) if not (norm and math.isfinite(norm))]:
        raise ValueError(f"vector {odd[0]} {'has values that are not finite' if norms[odd[0]] else 'is zero'}")
    usage = {"completion_tokens": 0, **reply.usage} if isinstance(reply.usage, dict) else None
    facts: dict[str, Any] = {"usage": _counts_of(usage, *CHAT_COUNTS), "model": reply.model, "request": request}
    without = _reply(text="", reasoning=None, finish="stop", refused=False, tokens=None, **facts)
    return replace(without, text=pack(vector[None] / norm for vector, norm in zip(vectors, norms, strict=True)))


READERS = {"chat": _chat, "responses": _response, "embeddings": _embeddings}


def _reply(
    *,
    text: str | None,
    reasoning: str | None,
    finish: str,
    refused: bool,
    usage: tuple | None,
    tokens: list[TokenLogprob] | None,
    model: Any,
    request: ModelRequest,
) -> ServerReply:
    text, reasoning = _clean(text or ""), _clean(reasoning or "")
    if any(not math.isfinite(token.logprob) for token in tokens or ()):
        raise ValueError("a log-probability is no finite number")
    stop, reason = ending(finish)
    return ServerReply(
        text=text,
        reasoning=reasoning or None,
        stop_reason=stop,
        reason=Reason.REFUSED if refused and reason == Reason.OK else reason,
        finish_reason=_clean(finish)[:64],
        usage=_plausible(usage, request, text + reasoning),
        model=_clean(model)[:200] if isinstance(model, str) else "",
        logprobs=[{"token": _clean(t.token), "logprob": t.logprob} for t in tokens] if tokens else None,
    )


def _clean(text: str) -> str:
    """Replace lone surrogates, which a server sends if it truncates inside a character."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def is_error(error: Any) -> bool:
    """Return whether the field `error` is not empty; some servers send an empty one with every answer."""
    return any(error.values()) if isinstance(error, dict) else bool(error)


def _error(error: Any) -> ErrorReply:
    fields = error if isinstance(error, dict) else {}
    code = str(fields.get("code", fields.get("status")))
    status = int(code) if code.isdecimal() and 400 <= int(code[:4]) <= 599 else None
    return ErrorReply(str(fields.get("message") or error)[:500], status)


# ------------------------------------------------------------------------------------------------------- token counts


def _counts_of(usage: Any, read: str, written: str) -> tuple[Any, Any, Any, Any, int] | None:
    """Return four counts as they were sent: prompt, cached, output, reasoning; and the total, 0 if it is no count."""
    if not isinstance(usage, dict):
        return None
    details = [usage.get(f"{name}_details") for name in (read, written)]
    cached, thought = (
        part.get(name, 0) if isinstance(part, dict) else 0
        for part, name in zip(details, ("cached_tokens", "reasoning_tokens"), strict=True)
    )
    return usage.get(read), cached, usage.get(written), thought, _parse_count(usage.get("total_tokens")) or 0


def min_tokens(text: str) -> int:
    """Return a lower bound of the tokens of a text for any tokenizer: its size under zlib, at TOKEN_BYTES a token."""
    return max(0, len(zlib.compress(text.encode(errors="replace"), 1)) - OVERHEAD) // TOKEN_BYTES


def _plausible(counts: tuple | None, request: ModelRequest, wrote: str) -> Usage | None:
    """Return the counts if they are plausible for the request and the output `wrote`, else None."""
    if counts is None or counts[0] is None or counts[2] is None:
        return None
    numbers = [number for value in counts if (number := _parse_count(value)) is not None]
    if len(numbers) < len(counts):
        return None
    prompt, cached, written, thought, together = numbers
    if thought > written:  # xAI counts reasoning separately
        written += thought
    most = max(TIMES * request.max_tokens + ABOVE, len(wrote.encode(errors="replace")))
    if written < together - prompt <= most:
        written = together - prompt
    possible = (
        max(1, min_tokens("".join(content for _, content in request.messages)))
        <= prompt
        <= TIMES * request.size + ABOVE
        and cached <= prompt
        and max(bool(wrote), min_tokens(wrote)) <= written <= most
    )
    return Usage(prompt, cached, written, thought) if possible else None


def _parse_count(value: Any) -> int | None:
    """Return a number of tokens: 0 for null, None if it is not a count."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53 or value != int(value):
        return None
    return int(value)
