r"""Compute language consistency: the share of a text's words that are in the script of the target language.

From: the language-consistency reward of DeepSeek-R1 (section 2.3.2), the share of the words of a chain of thought that
are in the target language, added to the reward for the answer; and its filter of rejection sampling (2.3.3).

Differences from the paper, which defines neither a word nor the detection of its language, so both are chosen here:
1. Formulas, macros with their arguments (`\frac{a}{b}`), code, addresses, tags, digits and signs are dropped. Words in
   `\text{...}` count, in a formula too, and so do words in `\textbf{...}`, a heading or a list.
2. Formulas may lack dollars. So letters are not words if they touch a digit, `^`, `=`, `+` or an opening bracket after
   them, or are joined by `_` (`2ab`, `gcd(a, b)`, `x_max`). Nor are 2 to 4 capitals (`ABCD`).
3. A word is a run of letters of one script; a hyphen separates words, an apostrophe does not. Han and Kana are written
   without spaces, so each character is a word. A single letter of an alphabet is a variable, also "a" and "I".
4. The language of a word is its script. Languages of one script cannot be distinguished: French words count as English
   here, and Chinese words as Japanese. R1's problem, Chinese in English texts, is detected.
5. A dollar sign opens a formula by Pandoc's rule: no space after it, none before the closing one, and after an opening
   `$5` no digit follows the closing one. A blank line ends every open formula, so a superfluous sign affects one
   paragraph at most.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import groupby

_WRITTEN_IN = {  # script, and the languages (ISO 639-1) that are written in it
    "LATIN": "ca cs da de en es et eu fi fr ga hr hu id is it la lt lv ms nl no pl pt ro sk sl sq sv sw tr vi",
    "HAN": "ja zh",
    "KANA": "ja",
    "HANGUL": "ko",
    "CYRILLIC": "be bg mk ru uk",
    "GREEK": "el",
    "ARABIC": "ar fa ur",
    "HEBREW": "he",
    "DEVANAGARI": "hi mr ne",
    "BENGALI": "bn",
    "TAMIL": "ta",
    "THAI": "th",
}
SCRIPTS = {
    language: frozenset(name for name, languages in _WRITTEN_IN.items() if language in languages.split())
    for language in sorted({*" ".join(_WRITTEN_IN.values()).split()})
}
BY_CHARACTER = frozenset(("HAN", "KANA"))
LEAST = 0.95  # share of words below which a text mixes languages
_ALPHABETS = frozenset(("LATIN", "GREEK", "CYRILLIC", "ARABIC", "HEBREW"))  # single letters of these are variables
_NAMED = {"CJK": "HAN", "IDEOGRAPHIC": "HAN", "HIRAGANA": "KANA", "KATAKANA": "KANA", "KATAKANA-HIRAGANA": "KANA"}


def consistency(text: str, language: str, wordless: float | None = None) -> float | None:
    """Return the share of the words that are in the target language, in [0, 1] (DeepSeek-R1, section 2.3.2).

    An empty or blank text has the share 0. A text with formulas but no words has no detectable language, and has the
    share `wordless`. Raises ValueError for a language that is not in SCRIPTS.
    """
    if language not in SCRIPTS:
        raise ValueError(f"language: found {language!r}; expected one of {', '.join(SCRIPTS)}. Name one of them.")
    if not text.strip():
        return 0.0
    counts = words(text)
    total = counts.total()
    return sum(counts[name] for name in SCRIPTS[language]) / total if total else wordless


def mixes_languages(text: str, language: str, least: float = LEAST) -> bool:
    """Return whether less than `least` of the words are in the target language; False for a text without words."""
    share = consistency(text, language)
    return bool(text.strip()) and share is not None and share < least


# ---------------------------------------------------------------------------------------------------- words and scripts

_LETTERS = re.compile(r"[^\W\d_]+")
_APOSTROPHE = re.compile(r"(?<=[^\W\d_])['’\u02bc](?=[^\W\d_])")
_LETTER = "A-Za-zΑ-Ωα-ω"
# Rule 2: `2ab+1`, `gcd(a, b)`, `x_max`, `ABCD`. A run of letters is matched from its beginning only.
_NAKED_FORMULA = re.compile(
    rf"(?<![{_LETTER}])(?:[{_LETTER}]*+[0-9^=+][{_LETTER}0-9_^=+]*+"
    rf"|[{_LETTER}]++(?:\((?:[ -'*-~]{{0,40}}\))?|_(?=[{_LETTER}])[{_LETTER}_]*+)"
    rf"|[A-Z]{{2,4}}(?![{_LETTER}]))"
)


def words(text: str) -> Counter[str]:
    """Count the words of a text by script: Counter({'LATIN': 210, 'HAN': 12})."""
    counts: Counter[str] = Counter()
    plain = _APOSTROPHE.sub("", _NAKED_FORMULA.sub(" ", _plain(prose(text))))
    for run in _LETTERS.findall(plain):
        for name, letters in groupby(run, script):
            size = sum(1 for _ in letters)
            if name in BY_CHARACTER:
                counts[name] += size
            elif size > 1 or name not in _ALPHABETS:
                counts[name] += 1
    return counts


def _plain(text: str) -> str:
    """Return the text with letters in their usual form (NFKC: also full-width and mathematical), without accents."""
    if text.isascii():
        return text
    return text.translate(_USUAL_FORMS)


class _UsualForms(dict):
    """A table for str.translate that is filled on use.

    Characters are normalized one by one. Normalizing a text takes quadratic time if all accents are on one letter.
    """

    def __missing__(self, code: int) -> str:
        usual = unicodedata.normalize("NFKC", chr(code))
        self[code] = "".join(character for character in usual if not _is_accent(character))
        return self[code]


_USUAL_FORMS = _UsualForms()


def _is_accent(character: str) -> bool:
    """Return whether a character is an accent on a letter, or invisible (a soft hyphen, a joiner)."""
    category = unicodedata.category(character)
    return category[0] == "M" or category == "Cf"


@cache
def script(letter: str) -> str:
    """Return the script of a letter by the first word of its Unicode name (LATIN, HAN, ...); "" for other signs."""
    if not letter.isalnum():
        return ""
    first = unicodedata.name(unicodedata.normalize("NFKC", letter)[0], "").partition(" ")[0]
    return _NAMED.get(first, first)


# ------------------------------------------------------------------------------------------------ what is not a formula

_TEXT_MACROS = frozenset(
    """
    text textbf textit textrm textnormal textsc textsf textsl textup mbox hbox emph intertext footnote caption title
    part chapter section subsection subsubsection paragraph subparagraph
    """.split()  # noqa: SIM905
)
_FORMULA_ENVIRONMENTS = frozenset(
    """
    math displaymath equation align alignat aligned alignedat flalign gather gathered multline eqnarray split array
    subarray matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix cases dcases
    """.split()  # noqa: SIM905
)
# An unclosed fence extends to the end. Each sign may be compared with the fence, so its length is bounded.
_FENCE = r"(?P<fence>`{3,99}|^~{3,99}).*?(?:(?P=fence)|\Z)"
FENCED = re.compile(_FENCE, re.DOTALL | re.MULTILINE)
_SIGN = re.compile(
    rf"""(?P<dropped>{_FENCE}
        |(?<!`)`[^`\n]+`(?!`)
        |\\begin[ \t]*\{{(?P<program>verbatim|lstlisting|minted|tikzpicture|asy)\}}.*?(?:\\end[ \t]*\{{(?P=program)\}}|\Z)
        |\[asy\](?:(?!\[asy\]).)*?\[/asy\]
        |(?:https?://|www\.)[!#%-;=?-Z\[\]_a-z~]+
        |</?[a-z]+[ ]?/?>)
    |(?P<blank>\n[ \t\r]*\n)
    |(?P<dollar>\$\$?)
    |\\(?P<opens>[(\[])
    |\\(?P<closes>[)\]])
    |\\begin[ \t]*\{{(?P<begin>[A-Za-z]+)\*?\}}
    |\\end[ \t]*\{{(?P<end>[A-Za-z]+)\*?\}}
    |\\(?P<macro>[A-Za-z]+)\*?(?P<argument>[ \t]*+(?:\[[^\[\]\n]*+\])?+[ \t]*+\{{)?
    |\\.
    |(?P<brace>[{{}}])""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_TO_DOLLAR = re.compile(r"(?:[^$\\\n]|\\.|\n(?![ \t\r]*\n))*+(?<!\s)\$", re.DOTALL)


def prose(text: str) -> str:
    """Return the text without its formulas, macros and code, in linear time, even if some are never closed."""
    return " ".join(_LanguageReader(text).read())


class _LanguageReader:
    """A single scan of a text. `open` is a stack: the closing sign of each open part, and whether its words count."""

    def __init__(self, text: str):
        self.text = text
        self.open: list[tuple[str, bool]] = []
        self.awaited: Counter[str] = Counter()  # number of each closing sign in the stack
        self.argument = -1  # the place at which a further argument of a macro would begin

    def read(self) -> Iterator[str]:
        place = 0
        while sign := _SIGN.search(self.text, place):
            if self._counts:
                yield self.text[place : sign.start()]
            place = self._after(sign)
        if self._counts:
            yield self.text[place:]

    @property
    def _counts(self) -> bool:
        return not self.open or self.open[-1][1]

    def _push(self, closing: str, counts: bool) -> None:
        self.open.append((closing, counts))
        self.awaited[closing] += 1

    def _pop(self) -> tuple[str, bool]:
        closing, counts = self.open.pop()
        self.awaited[closing] -= 1
        return closing, counts

    def _start(self, closing: str) -> None:
        """Begin a formula, unless inside one."""
        if self._counts:
            self._push(closing, False)

    def _stop(self, closing: str) -> bool:
        """End the part that this sign closes, with all parts inside it; return False if it closes nothing."""
        if not self.awaited[closing]:
            return False
        while self._pop()[0] != closing:
            pass
        return True

    def _after(self, sign: re.Match) -> int:
        """Open or close the part that the sign opens or closes, and return the position to continue from."""
        match sign.lastgroup:
            case "blank":
                self.open.clear()
                self.awaited.clear()
            case "dollar":
                return self._dollar(sign)
            case "opens":
                self._start(")" if sign["opens"] == "(" else "]")
            case "closes":
                self._stop(sign["closes"])
            case "begin":
                if sign["begin"] in _FORMULA_ENVIRONMENTS:
                    self._start(sign["begin"])
                self.argument = sign.end()  # `{lcr}` of a table
            case "end":
                self._stop(sign["end"])
            case "argument":
                self._push("}", sign["macro"] in _TEXT_MACROS)
            case "brace":
                self._brace(sign)
        return sign.end()

    def _dollar(self, sign: re.Match) -> int:
        start, end = sign.span()
        if sign["dollar"] == "$$":
            if not self._stop("$$"):
                if self._stop("$"):
                    return start + 1  # `$a$$b$` are two formulas
                self._start("$$")
        elif self._counts and self._opens_formula(end):
            self._start("$")
        else:
            self._stop("$")
        return end

    def _opens_formula(self, start: int) -> bool:
        """Return whether a formula begins after the dollar sign before `start` (Pandoc's rule)."""
        closing = None if self.text[start : start + 1].isspace() else _TO_DOLLAR.match(self.text, start)
        return closing is not None and not (self.text[start].isdigit() and self.text[closing.end() :][:1].isdigit())

    def _brace(self, sign: re.Match) -> None:
        start, end = sign.span()
        if sign["brace"] == "{":
            formula = start == self.argument or self.text[max(start - 1, 0) : start] in ("_", "^")
            self._push("}", self._counts and not formula)
        elif self.open and self.open[-1][0] == "}":
            _, counted = self._pop()
            self.argument = -1 if counted else end
