"""Parse grading schemes into their parts: checkpoints in chains, zero-credit items, and deductions with their points.

    clean   a model's text -> the scheme in it
    parse   text -> Rubric
    faults  names of the faults that the linter finds in a scheme (filters/scheme_filters.py)

From: the structure and constraints of QED-Nano's generation of grading schemes, and MathArena's structured schemes.

Differences from these:
1. There a scheme is used as it was written. Here it is parsed, checked by rules before it grades anything, and tested
   on answers whose grades are known (schemes.py).
2. Every chain must be worth exactly 7. There one such chain sufficed, and another chain could never earn all points.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from proofmill.filters.scheme_filters import FAULTS, MAX_POINTS, OF_OUR_FORM
from proofmill.text.reasoning import after_thought

MAIN, ROUTINE = 4, 3  # points: main ideas together at least, routine work together at most
SECTIONS = ("Checkpoints", "Zero-credit items", "Deductions")

# The characters allowed before a heading or a chain can fill many lines. The pattern also matches if no heading follows
# (group 1 is None), so a run of them is skipped once instead of once from each of its lines.
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
# Penalties in words are searched first, because a sign may belong to a formula such as `n-1`.
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
    weight: str | None  # `main` or `routine`, if the scheme says so
    text: str


@dataclass(frozen=True)
class Deduction:
    minus: int | None
    cap: int | None
    text: str


@dataclass(frozen=True)
class Rubric:
    """A grading scheme in its parts; `sections` are the headings of the text, in its order."""

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
        """The checkpoints that a proof can earn together: by chain, or all of them under None."""
        names = sorted({c.chain for c in self.checkpoints if c.chain is not None})
        shared = [c for c in self.checkpoints if c.chain is None]
        if not names:
            return {None: shared} if shared else {}
        return {name: shared + [c for c in self.checkpoints if c.chain == name] for name in names}

    @property
    def points(self) -> float:
        """Points of the best chain."""
        return max((sum(c.points for c in chain) for chain in self.chains.values()), default=0)


def clean(text: str) -> str:
    """Return the scheme without the reasoning and the preamble before it."""
    text = after_thought(text.rpartition("</thought>")[2])
    heading = next((h for h in _headings(text) if _section(h[1]) == "Checkpoints"), None)
    start = heading.start() if heading else max(text.find("Checkpoints"), 0)
    return text[start:].strip()


def parse(text: str) -> Rubric:
    """Parse a scheme as far as possible: three sections, or structured items as in MathArena.

    A number of ten digits or more does not count as points.
    """
    if _STRUCTURED.search(text):
        return _parse_structured(text)
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


def _parse_structured(text: str) -> Rubric:
    matches = list(_STRUCTURED.finditer(text))
    checkpoints = [
        Checkpoint(None, float(m["points"]), None, f"{m['title']}: {text[m.end() : end].strip()}")
        for m, end in _with_ends(matches, text)
    ]
    return Rubric(tuple(checkpoints), sections=("Checkpoints",), totalled=True, text=text)


def _checkpoints(body: str) -> tuple[list[Checkpoint], list[str]]:
    """Return the items with points, each with its chain, and the numbered items without points."""
    chains = [(m.start(), m.end(), m[1]) for m in _CHAIN.finditer(body) if m[1]]
    pieces: list[tuple[str | None, str]] = [(None, body[: chains[0][0]] if chains else body)]
    pieces += [
        (name, body[end : following[0] if following else len(body)])
        for (_, end, name), following in zip(chains, [*chains[1:], None], strict=False)
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
    """Return the outermost items of a list: whether each is numbered, and its text with nested items."""
    starts = list(_ITEM.finditer(body))
    outermost = min((_indent(m[0]) for m in starts), default=0)
    starts = [m for m in starts if _indent(m[0]) == outermost]
    return [(any(s.isdigit() for s in m[0]), body[m.end() : end].strip()) for m, end in _with_ends(starts, body)]


def _with_ends(matches: list[re.Match], text: str) -> Iterator[tuple[re.Match, int]]:
    """Yield each match with the index at which the next one begins, or the text ends."""
    return zip(matches, [*(match.start() for match in matches[1:]), len(text)], strict=False)


def _indent(submission_grader: str) -> int:
    return len(submission_grader) - len(submission_grader.lstrip())


def _deduction(item: str) -> Deduction:
    price = _PENALTY.search(item) or _SIGNED.search(item)
    if price is None:
        return Deduction(None, None, item)
    cap = price.groupdict().get("cap")
    return Deduction(None, int(cap), item) if cap is not None else Deduction(int(price["minus"]), None, item)


def faults(rubric: Rubric, given: bool = False) -> list[str]:
    """Return the names of the faults that the linter finds (FAULTS), the most serious first.

    `given`: the scheme came with its problem, so the faults that only concern our form are ignored (OF_OUR_FORM).
    """
    present = {
        "no-sections": rubric.sections != SECTIONS,
        "wrong-total": rubric.points != MAX_POINTS,
        "wrong-chain-total": any(sum(c.points for c in chain) != MAX_POINTS for chain in rubric.chains.values()),
        "invalid-points": any(not c.points.is_integer() or not 0 < c.points <= MAX_POINTS for c in rubric.checkpoints),
        "checkpoint-without-points": bool(rubric.unpriced),
        "main-idea-too-small": any(not _weighty(chain) for chain in rubric.chains.values()),
        "too-fine": any(
            sum(c.points == 1 and c.weight != "main" for c in chain) >= 3 for chain in rubric.chains.values()
        ),
        "no-total-line": not rubric.totalled,
        "chains-not-introduced": len(rubric.chains) > 1 and not rubric.introduced,
        "deduction-without-points": any(d.minus is None and d.cap is None for d in rubric.deductions),
        "invalid-deduction": any(not _fair(d) for d in rubric.deductions),
        "duplicate-item": bool(
            {_plain(item) for item in rubric.zero_credit} & {_plain(d.text) for d in rubric.deductions}
        ),
        "not-self-contained": _ELSEWHERE.search(rubric.text) is not None,
    }
    return [name for name in FAULTS if present[name] and not (given and name in OF_OUR_FORM)]


def _weighty(chain: list[Checkpoint]) -> bool:
    """Return whether main ideas have their share; without labels, checkpoints worth more than a point are main."""
    labeled = any(c.weight for c in chain)
    main = sum(c.points for c in chain if (c.weight == "main" if labeled else c.points > 1))
    return main >= MAIN and sum(c.points for c in chain) - main <= ROUTINE


def _fair(deduction: Deduction) -> bool:
    if deduction.cap is not None:
        return 0 <= deduction.cap < MAX_POINTS
    return deduction.minus in (None, 1, 2)


def _plain(text: str) -> str:
    """Return an item without its penalty, punctuation and case."""
    return " ".join(re.findall(r"\w+", _PENALTY.sub("", text).lower()))
