"""Messages of a conversation: as chat templates take them, and as the tables hold them.

A message has a role and a text. What else it may have (calls of tools, the name of a tool, reasoning apart from the
text) differs from model to model, so a table holds it as JSON in `more`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # keys of reasoning apart from the text
_TAGS = re.compile(r"</?think>")
_ESCAPES = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|[bfnrt])")
_OTHERS = re.compile("[\\W_\U00010000-\U0010ffff]+")  # an escape of JSON is of half of what is beyond
_SHORT = 40  # letters and digits of what may be written elsewhere by chance, so that its occurrences are counted


def to_row(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as a table holds it."""
    more = {key: value for key, value in message.items() if key not in ("role", "content")}
    text = json.dumps(more, ensure_ascii=False, default=str) if more else None
    return {"role": message["role"], "content": message["content"], "more": text}


def from_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A message as a chat template takes it."""
    more = json.loads(row["more"]) if row.get("more") else {}
    return {"role": row["role"], "content": row["content"], **more}


def tools_from(text: str | None) -> list[dict[str, Any]] | None:
    """The functions that an assistant may call, from the JSON of a table; None without any."""
    return json.loads(text) if text else None


# ------------------------------------------------------------------------------------------- what a chat template leaves out


def unrendered(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, rendered: str, answer_only: bool = False
) -> str | None:
    """Return the first part of a conversation that its rendered text does not have; None if it has all of them.

    Parts are compared by their letters and digits, since templates trim, indent and escape. The thoughts of the
    assistant's earlier turns may be left out with `answer_only`. Names of results repeat those of the calls.
    """
    parts = [(what, part, _letters(part)) for what, part in _parts(messages, tools, answer_only) if part.strip()]
    text = _letters(rendered)
    for what, part, letters in parts:
        wanted = sum(other.count(letters) for _, _, other in parts) if 0 < len(letters) < _SHORT else 1
        if (text.count(letters) if letters else rendered.count(part.strip())) < wanted:
            return what
    return None


def _letters(text: str) -> str:
    """The letters and digits of a text, without escapes of JSON, in lower case."""
    plain = _ESCAPES.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", text)
    return _OTHERS.sub("", plain).casefold()


def _parts(messages: Sequence[Mapping[str, Any]], tools: Any, answer_only: bool) -> Iterator[tuple[str, str]]:
    """Yield the parts of a conversation, each with its name."""
    for tool in tools or ():
        name = str(tool.get("function", tool).get("name", ""))
        yield f"the function `{name}` or a call of it", name
    for number, message in enumerate(messages, 1):
        where = f"message {number} ({message['role']})"
        text = _TAGS.split(message["content"] or "")
        whole = message["role"] != "assistant" or not answer_only or number == len(messages)
        yield from ((f"the text of {where}", part) for part in (text if whole else text[-1:]))
        yield from ((f"the reasoning of {where}", str(message.get(key) or "")) for key in THOUGHTS if whole)
        if message["role"] != "tool":
            yield f"the name in {where}", str(message.get("name") or "")
        for call in message.get("tool_calls") or ():
            function = call["function"]
            yield f"a call of `{function['name']}` in {where}", function["name"]
            for leaf in _leaves(function.get("arguments")):
                yield f"an argument of `{function['name']}` in {where}", leaf


def _leaves(value: Any) -> Iterator[str]:
    """The names and values in arguments, as texts."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif value is not None:
        yield str(value)
