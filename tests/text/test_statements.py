"""Tokens of a statement: equal for equal mathematics, different for different mathematics."""

import pytest

from proofmill.text.statements import normal, tokens


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"$\dfrac{a+b}{2}$", "(a+b)/2"),
        (r"\frac12 + \tfrac ab", r"$\frac{1}{2}+\frac{a}{b}$"),
        (r"\frac{\frac{1}{2}}{x}", "(1/2)/x"),
        (r"$x^{12}\le y_{3}$", "x^12 ≤ y_3"),
        (r"$a_kx^k$", "$a_{k}x^{k}$"),
        (r"$\left( a+b \right)^2$", r"\[\big(a+b\big)^{2}\]"),
        (r"Find $f:\mathbb{R}\to\mathbb R$.", r"find  $f \colon \mathbb R \rightarrow \mathbb{R}$"),
        (r"$1{,}000 \cdot 3$", r"1,000 \times 3"),
        (r"Prove that $n\mid 2^n$.", r"Prove that\ $n \, \mid \; 2^{n}$"),
        ("a non-negative integer", "A non negative integer,"),
        ("x² + y²", "$x^2+y^2$"),
        ("Soit e\u0301tale un anneau.", "Soit \u00e9tale un anneau."),
        ("已知函数 f(x)=x^2，求 f(2)。", "已知函数 f(x)=x^2, 求 f(2)."),
        ("设（ａ＋ｂ）：求１２、３！", "设(a+b):求12,3!"),
        (r"\begin{align*} a &= b \\ c &= d \end{align*}", "$a=b$ $c=d$"),
        (r"$a_1,\ldots,a_n$", r"$a_1, \dots , a_n$"),
        (r"\textbf{Prove} that $\text{gcd}(a,b)=1$", r"Prove that $\gcd(a,b)=1$"),
        ("A square [asy] draw((0,0)--(1,1)); [/asy] is cut.", "A square is cut."),
    ],
)
def test_tokens_of_one_statement_in_other_latex_are_equal(one, other):
    """Spelling, fonts, spacing and punctuation change no token."""
    assert normal(one) == normal(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("$2^{n+1}$", "$2^n+1$"),
        ("$a(b+c)$", "$ab+c$"),
        ("$n!$", "$n$"),
        ("$x_{12}$", "$x_1 2$"),
        (r"\frac{a+b}{c}", r"a+\frac{b}{c}"),
        (r"$a \le b$", "$a < b$"),
        ("$12$", "$1, 2$"),
        ("求 1，234。5", "求 1,234.5"),
        ("$f'(x)$", "$f(x)$"),
        (r"$\{1,2\}$", "$1,2$"),
    ],
)
def test_tokens_of_other_mathematics_differ(one, other):
    """Brackets that group, factorials, primes and relations are tokens."""
    assert normal(one) != normal(other)


def test_tokens_tell_words_numbers_and_formulas_apart():
    """Letters in formulas are not words, and every token has its place in the text."""
    text = "Let $a$ be a number below 47."
    found = tokens(text)
    assert [(t.text, t.kind) for t in found] == [
        ("let", "word"),
        ("a", "formula"),
        ("be", "word"),
        ("a", "word"),
        ("number", "word"),
        ("below", "word"),
        ("47", "number"),
    ]
    assert text[found[-1].start : found[-1].end] == "47"


@pytest.mark.parametrize(
    "text", ["", "{", "}}}", "$", r"\frac", r"\frac{", "^", r"\\", "\\", r"\begin{", "[asy]", "\x00", "$$$"]
)
def test_tokens_of_broken_latex_are_some_tokens(text):
    """No text makes the tokenizer fail."""
    assert isinstance(normal(text), str)


def test_tokens_between_prices_are_words():
    """A dollar sign before a price opens no formula."""
    text = "She got $50 as a gift, bought it for $9 and lost $3. So $9 \\text{ is more than } x$."
    kinds = {token.text: token.kind for token in tokens(text)}
    assert [kinds[word] for word in ("gift", "bought", "50", "more")] == ["word", "word", "number", "formula"]
