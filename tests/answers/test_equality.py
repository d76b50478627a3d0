"""Equality of answers through the full verifier: pairs that must differ, and pairs that are one answer."""

import csv
import io
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mill import ROOT
from proofmill.__main__ import main
from proofmill.answers.final_answers import judge
from proofmill.answers.verifier import Verifier
from rewriting import changes, rewritings

# What peers' verifiers and ours once took for the same (gold answer, answer), in our own words.
DIFFERENT = [
    (r"\frac{1}{2}", r"17\star\frac{1}{2}"), (r"\frac{1}{2}", r"\frac{1}{2} ? 99"), (r"\frac{2}{3}", r"8+\frac{2}{3}\lg 5"),
    (r"(\frac{1}{5},\frac{1}{9})", r"3(\frac{1}{5},\frac{1}{9})"), (r"(\frac{1}{5},\frac{1}{9})", r"-(\frac{1}{5},\frac{1}{9})"),
    (r"\begin{cases}\frac{1}{2}&x>0\\7&x<0\end{cases}", r"\frac{1}{2}"), ("A^2-a^2", "0"), (r"\frac{S}{s}", "1"),
    ("M-m", "m-M"), (r"\lim_{x\to 0}g(x)=4", r"\lim_{x\to 0}g(x)=5"), (r"\sum_{n=1}^\infty b_n=3", r"\sum_{n=1}^\infty b_n=2"),
    ("|u-v|=4", "|u-v|=6"), ("5t", "5"), ("4m", "4"), (r"\sqrt{5}g", r"\sqrt{5}"), ("g'(x)+2", "g(x)+2"), ("y''+3y", "4y"),
    (r"\frac{1}{2^{70}}", r"\frac{1}{2^{71}}"), (r"\frac{1}{22!}", r"\frac{1}{23!}"), ("I_a", "I_b"), ("3,3", "3"),
    ("1,4,4", "1,4"), (r"\sin 20^\circ", r"\sin 20"), (r"\frac{90!}{80!}-9!\cdot 90", r"\frac{90}{80!}-9!\cdot 90"),
    (r"m\text{ even}", r"m\text{ odd}"), ("rat", "tar"), ("31_4", "31_5"), ("31_4", "31"), (r"5\text{ cm}", r"5\text{ m}"),
    (r"k\equiv1\pmod 6", r"k\equiv5\pmod 6"), ("2^{2024}+1", "2^{2024}"), ("[0,2)", "[0,2]"), ("x<3", r"x\le3"), ("x=3", "y=3"),
    ("(1,2)", "(2,1)"), ("(1,2)", r"\{1,2\}"), ("x^2+y^2=4", "4"), (r"\text{yes}", r"\text{no}"), ("B", r"\textbf{(C) }7"),
    (r"3:00\text{ a.m.}", r"3:00\text{ p.m.}"), ("7", r"7\text{ hundred}"), ("7", r"\text{at least }7"), ("1000", "1,001"),
    (r"\lfloor\frac{n}{6}\rfloor", r"\lfloor\frac{n}{7}\rfloor"), ("8", "(3)(5)"), ("0", r"Compute \begin{vmatrix}1&1\\1&1\end{vmatrix}"), ("f(x)=0 if x=2, 7 otherwise", "f(x)=1 if x=2, 7 otherwise"), ("3+C", "3+c"), ("50", r"5\%"),
]  # fmt: skip
SAME = [
    ("45812", r"45,\! 812"), ("3:4", "6:8"), ("45812", "45 812"), ("45812", r"45\,812"), (r"\frac{3}{2}", "1 1/2"), ("forty two", "42"),
    (r"\frac{12}{6,\!625}", r"\frac{12}{6625}"), (r"\frac \pi3 + 1", r"1+\frac{\pi}{3}"), (r"1-\frac{1}{\mathrm{e}}", "1-e^{-1}"),
    ("[-3,8]", r"-3\le x\le 8"), (r"-3\le x\le 8", "[-3,8]"), (r"\frac12", r"\sin 30^\circ"), (r"\frac13", r"0.\overline{3}"),
    (r"(-\infty,2)\cup(5,\infty)", r"x<2\text{ or }x>5"), (r"x<2\text{ or }x>5", r"(5,\infty)\cup(-\infty,2)"), ("0.25", r"25\%"),
    (r"\{(1,2),(3,4)\}", "(3,4),(1,2)"), (r"\text{(D)}", "D"), ("D", r"\textbf{(D) }12"), ("12", r"\textbf{(D) }12"),
    ("y=3x+1", "3x-y+1=0"), ("2,5", "5,2,2"), ("x=1,y=2", "(1,2)"), (r"2\pm\sqrt3", r"2-\sqrt3,2+\sqrt3"), ("5", "x=5"),
    (r"5\text{ cm}", r"0.05\text{ m}"), ("90", r"90^\circ"), (r"\frac{\pi}{2}", r"90^\circ"), (r"\$3.50", "3.5"), ("9:05", "09:05"),
    (r"k\equiv 7\pmod{4}", r"k\equiv3\pmod4"), ("15", "(3)(5)"), (r"(1+i)^2", "2i"), (r"\log_2 5", r"\frac{\ln 5}{\ln 2}"),
    (r"\begin{pmatrix}\frac12\\2\end{pmatrix}", r"\begin{pmatrix}0.5\\2\end{pmatrix}"), (r"x\ne 2", r"(-\infty,2)\cup(2,\infty)"),
    (r"x\in\{1,2\}", "1,2"), ("2x>4", "4<2x"), ("60,120", "60120"), ("60,120", "120, 60"), (r"\text{Yes}", "yes"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_different_answers_are_not_the_same(gold, answer):
    """Each of these is another answer, or cannot be parsed; none is correct."""
    assert judge(gold, f"\\boxed{{{answer}}}").status != "correct"


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_answers_written_otherwise_are_the_same(gold, answer):
    """Each of these is the gold answer."""
    assert judge(gold, f"\\boxed{{{answer}}}").status == "correct"


@pytest.mark.parametrize(
    ("gold", "text", "status"),
    [
        ("42", r"First \boxed{41}, then \boxed{42}.", "correct"),
        ("41", r"First \boxed{41}, then \boxed{42}.", "wrong"),
        ("41,42", r"First \boxed{41}, then \boxed{42}.", "correct"),
        ("42", r"It is \boxed{41} or \boxed{42}.", "wrong"),
        ("42", r"It is $\boxed{41}$, $\boxed{42}$.", "wrong"),
        ("143", r"so \boxed{143}. **Final answer: \boxed{143}**", "correct"),
        ("18", "some reasoning #### 18", "correct"),
        ("18", "#### 18 apples", "no-answer"),
    ],
)
def test_box_that_counts_depends_on_how_many_values_are_asked_for(gold, text, status):
    """The last box of its line counts, with its alternatives; all of them if the gold answer is several values."""
    assert judge(gold, text).status == status


@pytest.mark.parametrize(
    ("gold", "answer", "detail"),
    [
        ("5", r"5\text{ cm}", "doubtful: only one of the two has a unit"),
        ("0.25", r"25\%", "doubtful: only one of the two is a percentage"),
        (r"\frac13", "0.333333", "doubtful: one is rounded from the other"),
        ("5", "x=5", "doubtful: only one of the two has a name before its value"),
        ("12", "(B) 12", "doubtful: only one of the two has a label"),
        ("[0,1)", r"0\le x<1", ""),
        ("1/2", "0.5", ""),
    ],
)
def test_right_answer_that_leaves_something_open_says_what(gold, answer, detail):
    """The verdict notes what the comparison ignored."""
    check = judge(gold, f"\\boxed{{{answer}}}")
    assert (check.status, check.detail) == ("correct", detail)


def test_pairs_of_all_forms_have_their_verdicts():
    """Each pair of tests/answers/pairs.csv has its verdict, with boxes around an answer without one."""
    with (Path(__file__).parent / "pairs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [row["answer"] if "\\boxed" in row["answer"] else f"\\boxed{{{row['answer']}}}" for row in rows]
    with Verifier(2, seconds=20) as verifier:
        checks = list(verifier.check(zip((row["gold"] for row in rows), texts, strict=True)))
    verdicts = [{"correct": "right", "wrong": "wrong"}.get(check.status, "unscored") for check in checks]
    assert [row for row, verdict in zip(rows, verdicts, strict=True) if verdict != row["verdict"]] == []
    assert Counter(verdicts).keys() == {"right", "wrong", "unscored"}
    assert all(check.detail for check, verdict in zip(checks, verdicts, strict=True) if verdict == "unscored")


def test_table_of_forms_in_the_docs_is_what_both_verifiers_say():
    """docs/final-answers.md has the output of `benchmarks/grading.py --forms`."""
    command = [sys.executable, str(ROOT / "benchmarks" / "grading.py"), "--forms"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert table.count("\n") > 80 and table in (ROOT / "docs" / "final-answers.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["1/2", "0.5"], ["right", "reference 1/2", "number 1/2", "answer    0.5", "number 1/2"]),
        (
            ["A", "(A) or (B)"],
            ["wrong", "reference A", "formula A", "answer    (A) or (B)", "either of 2: formula A; formula B"],
        ),
        (
            ["1/2x", "x/2"],
            [
                "unscored (unparsable): not clear: 1/2x can be read in two ways",
                *("reference 1/2x", "formula 1/2x", "answer    x/2", "formula x/2"),
            ],
        ),
    ],
)
def test_verify_says_the_verdict_and_how_each_side_was_read(arguments, lines, capsys, monkeypatch):
    """`proofmill verify` prints right, wrong or unscored with the reason, then both readings."""
    monkeypatch.setattr(sys, "argv", ["proofmill", "verify", *arguments])
    main()
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == lines


def test_verify_reads_a_response_from_standard_input(capsys, monkeypatch):
    """A full response has its final answer extracted."""
    monkeypatch.setattr(sys, "argv", ["proofmill", "verify", "7", "-"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("First 6.\nSo \\boxed{7}."))
    main()
    assert capsys.readouterr().out.startswith("right\n")


@pytest.fixture(scope="module")
def golds(data) -> list[str]:
    """Return a few hundred published gold answers, of MATH and of IMO-AnswerBench."""
    lines = (data / "math/train_every5th.jsonl").read_text("utf-8").splitlines()
    with open(data / "imobench/answerbench_v2.csv", encoding="utf-8", newline="") as file:
        olympiad = [row["Short Answer"].strip("$ ") for row in csv.DictReader(file)]
    distinct = dict.fromkeys([*(json.loads(line)["answer"] for line in lines[::4]), *olympiad[::4]])
    return [gold for gold in distinct if gold and len(gold) < 200]


def test_no_change_of_value_is_accepted(golds):
    """A changed sign, digit, letter, case, exponent, member, term, end or relation is never correct."""
    pairs = [(gold, kind, f"\\boxed{{{text}}}") for gold in golds for kind, text in changes(gold)]
    assert len({kind for _, kind, _ in pairs}) == 9
    with Verifier(2, seconds=20) as verifier:
        checks = verifier.check((gold, text) for gold, _, text in pairs)
        accepted = [pair for pair, check in zip(pairs, checks, strict=True) if check.status == "correct"]
    assert accepted == []


def test_rewritings_of_equal_value_are_accepted(golds):
    """At least 99 of 100 other spellings of a gold answer are accepted, and no kind of them fails completely."""
    pairs = [(gold, kind, f"\\boxed{{{text}}}") for gold in golds[::2] for kind, text in rewritings(gold)]
    with Verifier(2, seconds=20) as verifier:
        checks = list(verifier.check((gold, text) for gold, _, text in pairs))
    accepted = Counter(kind for (_, kind, _), check in zip(pairs, checks, strict=True) if check.status == "correct")
    readable = [kind for (_, kind, _), check in zip(pairs, checks, strict=True) if check.status != "no-gold"]
    print(f"{accepted.total():,} of {len(readable):,} rewritings are accepted")
    assert accepted.total() >= 0.99 * len(readable)
    assert set(accepted) == set(readable) and len(accepted) >= 20


def test_published_solutions_of_math_verify(data):
    """Each of MATH's solutions has its own gold answer, except if the gold answer lost a space in the data."""
    rows = [json.loads(line) for line in (data / "math/train_every5th.jsonl").read_text("utf-8").splitlines()]
    with Verifier(2, seconds=20) as verifier:
        checks = list(verifier.check((row["answer"], row["solution"]) for row in rows))
    others = {row["answer"] for row, check in zip(rows, checks, strict=True) if check.status != "correct"}
    assert others == {r"-80\leqg(x)\leq82", "{twolines}"}
