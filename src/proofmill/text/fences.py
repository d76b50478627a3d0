"""Extract fenced blocks, and the `<answer>` part of a reply, in the forms that prompts ask for."""

import re

_FENCE = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n`]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_FORM = re.compile(r"\s*<think>.*</think>\s*<answer>.*</answer>\s*", re.DOTALL)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def find_fenced(text: str, *languages: str) -> list[str]:
    """Return the contents of the closed fenced blocks of some languages, in order; a bare one has the language ``."""
    return [content.rstrip("\n") for language, content in _FENCE.findall(text) if language.lower() in languages]


def is_formed(reply: str) -> bool:
    """Return whether a reply is `<think>...</think> <answer>...</answer>`, each tag once, with only space around."""
    return all(reply.count(tag) == 1 for tag in _TAGS) and _FORM.fullmatch(reply) is not None


def answer(reply: str) -> str:
    """Return the text between the last `<answer>` and the next `</answer>`, stripped; empty without both."""
    _, opened, rest = reply.rpartition("<answer>")
    inside, closed, _ = rest.partition("</answer>")
    return inside.strip() if opened and closed else ""
