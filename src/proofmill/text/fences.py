"""Fenced blocks of a text and the part of a reply that answers, as prompts ask for them."""

import re

_FENCE = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n`]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_FORM = re.compile(r"\s*<think>.*</think>\s*<answer>.*</answer>\s*", re.DOTALL)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def fenced(text: str, *languages: str) -> list[str]:
    """The contents of the closed fenced blocks of some languages, in order; the language of a bare one is ``."""
    return [content.rstrip("\n") for language, content in _FENCE.findall(text) if language.lower() in languages]


def is_formed(reply: str) -> bool:
    """Whether a reply is `<think>...</think> <answer>...</answer>`, each tag once and nothing but space around them."""
    return all(reply.count(tag) == 1 for tag in _TAGS) and _FORM.fullmatch(reply) is not None


def answer(reply: str) -> str:
    """The text between the last `<answer>` and the next `</answer>`, stripped; empty without both."""
    _, opened, rest = reply.rpartition("<answer>")
    inside, closed, _ = rest.partition("</answer>")
    return inside.strip() if opened and closed else ""
