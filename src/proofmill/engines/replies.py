"""Replies of servers, read into typed and bounded records: the one door through which a server's words come in.

    Chat, Response    the records of the two protocols, with the fields that we read
    read              bytes -> Reply
    UnreadableReply   what is no reply: no JSON, other types, no choice

How we differ from the client's own types:
1. Fields that we do not read may hold anything; those that we read have their type, or the reply is unreadable.
2. A count of tokens is believed only if it can be true: not missing, negative, NaN, or far above what was sent and
   allowed. The text of such a reply counts all the same.
3. Every server's word for a text that was cut off, filtered or failed is known; a text as long as its limit was cut off.
"""

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import msgspec

from proofmill.calls.exchange import Question
from proofmill.schema.reasons import Stop

# Words for a text that was cut off at its limit: OpenAI, Anthropic, Gemini, Mistral, Together, TGI.
CUT_OFF = {
    "length", "max_tokens", "max_output_tokens", "model_length", "max_length", "token_limit",
    "model_context_window_exceeded",
}  # fmt: skip
ENDED = {"stop", "end_turn", "eos", "eos_token", "stop_sequence", "completed", "end"}
FILTERED = {"content_filter", "refusal", "safety", "recitation", "blocklist", "prohibited_content", "spii"}
FAILED = {"error", "abort", "failed", "cancelled", "incomplete", "malformed_function_call"}
# A server's template adds tokens to what we send, and some servers do not keep the limit: a count is believed up to
# this many times, and this much above, what it should be at most.
TIMES, ABOVE = 10, 10_000


class UnreadableReply(Exception):
    """A reply that is none; the message says what was found."""


class ErrorReply(Exception):
    """An error sent as a success: the server's message, and its status if it names one."""

    def __init__(self, message: str, status: int | None):
        super().__init__(message)
        self.status = status


# ----------------------------------------------------------------------------------------------- the two protocols


class Part(msgspec.Struct):
    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    logprobs: Any = None  # of interest where they were asked for


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
    finish: str
    refused: bool
    failed: bool
    usage: Usage | None
    model: str
    logprobs: list[dict[str, Any]] | None


def read(raw: bytes, protocol: str, question: Question) -> Reply:
    """The reply to a question. Raises UnreadableReply, or ErrorReply for an error that was sent as a success."""
    try:
        body = json.loads(raw)
        if isinstance(body, dict) and body.get("error") and not body.get("choices") and not body.get("output"):
            raise _error(body["error"])
        reader = _response if protocol == "responses" else _chat
        return reader(body, question)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        start = raw[:80].decode(errors="replace")
        raise UnreadableReply(f"{type(error).__name__}: {str(error)[:200]}; it begins with {start!r}") from error


def _chat(body: Any, question: Question) -> Reply:
    reply = msgspec.convert(body, Chat)
    choice, message = reply.choices[0], reply.choices[0].message
    content = message.content
    text = "".join(part.text or "" for part in content) if isinstance(content, list) else content
    return _reply(
        text=message.refusal or text,
        reasoning=message.reasoning_content or message.reasoning,
        finish=choice.finish_reason or "",
        refused=bool(message.refusal),
        usage=_counted(reply.usage, "prompt_tokens", "completion_tokens"),
        tokens=(msgspec.convert(choice.logprobs, Logprobs | None) or Logprobs()).content if question.logprobs else None,
        model=reply.model,
        question=question,
    )


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
        usage=_counted(reply.usage, "input_tokens", "output_tokens"),
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
    word, text, reasoning = finish.lower(), _clean(text or ""), _clean(reasoning or "")
    if any(not math.isfinite(token.logprob) for token in tokens or ()):
        raise ValueError("a log-probability is no finite number")
    believed = _believed(usage, question, bool(text or reasoning))
    full = believed is not None and believed.written >= question.max_tokens and word not in ENDED
    return Reply(
        text=text,
        reasoning=reasoning or None,
        stop=Stop.LENGTH if word in CUT_OFF or (full and word not in FILTERED) else Stop.END,
        finish=finish[:64],
        refused=refused or word in FILTERED,
        failed=word in FAILED,
        usage=believed,
        model=_clean(model)[:200] if isinstance(model, str) else "",
        logprobs=[{"token": _clean(t.token), "logprob": t.logprob} for t in tokens] if tokens else None,
    )


def _clean(text: str) -> str:
    """The text without halves of surrogate pairs, which a server sends that cuts inside a character."""
    return text if text.isascii() else text.encode(errors="replace").decode()


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


def _believed(counts: tuple | None, question: Question, wrote: bool) -> Usage | None:
    """The counts, unless they cannot be true."""
    numbers = [number for value in counts or () if (number := _count(value)) is not None]
    if len(numbers) < len(Usage._fields):
        return None
    prompt, cached, written, thought = numbers
    if thought > written:  # xAI counts reasoning apart
        written += thought
    possible = (
        0 < prompt <= TIMES * question.size + ABOVE
        and cached <= prompt
        and wrote <= written <= TIMES * question.max_tokens + ABOVE
    )
    return Usage(prompt, cached, written, thought) if possible else None


def _count(value: Any) -> int | None:
    """A number of tokens, 0 for null; None for what is none."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53 or value != int(value):
        return None
    return int(value)
