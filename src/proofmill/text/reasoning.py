"""Split a model's text into reasoning and answer.

Reasoning is in `<think>` tags, or the server sent it separately, or it ends at a delimiter that the model declares.

Differences from QED-Nano's evaluation:
1. A model's evaluation of its own solution is removed only if a grader's entry asks for it (`self-evaluation`).
   Otherwise a policy could hide text below such a heading.
2. A heading "Self-Evaluation" with a hyphen ends the solution too, and "Evaluation of the integral" does not.
3. Proofs evaluate sums and integrals, and a section of a proof may have such a heading. It ends the solution only if
   little mathematics follows: at most a quarter of the signs of formulas (`$`, `\\`, `^`, `_`, relations) before it. An
   evaluation that repeats the proof therefore stays, and the judge sees it.
4. A text that is truncated during reasoning has an empty final part, with or without declared delimiters. A tag
   `<think>` later in a text is a mention, not reasoning.
"""

import re
from collections.abc import Sequence
from typing import Any

OPEN, CLOSE = "<think>", "</think>"
OPENING = f"{OPEN}\n"  # as written by chat templates that open the reasoning themselves

# A heading "Self-Evaluation" or "Final Evaluation", with any text after it, or a heading "Evaluation" alone. A heading
# begins with # or is a line in bold.
_HYPHEN = r"[\s*_\-\u2010-\u2015]*"
_SELF_EVALUATION = re.compile(
    rf"^[ \t]*(?:#+[\s*_]*|\*\*[ \t]*)(?:(?:(?:Self|Final){_HYPHEN}){{1,2}}Evaluation\b[^\n]*|Evaluation[ *_]*(?::[^\n]*)?)\r?$",
    re.MULTILINE | re.IGNORECASE,
)
_FORMULA_SIGN = re.compile(r"[$\\^_=≤≥≡≠]")
# Share of the signs before a heading. An evaluation mentions a few formulas, a section of a proof consists of them.
_LITTLE = 1 / 4


def final_part(text: str, reasoning: str | None = None) -> str:
    """Return the part of a text that is graded: the answer after the reasoning.

    With `reasoning`, which the server sent separately, all of `text` is the answer. Without it, the answer follows the
    last `</think>`. A text that begins with `<think>` and never closes it was truncated during reasoning; its final
    part is empty. Any other text is an answer, also if it mentions the tag.
    """
    if reasoning is None:
        text = "" if is_truncated(text) else after_thought(text)
    return text.strip()


def without_evaluation(text: str) -> str:
    """Return an answer without the model's own evaluation: up to its first heading with little mathematics below."""
    signs = before = place = 0
    for heading in _SELF_EVALUATION.finditer(text):
        signs = signs or len(_FORMULA_SIGN.findall(text))
        before += len(_FORMULA_SIGN.findall(text, place, heading.start()))
        place = heading.start()
        if signs - before <= _LITTLE * before:
            return text[:place].strip()
    return text


def is_truncated(text: str) -> bool:
    """Return whether a text begins with reasoning that never ends; a template's opening tag is part of the text."""
    return CLOSE not in text and text.lstrip().startswith(OPEN)


def after_thought(text: str) -> str:
    """Return the text after the last `</think>`, stripped; all of a text without one."""
    return text.rpartition(CLOSE)[2].strip()


def after_one_thought(text: str) -> str:
    """Return the text after the reasoning, stripped; empty unless the reasoning is one block at the beginning."""
    one_block = text.startswith(OPEN) and text.count(OPEN) == text.count(CLOSE) == 1
    return text.partition(CLOSE)[2].strip() if one_block else ""


def is_closed(text: str) -> bool:
    """Return whether a text begins with reasoning that ends once."""
    return text.startswith(OPEN) and text.count(CLOSE) == 1


def thought(text: str) -> str:
    """Return the chain of thought: the text between `<think>` and the last `</think>`, or the end if truncated.

    Without `<think>` it begins with the text (a template wrote the tag). A text without `</think>` that is not
    truncated has none.
    """
    if CLOSE not in text:
        return text.partition(OPEN)[2].strip() if is_truncated(text) else ""
    head, opened, inside = text.rpartition(CLOSE)[0].partition(OPEN)
    return (inside if opened else head).strip()


def thought_or_all(text: str) -> str:
    """Return the chain of thought; of a text without one, all of it."""
    return thought(text) if CLOSE in text or is_truncated(text) else text


def split_at(text: str, delimiters: Sequence[str]) -> tuple[str, str]:
    """Return (reasoning, answer) of a text, split at the last occurrence of the first delimiter that it contains.

    Without a delimiter, all of it is reasoning and the answer is empty: the text was truncated during reasoning (as in
    the client of QED-Nano's benchmark).
    """
    for delimiter in delimiters:
        if delimiter in text:
            reasoning, _, answer = text.rpartition(delimiter)
            return reasoning, answer.strip()
    return text, ""


def with_thought(text: str | None, reasoning: str | None) -> str | None:
    """Return the text to train on: separate reasoning is put before the answer, in its tags."""
    if not reasoning or not reasoning.strip():
        return text
    return f"{OPEN}\n{reasoning.removeprefix(OPEN).strip()}\n{CLOSE}\n\n{text or ''}"


def without_key_step(solution: str) -> str | None:
    """Return a solution without its longest step (a paragraph, line or sentence, not the last); None below 3 steps.

    The longest step is assumed to hold the argument. This heuristic needs no judge, and is sometimes wrong.
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
    """Return whether the chat template itself writes the tag that opens the reasoning; generated text then lacks it."""
    messages = [{"role": "user", "content": "?"}]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False).rstrip().endswith(OPEN)
