"""Ratings of form: tags, steps, repetition, paragraphs and code, against their definitions and by hand."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.rewards import format_checks

UNTIMED = settings(deadline=None)
WHOLE = "<think>\nSo $x=2$.\n</think>\n<answer>\n\\boxed{2}\n</answer>"
PARTS = [
    "<think>", "</think>", "<answer>", "</answer>", "\n", "words", "\\boxed{2}", "```", "1.", "-", "*", "First,", "Step 1:",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS), max_size=14).map("".join)

# ----------------------------------------------------------------------------------------------------------------- tags


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        "<think>\n\n</think>\n<answer>\n\n</answer>",
        "<think>\nline\n\nline\n</think>\n<answer>\nline\nline\n</answer>",
    ],
)
def test_answer_format_of_the_whole_text_is_one(text):
    """The four tags are on lines of their own without text around; any text may be between them."""
    assert format_checks.answer_format(text) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        WHOLE + "\n",
        WHOLE + "\nand more",  # open-r1 lets it pass: `$` with the multiline flag is the end of any line
        "So: " + WHOLE,
        WHOLE.replace("<think>\n", "<think>"),
        WHOLE.replace("</think>\n", "</think>\n\n"),
        WHOLE.replace("<think>\n", ""),  # a template has written it into the prompt
        WHOLE.replace("So", "So\n</think>\n<think>\n"),
        WHOLE.replace("So", "So <answer>"),
        WHOLE.replace("\n</answer>", ""),
        WHOLE.upper(),
    ],
)
def test_answer_format_of_anything_else_is_zero(text):
    """A tag too many or too few, out of its line, or text around the tags is no format."""
    assert format_checks.answer_format(text) == 0.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<think>a</think> So \\boxed{2}.", 1.0),
        ("<think>a</think> The tag <think> opens it: \\boxed{2}.", 0.0),  # not one block
        ("The tag <think> opens it: \\boxed{2}.", 0.0),
        ("<think>a \\boxed{2}", 0.0),
    ],
)
def test_think_format_asks_for_one_block_at_the_beginning(text, value):
    """A mentioned tag opens no reasoning, and an answer alone lacks the format."""
    assert (format_checks.think_format(text), format_checks.reward_boxed_format(text)) == (value, value)


@UNTIMED
@given(TEXTS, TEXTS, st.sampled_from(["", "", "\n", "x"]), st.sampled_from(["", "", "\n", "\nx"]))
def test_answer_format_is_tags_around_two_texts_without_tags(thought, answer, before, after):
    """The format holds if nothing is around the tags and none of them is inside; then open-r1's pattern holds, too."""
    text = f"{before}<think>\n{thought}\n</think>\n<answer>\n{answer}\n</answer>{after}"
    exact = not before and not after and not any(tag in thought + "|" + answer for tag in PARTS[:4])
    assert format_checks.answer_format(text) == exact
    published = re.match(r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$", text, re.DOTALL | re.MULTILINE)
    assert published or not exact
    assert format_checks.tag_count(text) == 1.0 or not exact


@pytest.mark.parametrize(
    ("text", "think", "boxed"),
    [
        ("<think>So.</think>\nIt is \\boxed{2}.", 1.0, 1.0),
        ("<think>Or \\boxed{1}?</think> It is \\boxed{\\frac{1}{2}}.", 1.0, 1.0),  # a box in the thought is no answer
        ("<think></think>2", 1.0, 0.0),
        ("<think>So.</think> \\boxed{1} or \\boxed{2}", 1.0, 0.0),
        ("<think>So.</think> \\boxed{2", 1.0, 0.0),
        ("<think>So.</think> \n", 0.0, 0.0),
        ("So. \\boxed{2}", 0.0, 0.0),
        ("So.</think>\\boxed{2}", 0.0, 0.0),
        (" <think>So.</think>\\boxed{2}", 0.0, 0.0),
        ("<think>So.", 0.0, 0.0),
        ("<think>So.</think> or </think> \\boxed{2}", 0.0, 0.0),
        ("<think>So.</think> <think> \\boxed{2}", 0.0, 0.0),
        (WHOLE, 1.0, 1.0),
    ],
)
def test_looser_formats_ask_for_one_thought_and_one_box(text, think, boxed):
    """Reasoning in one block at the beginning and text after it; with exactly one box there."""
    assert (format_checks.think_format(text), format_checks.reward_boxed_format(text)) == (think, boxed)


@UNTIMED
@given(TEXTS)
def test_tag_count_is_a_quarter_for_each_tag_that_stands_once(text):
    """Each of the four tags counts if it occurs exactly once, with its line breaks."""
    tags = ["<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>"]
    places = [sum(text[n:].startswith(tag) for n in range(len(text))) for tag in tags]
    assert format_checks.tag_count(text) == 0.25 * places.count(1)


def test_tag_count_by_hand():
    """All tags are 1; each that is missing, doubled or out of its line costs a quarter."""
    assert format_checks.tag_count(WHOLE) == 1.0
    assert format_checks.tag_count(WHOLE.replace("\n</answer>", "")) == 0.75
    assert format_checks.tag_count(WHOLE.replace("<think>\n", "<think>\n<think>\n")) == 0.75
    assert format_checks.tag_count(WHOLE.replace("</think>\n", "</think>\n</think>\n")) == 0.75
    assert format_checks.tag_count("<think></think><answer></answer>") == 0.0


# ---------------------------------------------------------------------------------------------------------------- steps


@pytest.mark.parametrize(
    ("text", "share", "published"),
    [
        ("", 0, 0),
        ("First, we add. Next, we halve.", 2 / 3, 2 / 3),
        ("Step 1: add.\nStep 12: halve.\nFinally, done. Second, no.", 1, 1),
        ("1. add\n2. halve", 2 / 3, 1 / 3),
        ("We do\n1. add\n2. halve\n3. stop", 1, 0),
        ("- add\n- halve", 2 / 3, 1 / 3),
        ("Thus\n* add\n- halve", 2 / 3, 2 / 3),
        ("3.14 is pi\n2.71 is e", 0, 1 / 3),
        ("first, step 1: next", 0, 0),
        ("a - b * c and 5. d", 0, 0),
    ],
)
def test_reasoning_steps_by_hand(text, share, published):
    """A third for each step, up to 1; numbers and bullets count on every line, but not as published."""
    assert format_checks.reasoning_steps(text) == pytest.approx(share)
    assert format_checks.reasoning_steps(text, as_published=True) == pytest.approx(published)


@UNTIMED
@given(st.lists(st.sampled_from(["1.", "2.5", "-", "*", "First,", "Step 3:", "word"]), max_size=8))
def test_reasoning_steps_of_lines_is_their_number(lines):
    """Lines with one sign each count, except decimals and words, wherever they are."""
    steps = sum(line not in ("2.5", "word") for line in lines)
    assert format_checks.reasoning_steps("\n".join(lines)) == pytest.approx(min(1, steps / 3))


# ------------------------------------------------------------------------------------------------- words and paragraphs


@UNTIMED
@given(
    st.lists(st.sampled_from(["a", "B", "b", "c"]), max_size=20), st.integers(1, 4), st.sampled_from([0.0, -0.5, -2])
)
def test_repetition_penalty_is_the_formula(words, n, most):
    """(1 - distinct / all) of the n-grams of lower-cased words, times the penalty; 0 if there is no n-gram."""
    lowered = [word.lower() for word in words]
    grams = [tuple(lowered[start : start + n]) for start in range(len(words) - n + 1)]
    expected = (1 - len(set(grams)) / len(grams)) * most if grams else 0.0
    assert format_checks.repetition_penalty(" ".join(words), n, most) == pytest.approx(expected, abs=1e-12)


def test_repetition_penalty_by_hand():
    """`a b a b a` has the pairs ab, ba, ab, ba: half are repetitions; case and spacing do not matter."""
    assert format_checks.repetition_penalty("a b A\n b  a", n=2) == -0.5
    assert format_checks.repetition_penalty("so so so so so") == pytest.approx(-2 / 3)
    assert format_checks.repetition_penalty("so so") == format_checks.repetition_penalty("") == 0.0


@pytest.mark.parametrize("ids", [[1, 2, 3, 4], [5, 5, 5, 5, 5], [1, 2, 1, 2, 1, 2, 3], [7]])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_repetition_penalty_is_trls(ids, n):
    """TRL's reward of the same name, which counts tokens, gives the same number for one word a token."""
    from trl.rewards import get_repetition_penalty_reward

    found = format_checks.repetition_penalty(" ".join(f"w{token}" for token in ids), n, -0.5)
    assert found == pytest.approx(get_repetition_penalty_reward(n, -0.5)([ids])[0])


def test_repetition_penalty_of_chinese_counts_characters():
    """Without spaces each character is a word: 4 pairs of 因为因为因 are 2 different ones."""
    assert format_checks.repetition_penalty("因为因为因", n=2) == -0.5
    assert format_checks.repetition_penalty("因为,因为。因", n=2) == -0.5


@pytest.mark.parametrize(("n", "most"), [(0, -1.0), (3, 0.5)])
def test_repetition_penalty_that_is_none_is_refused(n, most):
    """A positive penalty is a reward, and there are no 0-grams."""
    with pytest.raises(ValueError, match="expected n of at least 1 and a penalty of at most 0"):
        format_checks.repetition_penalty("a b c", n, most)


def test_split_words_parts_at_spaces_and_at_every_chinese_or_japanese_character():
    """Other scripts have spaces; a sign alone is a word only with spaces around it."""
    assert format_checks.split_words("We have x = 1, naïve.") == ["We", "have", "x", "=", "1,", "naïve."]
    assert format_checks.split_words("设 x+1=2,则偶。") == ["设", "x+1=2,", "则", "偶"]
    assert format_checks.split_words("かなカナ 한국어 – слово") == ["か", "な", "カ", "ナ", "한국어", "–", "слово"]


def test_long_paragraphs_are_those_with_more_words_than_allowed():
    """Three words in a row of lines are one paragraph; a blank line, with spaces or without, ends it."""
    text = "one two\nthree\n\nfour five\n \t\nsix seven\neight nine"
    assert format_checks.long_paragraphs(text, words=2) == ["one two\nthree", "six seven\neight nine"]
    assert format_checks.long_paragraphs(text, words=4) == []
    assert format_checks.long_paragraphs("设函数连续", words=4) == ["设函数连续"]


def test_long_paragraphs_have_more_than_300_words_by_default():
    """300 words are not long, 301 are."""
    assert format_checks.long_paragraphs("word " * 300) == []
    assert len(format_checks.long_paragraphs("word " * 301)) == 1


@UNTIMED
@given(st.lists(st.sampled_from(["a", "b c", "", "  ", "词语"]), max_size=12), st.integers(0, 6))
def test_long_paragraphs_are_found_line_by_line(lines, words):
    """A paragraph has as many words as the lines between two blank ones have together."""
    sizes, size = [], 0
    for line in [*lines, ""]:
        size += {"a": 1, "b c": 2, "词语": 2}.get(line, 0)
        if not line.strip():
            sizes.append(size)
            size = 0
    found = format_checks.long_paragraphs("\n".join(lines), words)
    assert len(found) == sum(size > max(words, 0) for size in sizes)


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("no code, `x` inline", []),
        ("a\n```python\nx = 1\n```\nb ```y``` c", ["```python\nx = 1\n```", "```y```"]),
        ("cut off\n```\nx = 1", ["```\nx = 1"]),
        ("````\n```\n````", ["````\n```\n````"]),
        ("a\n~~~\nx\n~~~\nb~~~c", ["~~~\nx\n~~~"]),
    ],
)
def test_code_blocks_are_the_fenced_regions(text, blocks):
    """From a fence to the next one of its length, or to the end."""
    assert format_checks.code_blocks(text) == blocks
