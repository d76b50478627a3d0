"""Render texts of models and forums as safe HTML: Markdown, code and LaTeX, without tags, links or scripts of theirs.

Formulas become MathML, which browsers draw natively; an invalid formula is shown as its source. Raw HTML is shown as
text. Of the converter's output, only elements and attributes that lay out formulas are kept.
"""

import html
import re
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from latex2mathml import exceptions
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.texmath import texmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

# Allowed in MathML. Other attributes (links, styles, classes) are removed.
ATTRIBUTES = frozenset(
    re.findall(
        r"\w+",
        """accent accentunder align columnalign columnlines columnspacing depth display displaystyle fence form frame height
    largeop linebreak linethickness lspace mathsize mathvariant maxsize minsize movablelimits notation rowalign rowlines
    rowspacing rspace scriptlevel separator stretchy symmetric voffset width""",
    )
)
ELEMENTS = frozenset(
    re.findall(
        r"\w+",
        """math menclose mfrac mi mn mo mover mpadded mphantom mroot mrow ms mspace msqrt mstyle msub msubsup msup mtable mtd
    mtext mtr munder munderover mmultiscripts mprescripts none""",
    )
)
LONGEST = 20_000  # characters of a formula
# Errors of the converter, after which the source is shown.
UNREADABLE: tuple[type[Exception], ...] = (
    *(error for error in vars(exceptions).values() if isinstance(error, type) and issubclass(error, Exception)),
    *(ArithmeticError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError),
    ElementTree.ParseError,
)
_NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
# Models write `\( x \)` with spaces and `$x$` without; prices such as $5 and $7 are not formulas.
_MARKDOWN = (
    MarkdownIt("commonmark", {"html": False, "breaks": True, "typographer": False})
    .enable(["table", "strikethrough"])
    .disable(["image", "autolink"])
)


@lru_cache(maxsize=8192)
def formula(latex: str, display: bool = False) -> str:
    """Convert a formula to MathML, or return its source if it is invalid."""
    mode = "block" if display else "inline"
    try:
        if len(latex) > LONGEST:
            raise ValueError("too long")
        tree = ElementTree.fromstring(convert(latex, display=mode))
        _clean(tree)
        return ElementTree.tostring(tree, encoding="unicode")
    except UNREADABLE:
        return f'<code class="unreadable" title="cannot be read as LaTeX">{html.escape(latex)}</code>'


def _clean(element: ElementTree.Element) -> None:
    name = element.tag.removeprefix(_NAMESPACE)
    if name not in ELEMENTS:
        raise ValueError(f"the converter returned <{name}>")
    if name == "mi" and (element.text or "").startswith("\\"):
        raise ValueError(f"{element.text} is an unknown command")
    element.tag = name
    for attribute in [key for key in element.attrib if key not in ATTRIBUTES or element.get(key) == "inline"]:
        del element.attrib[attribute]
    for child in element:
        _clean(child)
    if name == "math" and len(element) == 1 and element[0].tag == "mrow":  # the row is implied
        element[:] = element[0]


def code(text: str, language: str = "") -> str:
    """Render a block of code, highlighted if its language is known."""
    try:
        return highlight(text, get_lexer_by_name(language or "text"), HtmlFormatter(cssclass="code"))
    except ClassNotFound:
        return f'<div class="code"><pre>{html.escape(text)}</pre></div>'


def _fence(renderer: Any, tokens: Any, index: int, *_: Any) -> str:
    token = tokens[index]
    return code(token.content, token.info.strip().partition(" ")[0])


def _math(display: bool) -> Any:
    return lambda renderer, tokens, index, *_: formula(tokens[index].content.strip(), display)


def _link_open(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    """Render a link as text with its address as a tooltip, so that a model's text cannot send a reader elsewhere."""
    address = escapeHtml(str(tokens[index].attrGet("href") or ""))
    return f'<span class="link" title="{address}">'


def _times(state: Any, silent: bool) -> bool:
    """Treat an asterisk between letters or digits as a product, `8*8=64, 4*8=32`, not as emphasis."""
    before, star, after = (
        state.src[max(state.pos - 1, 0)],
        state.src[state.pos],
        state.src[state.pos + 1 : state.pos + 2],
    )
    if star != "*" or not (before.isalnum() and after.isalnum()):
        return False
    if not silent:
        state.pending += star
    state.pos += 1
    return True


_MARKDOWN.inline.ruler.before("emphasis", "times", _times)
_MARKDOWN.use(dollarmath_plugin, allow_space=True, allow_digits=False, double_inline=True)
_MARKDOWN.use(texmath_plugin, delimiters="brackets")
_MARKDOWN.use(amsmath_plugin, renderer=lambda text: formula(text.strip(), True))
_MARKDOWN.add_render_rule("fence", _fence)
_MARKDOWN.add_render_rule("link_open", _link_open)
_MARKDOWN.add_render_rule("link_close", lambda *_: "</span>")
for _rule in ("math_inline", "math_inline_double"):
    _MARKDOWN.add_render_rule(_rule, _math(_rule == "math_inline_double"))
for _rule in ("math_block", "math_block_eqno", "math_block_label"):
    _MARKDOWN.add_render_rule(_rule, _math(True))

# `\[...\]`, also over several lines.
_BRACKETS = re.compile(r"\\\[(.*?)\\\]", re.DOTALL)
# A line that begins and ends with a formula would be parsed as one block.
_SEVERAL = re.compile(r"^(\$\$[^$\n]+\$\$[ \t]*\S[^\n]*\$\$[ \t]*)$", re.MULTILINE)
# Commands that models also write outside of formulas, by the number of their arguments in braces.
_COMMANDS = {
    name: arguments
    for arguments, names in {
        2: "frac dfrac tfrac binom dbinom tbinom",
        1: "boxed fbox sqrt overline underline mathbb mathrm mathbf mathcal pmod vec",
        0: """le leq ge geq ne neq equiv cdot cdots ldots times div pm mp mid nmid in notin subset cup cap infty pi alpha beta
        gamma delta theta lambda mu phi omega sum prod to rightarrow Rightarrow implies iff approx sim blacksquare square""",
    }.items()
    for name in re.findall(r"\w+", names)
}
_COMMAND = re.compile(r"```|`|\$\$?|\\[\[(]|\\begin\{([A-Za-z]+\*?)\}|\\([A-Za-z]+)|\\.", re.DOTALL)
_CLOSED_BY = {"```": "```", "`": "`", "$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_OPTION = re.compile(r"\[[^\[\]{}\n]{0,20}\]")
# Parts of a judge's output, as the prompts of this project and of others ask for them.
_PARTS = (
    "assessment",
    "errors",
    "points",
    "score",
    "verdict",
    "judgement",
    "evaluation",
    "summary",
    "comments",
    "report",
)
_PART = re.compile(rf"<({'|'.join(_PARTS)})>")
_TAG = re.compile(rf"<points>[^<]*</points>|</?({'|'.join(_PARTS)})>")  # the points are a column of their own


def _enclose_commands(source: str) -> str:
    """Make formulas of the commands outside of formulas and code, with their arguments; in time linear in the text."""
    if "\\" not in source:
        return source
    ends = _pair_braces(source)
    parts: list[str] = []
    unclosed = set()
    start = at = 0
    while match := _COMMAND.search(source, at):
        at = match.end()
        if close := _CLOSED_BY.get(match[0]) or (match[1] and f"\\end{{{match[1]}}}"):
            end = -1 if close in unclosed else source.find(close, at)
            if end < 0:
                unclosed.add(close)
                if match[0] == "\\(":  # the parser would search for its end to the end of the text, each time
                    parts, start = [*parts, source[start : match.start()], "\\"], match.start()
            else:
                at = end + len(close)
        elif match[2] in _COMMANDS:
            if match[2] == "sqrt" and (option := _OPTION.match(source, at)):
                at = option.end()
            count = 0
            while at in ends and count < _COMMANDS[match[2]]:
                at, count = ends[at], count + 1
            if count == _COMMANDS[match[2]]:
                parts += [source[start : match.start()], f"\\({' '.join(source[match.start() : at].split())}\\)"]
                start = at
    return "".join([*parts, source[start:]])


def _pair_braces(source: str) -> dict[int, int]:
    """Return the end of each group in braces, by its start."""
    ends, opened = {}, []
    for match in _BRACE.finditer(source):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            ends[opened.pop()] = match.end()
    return ends


@lru_cache(maxsize=2048)
def text(source: str | None) -> str:
    """Render a text as HTML, and keep its line breaks."""
    if not source:
        return '<p class="nothing">nothing</p>'
    flat = _enclose_commands(source)
    flat = _BRACKETS.sub(lambda match: "$$" + " ".join(match[1].split()) + "$$", flat)
    return _MARKDOWN.render(_SEVERAL.sub("\u200b\\1", flat))


def verdict(source: str | None) -> str:
    """Render a judge's output: the parts between its tags have their names as headings."""
    source = source or ""
    parts, start = [], 0
    for match in _PART.finditer(source):
        end = source.find(f"</{match[1]}>", match.end()) if match.start() >= start else -1
        if end >= 0:
            before, part = source[start : match.start()].strip(), text(source[match.end() : end].strip())
            parts.append((text(before) if before else "") + f'<div class="part"><h4>{match[1]}</h4>{part}</div>')
            start = end + len(match[1]) + 3
    rest = source[start:].strip()
    return "".join(parts) + (text(rest) if rest or not parts else "")


def brief(value: Any, most: int = 200) -> str:
    """Render the value of a table's cell, shortened to `most` characters, without the tags of a judge's output."""
    if value is None:
        return '<span class="nothing">–</span>'
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)  # a year has no comma
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    shown = " ".join(_TAG.sub(" ", str(value)).split())
    cut = shown[:most]
    if len(cut) < len(shown):  # not in a formula
        last = max(
            cut.rfind("$") if cut.count("$") % 2 else -1,
            cut.rfind("\\(") if "\\)" not in cut[cut.rfind("\\(") :] else -1,
        )
        cut = f"{cut[:last] if last > most / 2 else cut}…"
    return _inline(cut) if "$" in cut or "\\" in cut else html.escape(cut)


@lru_cache(maxsize=4096)
def _inline(source: str) -> str:
    return _MARKDOWN.renderInline(_enclose_commands(source))


def read_styles() -> str:
    """Return style.css without comments, and without spaces that have no meaning."""
    text = (Path(__file__).parent / "assets/style.css").read_text(encoding="utf-8")
    text = re.sub(r"\s*([{};])\s*", r"\1", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    return re.sub(r"([:,]) +", r"\1", text)
