"""Marking schemes read into their parts: checkpoints in chains, items worth nothing, deductions with their price.

    clean   a model's text -> the scheme in it
    parse   text -> Rubric
    faults  what the linter finds in a scheme, as names (filters/schemes.py)

From: the structure and constraints of QED-Nano's generation of grading schemes, and MathArena's structured schemes.

How we differ:
1. There a scheme is used as it was written. Here it is read, checked by rules before it marks anything, and tried out
   on answers whose marks are known (schemes.py).
2. Every chain must be worth exactly 7. There one such chain sufficed, and a cheaper chain could never earn full marks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from proofmill.filters.schemes import FAULTS, FULL_MARKS, OF_OUR_FORM
from proofmill.text.reasoning import after_thought

MAIN, ROUTINE = 4, 3  # points: main ideas together at least, routine work together at most
SECTIONS = ("Checkpoints", "Zero-credit items", "Deductions")

# What may stand before a heading or a chain can fill many lines. It is matched also where neither follows (there group 1
# is None), and so is passed over at once instead of once from each of its lines.
_HEADING = re.compile(
    r"^[\s#*_0-9.]*+(?:((?a:Checkpoints|Zero-credit items|Deductions))\b[^\n]*$)?+", re.MULTILINE | re.IGNORECASE
)
_TOTAL = re.compile(r"^[ \t]*(?:\*\*|#+[ \t]*|_+)?Total\b[^\n]*$", re.MULTILINE | re.IGNORECASE)
_CHAIN = re.compile(r"^\W*+(?:Chain ([A-Z])\b[^\n]*$)?+", re.MULTILINE)
_ITEM = re.compile(r"^[ \t]*(?:[-*•]|\d+[.)])[ \t]+", re.MULTILINE)
# `(3 pts, main)`, `[2 points]`, `(1 pt)`, `(1.5 pts)`, `(-1 pts)`.
_PRICE = re.compile(
    r"[(\[]\s*+(?P<points>-?\d{1,9}(?:\.\d+)?+)\s*+(?:pts?|points?)\.?+\s*+(?:[,;:]\s*+(?P<weight>[a-z ]*+))?+\s*+[)\]]",
    re.IGNORECASE,
)
# A price in words is looked for before a sign, which may belong to a formula such as `n-1`.
_PENALTY = re.compile(
    r"\b(?:cap(?:ped)?+\s*+(?:at|of|to)?+\s*+:?+\s*+(?P<cap>\d{1,9})\s*+/\s*+7"
    r"|(?:minus|deduct|subtract|penalty\s*+:?+)\s*+(?P<minus>\d{1,9})\b)",
    re.IGNORECASE,
)
_SIGNED = re.compile(
    r"(?<![\w})\]^_])[-−–](?P<minus>\d{1,9})\s*(?:pts?\b|points?\b|[:;,.)]|$)", re.IGNORECASE | re.MULTILINE
)
_STRUCTURED = re.compile(r"^# (?P<title>.*) \((?P<points>-?\d{1,9}(?:\.\d+)?) points?\)\nDescription: ", re.MULTILINE)
_NOTHING = re.compile(r"^\W*(?:none|nothing|n/a)\b", re.IGNORECASE)
# Pointers that a reader who has only the scheme cannot follow.
_ELSEWHERE = re.compile(
    r"\b(?:as|like|see|shown|used|given|described|appears?|stated|defined) (?:above )?in (?:the )?(?:official |reference |model )?"
    r"(?:solution|proof)\b|\bthe (?:official|reference|model) (?:solution|proof)(?:'s|\s+(?:above|below|shows|uses|does))\b"
    r"|\b(?:equation|eq\.|inequality|formula|step|lemma|claim)\s*\(\d+\)\s+(?:of|in|from) the (?:\w+ )?(?:solution|proof)",
    re.IGNORECASE,
)
_ALTERNATIVES = re.compile(
    r"\b(?:alternative|only the (?:best|highest|larger|largest)|best chain|never (?:added|summed))", re.I
)


@dataclass(frozen=True)
class Checkpoint:
    chain: str | None  # None: the checkpoint counts in every chain
    points: float
    weight: str | None  # `main` or `routine`, where the scheme says so
    text: str


@dataclass(frozen=True)
class Deduction:
    minus: int | None
    cap: int | None
    text: str


@dataclass(frozen=True)
class Rubric:
    """A marking scheme in its parts; `sections` are the headings that the text has, in its order."""

    checkpoints: tuple[Checkpoint, ...] = ()
    zero_credit: tuple[str, ...] = ()
    deductions: tuple[Deduction, ...] = ()
    sections: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()  # items among the checkpoints that have no points
    totalled: bool = False
    introduced: bool = False  # the text says that chains are alternatives
    text: str = field(default="", repr=False)

    @property
    def chains(self) -> dict[str | None, list[Checkpoint]]:
        """The checkpoints that a proof can earn together: of each chain, or all of them under None."""
        names = sorted({c.chain for c in self.checkpoints if c.chain is not None})
        shared = [c for c in self.checkpoints if c.chain is None]
        if not names:
            return {None: shared} if shared else {}
        return {name: shared + [c for c in self.checkpoints if c.chain == name] for name in names}

    @property
    def points(self) -> float:
        """What the best chain is worth."""
        return max((sum(c.points for c in chain) for chain in self.chains.values()), default=0)


def clean(text: str) -> str:
    """The scheme itself, without the reasoning and the preamble before it."""
    text = after_thought(text.rpartition("</thought>")[2])
    heading = next((h for h in _headings(text) if _section(h[1]) == "Checkpoints"), None)
    start = heading.start() if heading else max(text.find("Checkpoints"), 0)
    return text[start:].strip()


def parse(text: str) -> Rubric:
    """The parts of a scheme, as far as they can be read: of three sections, or of structured items as in MathArena.

    A number of ten digits or more is no price.
    """
    if _STRUCTURED.search(text):
        return _structured(text)
    headings = _headings(text)
    parts: dict[str, str] = {}
    for heading, end in _with_ends(headings, text):
        parts.setdefault(_section(heading[1]), text[heading.end() : end])
    body = parts.get("Checkpoints", "")
    checkpoints, unpriced = _checkpoints(_TOTAL.sub("", body))
    return Rubric(
        tuple(checkpoints),
        tuple(item for _, item in _items(parts.get("Zero-credit items", "")) if not _NOTHING.match(item)),
        tuple(_deduction(item) for _, item in _items(parts.get("Deductions", "")) if not _NOTHING.match(item)),
        tuple(_section(heading[1]) for heading in headings),
        tuple(unpriced),
        _TOTAL.search(body) is not None,
        _ALTERNATIVES.search(body) is not None,
        text,
    )


def _headings(text: str) -> list[re.Match]:
    return [match for match in _HEADING.finditer(text) if match[1]]


def _section(heading: str) -> str:
    return next(section for section in SECTIONS if section.lower() == heading.lower())


def _structured(text: str) -> Rubric:
    matches = list(_STRUCTURED.finditer(text))
    checkpoints = [
        Checkpoint(None, float(m["points"]), None, f"{m['title']}: {text[m.end() : end].strip()}")
        for m, end in _with_ends(matches, text)
    ]
    return Rubric(tuple(checkpoints), sections=("Checkpoints",), totalled=True, text=text)


def _checkpoints(body: str) -> tuple[list[Checkpoint], list[str]]:
    """Priced items with the chain they stand in, and numbered items that have no price."""
    marks = [(m.start(), m.end(), m[1]) for m in _CHAIN.finditer(body) if m[1]]
    pieces: list[tuple[str | None, str]] = [(None, body[: marks[0][0]] if marks else body)]
    pieces += [
        (name, body[end : following[0] if following else len(body)])
        for (_, end, name), following in zip(marks, [*marks[1:], None], strict=False)
    ]
    checkpoints, unpriced = [], []
    for chain, piece in pieces:
        for numbered, item in _items(piece):
            prices = list(_PRICE.finditer(item))
            if prices:
                weight = (prices[0]["weight"] or "").lower()
                weight = (
                    "main" if "main" in weight or "critical" in weight else "routine" if "routine" in weight else None
                )
                text = f"{item[: prices[0].start()]}{item[prices[0].end() :]}".strip(" :.-*\n")
                checkpoints.append(Checkpoint(chain, float(prices[0]["points"]), weight, text))
            elif numbered:  # a bullet without points is a remark
                unpriced.append(item)
    return checkpoints, unpriced


def _items(body: str) -> list[tuple[bool, str]]:
    """The items of a list: whether each is numbered, and its text with the lines below that are indented further."""
    starts = list(_ITEM.finditer(body))
    least = min((_indent(m[0]) for m in starts), default=0)
    starts = [m for m in starts if _indent(m[0]) == least]
    return [(any(s.isdigit() for s in m[0]), body[m.end() : end].strip()) for m, end in _with_ends(starts, body)]


def _with_ends(matches: list[re.Match], text: str) -> Iterator[tuple[re.Match, int]]:
    """Each match with the index where the next one begins, or where the text ends."""
    return zip(matches, [*(match.start() for match in matches[1:]), len(text)], strict=False)


def _indent(marker: str) -> int:
    return len(marker) - len(marker.lstrip())


def _deduction(item: str) -> Deduction:
    price = _PENALTY.search(item) or _SIGNED.search(item)
    if price is None:
        return Deduction(None, None, item)
    cap = price.groupdict().get("cap")
    return Deduction(None, int(cap), item) if cap is not None else Deduction(int(price["minus"]), None, item)


def faults(rubric: Rubric, given: bool = False) -> list[str]:
    """Names of the faults that the linter finds (FAULTS), the gravest first.

    `given`: the scheme came with its problem, and is excused from the faults of another form (OF_OUR_FORM).
    """
    present = {
        "no-sections": rubric.sections != SECTIONS,
        "off-total": rubric.points != FULL_MARKS,
        "chain-off-total": any(sum(c.points for c in chain) != FULL_MARKS for chain in rubric.chains.values()),
        "broken-points": any(not c.points.is_integer() or not 0 < c.points <= FULL_MARKS for c in rubric.checkpoints),
        "unpriced-checkpoint": bool(rubric.unpriced),
        "small-main-idea": any(not _weighty(chain) for chain in rubric.chains.values()),
        "cut-too-fine": any(
            sum(c.points == 1 and c.weight != "main" for c in chain) >= 3 for chain in rubric.chains.values()
        ),
        "no-total-line": not rubric.totalled,
        "chains-not-introduced": len(rubric.chains) > 1 and not rubric.introduced,
        "unpriced-deduction": any(d.minus is None and d.cap is None for d in rubric.deductions),
        "broken-deduction": any(not _fair(d) for d in rubric.deductions),
        "said-twice": bool({_plain(item) for item in rubric.zero_credit} & {_plain(d.text) for d in rubric.deductions}),
        "not-self-contained": _ELSEWHERE.search(rubric.text) is not None,
    }
    return [name for name in FAULTS if present[name] and not (given and name in OF_OUR_FORM)]


def _weighty(chain: list[Checkpoint]) -> bool:
    """Whether main ideas have their share; without labels, checkpoints worth more than a point are main."""
    labelled = any(c.weight for c in chain)
    main = sum(c.points for c in chain if (c.weight == "main" if labelled else c.points > 1))
    return main >= MAIN and sum(c.points for c in chain) - main <= ROUTINE


def _fair(deduction: Deduction) -> bool:
    if deduction.cap is not None:
        return 0 <= deduction.cap < FULL_MARKS
    return deduction.minus in (None, 1, 2)


def _plain(text: str) -> str:
    """An item without its price, punctuation and case."""
    return " ".join(re.findall(r"\w+", _PENALTY.sub("", text).lower()))
