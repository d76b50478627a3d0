"""Convert messages of a conversation between the form of chat templates and that of the tables.

A message has a role and a text. Other fields (calls of tools, the name of a tool, separate reasoning) differ from model
to model, so a table holds them as JSON in `extra`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # keys of separate reasoning
_TAGS = re.compile(r"</?think>")
_ESCAPES = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|[bfnrt])")
_OTHERS = re.compile("[\\W_\U00010000-\U0010ffff]+")  # JSON escapes characters beyond U+FFFF in two halves
_SHORT = 40  # letters and digits; shorter parts may occur elsewhere by chance, so their occurrences are counted


def to_row(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in the form of a table."""
    more = {key: value for key, value in message.items() if key not in ("role", "content")}
    text = json.dumps(more, ensure_ascii=False, default=str) if more else None
    return {"role": message["role"], "content": message["content"], "extra": text}


def from_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in the form of a chat template."""
    more = json.loads(row["extra"]) if row.get("extra") else {}
    return {"role": row["role"], "content": row["content"], **more}


def tools_from(text: str | None) -> list[dict[str, Any]] | None:
    """Return the functions that an assistant may call, from the JSON of a table; None without any."""
    return json.loads(text) if text else None


# ----------------------------------------------------------------------------------------- omissions of a chat template


def find_unrendered(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, rendered: str, answer_only: bool = False
) -> str | None:
    """Return the name of the first part of a conversation that is missing in its rendered text; None if all are in it.

    Parts are compared by their letters and digits, since templates trim, indent and escape. With `answer_only`, the
    reasoning of the assistant's earlier turns may be missing. Names of results repeat those of the calls.
    """
    parts = [(name, part, _letters(part)) for name, part in _parts(messages, tools, answer_only) if part.strip()]
    text = _letters(rendered)
    for name, part, letters in parts:
        expected = sum(other.count(letters) for _, _, other in parts) if 0 < len(letters) < _SHORT else 1
        if (text.count(letters) if letters else rendered.count(part.strip())) < expected:
            return name
    return None


def _letters(text: str) -> str:
    """Return the letters and digits of a text in lower case, with escapes of JSON resolved or removed."""
    plain = _ESCAPES.sub(lambda match: chr(int(match[1], 16)) if match[1] else "", text)
    return _OTHERS.sub("", plain).casefold()


def _parts(messages: Sequence[Mapping[str, Any]], tools: Any, answer_only: bool) -> Iterator[tuple[str, str]]:
    """Yield the parts of a conversation, each with its name."""
    for tool in tools or ():
        name = str(tool.get("function", tool).get("name", ""))
        yield f"the function `{name}` or a call of it", name
    for number, message in enumerate(messages, 1):
        where = f"message {number} ({message['role']})"
        text = _TAGS.split(message["content"] or "")
        complete = message["role"] != "assistant" or not answer_only or number == len(messages)
        yield from ((f"the text of {where}", part) for part in (text if complete else text[-1:]))
        yield from ((f"the reasoning of {where}", str(message.get(key) or "")) for key in THOUGHTS if complete)
        if message["role"] != "tool":
            yield f"the name in {where}", str(message.get("name") or "")
        for call in message.get("tool_calls") or ():
            function = call["function"]
            yield f"a call of `{function['name']}` in {where}", function["name"]
            for leaf in _leaves(function.get("arguments")):
                yield f"an argument of `{function['name']}` in {where}", leaf


def _leaves(value: Any) -> Iterator[str]:
    """Yield the names and values in arguments, as texts."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif value is not None:
        yield str(value)
