"""Split a statement into tokens: words, numbers and operators, the same for every LaTeX spelling.

From: the normalization of n-gram decontamination in open-r1 (`scripts/decontaminate.py`).

Differences from the original:
1. Dollar signs, punctuation, spacing, fonts and bracket sizes are not tokens (in open-r1 `x,` differs from `x`).
2. Fractions and exponents have one form; brackets stay, because 2^(n+1) and 2^n+1 are different numbers.
3. Accents and full-width signs have one form in Unicode.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple


class StatementToken(NamedTuple):
    text: str
    kind: str  # `word`, `number` or `formula`
    start: int
    end: int


# ---------------------------------------------------------------------------------------------------------- normal form

MACROS = {  # the token of a macro; other macros keep their name
    **dict.fromkeys(("le", "leq", "leqslant", "leqq"), "≤"),
    **dict.fromkeys(("ge", "geq", "geqslant", "geqq"), "≥"),
    **dict.fromkeys(("ne", "neq"), "≠"),
    **dict.fromkeys(("lt",), "<"),
    **dict.fromkeys(("gt",), ">"),
    **dict.fromkeys(("cdot", "times", "ast"), "*"),
    **dict.fromkeys(("ldots", "dots", "cdots", "dotsc", "dotsb", "dotsm", "hdots", "vdots"), "…"),
    **dict.fromkeys(("to", "rightarrow", "longrightarrow", "mapsto"), "→"),
    **dict.fromkeys(("implies", "Rightarrow", "Longrightarrow"), "⇒"),
    **dict.fromkeys(("iff", "Leftrightarrow", "Longleftrightarrow"), "⇔"),
    **dict.fromkeys(("mid", "vert", "lvert", "rvert", "Vert", "lVert", "rVert"), "|"),
    **dict.fromkeys(("lbrace",), "{"),
    **dict.fromkeys(("rbrace",), "}"),
    **dict.fromkeys(("mod", "bmod", "pmod", "pod"), "mod"),
    **dict.fromkeys(("binom", "tbinom", "dbinom"), "binom"),
    **dict.fromkeys(("emptyset", "varnothing"), "∅"),
    **dict.fromkeys(("parallel",), "∥"),
    **dict.fromkeys(("perp", "bot"), "⊥"),
    "in": "∈", "cap": "∩", "cup": "∪", "equiv": "≡", "infty": "∞", "pi": "π", "pm": "±", "circ": "∘", 
    "angle": "∠", "varepsilon": "epsilon", "varphi": "phi", "vartheta": "theta", "degree": "∘", "div": "/",
    "prime": "'",
    "colon": "",
    "subset": "⊂", "subseteq": "⊆", "sqrt": "√", "sum": "∑", "prod": "∏", "triangle": "△",
}  # fmt: skip
NOTHING = frozenset(
    """
    left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr middle displaystyle textstyle
    scriptstyle limits nolimits quad qquad hspace vspace hfill smallskip medskip bigskip noindent par newline
    linebreak text textbf textit textrm textnormal textsc texttt emph mathrm mathbf mathit mathbb mathcal mathfrak
    mathsf mathscr boldsymbol bf it rm bm operatorname mbox hbox underline overline ensuremath item centering label
    nonumber notag hline
    """.split()  # noqa: SIM905
)
FRACTIONS = frozenset(("frac", "dfrac", "tfrac", "cfrac", "sfrac"))
_OTHER_SIGNS = {
    "≤": "≤", "⩽": "≤", "≥": "≥", "⩾": "≥", "×": "*", "·": "*", "⋅": "*", "∗": "*", "−": "-", "–": "-",
    "…": "…", "∣": "|", "→": "→",
    "∘": "∘", "°": "∘", "′": "'", "ℝ": "r", "ℤ": "z", "ℕ": "n", "ℚ": "q", "∆": "△", "Δ": "△",
}  # fmt: skip
# Full-width signs, as between Chinese characters. A comma or full stop between two digits joins no number.
_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | dict.fromkeys(map(ord, "，。、"), ";")
DRAWING = re.compile(r"\[asy\](?:(?!\[asy\]).)*?\[/asy\]", re.DOTALL | re.IGNORECASE)  # a program in Asymptote
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_GROUPING = frozenset(("^", "_", "√", "binom", "mod"))  # they take an argument
_SILENT = frozenset('.,;:?"`“”‘’„«»~&\u200b\u00ad\ufeff#@')

_TOKEN = re.compile(  # the most frequent alternatives come first
    r"""(?P<letters>[^\W\d_⁰¹²³⁴⁵⁶⁷⁸⁹]+)
    |(?P<number>[0-9]+(?:(?:\{,\}|\\[,!]+|,)[0-9]{3}(?![0-9]))*(?:\.[0-9]+)?)
    |(?P<asy>\[asy\](?:(?!\[asy\]).)*?\[/asy\])
    |(?P<environment>\\(?:begin|end)\s*\{[^{}]*\}(?:\{[lcr|\s]*\})?)
    |(?P<dollar>\$\$?|\\[\[\]()])
    |\\(?P<macro>[A-Za-z]+)\*?
    |\\(?P<escape>.)
    |(?P<superscript>[⁰¹²³⁴⁵⁶⁷⁸⁹]+)
    |(?P<sign>\S)""",
    re.VERBOSE | re.DOTALL,
)
_PROSE = re.compile(r"(?<![\\{A-Za-z])[A-Za-z]{2,}[,.]? [A-Za-z]{2,}|[.?] [A-Z]")
_TEXT_GROUP = re.compile(r"\\(?:text\w*|mbox|hbox)\s*\{[^{}]*\}")
_SINGLE = re.compile(r"\{\s*(?:\\?[A-Za-z]+|[0-9]+)\s*\}")


def compose(text: str) -> str:
    """Return a text with a letter and its accents as one character. Places of tokens are those in this text."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def tokens(text: str) -> list[StatementToken]:
    """Return the tokens of a statement, the same for `$\\dfrac{a+b}2$` and `(a+b)/2`, and for `x^{12}` and `x^12`."""
    return list(_StatementReader(text).read())


class _StatementReader:
    """A single scan of a text. Braces around an argument of several tokens become brackets, all others are dropped."""

    def __init__(self, text: str):
        self.text = text if text.isascii() else compose(text).translate(_WIDE)
        self.in_formula = False
        # For each open brace: the tokens added when it closes, and the arguments awaited outside it.
        self.braces: list[tuple[str, list[str]]] = []
        self.awaited: list[str] = []  # for each argument that is awaited: the token to add after it
        self.groups = False  # the last token takes an argument, as `^` does

    def read(self) -> Iterator[StatementToken]:
        end, find, readers = 0, _TOKEN.search, {name: getattr(self, f"_{name}") for name in _TOKEN.groupindex}
        while match := find(self.text, end):
            name = match.lastgroup or ""  # one group always matches
            start, end = match.span()
            if name == "number" and self.awaited and end - start > 1 and self.text[start].isdigit():
                end = start + 1  # `\frac12` has two arguments of one digit
            for text, kind in readers[name](self.text[start:end], match):
                yield StatementToken(text, kind, start, end)

    def _one(self, text: str, kind: str = "formula") -> tuple[tuple[str, str], ...]:
        self.groups = text in _GROUPING
        if self.awaited and not self.groups and (after := self.awaited.pop(0)):
            return (text, kind), (after, "formula")
        return ((text, kind),)

    def _asy(self, text: str, match: re.Match) -> Iterable:
        return ()

    def _environment(self, text: str, match: re.Match) -> Iterable:
        self.in_formula = text.startswith("\\begin") and not re.search(
            r"\{(center|enumerate|itemize|document|tabular)\*?\}", text
        )
        return ()

    def _dollar(self, text: str, match: re.Match) -> Iterable:
        if text == "$" and not self.in_formula and self._currency(match.end()):
            return ()
        self.in_formula = text in ("\\[", "\\(") or (text in ("$", "$$") and not self.in_formula)
        self.groups, self.awaited, self.braces = False, [], []
        return ()

    def _currency(self, start: int) -> bool:
        """Return whether a dollar sign means money: `$50 as a gift. She buys a tape for $9`."""
        end = self.text.find("$", start)
        if not self.text[start : start + 1].isdigit():
            return False
        return end < 0 or bool(_PROSE.search(_TEXT_GROUP.sub("", self.text[start:end])))

    def _macro(self, text: str, match: re.Match) -> Iterable:
        name = match["macro"]
        if name in FRACTIONS:
            self.awaited = ["/", "", *self.awaited[:20]]  # no deeper nesting occurs
            return ()
        written = "" if name in NOTHING else MACROS.get(name, name.lower())
        return self._one(written) if written else ()

    def _escape(self, text: str, match: re.Match) -> Iterable:
        return self._one(match["escape"]) if match["escape"] in "{}%|" else ()

    def _number(self, text: str, match: re.Match) -> Iterable:
        return self._one(text if text.isdecimal() else re.sub(r"[^0-9.]", "", text), "number")

    def _superscript(self, text: str, match: re.Match) -> Iterable:
        return (("^", "formula"), (text.translate(_SUPERSCRIPTS), "number"))

    def _letters(self, text: str, match: re.Match) -> Iterable:
        if len(text) > 1 and (self.awaited or (self.groups and self.in_formula)):
            # `\frac ab`, `a_kx`: an argument without braces is one letter.
            first, rest = text[0].lower(), text[1:].lower()
            return (*self._one(first), *self._one(rest))
        lone = len(text) == 1 and text not in ("a", "A", "I")
        return self._one(_OTHER_SIGNS.get(text, text.lower()), "formula" if self.in_formula or lone else "word")

    def _sign(self, text: str, match: re.Match) -> Iterable:
        if text == "{":
            grouped = (self.groups or bool(self.awaited)) and not _SINGLE.match(self.text, match.start())
            after = self.awaited.pop(0) if self.awaited and not self.groups else ""
            self.braces.append((f"{')' if grouped else ''}{after}", self.awaited))
            self.awaited, self.groups = [], False
            return (("(", "formula"),) if grouped else ()
        if text == "}":
            written, self.awaited = self.braces.pop() if self.braces else ("", self.awaited)
            return tuple((sign, "formula") for sign in written)
        if text in _SILENT or (text in "!'" and not self.in_formula) or (text == "-" and self._hyphen(match)):
            return ()
        return self._one(_OTHER_SIGNS.get(text, text))

    def _hyphen(self, match: re.Match) -> bool:
        around = self.text[max(match.start() - 1, 0) : match.end() + 1]
        return not self.in_formula and len(around) == 3 and around[0].isalpha() and around[2].isalpha()


@lru_cache(maxsize=4)
def cache_tokens(text: str) -> tuple[StatementToken, ...]:
    """Return the tokens of a statement, cached because consecutive filters need those of the same statement."""
    return tuple(_StatementReader(text).read())


def normal(text: str) -> str:
    """Return the tokens of a statement with spaces between them: one form for all spellings."""
    return " ".join(token.text for token in cache_tokens(text))
