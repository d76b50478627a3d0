"""Render texts of models and forums as safe HTML: Markdown, code and LaTeX, without tags, links or scripts of theirs.

Formulas become MathML, which browsers draw natively; an invalid formula is shown as its source. Raw HTML is shown as
text. Of the converter's output, only elements and attributes that lay out formulas are kept.
"""

import html
import re
from functools import lru_cache
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
    for attribute in [key for key in element.attrib if key not in ATTRIBUTES]:
        del element.attrib[attribute]
    if name == "math":
        element.set("xmlns", _NAMESPACE[1:-1])
    for child in element:
        _clean(child)


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
_SEVERAL = re.compile(r"^(\$\$[^$\n]+\$\$[^\n]*\S[^\n]*\$\$[ \t]*)$", re.MULTILINE)
# A boxed answer is usually outside of formulas.
_BOXED = re.compile(r"(?<!\\)\\boxed\{[^{}`]*(?:\{[^{}`]*\}[^{}`]*)*\}")


@lru_cache(maxsize=2048)
def text(source: str | None) -> str:
    """Render a text as HTML, and keep its line breaks."""
    if not source:
        return '<p class="nothing">nothing</p>'
    flat = _BRACKETS.sub(lambda match: "$$" + " ".join(match[1].split()) + "$$", source)
    flat = "\n".join(line if "$" in line else _BOXED.sub(r"$\g<0>$", line) for line in flat.split("\n"))
    flat = _SEVERAL.sub("\u200b\\1", flat)
    return _MARKDOWN.render(flat)


def brief(value: Any, most: int = 200) -> str:
    """Render the value of a table's cell, escaped and shortened to `most` characters."""
    if value is None:
        return '<span class="nothing">–</span>'
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)  # a year has no comma
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    shown = " ".join(str(value).split())
    if len(shown) > most:
        return html.escape(f"{shown[:most]}…")
    return _inline(shown) if "$" in shown or "\\(" in shown else html.escape(shown)


@lru_cache(maxsize=4096)
def _inline(source: str) -> str:
    return _MARKDOWN.renderInline(source)


def styles() -> str:
    """Return the CSS of highlighted code, for light and dark."""
    light = HtmlFormatter(style="default", cssclass="code").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark", cssclass="code").get_style_defs(".code")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
