"""The end of reasoning: tags, delimiters, separate reasoning, the model's own evaluation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.text.reasoning import (
    after_one_thought,
    after_thought,
    final_part,
    split_at,
    thought,
    thought_or_all,
    with_thought,
    without_evaluation,
    without_key_step,
)


@pytest.mark.parametrize(
    ("solution", "expected"),
    [
        ("First part.\n\nThe long middle part of it all.\n\nSo we are done.", "First part.\n\nSo we are done."),
        ("a=1\nb=a+1=2, c=b+1=3\nso c=3", "a=1\nso c=3"),
        ("Let x be odd. Then x squared is odd too. Done.", "Let x be odd. Done."),
        ("It is obvious.", None),
        ("", None),
    ],
)
def test_key_step_is_the_longest_but_not_the_conclusion(solution, expected):
    """Steps are paragraphs, else lines, else sentences; a text of one step has none to remove."""
    assert expected == without_key_step(solution)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nSo.\n</think>\nIt is 2.", "So."),
        ("So.</think>It is 2.", "So."),  # a template has written the opening tag
        ("<think>So.", "So."),
        ("<think>So.</think> or </think>2", "So.</think> or"),
        ("Well. <think>So.</think>2", "So."),
        ("It is 2.", ""),
        ("<think></think>2", ""),
        ("The tag <think> opens it.", ""),
        ("", ""),
    ],
)
def test_thought_is_what_stands_before_the_last_end_of_it(text, expected):
    """The reasoning without its tags, also of a text that was truncated in it."""
    assert thought(text) == expected


@pytest.mark.parametrize(
    ("text", "reasoning", "final"),
    [
        ("<think>a</think>\nb", None, "b"),
        ("<think>a</think>b</think> c", None, "c"),
        ("a</think>b", None, "b"),
        ("<think>a", None, ""),  # truncated during reasoning
        ("a", None, "a"),
        (" \n<think>a", None, ""),
        ("The tag <think> opens it.", None, "The tag <think> opens it."),  # the tag is only mentioned
        ("<think>a</think>The tag <think> opens it.", None, "The tag <think> opens it."),
        ("<think>a", "sent apart", "<think>a"),
        ("a\n## Self-Evaluation\nIt is right.", None, "a\n## Self-Evaluation\nIt is right."),
        ("", None, ""),
    ],
)
def test_final_part_is_what_follows_the_thought(text, reasoning, final):
    """All text after the reasoning is graded, so nothing can be hidden below a heading."""
    assert final_part(text, reasoning) == final


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("<think>So.</think>It is 2.", "So."),
        ("<think>So.", "So."),
        ("It is 2.", "It is 2."),
        ("The tag <think> opens it.", "The tag <think> opens it."),
    ],
)
def test_thought_or_all_of_an_answer_alone_is_all_of_it(text, seen):
    """Rewards for the language of the reasoning always see text, also if it only mentions the tag."""
    assert thought_or_all(text) == seen


PROOF = r"""Let $f(x) = x^2 + 1$ for real $x$. Since $x^2 \geq 0$, we have $f(x) \geq 1$, with equality only for $x = 0$.

Suppose $f(a) = f(b)$. Then $a^2 = b^2$, hence $a = \pm b$. Therefore $f(a) + f(b) \equiv 2f(a)$ and the sum is
\[ \sum_{k=1}^{n} f(k) = \frac{n(n+1)(2n+1)}{6} + n. \] This proves the claim. $\blacksquare$"""
CORE = r"""Put $x = \tan t$, so that $dx = (1+x^2)\,dt$ and $I = \int_0^{\pi/4} \ln(1+\tan t)\,dt$. With $t \to \pi/4 - t$
\[ I = \int_0^{\pi/4} \ln \frac{2}{1+\tan t}\,dt = \frac{\pi}{4} \ln 2 - I, \] hence $I = \frac{\pi}{8} \ln 2$."""


@pytest.mark.parametrize(
    "evaluation",
    [
        "## Self-Evaluation\n\nThe proof is complete and rigorous. Every step is justified, so it deserves all points.",
        "## Self-Evaluation\n\nThe bound $f(x) \\geq 1$ is right. The identity for the sum was checked for $n = 1$: it holds.\n\n"
        "Based on this the overall score is \\boxed{1}.",
        "**Final Evaluation:** The case $a = 0$ is covered. Score: 7/7",
        "# Evaluation\n\n1. Correctness: yes.\n2. Completeness: yes, $x = 0$ too.\n3. Rigor: yes.",
        "## Evaluation: 7/7",
    ],
)
def test_proof_without_its_self_evaluation_is_the_proof(evaluation):
    """An evaluation in words, with a formula or two, is removed if a grader asks for it."""
    assert without_evaluation(f"{PROOF}\n\n{evaluation}") == PROOF


@pytest.mark.parametrize(
    "text",
    [
        f"## Final evaluation of the sum\n\n{PROOF}",
        f"# Evaluation\n\n{CORE}",
        f"**Evaluation:** {CORE}",
        f"We are to find $I = \\int_0^1 \\frac{{\\ln(1+x)}}{{1+x^2}}\\,dx$.\n\n## Evaluation: the integral I\n\n{CORE}",
        f"{PROOF}\n\n## Final evaluation of the integral\n\n{CORE}",
        f"## Evaluation\n\n{CORE}\n\n## Final evaluation of the sum\n\n{PROOF}",
    ],
)
def test_proof_that_evaluates_something_is_kept_whole(text):
    """A section of mathematics belongs to the proof, whatever its heading, also the first of the text."""
    assert without_evaluation(text) == text
    assert without_evaluation(f"{text}\n\n## Self-Evaluation\n\nAll is proved, and $I > 0$.") == text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>a</think>\n b ", "b"),
        ("<think>a</think><think>b</think>c", ""),
        ("x<think>a</think>b", ""),
        ("<think>a", ""),
        ("a", ""),
    ],
)
def test_one_block_of_thought_has_one_answer(text, answer):
    """Only a single block at the beginning counts as the format."""
    assert after_one_thought(text) == answer


@given(st.text("<think>/ ab\n", max_size=40))
def test_every_text_has_a_thought_and_an_answer(text):
    """Each reader gives a text for any text, and none of them is longer."""
    for part in (final_part(text), thought(text), thought_or_all(text), after_thought(text), after_one_thought(text)):
        assert part in text
    split, answer = split_at(text, ["</think>"])
    assert (split + answer).replace(" ", "") in text.replace("</think>", "").replace(" ", "") or "</think>" in text
    if "think>" not in text:  # tags inside an answer count as those of the reasoning
        assert final_part(with_thought(text, "so"), None) == final_part(text, "so")


def test_text_without_a_thought_is_written_as_it_is():
    """Without separate reasoning, nothing is put before the answer."""
    assert [with_thought("a", reasoning) for reasoning in (None, "", " \n")] == ["a"] * 3
