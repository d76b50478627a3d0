"""Language consistency: words counted by hand, in texts full of formulas and of several scripts."""

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.text.languages import consistency, mixes_languages, prose, words

UNTIMED = settings(deadline=None)

HAND_COUNTED = [  # text, words of each script
    # Let be real number Then const is even
    (r"Let $x$ be a real number. Then $\frac{x^2+\text{const}}{2}$ is even.", {"LATIN": 8}),
    # We get if is odd else by hypothesis Done
    (
        r"""We get \[ f(n) = \begin{cases} 3n+1 & \text{if } n \text{ is odd}, \\ \frac{n}{2} & \text{else} \end{cases} \]
\begin{align*}
S &= \sum_{k=1}^{n} k \operatorname{lcm}(k, n) && \text{by hypothesis} \\
  &\le \mathrm{max}(a_{long}, b).
\end{align*}
Done.""",
        {"LATIN": 9},
    ),
    # So the answer is
    (r"So the answer is $\boxed{\dfrac{-b \pm \sqrt{b^2-4ac}}{2a}}$.", {"LATIN": 4}),
    # No solution, in a box outside of dollars
    (r"\boxed{\text{No solution}}", {"LATIN": 2}),
    # Claim holds for all Proof
    (r"\textbf{Claim.} $P(n)$ holds for all \(n \in \mathbb{N}\). \emph{Proof.}", {"LATIN": 5}),
    # and then whenever divides exactly end: formulas within words within a formula
    (r"$a$$b$ and $$c$$ then $d \text{ whenever \(e\) divides $f$ exactly} + g$ end", {"LATIN": 6}),
    # It costs and the other together
    ("It costs $5 and the other $7, together $12.", {"LATIN": 6}),
    # Between and pages
    (r"Between $20-$30 and \$5 pages", {"LATIN": 3}),
    # We use here and then: code, an address and tags do not count
    (
        "<think>We use\n```python\nfor word in text: print(word)\n```\n`sorted(words)` here, "
        "https://example.org/some_page(1) and then</think>",
        {"LATIN": 5},
    ),
    # See: drawings and programs are code
    (r"See [asy] draw(circle((0,0),1)); [/asy]\begin{tikzpicture}\node {word};\end{tikzpicture}", {"LATIN": 1}),
    # then words end: adjacent formulas, and a word between two
    (r"$ab$$bc$ then $$cd$$ $ab$-words-$bc$ end", {"LATIN": 3}),
    # one word: a formula over two lines, and macros outside of formulas
    ("$ab\ncd$ one \\frac{ab}{cd} \\sqrt[3]{ef} word", {"LATIN": 2}),
    # It is per hour per week / and six more / let and the other words / and words: dollars that open no formula
    ("It is $5 per hour,$7 per week", {"LATIN": 6}),
    ("5 $ and six$ more", {"LATIN": 3}),
    ("let $x and the $other words", {"LATIN": 5}),
    (r"\$5 and \$6 words$", {"LATIN": 2}),
    ("$5 left\n\nwords$ more", {"LATIN": 3}),
    # words here: a bracket that is never closed, and one that was never opened
    (r"\[ ab \[ bc \] words \) here", {"LATIN": 2}),
    # some cells, in a table whose columns are no words
    (r"\begin{tabular}{lcr} some & cells \end{tabular}", {"LATIN": 2}),
    # emph word: an underscore after a word opens no formula; a power does
    ("_emph_ ab² word", {"LATIN": 2}),
    # So with and then holds in triangle: the rest are formulas without dollars
    ("So 2ab+bc = gcd(ab, c) with x_max and x_{max}, then n=abc holds in triangle ABC.", {"LATIN": 7}),
    # Case one first item
    ("\\section{Case one}\n\\begin{itemize}\n\\item first item\n\\end{itemize}\n", {"LATIN": 4}),
    # we're well known naïve l'été: an apostrophe joins, a hyphen parts
    ("we're well-known naïve l’été", {"LATIN": 5}),
    # single letters are no words, in either case: nothing
    ("a I x n α Ω ж б $y$", {}),
    # 设是正整数 5, 则 1, 是偶数 3; gcd(m, n) is a formula, continuous is not
    ("设$n$是正整数,则gcd(m, n)是偶数 continuous.", {"HAN": 9, "LATIN": 1}),
    # 所以 2, 三角形 3, 中 1; ABC names points
    ("所以三角形ABC中,$AB=AC$。", {"HAN": 6}),
    # 関数 2, は 1, 連続 2, です 2; カタカナ 4
    ("関数 $f$ は連続です。カタカナ", {"HAN": 4, "KANA": 7}),
    # 함수 는 연속 이다: four runs, one of them a single syllable
    ("함수 $f$ 는 연속 이다", {"HANGUL": 4}),
    # Пусть чётное число; so и is single
    ("Пусть n и m — чётное число.", {"CYRILLIC": 3}),
    # Έστω ακέραιος
    ("Έστω $n$ ακέραιος", {"GREEK": 2}),
    # عدد صحيح, with vowel signs on the first
    ("عَدَد صحيح", {"ARABIC": 2}),
    # गणित है की: vowel signs are no letters, and a syllable of one letter is a word
    ("गणित है की", {"DEVANAGARI": 3}),
    # abc word hyphen: full-width and mathematical letters are letters, and a soft hyphen is nothing
    ("ａｂｃ 𝐰𝐨𝐫𝐝 hy\u00adphen", {"LATIN": 3}),
    # one word, for any number and order of accents on its letter
    ("be" + "\u0301\u0323" * 100_000, {"LATIN": 1}),
    # a macro without an argument, and a word
    ("\\macro" + " " * 100_000 + "word", {"LATIN": 1}),
    # half-width カ with its voicing sign is one character, and so is が of two signs
    ("ｶﾞ か\u3099", {"KANA": 2}),
]


@pytest.mark.parametrize(("text", "counted"), HAND_COUNTED)
def test_words_are_those_counted_by_hand(text, counted):
    """Every word of a text is counted in its script, and nothing else is."""
    assert words(text) == counted


@pytest.mark.parametrize(
    ("text", "language", "share"),
    [
        # Let be prime Then 设 是 素 数 we see: 6 of 10
        ("Let $p$ be prime. Then 设$p$是素数 we see $p>1$.", "en", 0.6),
        ("Let $p$ be prime. Then 设$p$是素数 we see $p>1$.", "zh", 0.4),
        ("Let $p$ be prime. Then 设$p$是素数 we see $p>1$.", "ru", 0.0),
        # Since for odd the square of any odd number minus one: 11 of 15, with 2 Russian words and 2 Han characters
        (
            r"\text{Пусть} $n$ число. Since 因为 \[ n^2 \equiv 1 \pmod 8 \text{ for odd } n \] the square of any odd number minus one",
            "en",
            11 / 15,
        ),
        ("関数は連続", "ja", 1.0),
        ("関数は連続", "zh", 0.8),
        ("Le théorème est démontré", "fr", 1.0),
        ("Le théorème est démontré", "en", 1.0),  # French and English have one script
        ("Docs 함수 연속", "ko", 2 / 3),
    ],
)
def test_consistency_is_the_share_counted_by_hand(text, language, share):
    """The share of words in the target language's scripts."""
    assert consistency(text, language) == pytest.approx(share)


def test_consistency_of_nothing_is_zero_and_of_formulas_alone_is_unknown():
    """An empty chain of thought earns 0; one with only formulas has no language, unless a value is given for that."""
    assert consistency("", "en") == consistency(" \n", "en") == 0.0
    assert consistency(r"$x=1$, $$\frac{1}{2}$$", "en") is None
    assert consistency("```\ncode\n``` x 12", "zh") is None
    assert consistency(r"\[ \int f \]", "en", wordless=0.0) == 0.0


def test_consistency_in_an_unknown_language_is_refused():
    """The error lists the known languages."""
    with pytest.raises(ValueError, match=r"language: found 'English'; expected one of ar, be, .* zh\. "):
        consistency("text", "English")


def test_mixes_languages_begins_below_the_threshold():
    """19 English words of 20 are 0.95 and not mixed; 18 of 20 are. Without words or text the result is False."""
    assert not mixes_languages("word " * 19 + "词", "en")
    assert mixes_languages("word " * 18 + "词 词", "en")
    assert mixes_languages("word " * 19 + "词", "en", least=0.96)
    assert not mixes_languages("", "en")
    assert not mixes_languages("$x$", "en", least=1.0)


PIECES = {  # text, and the Latin words in it
    "plain words": 2,
    " $x+1$ ": 0,
    r" \(\frac{p}{q}\) ": 0,
    r" \[ y \text{ if even} \] ": 2,
    " $$z$$ ": 0,
    r" \textit{some words} ": 2,
    r" \dfrac{a_{long}}{\text{rate}} ": 1,
    " `code` ": 0,
    " 12, ": 0,
    r" \begin{align} a &= b \\ c &= \mbox{known} \end{align} ": 1,
    "\n\n": 0,
}


@UNTIMED
@given(st.lists(st.sampled_from(list(PIECES)), max_size=12))
def test_words_of_pieces_are_the_sum_of_the_words_of_each(pieces):
    """In any sequence of formulas and words, each piece has its own words."""
    assert words(" ".join(pieces))["LATIN"] == sum(PIECES[piece] for piece in pieces)


@UNTIMED
@given(st.lists(st.sampled_from(["word", "词", "語", "слово", "단어", "$", "\\(", "{", "}", " "]), max_size=30))
def test_words_after_a_blank_line_count_whatever_was_left_open(signs):
    """An unclosed formula ends with its paragraph."""
    before = words("".join(signs) + "\n\n")
    assert words("".join(signs) + "\n\nfresh words") == before + words("fresh words")


@UNTIMED
@given(st.lists(st.sampled_from(["alpha", "beta", "数", "か", "число", "수학"]), min_size=1, max_size=40))
def test_consistency_without_formulas_is_a_plain_count(some):
    """For words separated by spaces, the share is the number of those in the language's letters."""
    for language, letters in {"en": "ab", "zh": "数", "ja": "数か", "ru": "ч", "ko": "수"}.items():
        assert consistency(" ".join(some), language) == pytest.approx(sum(w[0] in letters for w in some) / len(some))


@UNTIMED
@given(st.text(st.sampled_from("$\\()[]{}`~<>/ab 词\n_^1") | st.characters(codec="utf-8"), max_size=80))
def test_words_of_any_text_are_letters_of_it(text):
    """A text has no more words than letters in its normal form, and `prose` adds none."""
    letters = sum(c.isalnum() for c in unicodedata.normalize("NFKC", text))
    assert words(text).total() <= letters
    assert set(prose(text)) <= {*text, " "}


def test_words_of_real_proofs_are_english(data):
    """Solutions of AIME problems, full of formulas, have English words and no others."""
    lines = (data / "aime" / "aime24.jsonl").read_text(encoding="utf-8").splitlines()
    shares = [consistency(json.loads(line)["solution"], "en") for line in lines]
    assert shares == [1.0] * 30
