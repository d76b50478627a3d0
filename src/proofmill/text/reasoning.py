"""Reasoning and answer of a model's text: where one ends and the other begins, for every reader of such texts.

Reasoning stands in `<think>` tags, or the server sent it separately, or it ends at a delimiter that the model declares.

How we differ from QED-Nano's evaluation:
1. A heading "Self-Evaluation" with a hyphen ends the solution too, and "Evaluation of the integral" does not.
2. A text that was cut off while thinking has an empty final part, with or without delimiters declared.
"""

import re
from collections.abc import Sequence
from typing import Any

OPEN, CLOSE = "<think>", "</think>"
OPENING = f"{OPEN}\n"  # as a chat template writes it that opens the reasoning itself

# A heading "Self-Evaluation" or "Final Evaluation", whatever follows on its line, or a heading "Evaluation" alone. A
# heading is marked by # or stands alone in bold.
_HYPHEN = r"[\s*_\-\u2010-\u2015]*"
_SELF_EVALUATION = re.compile(
    rf"^[ \t]*(?:#+[\s*_]*|\*\*[ \t]*)(?:(?:(?:Self|Final){_HYPHEN}){{1,2}}Evaluation\b[^\n]*|Evaluation[ *_]*(?::[^\n]*)?)\r?$",
    re.MULTILINE | re.IGNORECASE,
)


def final_part(text: str, reasoning: str | None = None) -> str:
    """The part of a text that is graded: the answer after the reasoning, without the writer's evaluation of it.

    With `reasoning`, which the server sent separately, all of `text` is the answer. Without it, a text whose `<think>`
    is never closed was cut off while thinking, and its final part is empty.
    """
    if reasoning is None:
        text = after_thought(text) if CLOSE in text else "" if OPEN in text else text
    return _SELF_EVALUATION.split(text)[0].strip()


def after_thought(text: str) -> str:
    """The text after the last `</think>`, stripped; all of a text without one."""
    return text.rpartition(CLOSE)[2].strip()


def after_one_thought(text: str) -> str:
    """The text after the reasoning, stripped; empty if the reasoning is not one block at the beginning of the text."""
    one_block = text.startswith(OPEN) and text.count(OPEN) == text.count(CLOSE) == 1
    return text.partition(CLOSE)[2].strip() if one_block else ""


def is_closed(text: str) -> bool:
    """Whether a text begins with reasoning that ends once."""
    return text.startswith(OPEN) and text.count(CLOSE) == 1


def thought(text: str) -> str:
    """The chain of thought: the text between `<think>` and the last `</think>`, or the end if it was cut off.

    Without `<think>` it begins with the text (a template wrote the tag); a text without tags has none.
    """
    before, closed, after = text.rpartition(CLOSE)
    head, opened, inside = (before if closed else after).partition(OPEN)
    return (inside if opened else head if closed else "").strip()


def thought_or_all(text: str) -> str:
    """The chain of thought; of a text without tags, all of it."""
    return thought(text) if "think>" in text else text


def split_at(text: str, delimiters: Sequence[str]) -> tuple[str, str]:
    """Reasoning and answer of a text in which one of the delimiters ends the reasoning, tried in their order.

    Without a delimiter, all of it is reasoning and the answer is empty: the text was cut off while thinking (as in the
    client of QED-Nano's benchmark).
    """
    for delimiter in delimiters:
        if delimiter in text:
            reasoning, _, answer = text.rpartition(delimiter)
            return reasoning, answer.strip()
    return text, ""


def with_thought(text: str | None, reasoning: str | None) -> str | None:
    """The text that a student learns to write: reasoning sent separately goes before the answer, in its tags."""
    if not reasoning or not reasoning.strip():
        return text
    return f"{OPEN}\n{reasoning.removeprefix(OPEN).strip()}\n{CLOSE}\n\n{text or ''}"


def without_key_step(solution: str) -> str | None:
    """A solution without its longest step (a paragraph, line or sentence, not the last); None with under three steps.

    The longest step is taken to hold the argument: a rule that needs no judge, and is wrong at times.
    """
    head, closed, body = solution.rpartition(CLOSE)
    for separator in ("\n\n", "\n", r"(?<=[.!?])\s+"):
        parts = re.split(f"({separator})", body)
        steps = [index for index in range(0, len(parts), 2) if parts[index].strip()]
        if len(steps) >= 3:
            longest = max(steps[:-1], key=lambda index: len(parts[index]))
            return (head + closed + "".join(parts[:longest] + parts[longest + 2 :])).strip()
    return None


def opens_thought(tokenizer: Any) -> bool:
    """Whether the chat template itself writes the tag that opens the reasoning: generated text then lacks it."""
    messages = [{"role": "user", "content": "?"}]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False).rstrip().endswith(OPEN)
