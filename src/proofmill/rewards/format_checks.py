r"""Rate the form of a text, regardless of its content: tags, steps, repetition, code, paragraphs.

    <think>
    reasoning
    </think>
    <answer>
    answer
    </answer>

From: DeepSeek-R1 (section 2.2, format reward; section 2.3.3, texts dropped in rejection sampling), open-r1's
`rewards.py` (format, tag_count, reasoning_steps, repetition_penalty), the latter after "Demystifying Long
Chain-of-Thought Reasoning" (appendix C.2).

Differences from open-r1:
1. The full text must have the format, with each tag once. There, `$` matches at any line's end: more text may follow,
   and tags may be repeated.
2. A tag is counted anywhere, also if two tags share a line break.
3. The steps of a list count on each line, first line and numbered ones included; there, a number counts only at the
   beginning of the text. A decimal at the beginning of a line is not a step.
4. Chinese and Japanese are written without spaces, so each Han or Kana character is a word. There, a tokenizer segments
   Chinese on request.

If a chat template writes `<think>` into the prompt, completions lack it and none has the format. Restore it before
calling these functions.
"""

import re
from itertools import groupby

from proofmill.answers.extraction import find_boxes
from proofmill.text.languages import BY_CHARACTER, FENCED, script
from proofmill.text.reasoning import after_one_thought

LONG = 300  # words of a paragraph

# ----------------------------------------------------------------------------------------------------------------- tags

_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_EXACT = re.compile(r"<think>\n.*\n</think>\n<answer>\n.*\n</answer>", re.DOTALL)
_COUNTED = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")


def answer_format(text: str) -> float:
    """Return 1 for `<think>`, `</think>`, `<answer>` and `</answer>`, once each, as above, without text around; else 0.

    The text between the tags may be empty. The format reward of open-r1 (after DeepSeek-R1, section 2.2).
    """
    return float(all(text.count(tag) == 1 for tag in _TAGS) and _EXACT.fullmatch(text) is not None)


def think_format(text: str) -> float:
    """Return 1 for reasoning in one `<think>...</think>` at the beginning and text after it, else 0 (DeepSeek-R1)."""
    return float(after_one_thought(text) != "")


def reward_boxed_format(text: str) -> float:
    r"""Return 1 for `think_format` with exactly one `\boxed{...}` in the text after the reasoning, else 0."""
    return float(len(find_boxes(after_one_thought(text))) == 1)


FORMS = {"think-format": think_format, "boxed-format": reward_boxed_format, "answer-format": answer_format}


def tag_count(text: str) -> float:
    r"""Return 0.25 for each of `<think>\n`, `\n</think>\n`, `\n<answer>\n` and `\n</answer>` that occurs once."""
    return sum(len(re.findall(f"(?={re.escape(tag)})", text)) == 1 for tag in _COUNTED) / 4


# ---------------------------------------------------------------------------------------------------------------- steps

_STEP_WORDS = r"Step \d+:|First,|Second,|Next,|Finally,"
_STEP = re.compile(rf"{_STEP_WORDS}|^\d+\.(?!\d)|^[-*]", re.MULTILINE)
_PUBLISHED_STEP = re.compile(rf"{_STEP_WORDS}|^\d+\.|\n-|\n\*")


def reasoning_steps(text: str, as_published: bool = False) -> float:
    """Return min(1, n / 3) for n steps (open-r1): "Step 2:", "First,", "Next,", or "2.", "-", "*" at a line's start.

    `as_published` counts a number at the beginning of the text only, and bullets on every line but the first.
    """
    return min(1.0, len((_PUBLISHED_STEP if as_published else _STEP).findall(text)) / 3)


# ------------------------------------------------------------------------------------------------- words and paragraphs


def split_words(text: str) -> list[str]:
    """Split a text into words at spaces. Each Han or Kana character is a word; signs between them are not."""
    words: list[str] = []
    for chunk in text.split():
        if chunk.isascii():
            words.append(chunk)
            continue
        for by_character, group in groupby(chunk, lambda character: script(character) in BY_CHARACTER):
            part = "".join(group)
            if by_character:
                words.extend(part)
            elif part == chunk or any(map(str.isalnum, part)):
                words.append(part)
    return words


def repetition_penalty(text: str, n: int = 3, max_penalty: float = -1.0) -> float:
    """Return (1 - distinct / all) * max_penalty over the n-grams of the lower-cased words, in [max_penalty, 0].

    The result is 0 for fewer than n words. Raises ValueError for a positive penalty or an n below 1.
    """
    if n < 1 or max_penalty > 0:
        raise ValueError(
            f"repetition: n = {n} and a penalty of {max_penalty:g}; expected n of at least 1 and a penalty of at most 0. "
            "Fix the arguments."
        )
    words = split_words(text.lower())
    grams = list(zip(*(words[start:] for start in range(n)), strict=False))
    repeated = len(grams) - len(set(grams))
    return repeated / len(grams) * max_penalty if repeated else 0.0


def long_paragraphs(text: str, words: int = LONG) -> list[str]:
    """Return the paragraphs with more than `words` words; blank lines separate paragraphs."""
    blocks = groupby(text.split("\n"), key=lambda line: bool(line.strip()))
    paragraphs = ("\n".join(lines) for filled, lines in blocks if filled)
    return [paragraph for paragraph in paragraphs if len(split_words(paragraph)) > words]


def code_blocks(text: str) -> list[str]:
    """Return the fenced regions of a text, fences included; an unclosed one extends to the end."""
    return [match[0] for match in FENCED.finditer(text)]


def solution_steps(solution: str) -> int:
    """Count the lines of a GSM8K solution except the final answer; empty lines count (GSM8K length study)."""
    return sum(not line.startswith("####") for line in solution.split("\n"))
