"""The forms of verdicts, by the name in a prompt's header; other texts are no verdicts."""

import json
from collections import Counter
from pathlib import Path

import pytest

from proofmill.calls.model_requests import ModelOutput
from proofmill.graders.escalation import wants
from proofmill.graders.verdicts import FORMS, SHOWN, read
from proofmill.prompts import templates
from proofmill.prompts.templates import VERDICT_FORMS
from proofmill.schema.entries.declared import Grader
from proofmill.text.reasoning import final_part

SCALES = {
    "points": [0, 1, 2, 3, 4, 5, 6, 7],
    "score": [0, 1, 6, 7],
    "judgement": [0, 1],
    "words": [0, 1, 6, 7],
    "boxed": [0, 0.5, 1],
    "correct": [0, 1],
}
NONE, OFF = "no-verdict", "off-scale"


def rubric(form, scale, folder):
    """Return a prompt of the user's own with a form and a scale."""
    path = folder / f"{form}-{'-'.join(map(str, scale))}.md"
    path.write_text(f"---\nneeds: [proof]\nverdict: {form}\nscale: {scale}\n---\n{{{{ proof }}}}\n")
    return templates.prompt(str(path))


@pytest.fixture
def said(tmp_path):
    """Return a function `said(form, text)` that gives the grade in a judge's text, or the reason for having none."""

    def points(form, text, scale=None, stop="end", reasoning=None):
        verdict = read(ModelOutput(text, stop, reasoning=reasoning), rubric(form, scale or SCALES[form], tmp_path))
        assert verdict.text == text
        return verdict.reason.value if verdict.grade is None else verdict.grade

    return points


def test_each_form_has_a_reader_and_a_scale():
    """The names that a header may have are those that can be parsed."""
    assert [*VERDICT_FORMS] == [*FORMS] == [*SCALES]


POINTS = {
    "<points>6 out of 7</points>": 6,
    "<POINTS>6 OUT OF 7</POINTS>": 6,
    "<Points>6 Out Of 7</pOINTS>": 6,
    "<points>\n  6   out\tof  7 \n</points>": 6,
    "<points>**6** out of **7**</points>": 6,
    "**<points>6/7</points>**": 6,
    "<points>6.0</points>": 6,
    "<points>6.</points>": 6,
    "<points unit='point'>6</points >": 6,
    "I first thought <points>1</points>. No: <points>6 out of 7</points> It is nearly complete.": NONE,
    "If step 2 were right, <points>7</points>. As it is not: <points>1</points>": NONE,
    "It is <points>6</points>; the form asks for a tag: <points>6/7</points>": 6,
    "The proof asks for `<points>7</points>`. <points>1</points>": 1,
    "> <points>7</points>\n<points>1</points>": 1,
    "<points>1</points>. The proof asks for `<points>7</points>`.": 1,
    "The attempt asks me to write\n\n> <points>7</points>\n\nI do not follow that, and cannot grade it.": NONE,
    'The student writes "<points>7</points>".': NONE,
    "A grade, e.g. <points>7</points>, is due: nearly complete, i.e. <points>6</points>": 6,
    "<points>0</points> <points>1</points> <points>6</points> <points>7</points>": NONE,
    "<assessment>With step 2, <points>7</points>.</assessment> <points>1</points>": 1,
    "<assessment>It is worth <points>1</points>.</assessment>": 1,
    "<points>6 points</points>": 6,
    "<points>Score: 6/7</points>": 6,
    "<points>$6$</points>": 6,
    "<points>\\boxed{6}</points>": 6,
    "<points>(6 out of 7)</points>": 6,
    "<points>６</points>": 6,
    "<points>٦ out of ٧</points>": 6,
    "<points>6 points out of 7</points>": 6,
    "<points>6 or 7 points</points>": NONE,
    "<points>at most 6</points>": NONE,
    "<points>6</points> or rather <points>many</points>": NONE,
    "<points>6 out of 10</points>": NONE,
    "<points>6 out of</points>": NONE,
    "<points>6 outof 7</points>": NONE,
    "<points>not 6</points>": NONE,
    "<points>6 or 7</points>": NONE,
    "<points>6.5</points>": NONE,
    "<points>6 7</points>": NONE,
    "<points></points>": NONE,
    "<points>6": NONE,
    "<points>1</points> <points>6": 1,
    "<point>6</point>": NONE,
    "<score>6</score>": NONE,
    "&lt;points>6&lt;/points>": NONE,
    "＜points＞6＜/points＞": NONE,
    "<points>8</points>": OFF,
    "<points>-6</points>": OFF,
    "<points>16 out of 7</points>": OFF,
    "<think>I would say <points>6</points>.</think>": NONE,
    "<think>I would say <points>6</points>": NONE,
    "<think>I would say <points>6</points>.</think>\n<points>1</points>": 1,
    "<proof>\nIt is worth <points>6</points>.\n</proof>": NONE,
    "<proof>\nIt is worth <points>6</points>.\n</proof>\n<points>1</points>": 1,
}
SCORE = {
    "<score>6</score>": 6,
    "<SCORE> 6 OUT OF 7 </SCORE>": 6,
    "<score>1</score> <score>**7**</score>": NONE,
    "<score>7</score> <score>**7**</score>": 7,
    "<score>3</score>": OFF,
    "<points>6</points>": NONE,
    "score: 6": NONE,
    "<scores>6</scores>": NONE,
    "<think><score>6</score></think>": NONE,
}
JUDGEMENT = {
    "Judgement: Yes": 1,
    "Judgement: No": 0,
    "Reasoning: both are 1/2.\nJudgement: Yes\n": 1,
    "judgement:yes": 1,
    "Judgment: NO.": 0,
    "**Judgement**: Yes": 1,
    "**Judgement:** **No**": 0,
    "**Judgement: Yes**": 1,
    "### Judgement\n: Yes": 1,
    "**Judgement:**\n\nNo": 0,
    "Final Judgement: No": 0,
    "- Judgement: `Yes`": 1,
    "```\nJudgement: Yes\n```": 1,
    "Judgement: Yes\nOn second thoughts:\nJudgement: No": 0,
    "Judgement: Yes\nJudgement: Perhaps": NONE,
    "Judgement: Yes\n\nThat is what the text says. I cannot tell.": NONE,
    "> Judgement: Yes": NONE,
    'It ends with "Judgement: Yes"': NONE,
    "I do not say Judgement: Yes": NONE,
    "Prejudgement: Yes": NONE,
    "Judgement: Not correct": NONE,
    "Judgement: None": NONE,
    "Judgement: Yesterday": NONE,
    "Judgement: Yes/No": NONE,
    "Judgement: not yes": NONE,
    "Judgement:": NONE,
    "Yes": NONE,
    "Judgement Yes": NONE,
    "<think>\nJudgement: Yes\n</think>": NONE,
    "<think>\nJudgement: Yes": NONE,
    "<assessment>\nJudgement: Yes\n</assessment>": NONE,
}
WORDS = {
    "correct": 7,
    "almost": 6,
    "partial": 1,
    "incorrect": 0,
    "The bound is missing.\n\nPartial": 1,
    "The bound is missing.\npartial.": 1,
    "**Almost**": 6,
    "*INCORRECT*!": 0,
    "## Grade\ncorrect": 7,
    "Grade: partial": 1,
    "**Final grade:** almost": 6,
    "The final verdict is **incorrect**.": 0,
    "Grade:\n\n**correct**": 7,
    "```\ncorrect\n```": 7,
    "correct\n\nNo, step 3 fails.\n\nincorrect": 0,
    "incorrect\npartial\nalmost\ncorrect": NONE,
    "The choices are:\n- correct\n- incorrect": NONE,
    "I choose one of:\n\ncorrect\n\nalmost\n\npartial\n\nincorrect": NONE,
    "The proof is complete\n\ncorrect": 7,
    "correct\n\nNo, step 3 fails.": NONE,
    "not correct": NONE,
    "It is not correct.": NONE,
    "The proof is not\ncorrect": NONE,
    "The proof is **not**\ncorrect": NONE,
    "The steps are, as I said,\ncorrect": NONE,
    "Grade: not correct": NONE,
    "Grade: almost correct": NONE,
    "almost correct": NONE,
    "correct or partial": NONE,
    "correctly": NONE,
    "partially": NONE,
    "in correct": NONE,
    "non-correct": NONE,
    "> correct": NONE,
    '"correct"': NONE,
    "seven": NONE,
    "": NONE,
    "<think>\ncorrect\n</think>": NONE,
    "<think>\ncorrect": NONE,
}
BOXED = {
    "\\boxed{0.5}": 0.5,
    "\\boxed{1}": 1,
    "\\boxed{0}": 0,
    "The score is $\\boxed{ 1.0 }$.": 1,
    "\\boxed{.5}": 0.5,
    "\\boxed{\\frac{1}{2}}": 0.5,
    "**\\boxed{\\tfrac12}**": 0.5,
    "\\[\n\\boxed{1/2}\n\\]\n": 0.5,
    "\\boxed{\n0.5\n}": 0.5,
    "It claims \\boxed{1}. No: \\boxed{0}": 0,
    "\\boxed{1} is what the proof claims.": NONE,
    "\\boxed{1}\n\nBut I cannot tell.": NONE,
    "\\boxed{0}, \\boxed{0.5} or \\boxed{1}": NONE,
    "It ends with a command, which I ignore; I cannot grade it:\n> \\boxed{1}": NONE,
    "The proof claims \\boxed{1}:\n> The score is $\\boxed{1}$.": NONE,
    "> \\boxed{1}\n\nNot so.\n\n\\boxed{0}": 0,
    "\\boxed{0.75}": OFF,
    "\\boxed{7}": OFF,
    "\\boxed{-1}": OFF,
    "\\boxed{0.5 or 1}": NONE,
    "\\boxed{Correct}": NONE,
    "\\boxed{}": NONE,
    "\\boxed{1": NONE,
    "0.5": NONE,
    "<think>\\boxed{1}</think>": NONE,
}
CORRECT = {
    "\\boxed{Correct}": 1,
    "\\boxed{\\text{ incorrect }}.": 0,
    "$\\boxed{\\textbf{CORRECT}}$": 1,
    "\\boxed{Correct}, no: \\boxed{Incorrect}": NONE,
    "\\boxed{Correct} or \\boxed{Incorrect}": NONE,
    "The answer is \\boxed{5}, as in the reference. \\boxed{Correct}": 1,
    "\\boxed{\\mathrm{Correct}!}": 1,
    "\\boxed{Correct} is what it asks me to write.": NONE,
    "I cannot tell; the answer says:\n> \\boxed{Correct}": NONE,
    "\\boxed{Not correct}": NONE,
    "\\boxed{Correctly}": NONE,
    "\\boxed{1}": NONE,
    "Correct": NONE,
}
CASES = [
    (form, text, expected)
    for form, cases in {
        "points": POINTS, "score": SCORE, "judgement": JUDGEMENT, "words": WORDS, "boxed": BOXED, "correct": CORRECT,
    }.items()
    for text, expected in cases.items()
]  # fmt: skip


@pytest.mark.parametrize(("form", "text", "expected"), CASES)
def test_verdict_is_read_in_its_form_or_not_at_all(said, form, text, expected):
    """A verdict counts if it is the only one; other words, forms, quotes and reasoning do not, and nothing is guessed."""
    assert said(form, text) == expected


@pytest.mark.parametrize(("form", "text", "expected"), CASES)
def test_form_reads_the_same_behind_its_reasoning(said, form, text, expected):
    """A verdict may follow reasoning in the text or a separate one, with line ends of either kind."""
    if "<think>" not in text:
        assert said(form, f"<think>\nHm.\n</think>\n\n{text}") == expected
        assert said(form, text, reasoning="Hm.") == expected
        assert said(form, text.replace("\n", "\r\n")) == expected


@pytest.mark.parametrize(
    ("form", "scale", "text", "expected"),
    [
        ("points", [0, 1, 2, 3], "<points>2 out of 3</points>", 2),
        ("points", [0, 1, 2, 3], "<points>2 out of 7</points>", NONE),
        ("points", [0, 1, 6, 7], "<points>3</points>", OFF),
        ("words", [0, 7], "almost", OFF),
        ("words", [0, 7], "correct", 7),
        ("boxed", [0, 1, 6, 7], "\\boxed{6}", 6),
        ("boxed", [0, 0.25, 1], "\\boxed{0.25}", 0.25),
        ("boxed", [0, 1], "\\boxed{0.5}", OFF),
    ],
)
def test_scale_is_the_prompts_own(said, form, scale, text, expected):
    """A number that is not offered is off the scale; `out of` names the max points."""
    assert said(form, text, scale) == expected


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("points", "<points>6</points>", 6),
        ("points", "<points>6</points> which I sho", NONE),
        ("points", "<points>6</points> for $\\frac{1}{2}", NONE),
        ("score", "<score>6</score>\n", 6),
        ("boxed", "\\boxed{0.5}", 0.5),
        ("boxed", "\\boxed 1", NONE),
        ("correct", "\\boxed{Correct}", 1),
        ("judgement", "Judgement: No", NONE),  # it may be the beginning of "Not in every case"
        ("words", "Grade: correct", NONE),
    ],
)
def test_answer_that_was_cut_off_has_a_verdict_only_if_it_was_over(said, form, text, expected):
    """In a truncated output a closed tag or box is a verdict; a word may be the beginning of another."""
    assert said(form, text, stop="length") == expected


@pytest.mark.parametrize(
    ("reads", "scale", "expected"),
    [
        ("judgement", "[0, 2]", "expected some of 0, 1"),
        ("words", "[0, 3, 7]", "expected some of 0, 1, 6, 7"),
        ("correct", "[0, 0.5, 1]", "expected some of 0, 1"),
        ("score", "[0, 0.5, 1]", "expected whole numbers from 0 on"),
        ("points", "[-1, 1]", "expected whole numbers from 0 on"),
        ("points", "[0]", "the highest must be an integer of at least 1"),
        ("boxed", "[0, 1.5]", "the highest must be an integer of at least 1"),
        ("boxed", "[0, .inf]", "expected numbers from 0 on"),
        ("boxed", "[0, .nan]", "expected numbers from 0 on"),
    ],
)
def test_scale_that_a_form_cannot_say_is_refused(tmp_path, reads, scale, expected):
    """The error is raised when the prompt is loaded, not when the first judge replies."""
    (tmp_path / "mine.md").write_text(f"---\nneeds: [proof]\nverdict: {reads}\nscale: {scale}\n---\n{{{{ proof }}}}\n")
    assert expected in templates.fault(str(tmp_path / "mine.md"))


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("answer-equivalence", "answers"), ("answer-judgement", "answers"), ("grade-words", "proofs"), (None, "proofs")],
)
def test_judge_of_final_answers_is_told_by_what_its_prompt_compares(prompt, expected):
    """The judge's prompt also decides which prompt its attempts are written for."""
    assert wants("grader/g", None, {"grader/g": Grader(["api/a"], prompt)}) == expected


READ_BY = {"points": ("points", "score", "boxed"), "equality": ("correct", "judgement", "words", "points", "boxed")}


def test_no_reply_of_any_style_is_misread():
    """140 replies in seven styles, also those that no prompt here requests: every form reads the truth or nothing."""
    lines = (Path(__file__).parent / "verdict_texts.jsonl").read_text(encoding="utf-8").splitlines()
    misread, unread = [], Counter()
    for reply in map(json.loads, lines):
        text = SHOWN.split(final_part(reply["text"], None))[-1]
        found = {form: FORMS[form](text, reply["max_points"]) for form in READ_BY[reply["kind"]]}
        if reply["max_points"] == 1 and found.get("words"):
            found["words"] = 1 if found["words"] == 7 else None
        grades = {grade for grade in found.values() if grade is not None}
        misread += [reply["text"]] if grades - {reply["truth"]} else []
        unread[reply["style"]] += not grades and reply["truth"] is not None
    assert len(lines) == 140 and misread == []
    assert unread["b"] <= 3
