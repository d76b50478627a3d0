"""Read conversations of foreign files: `messages`, `conversations` (ShareGPT), or `prompt` and `completion`.

From: the data formats of TRL (docs: "Dataset formats and types"), ShareGPT's `from` and `value`, and the messages of
OpenAI's protocol.

Differences from TRL:
1. A prompt and a completion that are texts become a user and an assistant message in the model's chat template. TRL trains
   on such texts without a template.
2. ShareGPT's speakers (`human`, `gpt`, `observation`) are converted to roles; TRL keeps them.
3. A malformed record is an error with its place. A conversation without anything to train on is a row with the reason.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proofmill.schema.errors import TableError, list_names, shorten
from proofmill.sources import record_fields
from proofmill.sources.file_formats import parse_json

FORMS = (("messages",), ("conversations",), ("prompt", "completion"))
EXTRA = ("system", "tools", "grade")
COLUMNS = (*(column for form in FORMS for column in form), *EXTRA)  # keys that `columns` of an entry may have
ROLES = {
    "system": "system", "developer": "developer", "user": "user", "human": "user", "assistant": "assistant",
    "gpt": "assistant", "chatgpt": "assistant", "model": "assistant", "bot": "assistant", "function_call": "assistant",
    "tool": "tool", "observation": "tool", "function": "tool", "function_response": "tool", "ipython": "tool",
}  # fmt: skip
FAULTS = {
    "empty": "there is no message, or all are empty",
    "unknown-role": "a role is not system, user, assistant or tool",
    "not-text": "a message has an image or another part that is not text",
    "no-assistant": "no assistant message has text or a call",
}


@dataclass(frozen=True)
class ChatRecord:
    """The conversation of a record; `fault` is the reason why it cannot be trained on (of FAULTS), or None."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None
    grade: float | None
    fault: str | None


def read(where: str, record: Mapping[str, Any], columns: Mapping[str, str]) -> ChatRecord:
    """Read the conversation of a record. `columns` maps COLUMNS to the record's columns; others are detected by name.

    Raises TableError for a record without such columns, and for values that are not messages.
    """
    form = next((form for form in FORMS if set(form) & set(columns)), None)
    present = [form for form in FORMS if all(column in record for column in form)]
    filled = [
        form for form in present if all(record[column] is not None for column in form)
    ]  # several files may have been merged
    form = form or next(iter([*filled, *present]), None)
    if form is None:
        raise TableError(
            f"{where}: no conversation among the columns {list_names(record)}; expected `messages`, `conversations`, or `prompt` and "
            "`completion`. Set yours, such as `columns: {prompt: question, completion: answer}`."
        )
    speakers = {"prompt": "user", "completion": "assistant"}
    messages = [
        message
        for column in form
        for message in _messages(where, record, columns.get(column, column), speakers.get(column))
    ]
    system = columns.get("system", "system" if "system" in record else None)
    instruction = record_fields.text(where, record, system) if system else None
    if instruction and instruction.strip() and not (messages and messages[0]["role"] == "system"):
        messages.insert(0, {"role": "system", "content": instruction})
    tools = columns.get("tools", "tools" if "tools" in record else None)
    grade = _number(where, record, columns["grade"]) if "grade" in columns else None
    return ChatRecord(messages, _tools(where, record, tools) if tools else None, grade, _fault(messages))


def _number(where: str, record: Mapping[str, Any], column: str) -> float | None:
    value = record_fields.field(where, record, column)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TableError(
            f"{where}: `{column}` is a {record_fields.kind_of(value)} ({shorten(value)}); expected a number."
        )
    return None if value is None or math.isnan(value) else float(value)


def _messages(where: str, record: Mapping[str, Any], column: str, speaker: str | None) -> Iterator[dict[str, Any]]:
    """Yield the messages of a column: a list, the JSON of a list, or one text of the role `speaker`."""
    value = record_fields.field(where, record, column)
    if isinstance(value, str):
        if speaker is not None:
            yield {"role": speaker, "content": value}
            return
        value = _json(where, column, value, "a list of messages")
    if isinstance(value, Mapping):  # TRL has `completion` as one message, too
        value = [value]
    for number, message in enumerate(record_fields.records(where, {column: value}, column), 1):
        yield _message(f"{where}: `{column}`, message {number}", message)


def _message(where: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a message: our role name, its text, and its other keys without nulls (columns of other messages)."""
    shared_gpt = "role" not in message and "from" in message
    who, what = ("from", "value") if shared_gpt else ("role", "content")
    role = record_fields.text(where, message, who)
    content = message.get(what)
    more = {key: _without_nulls(value) for key, value in message.items() if key not in (who, what)}
    more = {key: value for key, value in more.items() if value not in (None, [], {})}
    if role == "function_call":
        more["tool_calls"], content = [_json(where, what, content, "a call, {name: , arguments: }")], ""
    if "tool_calls" in more:
        more["tool_calls"] = [_call(where, call) for call in _list(where, more["tool_calls"], "tool_calls")]
    return {"role": ROLES.get(role or "", role), "content": _content(where, content, what), **more}


def _content(where: str, content: Any, column: str) -> str | None:
    """Return the text of a message; parts are joined if all are texts, else None."""
    if isinstance(content, list) and all(isinstance(part, Mapping) for part in content):
        texts = [part.get("text") for part in content]
        return "".join(texts) if all(isinstance(text, str) for text in texts) else None
    return record_fields.text(where, {column: content}, column) or ""


def _call(where: str, call: Any) -> dict[str, Any]:
    """Convert a tool call to the form of chat templates: arguments are an object, not JSON as in OpenAI's protocol."""
    call = dict(_object(where, call, "a call of a tool"))
    function = dict(_object(where, call.pop("function", call), "a call of a tool"))
    if isinstance(function.get("arguments"), str):
        function["arguments"] = _json(where, "arguments", function["arguments"] or "{}", "an object")
    if not isinstance(function.get("name"), str):
        raise TableError(f"{where}: a tool call has no `name` ({shorten(function)}); expected `name` and `arguments`.")
    extra = {key: value for key, value in call.items() if key in ("id", "type")}
    return {"type": "function", **extra, "function": function}


def _tools(where: str, record: Mapping[str, Any], column: str) -> list[Any] | None:
    """Return the tools that may be called; TRL and ShareGPT store a list or its JSON."""
    value = record_fields.field(where, record, column)
    if isinstance(value, str):
        value = _json(where, column, value, "a list of functions") if value.strip() else None
    if not value:
        return None
    return [_without_nulls(_object(where, tool, "a function")) for tool in _list(where, value, column)]


def _fault(messages: list[dict[str, Any]]) -> str | None:
    """Return the reason why a conversation cannot be trained on, or None."""
    if any(message["content"] is None for message in messages):
        return "not-text"
    if any(message["role"] not in ROLES.values() for message in messages):
        return "unknown-role"
    spoken = [message["role"] for message in messages if message["content"].strip() or message.get("tool_calls")]
    return "empty" if not spoken else None if "assistant" in spoken else "no-assistant"


# ---------------------------------------------------------------------------------------------------------------- JSON


def _json(where: str, column: str, text: Any, expected: str) -> Any:
    if not isinstance(text, str):
        raise TableError(
            f"{where}: `{column}` is a {record_fields.kind_of(text)} ({shorten(text)}); expected the JSON of {expected}."
        )
    try:
        return parse_json(text)
    except ValueError as error:
        raise TableError(
            f"{where}: `{column}` is a text but not JSON ({error}); expected {expected}. Fix or remove the row."
        ) from error


def _list(where: str, value: Any, column: str) -> list[Any]:
    if not isinstance(value, list):
        raise TableError(
            f"{where}: `{column}` is a {record_fields.kind_of(value)} ({shorten(value)}); expected a list."
        )
    return value


def _object(where: str, value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TableError(f"{where}: {what} is a {record_fields.kind_of(value)} ({shorten(value)}); expected an object.")
    return value


def _without_nulls(value: Any) -> Any:
    """Remove the nulls from objects: Parquet gives every object the keys of all."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
