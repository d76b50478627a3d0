"""Texts of models as HTML: formulas are drawn, and a browser runs, fetches and follows nothing in them."""

import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.viewer import rendering

ALLOWED = {
    *("p", "br", "em", "strong", "s", "code", "pre", "div", "span", "ul", "ol", "li", "blockquote", "hr"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
    *rendering.ELEMENTS,
}
OF_OURS = {"class", "title", "style", "start", "xmlns", "display"}


class Tags(HTMLParser):
    """Collects the elements and attributes of a piece of HTML."""

    def __init__(self):
        super().__init__()
        self.elements, self.attributes, self.values = set(), set(), []

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.values += [f"{name}={value}" for name, value in attrs]


def tags(html: str) -> Tags:
    found = Tags()
    found.feed(html)
    return found


@pytest.mark.parametrize(
    "source",
    [
        "Let $x_0=3$ be.", "$$\\frac{1}{2}$$", "\\( a^2 \\)", "\\[ a = b \\]", "\\[\na\n= b\n\\]", "so $$a$$ and $$b$$",
        "\\begin{align*}\na &= b \\\\\nc &= d\n\\end{align*}", "$\\begin{cases} 1 & x>0 \\\\ 0 & x \\le 0 \\end{cases}$",
        "$a \\equiv b \\pmod 7$", "So the residue is \\boxed{3}.", "| $a$ | $b$ |\n|---|---|\n| 1 | 2 |", "- $x$\n- y",
    ],
)  # fmt: skip
def test_formulas_are_drawn(source):
    """Dollars, brackets and environments become MathML, and their delimiters disappear."""
    html = rendering.text(source)
    assert "<math" in html
    assert not re.search(r"\$|\\\(|\\\[|\\begin|\\frac|\\boxed", html), html


@pytest.mark.parametrize("source", ["$\\frac{$", "$\\unknowncommand{3}$", "$" + "{" * 3000 + "$", "$\\left( x$"])
def test_formula_that_cannot_be_read_is_shown_as_it_is(source):
    """The complete source is shown, as unreadable code."""
    html = rendering.text(source)
    assert 'class="unreadable"' in html and "<math" not in html


def test_asterisk_between_numbers_is_a_product():
    """Calculations keep their asterisks; words can be emphasized."""
    assert rendering.text("8^3: 8*8=64≡4, 4*8=32≡2.") == "<p>8^3: 8*8=64≡4, 4*8=32≡2.</p>\n"
    assert rendering.text("a*b and *this* and **that**, `x*y*z`") == (
        "<p>a*b and <em>this</em> and <strong>that</strong>, <code>x*y*z</code></p>\n"
    )


def test_price_is_no_formula():
    """Two dollar amounts in a sentence stay text."""
    assert rendering.text("It costs $5 and then $7 more.") == "<p>It costs $5 and then $7 more.</p>\n"


ATTACKS = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[x](javascript:alert(1))", "<a href='javascript:x'>y</a>",
    "![x](http://evil.example/pixel.png)", "[x](http://evil.example/)", "$\\href{javascript:alert(1)}{x}$",
    "$\\style{background:url(http://evil.example)}{x}$", "$\\class{evil}{x}$", "$\\text{<script>alert(1)</script>}$",
    "```html\n<script>alert(1)</script>\n```", "```<script>\nx\n```", "<svg onload=alert(1)>", "<math><mtext><script>x</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;", "<iframe srcdoc='<script>x</script>'>", "$$</math><script>alert(1)</script>$$",
    "[x]: javascript:alert(1)\n[x]", "<https://evil.example>", "$\\includegraphics{http://evil.example}$", "</details><form>",
    "\\begin{align}</math><img src=x onerror=alert(1)>\\end{align}", "| <img src=x onerror=alert(1)> |\n|---|\n| x |",
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("render", [rendering.text, rendering.brief], ids=["text", "brief"])
def test_what_a_model_wrote_is_never_markup(attack, render):
    """The HTML has no element that runs, loads or links, and only attributes that lay out text."""
    found = tags(render(attack))
    assert found.elements <= ALLOWED, found.elements
    assert found.attributes <= OF_OURS | rendering.ATTRIBUTES, found.attributes
    assert not any(value.startswith("style=") and "url" in value for value in found.values)


@given(st.text(alphabet="<>&'\"/$\\{}[]()=abcdefimnorst \n|`#*_-", max_size=120))
def test_no_text_at_all_becomes_markup(source):
    """Any text of characters of markup, Markdown and LaTeX renders safely."""
    found = tags(rendering.text(source))
    assert found.elements <= ALLOWED
    assert found.attributes <= OF_OURS | rendering.ATTRIBUTES


def test_code_is_coloured_and_escaped():
    """Code of a known language is highlighted; code of an unknown one is shown unchanged."""
    assert '<span class="k">def</span>' in rendering.text("```python\ndef f(): return '<b>'\n```")
    assert "&lt;b&gt;" in rendering.text("```nonsense\n<b>\n```")


def test_cells_are_cut_and_numbers_are_short():
    """A long text ends in an ellipsis; a year has no comma; a missing value is a dash."""
    assert rendering.brief("x" * 300).endswith("x…")
    assert (rendering.brief(2024), rendering.brief(1234567), rendering.brief(0.123456)) == (
        "2024",
        "1,234,567",
        "0.1235",
    )
    assert "–" in rendering.brief(None)


@pytest.mark.parametrize(
    "source",
    [
        "So \\boxed{\\frac{n}{n+1}}.", "Thus \\frac{1}{2} and \\sqrt{2} and \\sqrt[3]{x+\\sqrt{y}}.", "\\binom{n}{\\frac{k}{2}} ways",
        "a \\le b \\neq c", "2\\cdot3", "\\boxed{\\{1, 2\\}}", "Line one\n\\boxed{\\frac{\na}{b}}", "**\\boxed{3}**", "- \\frac{a}{b}",
    ],
)  # fmt: skip
def test_commands_outside_of_formulas_are_drawn(source):
    """Fractions, roots, boxes and relations without dollars become formulas, with nested braces."""
    html = rendering.text(source)
    assert "<math" in html and "unreadable" not in html
    assert not re.search(r"\\[a-z]", html), html
    assert "<math" in rendering.brief(source)


@pytest.mark.parametrize(
    "source",
    [
        "`\\frac{1}{2}`",
        "```\n\\frac{1}{2} \\le 3\n```",
        "\\frac{1}",
        "\\frac{1}{2",
        "\\unknown{1}",
        "C:\\temp",
        "\\\\le",
    ],
)
def test_commands_in_code_and_incomplete_ones_stay(source):
    """Code keeps its commands; a command without its arguments is text."""
    assert "<math" not in rendering.text(source)


def test_formulas_keep_their_own_commands():
    """A command inside dollars, brackets or an environment is part of that formula."""
    for source in (
        "$\\frac{1}{2}$",
        "\\(\\frac{1}{2}\\)",
        "\\[\\frac{1}{2}\\]",
        "\\begin{align}\\frac{1}{2}\\end{align}",
    ):
        assert rendering.text(source).count("<math") == 1, source
    assert rendering.text("It costs $5. Then \\boxed{3}.").count("<math") == 1


@pytest.mark.parametrize(
    "source", ["\\frac{" * 20_000, "\\(" * 20_000, "{" * 50_000, "$$\\le" * 9_001, "<points>" * 9_000, "\\le " * 5_000]
)
def test_long_texts_take_little_time(source):
    """The time grows with the length of the text, not with its square."""
    start = time.monotonic()
    rendering.text.__wrapped__(source[: rendering.LONGEST * 5])
    rendering.verdict(source)
    assert time.monotonic() - start < 20  # seconds, on a loaded machine


def test_parts_of_a_verdict_are_headings():
    """Text between the tags of a judge has the tag's name as heading; other text and unclosed tags stay."""
    html = rendering.verdict(
        "Hm. <assessment>Step **2** fails: $x^2$.</assessment>\n<errors>none</errors><points>3</points> <points>"
    )
    assert re.findall(r"<h4>(\w+)</h4>", html) == ["assessment", "errors", "points"]
    assert "<strong>2</strong>" in html and "<math" in html and "Hm." in html and html.count("&lt;") == 1
    assert rendering.verdict(None) == rendering.text(None)
    assert rendering.brief("<assessment>Good.</assessment><points>3</points>") == "Good."


@pytest.mark.parametrize("attack", ATTACKS)
def test_verdict_of_a_judge_is_never_markup(attack):
    """The output of a judge has no element that runs, loads or links, inside and outside of its tags."""
    found = tags(rendering.verdict(f"{attack}<assessment>{attack}</assessment><points>{attack}"))
    assert found.elements <= ALLOWED, found.elements
    assert found.attributes <= OF_OURS | rendering.ATTRIBUTES, found.attributes


@given(st.text(alphabet="<>/assessment$\\{}[]()frac leq\n`", max_size=160))
def test_no_verdict_at_all_becomes_markup(source):
    """Any text of characters of tags and commands renders safely, as a verdict and as a cell."""
    for html in (rendering.verdict(source), rendering.brief(source, 40)):
        found = tags(html)
        assert found.elements <= ALLOWED
        assert found.attributes <= OF_OURS | rendering.ATTRIBUTES


def test_cell_is_not_cut_inside_a_formula():
    """A long statement ends before the formula that does not fit."""
    html = rendering.brief("Let us find the number of pairs with $x^2 + y^2 = z^2$ in total.", 45)
    assert html.endswith("…") and "$" not in html and "unreadable" not in html
