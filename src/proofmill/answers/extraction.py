r"""Extract final answers: a text's last box, or the number of its `#### 18` line; flexibly, also its last value.

From: the answer extraction of IMO-AnswerBench's autograder and of MathArena; GSM8K (Cobbe et al. 2021) for `####`;
lm-evaluation-harness, which reports GSM8K strictly and flexibly.

Differences from the originals:
1. Braces are balanced as in TeX: `\{` and `\}` are signs, not braces, and a box that is never closed does not count.
2. A box that spans lines belongs to the line where it begins (there, only boxes within one line are recognized).
3. `\boxed 5` without braces is a box. TeX would box the first digit of `\boxed 42`; here the box holds the number.
4. `####` counts only before a single number at the end of a line, because it is also a heading in Markdown.
5. If the last line with a box has several, all of them count if the problem asks for several values. Otherwise the last
   one counts, joined with those before it that only a comma, `and` or `or` separates. So `\\boxed{1} or \\boxed{2}` is
   one answer with two values, and wrong.
"""

import re
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from proofmill.answers.reading.spelling import COMMANDS, SIZES, spell


class _Box(NamedTuple):
    start: int  # of the command
    begin: int  # of the content
    end: int
    stop: int  # after the closing brace


_SIGNS = re.compile(
    r"""\\(?:boxed|fbox)(?![A-Za-z])\s*(?:(?P<opens>\{)|(?P<token>[-+−]?[0-9]+(?:\.[0-9]+)?|[A-Za-z](?![A-Za-z])|\\[A-Za-z]+))
    |(?<![A-Za-z])(?:boxed|fbox)(?P<bare>\{)
    |\\.
    |(?P<brace>[{}])""",
    re.VERBOSE | re.DOTALL,
)
_FIRST = re.compile(r"(?<!\\)\\*+(?:boxed|fbox)")
_HASHES = re.compile(r"(?:^|(?<=\s))\#{4}[ \t]*([-+−]?\$?[0-9.,]*[0-9]%?)\.?[ \t\r]*$", re.MULTILINE)
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")


def _boxes(text: str) -> list[_Box]:
    """Return all closed boxes in the order of their beginnings, in linear time."""
    if not (first := _FIRST.search(text)):
        return []
    boxes: list[_Box] = []
    opened: list[tuple[int, int] | None] = []  # start and beginning of a box, or None for a brace of another kind
    for sign in _SIGNS.finditer(text, first.start()):
        if sign["token"]:
            boxes.append(_Box(sign.start(), sign.start("token"), sign.end(), sign.end()))
        elif sign["opens"] or sign["bare"]:
            opened.append((sign.start(), sign.end()))
        elif sign["brace"] == "{":
            opened.append(None)
        elif sign["brace"] and opened and (box := opened.pop()):
            boxes.append(_Box(*box, sign.start(), sign.end()))
    return sorted(boxes)


def _outermost(boxes: list[_Box]) -> Iterator[_Box]:
    stop = 0
    for box in boxes:
        if box.start >= stop:
            stop = box.stop
            yield box


def _content(text: str, box: _Box) -> str:
    """Return the content of a box, without the commands and closing braces of the boxes inside it."""
    inside = text[box.begin : box.end]
    removed = sorted(span for inner in _boxes(inside) for span in ((inner.start, inner.begin), (inner.end, inner.stop)))
    kept, end = [], 0
    for start, stop in removed:
        kept.append(inside[end:start])
        end = stop
    return "".join([*kept, inside[end:]]).strip()


def find_boxes(text: str) -> list[str]:
    r"""Return the content of each `\boxed{...}` or `\fbox{...}`, in order; an inner box is part of the outer one."""
    return [_content(text, box) for box in _outermost(_boxes(text))]


_NO_WORDS = re.compile(r"[\W_]*+")


def closing_box(text: str) -> str | None:
    """Return the content of the box that ends a text, followed by punctuation at most; None without one."""
    last = deque(_outermost(_boxes(text)), maxlen=1)
    return _content(text, last[0]) if last and _NO_WORDS.fullmatch(text, last[0].stop) else None


def extract(text: str, several: bool = True) -> str | None:
    """Return the final answer of a text; None if it has none.

    The answer is the box on the lowest line on which a box begins. Of several boxes there, those that differ are joined
    by commas; without `several` only the last ones, separated by nothing but commas, `and` and `or`. Without a box, it
    is the number at the end of the last line in GSM8K's form, `#### 1,080`, without the commas. An empty box is no
    answer.
    """
    if contents := _last_boxes(text, several):
        return ",".join(contents)
    if contents is not None:
        return None
    hashes = _HASHES.findall(text)
    return _THOUSANDS.sub("", hashes[-1]) if hashes else None


_JOINS = re.compile(r"[\s,;$]*(?:(?:\\text\{\s*)?(?:and|or)(?:\s*\})?)?[\s,;$]*")


def _last_boxes(text: str, several: bool) -> list[str] | None:
    """Return the distinct contents of the boxes that count, without empty ones; None without a box."""
    if not (boxes := list(_outermost(_boxes(text)))):
        return None
    line = text.rfind("\n", 0, boxes[-1].start)
    boxes = [box for box in boxes if box.start > line]
    first = len(boxes) - 1
    while first and (several or _JOINS.fullmatch(text, boxes[first - 1].stop, boxes[first].start)):
        first -= 1
    contents = [content for box in reversed(boxes[first:]) if (content := _content(text, box))]
    return list(dict.fromkeys(contents))[::-1]


_LAST = re.compile(
    r"""(?<![\w.^_])(?<![\^_]\{)        # no exponent, index, part of a name or of a number
    (?:(?<![)\]}!])(?:[-−]|(?<![0-9]\s)–))?  # a sign, not the minus of a difference or the dash of a range
    (?:\\[dt]?frac\{[-−]?[0-9]{1,300}\}\{[0-9]{1,300}\} | \\?\$?[0-9][0-9,]*+(?:\.[0-9]+)?(?:/[0-9]+)?)""",
    re.VERBOSE,
)


def last_value(text: str) -> str | None:
    r"""Return the last number or fraction of a text, or None. lm-eval's `flexible-extract` of GSM8K, and fractions."""
    last = deque(_LAST.finditer(text), maxlen=1)
    return _THOUSANDS.sub("", re.sub(r"\\?\$", "", last[0][0])).rstrip(",") if last else None


_STATED = re.compile(
    r"""\banswer\s*(?:\s+is|:|=)\s*:?[\s*]*   # as models end: "The answer is **12**."
    (?:\$([^$\n]{1,200})\$|([^\s$*]{1,100}?))  # a formula in dollars, or a text without spaces
    [*.,;!]*(?=\s*$|\s+[A-Z])""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


def find_stated_answer(text: str) -> str | None:
    """Return the last answer that a text states in words ("the answer is ..."); None without one."""
    last = deque(_STATED.finditer(text), maxlen=1)
    return (last[0][1] or last[0][2] or "").strip() or None if last else None


_WRITTEN = re.compile(r"\\(?:text|math|bold)[a-z]*(?![a-z])|\\[()\[\]]|[*_$`{}~]|\\,|\\ ")  # how a letter is set
_ANSWERED = re.compile(r"(?i)\banswer(?:\s+choice)?(?=\s*(?:is|:|=|would be|must be)|\W*$)")
_LEAD = re.compile(r"(?i)(?:[\s:=]|(?:is|would be|must be|the|correct|answer|option|choice)\b)*")
_CHOICE = re.compile(
    r"[(\[]([A-Za-z])[)\]]|([A-Z])(?=[.):,;!]|\s*$|\s+(?:and|or|because|since)\b)|([a-z])(?=[.)]?\s*$)|([B-HJ-Z])(?![\w'])"
    r"|([AI])(?=[^\w'][^A-Za-z]*$)"  # `A 12`, but not `A 5-digit number`
)
_ALSO = re.compile(r"[.)\s]*(?:,|/|&|and\b|or\b)\s*(?:[(\[][A-Za-z][)\]]|[A-Z](?![\w'])|[a-z]\s*$)")


def read_choice(text: str) -> str | None:
    """Return the letter that a text chooses; "?" if it chooses several, None if it chooses none.

    It is in the last box, else follows the last "answer is" or "Answer:", else is the last line. Words of an option
    instead of its letter are no choice.
    """
    if (boxes := _last_boxes(text, several=True)) is not None:
        letters = [_letter(content) for content in boxes]
        return letters[0] if len(set(letters)) == 1 else "?" if any(letters) else None
    lines = [_WRITTEN.sub("", line).strip() for line in text.strip().split("\n")]
    for number in range(len(lines) - 1, -1, -1):
        if answered := list(_ANSWERED.finditer(lines[number])):
            following, after = lines[number][answered[-1].end() :], " ".join(lines[number + 1 :][:2])
            if after[:1].islower() and re.search(r"\b[ai]$", following):
                return None  # a word of a sentence that continues on the next line
            return _letter(following if _LEAD.sub("", following, count=1) else after)
    return _letter(lines[-1]) if re.fullmatch(r"\W*[A-Za-z]\W*|[(\[]?[A-Z][.):\]].*", lines[-1]) else None


def _letter(words: str) -> str | None:
    """Return the letter at the beginning of some words, in upper case; "?" if another letter is joined to it."""
    plain = _LEAD.sub("", _WRITTEN.sub("", words).strip(), count=1)
    if not (match := _CHOICE.match(plain)):
        return None
    return "?" if _ALSO.match(plain, match.end()) else next(filter(None, match.groups())).upper()


def classify_extraction(text: str) -> str | None:
    """Return how the final answer of a text can be extracted; None if it cannot.

    `strict`: from a box or `####`. `several`: from several boxes, which all count if the problem asks for several values.
    `flexible`: from a sentence that states it, or as the last value.
    """
    if (every := extract(text)) is not None:
        return "strict" if extract(text, several=False) == every else "several"
    return "flexible" if find_stated_answer(text) or last_value(text) else None


def in_form(text: str, reading: str, truncated: bool = False) -> str:
    """Return the text unchanged, or its answer in a box if `reading` is `flexible` and no box or `####` has one.

    The box contains the stated answer, else the last value unless the text is truncated. With `choice` it contains the letter, and there is no other
    text.
    """
    if reading == "choice":
        letter = read_choice(text)
        return f"\\boxed{{{letter}}}" if letter else ""
    if reading == "strict" or extract(text) is not None:
        return text
    value = find_stated_answer(text) or (None if truncated else last_value(text))
    return text if value is None else f"\\boxed{{{value}}}"


SHOWN = 5  # lines


def excerpt(text: str) -> str:
    """Return the part of a text that a judge of final answers sees: the answer, else the last five lines, else all."""
    lines = text.strip().split("\n")
    return extract(text) or ("..." + "\n".join(lines[-SHOWN:]) if len(lines) >= SHOWN else text)


def of_gold(gold: str) -> str:
    """Return the answer in a gold column, which holds it bare, in dollars, boxed, or at the end of a solution."""
    return extract(gold) or gold.strip()


# ---------------------------------------------------------------------------------------------------------- normal form

_SPELLING = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)
_SPACES = frozenset(  # dollars separate signs as spaces do
    ("\\,", "\\;", "\\:", "\\>", "\\ ", "\\\n", "\\quad", "\\qquad", "~", "$", "\\(", "\\)", "\\[", "\\]")
)
_NARROW_COMMA = re.compile(r",\\!\s*(?=[0-9]{3}(?![0-9]))")  # of thousands
_BROKEN_ROW_END = re.compile(r"\\[-.0-9]")
_CLOSE_LIST = re.compile(r"(?<=[0-9]), (?![0-9]{3}(?![0-9]))")


def normal(answer: str) -> str:
    r"""Return the normal form of an answer. Equal normal forms mean equal answers, but `1/2` and `0.5` have two.

    The spelling is that of LaTeX (spelling.py). Dollars, sizes of brackets and of fractions, spaces and a dot at the end
    are dropped. One space stays if two
    answers could differ by it: between letters or digits, before a unit, and in `1, 234`.
    A row of a matrix may end in one backslash, if a data set lost the other: `\5` means nothing in LaTeX.
    """
    matrix = "matrix}" in answer
    answer = _NARROW_COMMA.sub(",", spell(answer))
    written: list[str] = []
    space = sized = False  # whether a space, or \left or \right, precedes the next sign
    for sign in _SPELLING.findall(answer):
        sign = COMMANDS.get(sign, sign)
        if sign in _SPACES or sign.isspace():
            space = True
        elif SIZES.fullmatch(sign):
            sized = True
        elif sized and sign == ".":  # `\right.` is an invisible bracket
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
    """Return whether a space before a sign may carry meaning."""
    last = written[-1]
    if (last[0] == "\\" and last[-1].isalpha()) or last in ")]":
        return sign.isalpha()
    return sign.isalnum() and (last.isalnum() or (last == "," and written[-2:-1] != [] and written[-2].isdigit()))
