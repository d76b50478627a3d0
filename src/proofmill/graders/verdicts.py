"""Verdicts: a grade out of the max points, or no grade with the reason, and the parsing of one from a judge's output.

A prompt's header names the form that its judges use. These are the forms of the field: `points` in tags
(IMO-ProofBench, QED-Nano), a `score` in tags (QED-Nano's trainer), a line `Judgement: Yes` (NeMo-Skills), the `words`
of IMO-GradingBench, a number in a box (`boxed`, DeepSeek-Math-V2), and the word `correct` in a box (IMO-AnswerBench).

Differences from the parsers of these projects:
1. An output that cannot be parsed, or a grade off the offered scale, is `grade = None` with the reason. It is never 0,
   and "10" is not 1.
2. Several tags or boxes with different verdicts are no verdict: one of them may be hypothetical, or all of them the
   choices of the prompt. One in quotation marks or in a line of a Markdown quote does not count, nor does text in the
   judge's reasoning, or in a block that the judge repeats from its prompt. Of lines, the last verdict counts.
3. Tags cannot come from the texts that a judge was shown (prompts/escapes.py); boxes and plain words can. So these
   count only at the end of the output, because a judge may quote one and comment on it. "Not correct" is no verdict;
   the original parses its last word.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from proofmill.answers import extraction
from proofmill.calls.model_requests import ModelOutput, total
from proofmill.prompts.templates import Prompt
from proofmill.schema.reasons import Reason, StopReason
from proofmill.text.reasoning import final_part

# The blocks of a prompt that a judge may repeat, but has no reason to write itself.
SHOWN = re.compile(r"</(?:problem|scheme|reference|proof|judgement|others)\s*+>", re.IGNORECASE)
# Blocks of a judge's own words, after which its verdict follows; it may quote others in them.
OWN = re.compile(r"</(?:assessment|analysis|errors|evaluation|feedback|justification|comments?)\s*+>", re.IGNORECASE)
# The end of an output that was truncated right after its verdict, by form. Plain words cannot show this.
ENDED = {
    form: re.compile(rf"{end}[\s.$*]*+\Z", re.IGNORECASE)
    for form, end in {"points": r"</points\s*+>", "score": r"</score\s*+>", "boxed": r"\}", "correct": r"\}"}.items()
}
# What judges add inside a tag or a box: emphasis, dollars, a box, the words `points` and `grade`.
DECORATION = re.compile(
    r"\\(?:boxed|text|mathbf|textbf|math[a-z]{2})\b|[*_`${}()\[\]]|\b(?:final|total|points?|pts?|score|grade)\b\s*[:=]?",
    re.I,
)
OF_POINTS = re.compile(r"\s*+(-?\d{1,9})(?:\.0*+)?+\s*+(?:(?:/|out\s++of\b)\s*+(\d{1,9})\s*+)?\.?\s*+", re.IGNORECASE)
QUOTED = re.compile(r"(?:[\"'`“‘«]|^\s*>[^\n]*)\Z", re.MULTILINE)
EXAMPLE = re.compile(r"\b(?:e\.g|i\.e)\.,?\s*\Z")
JUDGEMENT = re.compile(
    r"^[ \t#*_`-]*+(?:final\s++)?+judge?ment[\s*_`]*+:[\s*_`]*+(yes|no)[\s*_`.!]*+\Z", re.IGNORECASE | re.MULTILINE
)
WORDS = {"incorrect": 0, "partial": 1, "almost": 6, "correct": 7}  # of the 7 points of IMO-GradingBench
WORD = re.compile(
    r"[#*_`-]*+\s*+((?:(?:the|my|final|overall)\s++)*+(?:grade|mark|rating|verdict|judge?ment|evaluation|assessment)"
    rf"[*_`]*+(?:\s*+:|\s++is\b)[\s*_`:]*+)?+[*_`]*+({'|'.join(WORDS)})[\s*_`.!]*+",
    re.IGNORECASE,
)
CHOICES = re.compile(r"\s*+(?:\d+\s*+(?:-|–|to)\s*+\d+|[A-Za-z.…_?]{1,10})\s*+")  # an echo of the prompt: `0-7`, `N`
QUOTED_BOX = re.compile(r"^[ \t]*+>[^\n]*+|[\"'`“‘«]\s*\$?\\boxed\{(?:[^{}]|\{[^{}]*\})*\}", re.MULTILINE)
UNFINISHED = re.compile(r"[\w,;(–—-]\Z")  # the end of a line within a sentence
NUMBER = re.compile(r"-?(?:\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})")
HALF = re.compile(r"1/2|\\[dt]?frac(?:\{1\}\{2\}|12)")
# A tag that is never closed matches to the end and holds no verdict; searching its end again at each tag would take
# quadratic time. Of two nested tags the inner one is the verdict: the outer one was quoted, and never closed.
_TAGS = {
    name: (re.compile(rf"{opens}(.*?)(</{name}\s*+>|\Z)", re.DOTALL | re.IGNORECASE), re.compile(opens, re.IGNORECASE))
    for name in ("points", "score")
    for opens in (rf"<{name}\b[^<>]*+>",)
}


@dataclass(frozen=True)
class Opinion:
    """The output of one judge in one round."""

    judge: str
    round: str  # `1`, `2`, ...; `escalated 1`, ...
    grade: float | None
    reason: Reason
    text: str = ""


@dataclass(frozen=True)
class Verdict:
    """A grade with its reason: ok; `empty` or `no-answer` with a grade of 0; or why there is no grade."""

    grade: float | None
    max_points: int
    reason: Reason
    text: str = ""
    cost: float | None = 0.0
    tokens: int = 0
    prompt_tokens: int = 0
    opinions: tuple[Opinion, ...] = ()

    def with_calls(self, calls: Sequence[ModelOutput], opinions: Sequence[Opinion] = ()) -> "Verdict":
        """Return the verdict with the cost and tokens of the calls that led to it, and their opinions."""
        return replace(
            self,
            cost=total(answer.paid for answer in calls),
            tokens=sum(answer.tokens for answer in calls),
            prompt_tokens=sum(answer.prompt_tokens for answer in calls),
            opinions=tuple(opinions),
        )


def read(answer: ModelOutput, prompt: Prompt) -> Verdict:
    """Parse the verdict in a judge's output and check it against the prompt's scale.

    A tag that is never closed does not count, nor does a number of ten digits or more.
    """
    full = int(max(prompt.scale))
    if answer.reason != Reason.OK:
        return Verdict(None, full, Reason(answer.reason), answer.text or answer.detail)
    text = SHOWN.split(final_part(answer.text, answer.reasoning or None))[-1]
    truncated = answer.stop_reason == StopReason.LENGTH
    return replace(read_text(text, prompt.verdict or "points", prompt.scale, truncated), text=answer.text)


def read_text(text: str, form: str, scale: Sequence[float], truncated: bool = False) -> Verdict:
    """Parse the verdict in the final part of an output; `truncated` if the output ended at its token limit."""
    full = int(max(scale))
    truncated = truncated and not (form in ENDED and ENDED[form].search(text))
    grade = None if truncated else FORMS[form](text, full)
    if grade is None:
        return Verdict(None, full, Reason.NO_VERDICT, text)
    if grade not in scale:
        return Verdict(None, full, Reason.OFF_SCALE, text)
    return Verdict(float(grade), full, Reason.OK, text)


# ------------------------------------------------------------------------------------------------------------ the forms


def _points(text: str, full: int, tag: str = "points") -> int | None:
    """Parse the number in the tags, alone or out of the max points; None if two tags differ that are not quoted."""
    block, opens = _TAGS[tag]
    tags = [found for found in block.finditer(OWN.split(text)[-1]) if found[2]]
    if not tags:
        tags = [found for found in block.finditer(text) if found[2]]
    said = [(found, found.string[max(0, found.start() - 200) : found.start()]) for found in tags]
    said = [(found, before) for found, before in said if not QUOTED.search(before)]
    counted = [found for found, before in said[:-1] if not CHOICES.fullmatch(found[1]) and not EXAMPLE.search(before)]
    counted += [found for found, _ in said[-1:]]
    grades = {_number(opens.split(found[1])[-1], full) for found in counted}
    return grades.pop() if len(grades) == 1 else None


def _number(inside: str, full: int) -> int | None:
    plain = unicodedata.normalize("NFKC", DECORATION.sub(" ", inside)).replace("−", "-")
    number = OF_POINTS.fullmatch(plain)
    return int(number[1]) if number and (number[2] is None or int(number[2]) == full) else None


def _score(text: str, full: int) -> int | None:
    return _points(text, full, "score")


def _judgement(text: str, full: int) -> int | None:
    """Parse Yes or No on the last line of the output."""
    line = JUDGEMENT.search(text)
    return int(line[1].lower() == "yes") if line else None


def _words(text: str, full: int) -> int | None:
    """Return the grade of a word on a last line of its own, or after `Grade:`. The end of a sentence does not count."""
    lines = text.rstrip("\n\r\t `*_").split("\n")
    line = WORD.fullmatch(lines[-1].strip())
    before = lines[-2].strip(" \t\r*_`") if len(lines) > 1 else ""
    if line is None or (line[1] is None and UNFINISHED.search(before) and not before.startswith("#")):
        return None
    above = next((shown for text in reversed(lines[:-1]) if (shown := text.strip(" \t\r*_`"))), "")
    if (other := WORD.fullmatch(above)) and line[1] is None and other[2].lower() != line[2].lower():
        return None  # a list of the choices
    return WORDS[line[2].lower()]


def _correct(text: str, full: int) -> int | None:
    text = QUOTED_BOX.sub(" quote ", text)
    words = {read_plain_word(box) for box in extraction.find_boxes(text)} & {"correct", "incorrect"}
    word = read_plain_word(extraction.closing_box(text) or "")
    return {"correct": 1, "incorrect": 0}.get(word) if len(words) == 1 else None


def read_plain_word(box: str) -> str:
    """Return the word in a box in lower case, without spaces, emphasis and commands of LaTeX."""
    return re.sub(r"\\(?:text|math)(?:bf|it|rm|tt|sf)?+\s*|\\[,;!]|[{}\s.!*_`$]", "", box).lower()


def read_boxed_number(text: str, full: int = 1) -> float | None:
    """Return the number in the box that ends a text; None without one."""
    text = QUOTED_BOX.sub(" quote ", text)
    inside = extraction.closing_box(text) or ""
    box = re.sub(r"[$\s]", "", inside)
    if extraction.extract(text, several=False) != extraction.closing_box(text):
        return None  # a list of the choices
    return 0.5 if HALF.fullmatch(box) else float(box) if NUMBER.fullmatch(box) else _number(inside, full)


# The parser of each form that a prompt may name in `reads`: from the judge's text and the max points.
FORMS: dict[str, Callable[[str, int], float | None]] = {
    "points": _points,
    "score": _score,
    "judgement": _judgement,
    "words": _words,
    "boxed": read_boxed_number,
    "correct": _correct,
}
