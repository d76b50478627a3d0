r"""One final answer is what the last box of a text holds, or the number of its `#### 18` line.

From: the answer extraction of IMO-AnswerBench's autograder and of MathArena; GSM8K (Cobbe et al. 2021) for `####`.

How it differs:
1. Braces are balanced as TeX balances them: `\{` and `\}` are signs, no braces, and a box that is never closed is none.
2. A box that spans lines stands on the line where it begins (there, only boxes within one line are seen).
3. `\boxed 5` without braces is a box; TeX would box the first digit of `\boxed 42`, here it is the number.
4. `####` counts before a number alone: it is also how Markdown writes a heading.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple


class _Box(NamedTuple):
    start: int  # of the command
    begin: int  # of what is boxed
    end: int
    stop: int  # after the closing brace


_SIGNS = re.compile(
    r"""\\(?:boxed|fbox)(?![A-Za-z])\s*(?:(?P<opens>\{)|(?P<token>[-+]?[0-9]+(?:\.[0-9]+)?|[A-Za-z](?![A-Za-z])|\\[A-Za-z]+))
    |(?<![A-Za-z])(?:boxed|fbox)(?P<bare>\{)
    |\\.
    |(?P<brace>[{}])""",
    re.VERBOSE | re.DOTALL,
)
_FIRST = re.compile(r"\\*(?:boxed|fbox)")
_HASHES = re.compile(r"^[ \t]*\#{4}[ \t]*([-+]?\$?[0-9.,]*[0-9]%?)\.?[ \t\r]*$", re.MULTILINE)
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")


def _boxes(text: str) -> list[_Box]:
    """All boxes that are closed, in the order in which they begin; one pass, however many are open."""
    if not (first := _FIRST.search(text)):
        return []
    found, opened = [], []  # what is open: a box up to its content, or None for a brace of another kind
    for sign in _SIGNS.finditer(text, first.start()):
        if sign["token"]:
            found.append(_Box(sign.start(), sign.start("token"), sign.end(), sign.end()))
        elif sign["opens"] or sign["bare"]:
            opened.append((sign.start(), sign.end()))
        elif sign["brace"] == "{":
            opened.append(None)
        elif sign["brace"] and opened and (box := opened.pop()):
            found.append(_Box(*box, sign.start(), sign.end()))
    return sorted(found)


def _outermost(boxes: list[_Box]) -> Iterator[_Box]:
    stop = 0
    for box in boxes:
        if box.start >= stop:
            stop = box.stop
            yield box


def _content(text: str, box: _Box) -> str:
    """What is boxed, without the boxes inside it: their commands and closing braces go."""
    inside = text[box.begin : box.end]
    gone = sorted(span for inner in _boxes(inside) for span in ((inner.start, inner.begin), (inner.end, inner.stop)))
    kept, place = [], 0
    for start, stop in gone:
        kept.append(inside[place:start])
        place = stop
    return "".join([*kept, inside[place:]]).strip()


def boxed(text: str) -> list[str]:
    r"""What stands in each `\boxed{...}` or `\fbox{...}` of a text, in order; a box inside a box is part of the outer one."""
    return [_content(text, box) for box in _outermost(_boxes(text))]


def extract(text: str) -> str | None:
    """The final answer of a text; None when it gives none.

    That is the box on the lowest line on which one begins, several there joined by commas. Without a box, it is the
    number on the last line of GSM8K's form, `#### 1,080`, without the commas. A box that is empty is no answer.
    """
    if boxes := list(_outermost(_boxes(text))):
        line = text.rfind("\n", 0, boxes[-1].start)
        return ",".join(filter(None, (_content(text, box) for box in boxes if box.start > line))) or None
    hashes = _HASHES.findall(text)
    return _THOUSANDS.sub("", hashes[-1]) if hashes else None


SHOWN = 5  # lines


def shown(text: str) -> str:
    """What a judge of final answers is shown of a text: its answer, else its last five lines, else all of it."""
    lines = text.strip().split("\n")
    return extract(text) or ("..." + "\n".join(lines[-SHOWN:]) if len(lines) >= SHOWN else text)


def of_gold(gold: str) -> str:
    """The answer that a gold column gives: bare, in dollars, boxed, or the solution that ends in it."""
    return extract(gold) or gold.strip()


# ---------------------------------------------------------------------------------------------------------- normal form

_SPELLING = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)
_SPACES = frozenset(  # dollars part as spaces do
    ("\\,", "\\;", "\\:", "\\>", "\\ ", "\\\n", "\\quad", "\\qquad", "~", "$", "\\(", "\\)", "\\[", "\\]")
)
_SAME = {"\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\!": ""}
_BROKEN_ROW_END = re.compile(r"\\[-.0-9]")
_CLOSE_LIST = re.compile(r"(?<=[0-9]), (?![0-9]{3}(?![0-9]))")


def normal(answer: str) -> str:
    r"""One spelling of an answer: two answers of one normal form are the same, though `1/2` and `0.5` have two.

    Dollars, \left and \right, the size of fractions, spaces and a dot at the end are no part of an answer. A space
    stays (one) where two answers could differ by it: between letters or digits, before a unit, and in `1, 234`.
    A row of a matrix may end in one backslash, where a data set lost the other: `\5` is nothing in LaTeX.
    """
    matrix = "matrix}" in answer
    written: list[str] = []
    space = sized = False  # what stands before the next sign
    for sign in _SPELLING.findall(answer):
        sign = _SAME.get(sign, sign)
        if sign in _SPACES or sign.isspace():
            space = True
        elif sign in ("\\left", "\\right"):
            sized = True
        elif sized and sign == ".":  # `\right.` is a bracket that is not there
            sized = False
        elif sign:
            if matrix and _BROKEN_ROW_END.match(sign):
                sign = "\\\\" + sign[1]
            if space and written and _apart(written, sign):
                written.append(" ")
            written.append(sign)
            space = sized = False
    text = _CLOSE_LIST.sub(",", "".join(written))
    return text[:-1] if text.endswith(".") and not text.endswith("..") else text


def _apart(written: list[str], sign: str) -> bool:
    """Whether a space before a sign may say something."""
    last = written[-1]
    if last[0] == "\\" or last in ")]":
        return sign.isalpha()
    return sign.isalnum() and (last.isalnum() or (last == "," and written[-2:-1] != [] and written[-2].isdigit()))
