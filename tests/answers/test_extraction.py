"""Final answers: their extraction from a text, the excerpt for a judge, and spellings of one answer."""

import re
from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.answers.extraction import (
    classify_extraction,
    excerpt,
    extract,
    find_boxes,
    find_stated_answer,
    in_form,
    normal,
    of_gold,
    read_choice,
)

BOX = re.compile(r"\\(?:boxed|fbox)\{")


def closing(text: str, brace: int) -> int | None:
    """Return the place at which the brace at a place is closed, sign by sign."""
    depth = 0
    while brace < len(text):
        if text[brace] == "\\":
            brace += 2
            continue
        depth += (text[brace] == "{") - (text[brace] == "}")
        if depth == 0:
            return brace
        brace += 1
    return None


def slow_boxes(text: str) -> list[str]:
    """Return the outermost boxes with their content, each searched from its own beginning."""
    found, place = [], 0
    while match := BOX.search(text, place):
        end = closing(text, match.end() - 1)
        if end is None:
            place = match.end()
        else:
            found.append(text[match.end() : end])
            place = end + 1
    return found


PIECES = st.sampled_from(["\\boxed{", "\\fbox{", "{", "}", "}", "}", "\\frac{1}", "5", " ", "\n", ",", "\\{", "\\}"])


@given(st.lists(PIECES, max_size=30).map("".join))
def test_boxes_of_any_braces_are_those_of_a_search_sign_by_sign(text):
    """One scan finds the outermost closed boxes that a search from each beginning finds."""
    slow = [re.sub(r"\s+", " ", inner) for inner in slow_boxes(text)]
    found = [re.sub(r"\s+", " ", inner) for inner in find_boxes(text)]
    assert len(slow) == len(found)
    for whole, inner in zip(slow, found, strict=True):
        assert inner == whole.strip() or BOX.search(whole)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{42}.", "42"),
        (r"so \boxed{\frac{1}{2+\sqrt{3}}}", r"\frac{1}{2+\sqrt{3}}"),
        (r"\fbox{7}", "7"),
        (r"\boxed {7} is it", "7"),
        (r"\boxed 7", "7"),
        (r"\boxed 42 of them", "42"),
        (r"\boxed-3.5", "-3.5"),
        (r"\boxed\pi", r"\pi"),
        (r"$\boxed x$", "x"),
        ("boxed{7}", "7"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{ \boxed{7} }", "7"),
        (r"\boxed{\text{a} \fbox{b} \boxed 5}", r"\text{a} b 5"),
        (r"\boxed{$7$}", "$7$"),
        (r"\boxed{七}", "七"),
        (r"\boxed{a\\b}", r"a\\b"),
    ],
)
def test_extract_one_box_is_its_content(text, answer):
    """A box is found in each of its spellings, with balanced braces and without the boxes inside it."""
    assert extract(text) == answer


@pytest.mark.parametrize(
    "text",
    ["", "The answer is 42.", r"\boxed{42", r"\boxed{\frac{1}{2}", r"\boxed{\}", r"Put it in \boxed form.", r"\unboxed{3}",
     r"\boxed{}", r"\boxed{ }", r"\boxed{\boxed{}}", "\\boxed{5}\nbut \\boxed{}", "#### Step 3", "#### 1. Why", "### 5",
     "so#### 5", "#### 5 is it", r"\boxed{}" "\n#### 5", r"\boxed{" * 20_000, "\\" * 200_001],
)  # fmt: skip
def test_extract_without_an_answer_is_none(text):
    """No box, a box that is empty or never closed, and a heading are no answer."""
    assert extract(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1} and \boxed{2}", "1,2"),
        ("first \\boxed{1}\nthen \\boxed{2}, \\fbox{3}\nthe end", "2,3"),
        ("\\boxed{1}\n\\boxed{2}\n\\boxed{3", "2"),
        ("\\boxed{1}\n\\boxed{2 +\n3}\n", "2 +\n3"),
        ("\\boxed{1}\n\\boxed{\\begin{pmatrix}\n1 \\\\\n\\boxed{2}\n\\end{pmatrix}}", None),
        ("\\boxed{1\n+2} and\n\\boxed{3}", "3"),
        ("\\boxed{} or \\boxed{3}", "3"),
    ],
)
def test_extract_of_several_boxes_takes_those_of_the_lowest_line(text, answer):
    """The boxes that begin on the lowest line with one are the answer; a box inside another does not count as lower."""
    if answer is None:
        assert extract(text) == "\\begin{pmatrix}\n1 \\\\\n2\n\\end{pmatrix}"
    else:
        assert extract(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("She has 18.\n#### 18", "18"),
        ("#### 3\n#### 1,080,000", "1080000"),
        ("####-5 ", "-5"),
        ("#### −5", "−5"),
        ("#### $1,200.50", "$1200.50"),
        ("#### 1,2", "1,2"),
        ("#### 18\r\n", "18"),
        ("#### 18.", "18"),
        ("\\boxed{7}\n#### 18", "7"),
    ],
)
def test_extract_without_a_box_reads_the_last_line_of_gsm8k(text, answer):
    """`####` and a number alone on a line count, commas of thousands removed, but only where there is no box."""
    assert extract(text) == answer


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("18", "18"),
        ("$x+1$", "$x+1$"),
        (r"\boxed{3}", "3"),
        (r"So it is $\boxed{3}$.", "3"),
        ("She has\n#### 1,000", "1000"),
    ],
)
def test_gold_is_read_in_each_of_its_forms(gold, answer):
    """A gold answer may be bare, boxed, or a full solution."""
    assert of_gold(gold) == answer


def test_shown_is_the_answer_or_the_end_or_all():
    """A judge sees the answer; without one the last five lines after dots; of a text with fewer lines, all of it."""
    assert excerpt("a\nb\nc\nd\n\\boxed{5}") == "5"
    assert excerpt("a\nb\nc\nd\ne") == "...a\nb\nc\nd\ne"
    assert excerpt("a\nb\nc\nd\ne\nf\n") == "...b\nc\nd\ne\nf"
    assert excerpt("a\nb\nc\nd") == "a\nb\nc\nd"
    assert excerpt("a\nb\nc\nd\n\\boxed{}") == "...a\nb\nc\nd\n\\boxed{}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"$\left( -\dfrac{3}{7}, \tfrac{10}{7} \right)$", r"(-\frac{3}{7},\frac{10}{7})"),
        (r"1,\!000", "1,000"),
        (r"5\,\text{cm}", r"5 \text{ cm}"),
        (r"2 \pi  r", r"2\pi r"),
        ("$$x + 1.$$", "x+1"),
        (r"\(7\)", "7"),
        ("[3, 7] \\cup\n [8, 9)", r"[3,7]\cup[8,9)"),
        (r"\left. x \right|", r"\left.x\right|"),
        (r"\begin{pmatrix} 7 \\ -5 \end{pmatrix}", r"\begin{pmatrix}7\-5\end{pmatrix}"),
        ("no  solution", "no solution"),
        (r"10~000", "10 000"),
        (r"a \quad b", "a b"),
    ],
)
def test_normal_of_harmless_spellings_is_one(one, other):
    """Dollars, sizes, spaces and a dot at the end do not make another answer."""
    assert normal(one) == normal(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1, 234", "1,234"),
        ("1 2", "12"),
        ("12$$34", "1234"),
        (r"\$5", "5"),
        (r"\pi r", r"\pir"),
        (r"\leftarrow", "arrow"),
        (r"\in fty", r"\infty"),
        (r"5\text{ cm}", "5"),
        (r"5\text{ cm}", r"5\text{ m}"),
        ("X", "x"),
        ("(1,2)", r"\{1,2\}"),
        ("(1,2)", "(2,1)"),
        ("1/2", "0.5"),
        ("0.3...", "0.3"),
        (r"x_1", "x1"),
        (r"a\\b", "ab"),
        (r"\begin{pmatrix}1\\23\end{pmatrix}", r"\begin{pmatrix}12\\3\end{pmatrix}"),
    ],
)
def test_normal_of_what_may_differ_differs(one, other):
    """Two texts that may be two answers, or need mathematics to be one, keep two normal forms."""
    assert normal(one) != normal(other)


LATEX = st.lists(
    st.sampled_from(["\\frac", "\\pi", "\\left(", "\\right.", "{", "}", "$", " ", "\\,", "\\!", "\\\\", ".", ",", "1",
                     "234", "x", "ab", "\\text{", "\n", "\\dfrac", "matrix}", "\\5", "~", "-"]),
    max_size=12,
).map("".join)  # fmt: skip


@given(LATEX)
def test_normal_of_a_normal_form_is_itself(text):
    """Normalizing again changes nothing, except for one more dot at the end."""
    assert normal(normal(text)) in (normal(text), normal(text).removesuffix("."))


@given(st.lists(st.sampled_from(["x", "+", "\\pi", "(", ")", "12", "\\cdot", "=", "\\frac", "{", "}"]), max_size=12))
def test_normal_of_spaces_between_signs_is_one_form(signs):
    """The number of spaces between two signs, and their spelling as commands, do not change the form."""
    assert normal(" ".join(signs)) == normal(" \\; ".join(signs)) == normal("$" + "\n".join(signs) + " $")


def test_normal_keeps_every_gold_answer_of_math_apart(data):
    """Gold answers of MATH with one normal form are one text without spaces and commands of size."""
    import json

    path = data / "math" / "train_every5th.jsonl"
    golds = {json.loads(line)["answer"] for line in path.read_text(encoding="utf-8").splitlines()}
    forms = {}
    for gold in golds:
        plain = re.sub(r"\\left(?![a-z])|\\right(?![a-z])|\\[!,]|\s|\$|\.$", "", gold).replace("\\dfrac", "\\frac")
        assert forms.setdefault(normal(gold), plain) == plain
    assert len(forms) > 700


@pytest.mark.parametrize(
    ("text", "way"),
    [
        (r"It is \boxed{5}.", "strict"),
        ("so #### 5", "strict"),
        (r"\boxed{5} or \boxed{6}", "strict"),
        (r"First \boxed{5}, then \boxed{6}.", "several"),
        ("The answer is (B).", "flexible"),
        ("It is 5, I think.", "flexible"),
        ("It is near.", None),
    ],
)
def test_way_of_finding_an_answer_is_told(text, way):
    """It tells whether the declared form was kept, and whether the rule about several boxes mattered."""
    assert classify_extraction(text) == way


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("So the answer is **12**.", "12"),
        (r"The final answer is $\frac{1}{2}$. Done", r"\frac{1}{2}"),
        ("Answer: (B)", "(B)"),
        ("answer is 1,234.\nThat is all.", "1,234"),
        ("The answer is 3. No, the answer is 4.", "4"),
        ("the answer is x = 5 and so on", None),
        ("It is 12.", None),
    ],
)
def test_what_a_text_says_its_answer_is(text, value):
    """The last such sentence counts, with a formula in dollars or one word; nothing else is guessed."""
    assert find_stated_answer(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Therefore x = -5", "-5"),
        ("Therefore x = −5", "-5"),
        ("Therefore x = –5", "-5"),
        ("it is (−5)", "-5"),
        (r"it is \frac{−1}{2}", r"\frac{-1}{2}"),
        ("pages 3–5", "5"),
        ("pages 3 –5", "5"),
        ("x−5", "5"),
        ("(x)−5", "5"),
    ],
)  # fmt: skip
def test_last_value_keeps_its_minus_sign_in_any_spelling(text, value):
    """A minus of Unicode, or a dash that is not between two numbers, is the sign of the last value."""
    assert normal(extract(in_form(text, "flexible"))) == value


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        # In a box, however it is set, with or without the words of the option.
        (r"\boxed{B}", "B"),
        (r"\boxed{\text{B}}", "B"),
        (r"\boxed{\textbf{(B)}}", "B"),
        (r"\boxed{\mathrm{C}}", "C"),
        (r"\boxed{b}", "B"),
        (r"\boxed{a}", "A"),
        (r"\boxed{A 12}", "A"),
        (r"\boxed{a number}", None),
        (r"\boxed{I}", "I"),
        (r"\boxed{B. 12 m}", "B"),
        (r"\boxed{(B)\ 12}", "B"),
        (r"\boxed{\text{(C) } x}", "C"),
        (r"Option (A) is wrong, so \boxed{D}.", "D"),
        ("\\boxed{A}? No.\n\\boxed{C}", "C"),
        ("Answer: A\nNo, it is \\boxed{C}", "C"),
        # A box decides, also if it holds no letter, or several.
        (r"\boxed{12}", None),
        (r"\boxed{Paris}", None),
        (r"\boxed{\text{A molecule}}", None),
        ("The answer is B.\n\\boxed{12 m}", None),
        (r"\boxed{}", None),
        (r"\boxed{A, B}", "?"),
        (r"\boxed{A \text{ and } B}", "?"),
        (r"\boxed{A} and \boxed{B}", "?"),
        (r"\boxed{B} and \boxed{B}", "B"),
        # In words.
        ("Answer: (B)", "B"),
        ("Answer: B", "B"),
        ("**Answer:** B", "B"),
        ("ANSWER: [D]", "D"),
        ("Answer: b", "B"),
        ("Answer: a", "A"),
        ("The answer is **a**.", "A"),
        ("The answer is a\nnumber.", None),
        ("Answer: A 12", "A"),
        ("Answer: A 5-digit number", None),
        ("The answer is (c).", "C"),
        ("The correct answer is option (D).", "D"),
        ("The answer is B because 3 > 2.", "B"),
        ("The answer is A because 3 > 2.", "A"),
        ("Answer: $B$", "B"),
        (r"Answer: \(\text{B}\)", "B"),
        ("Answer: D) 12 m", "D"),
        ("Answer:\nC", "C"),
        ("### Final Answer\n\n**C**", "C"),
        ("The answer is B. Let me check: the answer is C.", "C"),
        ("Answer: B\n\nNote that (A) would need more.", "B"),
        ("Answer: B, since A is wrong", "B"),
        ("Answer: A or B", "?"),
        ("Answer: (A), (B)", "?"),
        ("The answer is a number.", None),
        ("Answer: A molecule of water", None),
        ("The answer is B's energy", None),
        ("The answer is not B.", None),
        ("Answer: Paris", None),
        # As the last line.
        ("B", "B"),
        ("a", "A"),
        ("So we get\n(B) 12 m", "B"),
        ("First A, then B is excluded.\nC is left", None),
        ("A good way is x", None),
        ("So we get 12 m", None),
        ("", None),
    ],
)
def test_choice_is_a_letter_that_the_text_says(text, letter):
    """The letter is read in any setting and case; letters in the reasoning and words of an option are no choice."""
    assert read_choice(text) == letter


@given(st.text(alphabet="answer: iABab(){}$\\\n.,?", max_size=40))
def test_choice_of_any_text_is_a_letter_or_none(text):
    """No text makes the reader fail, and spaces at its end change nothing."""
    assert read_choice(text) in {None, "?", *ascii_uppercase}
    assert read_choice(text + "  \n") == read_choice(text)


def test_choice_in_a_form_is_its_letter_alone():
    """The letter alone is graded and counted in votes; a text without one has no answer."""
    assert in_form("12 m is right. Answer: (b)", "choice") == "\\boxed{B}"
    assert in_form("So \\boxed{12}", "choice") == "" and extract(in_form("Answer: A or B", "choice")) == "?"
