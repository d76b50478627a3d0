r"""Spell an answer in one way: the notation of LaTeX for what people and programs type otherwise.

    spell("x >= 2*sqrt(3)")     x \ge 2*\sqrt{3}
    spell("½ ≤ ٤²")             \frac{1}{2} \le 4^{2}

Read are: signs and digits of Unicode, ASCII relations, functions and constants without a backslash, powers as `**`,
fractions and binomials of TeX, arrays in brackets, and sizes of brackets. Words within `\text{...}` stay as they are.
"""

import re
import unicodedata
from functools import lru_cache

from proofmill.answers.reading.brackets import split

STYLE = r"\\(?:text|textbf|textit|textrm|textsf|textnormal|mathrm|mathbf|mathit|mathsf|mbox|hbox|emph|boldsymbol|bm|operatorname\*?)"

# ---------------------------------------------------------------------------------------------------- one sign for many

_SIGNS = str.maketrans(
    {
        **{"¢": "\\text{ cents}", "−": "-", "–": "-", "‐": "-", "‑": "-", "±": "\\pm ", "∓": "\\mp ", "×": "\\times ", "÷": "\\div "},
        **{"·": "\\cdot ", "⋅": "\\cdot ", "∗": "*", "√": "\\sqrt ", "∞": "\\infty ", "π": "\\pi ", "≤": "\\le "},
        **{"≥": "\\ge ", "≠": "\\ne ", "≈": "\\approx ", "≡": "\\equiv ", "∈": "\\in ", "∪": "\\cup ", "∩": "\\cap "},
        **{"∖": "\\setminus ", "∅": "\\emptyset ", "Ø": "\\emptyset ", "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}"},
        **{"ℕ": "\\mathbb{N}", "ℚ": "\\mathbb{Q}", "ℂ": "\\mathbb{C}", "°": "^{\\circ}", "′": "'", "…": "\\ldots "},
        **{"⌊": "\\lfloor ", "⌋": "\\rfloor ", "⌈": "\\lceil ", "⌉": "\\rceil ", "⟨": "\\langle ", "⟩": "\\rangle "},
        **{"∠": "\\angle ", "△": "\\triangle ", "∑": "\\sum ", "∏": "\\prod ", "٫": ".", "٬": ",", "،": ",", "、": ","},
        **{"∛": "\\sqrt[3]", "⩽": "\\le ", "⩾": "\\ge ", "‖": "\\|", "’": "'", "∣": "|", "∧": "\\wedge ", "∨": "\\vee "},
        **{letter: f"\\{name} " for letter, name in zip("αβγδεζθλμρστφωΓΔΘΛΣΦΩ", ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "theta", "lambda", "mu", "rho", "sigma", "tau", "phi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Sigma", "Phi", "Omega"], strict=True)},
    }
)  # fmt: skip
_RAISED = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_LOWERED = re.compile(r"[₀₁₂₃₄₅₆₇₈₉₊₋ₙ]+")
# Commands with the same meaning. `normal` (extraction.py) applies them sign by sign.
COMMANDS = {
    **{"\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\dbinom": "\\binom", "\\tbinom": "\\binom"},
    **{"\\!": "", "\\displaystyle": "", "\\textstyle": "", "\\limits": "", "\\nolimits": "", "\\lvert": "|"},
    **{"\\rvert": "|", "\\vert": "|", "\\lVert": "\\|", "\\rVert": "\\|", "\\Vert": "\\|", "\\lbrace": "\\{"},
    **{"\\rbrace": "\\}", "\\leq": "\\le", "\\leqslant": "\\le", "\\geq": "\\ge", "\\geqslant": "\\ge"},
    **{"\\neq": "\\ne", "\\lt": "<", "\\gt": ">", "\\varnothing": "\\emptyset", "\\backslash": "\\setminus"},
    **{"\\smallsetminus": "\\setminus", "\\land": "\\wedge", "\\lor": "\\vee", "\\R": "\\mathbb{R}", "\\lbrack": "["},
    **{
        f"\\{size}": "" for size in ("large", "Large", "LARGE", "huge", "Huge", "small", "normalsize", "bf", "bfseries")
    },
    **{"\\dots": "\\ldots", "\\dotsc": "\\ldots", "\\colon": ":"},
    **{"\\rbrack": "]", "\\arcctg": "\\arccot", "\\tg": "\\tan", "\\ctg": "\\cot", "\\degree": "^{\\circ}"},
}
# Brackets of any size; `normal` drops these, and an invisible bracket, `.`, after them.
SIZES = re.compile(r"\\(?:left|right|middle|mleft|mright|[bB]igg?[lrm]?)")

# ------------------------------------------------------------------------------------------------------------ plain text

_FUNCTIONS = "sqrt|sinh|cosh|tanh|sin|cos|tan|cot|csc|arcsin|arccos|arctan|asin|acos|atan|ln|log|lg"
_CALLED = "sec|exp|abs|floor|ceil|ceiling|cbrt|binom|binomial|comb|nCr|factorial|gcd|lcm|min|max"
_CONSTANTS = "pi|theta|alpha|beta|gamma|delta|lambda|omega|sigma|epsilon|phi"
_PLAIN = re.compile(
    rf"{STYLE}\s*\{{[^{{}}]*\}}|(?<![A-Za-z\\])(?:(?P<name>{_FUNCTIONS})(?P<base>_?[0-9]+(?=\())?(?![a-zA-Z])"
    rf"|(?P<called>{_CALLED})(?=\s?\()|(?P<constant>{_CONSTANTS})(?![a-zA-Z])|(?P<infinity>inf|oo|infty|infinity)(?![a-zA-Z]))"
)
_INVERSE = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "ceiling": "ceil",
    "binomial": "binom",
    "comb": "binom",
}
_CALL = re.compile(r"\\(sqrt|abs|floor|ceil|cbrt|exp|binom|nCr|factorial)\s?(?=\()|\^(?=\()")
_MEANING = {
    **{"sqrt": "\\sqrt{@}", "abs": "|@|", "floor": "\\lfloor @\\rfloor ", "ceil": "\\lceil @\\rceil "},
    **{"cbrt": "\\sqrt[3]{@}", "exp": "e^{@}", "binom": "\\binom{@}{@}", "nCr": "\\binom{@}{@}", "factorial": "(@)!"},
}
_ASCII = re.compile(
    r"(?P<le><=|=<)|(?P<ge>>=)|(?P<ne>(?:^|(?<=\s))!=|/=)|(?P<equal>==)|(?P<pm>\+/-)"
    r"|(?P<power>\*\*)|(?P<times>(?<=[0-9])\s?[xX]\s?(?=10\^))"
)
_WRITTEN = {"le": "\\le ", "ge": "\\ge ", "ne": "\\ne ", "equal": "=", "pm": "\\pm ", "power": "^", "times": "\\times "}
_CHOOSE = re.compile(r"\{([^{}]*)\\choose(?![A-Za-z])([^{}]*)\}")
# Other ways to write one thing, with the way that is kept.
_SAME: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), kept)
    for pattern, kept in (
        (r"(?<![\w)}\]])\*\*(?=\S)([^*]+)(?<=\S)\*\*(?![\w({\[])", r"\1"),  # bold in Markdown
        (r"(?<![\^_])(?<![A-Za-z]{2})\{([-+=<>])\}", r"\1"),
        (r"(?<=[0-9])\\?_(?=(?:[0-9]{3}\\?_)*[0-9]{3}(?![0-9_]))", ""),
        (r"\\(?:text)?color\{[A-Za-z]+\}|\\underline(?=\{-?[0-9.]+\})", ""),
        (r"\\(mathbb|mathbf|mathrm|Bbb)\s*([A-Za-z0-9])(?![A-Za-z])", r"\\\1{\2}"),
        (
            r"(?:\{\}|(?<![\w)}\]]))(?:\^|_)(?:\{([0-9a-z]+)\}|([0-9]))\s*C_(?:\{([0-9a-z]+)\}|([0-9]))",
            r"\\binom{\1\2}{\3\4}",
        ),
        (r"^\s*([0-9]+) to ([0-9]+) to ([0-9]+)\s*$", r"\1:\2:\3"),
        # `C_1` and `C_2` are constants.
        (
            r"(?:\\mathrm\{C\}|(?<![\w\\{])C(?=_\{?(?:[3-9]|[0-9]{2})))_\{?([0-9]+)\}?\^\{?([0-9]+)\}?",
            r"\\binom{\1}{\2}",
        ),
        (r"(?:\{\}|(?<![\w)}\]]))\^\{?([0-9]+)\}?(?:\\!)*/(?:\\!)*_\{?([0-9]+)\}?", r"\\frac{\1}{\2}"),
        (r"\.([0-9]*)\\dot\{?([0-9])\}?([0-9]*)\\dot\{?([0-9])\}?", r".\1\\overline{\2\3\4}"),
        (rf"\\frac\{{{STYLE}\{{([^{{}}]+)\}}\}}\{{{STYLE}\{{([^{{}}]+)\}}\}}", r"\\text{ \1/\2}"),
    )
)
_ARRAY = re.compile(r"(\\\{|\\?[\[(|])?\s*\\begin\{array\}(?:\{[^{}]*\})?(.*?)\\end\{array\}\s*(\\?[\])|])?", re.DOTALL)


@lru_cache(maxsize=4096)
def spell(text: str) -> str:
    """Return a text in the notation of LaTeX. What has no other notation stays unchanged."""
    if not text.isascii():
        text = _ascii(text)
    if not text.isalnum():
        for pattern, kept in _SAME:
            text = pattern.sub(kept, text)
    if "\\choose" in text:
        text = _CHOOSE.sub(r"\\binom{\1}{\2}", text)
    if "{array}" in text:
        text = _ARRAY.sub(_matrix, SIZES.sub("", text))
    text = _ASCII.sub(lambda sign: _WRITTEN[sign.lastgroup or ""], text)
    text = _PLAIN.sub(_command, text)
    return _calls(text) if _CALL.search(text) else text


def _ascii(text: str) -> str:
    """Return a text with the signs of other scripts spelled out."""
    text = re.sub("(?<=[①-⑳])(?=[①-⑳])", ",", text)
    text = re.sub(r"√\s*([0-9]+(?:\.[0-9]+)?|[a-zA-Z])", r"\\sqrt{\1}", text)
    text = _RAISED.sub(lambda found: f"^{{{unicodedata.normalize('NFKC', found[0])}}}", text)
    text = _LOWERED.sub(lambda found: f"_{{{unicodedata.normalize('NFKC', found[0])}}}", text)
    return "".join(_letter(sign) for sign in text.translate(_SIGNS)).replace("−", "-")


def _letter(sign: str) -> str:
    if sign.isascii():
        return sign
    if (digit := unicodedata.decimal(sign, None)) is not None:
        return str(digit)
    plain = unicodedata.normalize("NFKC", sign)
    above, slash, below = plain.partition("⁄")
    return f"\\frac{{{above}}}{{{below}}}" if slash else plain if plain.isascii() else sign


def _matrix(found: re.Match[str]) -> str:
    """Return an array in brackets as a matrix or a determinant, and one after a brace as cases."""
    first, rows, last = (found[1] or "").lstrip("\\"), found[2], (found[3] or "").lstrip("\\")
    name = {"[": "pmatrix", "(": "pmatrix", "|": "vmatrix", "{": "cases"}.get(first)
    if name is None or (name != "cases" and not last):
        return found[0]
    return f"\\begin{{{name}}}{rows}\\end{{{name}}}"


def _command(found: re.Match[str]) -> str:
    if name := found["name"] or found["called"]:
        base = f"_{{{found['base'].strip('_')}}}" if found["base"] else ""
        root = name == "sqrt" and base  # `sqrt3(2)` means nothing
        return found[0] if root else f"\\{_INVERSE.get(name, name)}{base} "
    if found["constant"]:
        return f"\\{found['constant']} "
    return "\\infty " if found["infinity"] else found[0]


def _calls(text: str) -> str:
    r"""Return `\sqrt(3)` as `\sqrt{3}`, and `2^(n+1)` as `2^{n+1}`; what is not closed stays."""
    begin = 0
    while call := _CALL.search(text, begin):
        end = _closing(text, call.end())
        begin = call.end()
        if end is None:
            continue
        inside = text[call.end() + 1 : end]
        form = _MEANING[call[1]] if call[1] else "^{@}"
        parts = [part for _, part in split(inside, (",",))] if form.count("@") == 2 else [inside]
        if len(parts) != form.count("@"):
            continue
        for part in parts:
            form = form.replace("@", part, 1)
        text, begin = text[: call.start()] + form + text[end + 1 :], call.start() + 1
    return text


def _closing(text: str, start: int) -> int | None:
    """Return the position of the bracket that closes the one at `start`; None without one."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    return None
