"""Filters of problems: the rows each rejects, with evidence, and those it keeps."""

import re

import pytest

from proofmill.filters import problem_filters
from proofmill.filters.problem_filters import FILTERS, ready, refusal
from proofmill.filters.remembering_filters import Decontamination
from proofmill.schema.errors import RecipeError
from proofmill.text.question_types import asks

OK = {
    "reason": "ok",
    "incomplete": False,
    "difficulty": 4,
    "gaps": False,
    "wrong": False,
    "disagreement": False,
    "computational": False,
}
NEEDS_LABELS = {name for name, record in FILTERS.items() if record.needs == "labels"}
ROW = {
    "problem": "p1",
    "statement": "Prove that $7$ divides $3^2+5^3+2$.",
    "solution": "By $3^2=9$ it does.",
    "answer": None,
    "candidates": [],
    "question_type": "proof",
    "origin": "Contests/2011 ISL/A1",
    "year": 2011,
    "date": "2011-07-18",
    "tags": [],
    "level": "hard",
    "label": OK,
    "rate": 0.5,
}


def refused(item, **changed) -> str | None:
    """Return the evidence with which one filter rejects ROW with these changes."""
    found = refusal({**ROW, **changed}, list(ready([item])))
    return found and found[1]


@pytest.mark.parametrize(
    "item",
    [
        "has-statement",
        "has-solution",
        "is-proof",
        "no-image",
        "not-spam",
        {"statement-length": [10, 100]},
        {"solution-length": [None, 99]},
        {"year": [2000, None]},
        {"not-after": 2011},
        {"dated": ["2011-07-18", "2011-07-19"]},
        {"origin": ["isl", "imo"]},
        {"level": ["easy", "hard"]},
        {"at-most-per-answer": 1},
        "not-duplicate",
        {"not-near-duplicate": 0.8},
        {"statement-share": [0, 1]},
        *sorted(NEEDS_LABELS - {"difficulty"}),
        {"difficulty": [4, 4]},
        {"pass-rate": [0, 1]},
    ],
)
def test_filter_lets_a_good_row_pass(item):
    """A valid problem with solution, labels and grades passes every filter."""
    assert refused(item) is None


def test_problem_of_unknown_year_passes_not_after():
    """The table of an archive may have no years; `year` drops its rows, `not-after` only those that are known to be later."""
    assert refused({"not-after": 2024}, year=None) is None
    assert refused({"year": [None, 2024]}, year=None) == "the year is unknown"


@pytest.mark.parametrize(
    ("item", "changed", "evidence"),
    [
        ("has-statement", {"statement": " \n"}, "the statement is empty"),
        ("has-statement", {"statement": None}, "the statement is empty"),
        ("has-solution", {"solution": None}, "there is no solution"),
        ("has-answer", {"answer": None}, "there is no answer"),
        ("is-proof", {"question_type": "answer"}, "asks for an answer"),
        ("no-image", {"statement": "[img]http://x.y/a.png[/img]"}, "the statement has an image"),
        ("no-image", {"statement": "In the figure [asy] draw(A--B); [/asy]"}, "the statement has an image"),
        ("no-image", {"solution": "see [attachment=a.png]"}, "the solution has an image"),
        ("no-image", {"statement": "As in ![figure [1]](a) ![or ![b](c)"}, "has an image: ![b](c)"),
        ("no-image", {"statement": "https://x.y/z?of=http://x.y/a.PNG!"}, "has an image: http://x.y/a.PNG!"),
        ("not-spam", {"statement": "Visit our shop http://x.example and order now!"}, "no mathematics"),
        (
            "not-spam",
            {"statement": "I use Kile and have Fedora 10. How can I get Asymptote?"},
            "no mathematics, but `Kile`",
        ),
        ({"statement-length": [50, None]}, {}, "characters, not at least 50"),
        ({"solution-length": [None, 3]}, {}, "characters, not at most 3"),
        ({"year": [None, 2010]}, {}, "of 2011, not at most 2010"),
        ({"year": [None, 2024]}, {"year": None}, "the year is unknown"),
        ({"not-after": 2010}, {}, "of 2011, after 2010"),
        ({"dated": ["2011-01-01", "2011-07-17"]}, {}, "of 2011-07-18, not 2011-01-01 to 2011-07-17"),
        ({"dated": ["2011-07-19", "2012-01-01"]}, {}, "of 2011-07-18, not 2011-07-19"),
        ({"dated": ["2011-01-01", "2012-01-01"]}, {"date": None}, "the date is unknown"),
        ({"origin": ["imo"]}, {}, "from `Contests/2011 ISL/A1`, not imo"),
        ({"level": ["easy"]}, {}, "level `hard`, not easy"),
        ({"level": ["easy"]}, {"level": None}, "level `None`, not easy"),
        ({"difficulty": [5, 10]}, {}, "difficulty 4, not 5 to 10"),
        ({"pass-rate": [0, 1]}, {"rate": 0.0}, "pass rate 0.000, not strictly 0 to 1"),
        ({"pass-rate": [0, 1]}, {"rate": 1.0}, "pass rate 1.000, not strictly 0 to 1"),
        ({"pass-rate": [0, 1]}, {"rate": None}, "no graded attempt"),
        ({"pass-rate": [None, None]}, {"rate": float("nan")}, "no graded attempt"),
    ],
)
def test_filter_refuses_with_evidence(item, changed, evidence):
    """Each filter rejects a row with its evidence."""
    assert evidence in refused(item, **changed)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("complete", "incomplete"),
        ("no-gaps", "gaps"),
        ("not-wrong", "wrong"),
        ("undisputed", "disagreement"),
        ("not-computational", "computational"),
    ],
)
def test_filter_of_a_label_refuses_what_the_judge_said_and_what_it_did_not_say(name, label):
    """A label that is true rejects; so does a null label, and a row without labels."""
    assert refused(name, label={**OK, label: True})
    assert refused(name, label={**OK, label: None}) == f"the judge gave no `{label}`"
    assert refused(name, label={**OK, "reason": "no-verdict", label: None}) == "no labels: no-verdict"
    assert refused(name, label=None) == "no labels: the judge was not asked"


@pytest.mark.parametrize("item", [*sorted(NEEDS_LABELS - {"difficulty"}), {"difficulty": [None, None]}])
def test_filter_over_labels_never_passes_a_row_without_them(item):
    """Bounds that reject no value reject a missing label."""
    assert refused(item, label=None)
    assert refused(item, label=dict.fromkeys(OK) | {"reason": "no-verdict"})


@pytest.mark.parametrize(
    "statement",
    [
        "Carla downloads a 200 GB file. Windows restarts to install updates. How long does it take?",
        "James had two browsers on his laptop. In each he opened three windows. What's the total number of windows?",
        "A shop for sale signs sells 5 signs. Find the price.",
        "Show that in any group of six people there are three friends.",
        "Is it true that every planar graph has four colours?",
    ],
)
def test_filter_not_spam_lets_word_problems_pass(statement):
    """Browsers, downloads and shops may occur in a problem."""
    assert refused("not-spam", statement=statement) is None


@pytest.mark.parametrize(
    "statement",
    ["Is $5![a] (x)$ prime?", "https://x.y/a.pngs and http://x.y png", "![" * 100_000, "http://a." * 30_000],
)
def test_filter_no_image_lets_what_only_begins_like_an_image_pass(statement):
    """Addresses of other files and a factorial before a bracket pass, however many."""
    assert refused("no-image", statement=statement) is None


@pytest.mark.parametrize("statement", ["Second   solution:", "Problem 5.", "(see above)", "Solutions", "Part\tb!!"])
def test_filter_is_problem_refuses_a_pointer(statement):
    """A heading poses no problem, even with a question mark or a formula."""
    assert refused("is-problem", statement=f"{statement} ?")


def test_filter_is_problem_lets_what_only_begins_like_a_pointer_pass():
    """A statement that starts like a pointer passes, however long the rest is."""
    assert refused("is-problem", statement=f"Solution{' ' * 50_000}of it: $x=1$?") is None


def test_filter_no_image_keeps_a_drawing_in_a_solution():
    """A solution with an Asymptote drawing can be read without the drawing."""
    assert refused("no-image", solution="Let $O$ be the center. [asy] draw(O--A); [/asy] Then $OA=OB$.") is None


@pytest.mark.parametrize(
    ("statement", "solution", "asked"),
    [
        ("Prove that $a=b$.", None, "proof"),
        ("Show that it is even.", None, "proof"),
        ("Demonstrate $a=b$", None, "proof"),
        ("Determine, with proof, all $n$.", None, "proof"),
        ("Find all $n$.", "... so $n=1$. $\\blacksquare$", "proof"),
        ("Find all $n$.", "$n=1$, Q.E.D.", "proof"),
        ("Find all $n$.", "$\\boxed{1}$", "answer"),
        ("What is the area of the figure shown below?", None, "answer"),
        ("Compute $2+2$. Show your work.", None, "answer"),
        (None, None, "answer"),
    ],
)
def test_asks_is_read_from_the_wording_or_the_end_of_the_solution(statement, solution, asked):
    """Words such as prove and show request a proof; otherwise the end of the solution decides."""
    assert asked == asks(statement, solution)


def passing(item, *statements: str) -> list[int]:
    """Return which statements pass a filter with memory of the kept rows."""
    ((_, apply),) = ready([item])
    kept = []
    for n, statement in enumerate(statements):
        row = {**ROW, "problem": f"p{n}", "statement": statement}
        if apply(row) is None:
            apply.remember(row)
            kept.append(n)
    return kept


def test_filter_not_duplicate_keeps_the_first_of_equal_statements():
    """LaTeX spelling does not make a new statement; another number does."""
    assert passing("not-duplicate", "Prove $\\frac12<x$.", "Prove  $\\dfrac{1}{2} < x$", "Prove $\\frac13<x$.") == [
        0,
        2,
    ]


def test_filter_not_near_duplicate_names_the_similarity_and_the_row():
    """The evidence has the similarity, its kind, and the row."""
    ((_, apply),) = ready([{"not-near-duplicate": 0.8}])
    apply.remember(ROW)
    found = apply({**ROW, "problem": "p2", "statement": "Show that $3^2+5^3+2$ is divisible by $7$."})
    assert found == ("formulas 1.00 similar to p1, same numbers", "p1")


def test_filters_are_asked_in_order_and_the_first_names_the_row():
    """Of two filters that would reject a row, the first in the list does."""
    row = {**ROW, "solution": None, "year": 1990}
    assert refusal(row, list(ready(["has-solution", {"year": [2000, None]}])))[0] == "has-solution"
    assert refusal(row, list(ready([{"year": [2000, None]}, "has-solution"])))[0] == "year"


@pytest.mark.parametrize("outcome", [True, False, 1, ("so",), ("so", 1), ("a", "b", "c"), ["so"]])
def test_filter_that_returns_no_evidence_is_named(outcome):
    """A plugin that returns a truth value is named with what it returned and what is expected."""
    with pytest.raises(
        RecipeError, match=r"filter `mine` returned .* about problem `p1`; expected None to keep the row"
    ):
        refusal(ROW, [("mine", lambda row: outcome)])


def test_evidence_with_half_a_surrogate_pair_fits_the_table():
    """A character that UTF-8 cannot write is replaced."""
    assert refusal(ROW, [("mine", lambda row: "so \ud800")]) == ("mine", "so ?", None)


def test_filters_that_remember_start_empty_each_time():
    """A second run of the same list has no memory of the first."""
    for _ in range(2):
        ((_, apply),) = ready(["not-duplicate"])
        assert apply(ROW) is None
        apply.remember(ROW)


def test_real_word_problems_are_no_spam(data):
    """No GSM8K or MATH problem counts as spam."""
    from proofmill.config.entry_values import entry_from
    from proofmill.sources.loaders import SOURCES

    rows = []
    for source, path in (("gsm8k", "gsm8k/train.jsonl"), ("math", "math/train_every5th.jsonl")):
        entry = entry_from("problems", {"source": source, "path": str(data / path)})
        rows += list(SOURCES[source].load(entry))
    assert [row["statement"] for row in rows if FILTERS["not-spam"].apply(row)] == []


def test_decontaminate_finds_benchmarks_in_other_latex_and_in_part(data):
    """Of 466 benchmark statements, respelled between other text or cut to two thirds, at least 19 of 20 are found."""
    from proofmill.config.entry_values import entry_from
    from proofmill.sources.loaders import SOURCES

    statements = []
    for source, path in (
        ("proofbench", "imobench/proofbench_v2.csv"),
        ("answerbench", "imobench/answerbench_v2.csv"),
        ("matharena", "usamo_2025"),
    ):
        entry = entry_from("problems", {"source": source, "path": str(data / path)})
        statements += [row["statement"] for row in SOURCES[source].load(entry)]
    apart = Decontamination(13, 0.9)
    for n, statement in enumerate(statements):
        apart.add(f"b#{n}", statement)
    other = [s.replace("\\frac", "\\dfrac").replace("Prove that", "Show that") for s in statements]
    respelled = [re.sub(r"\$([^$]+)\$", r"\\(\1\\)", s) for s in other]
    cut = [" ".join(s.split()[len(s.split()) // 3 :]) for s in statements]
    for changed in ([f"Own source. {s} Any ideas?" for s in respelled], [f"Continued: {s}" for s in cut]):
        assert sum(apart({"statement": s}) is not None for s in changed) >= 0.95 * len(statements)


def test_first_keeps_so_many_of_what_is_left():
    """Rows that an earlier filter rejected do not count."""
    asked = list(problem_filters.ready(["has-solution", {"first": 2}]))
    kept = []
    for solution in ("a", "", "b", "c", "d"):
        row = {"statement": "s", "solution": solution}
        if problem_filters.refusal(row, asked) is None:
            kept.append(solution)
            for _, apply in asked:
                if hasattr(apply, "remember"):
                    apply.remember(row)
    assert kept == ["a", "b"]


@pytest.mark.parametrize(("solution", "stays"), [("1\n#### 1", True), ("1\n2\n3\n#### 6", False), ("#### 1", False)])
def test_logic_steps_are_the_lines_before_the_answer(solution, stays):
    """One to two steps; the line of the final answer does not count."""
    verdict = FILTERS["solution-steps"].apply({"solution": solution}, [1, 2])
    assert (verdict is None) is stays


@pytest.mark.parametrize(
    ("scheme", "evidence"),
    [
        (None, "no scheme: there is no row for it"),
        (
            {"dropped": "linter", "faults": ["wrong-total"], "scheme": "x"},
            "its scheme was refused: linter (wrong-total)",
        ),
        ({"dropped": None, "scheme": None, "reason": "timeout"}, "no scheme: timeout"),
        ({"dropped": None, "scheme": "Checkpoints", "reason": "ok"}, None),
    ],
)
def test_problem_needs_a_scheme_that_was_not_refused(scheme, evidence):
    """The evidence says whether there is no row, no text, or a refused one."""
    assert FILTERS["has-scheme"].apply({"scheme": scheme}) == evidence


def test_shares_of_statements_divide_them():
    """Each statement is in exactly one of two shares, equal ones in the same, and the parts have about those sizes."""
    statements = [f"Find the sum of {number} and ${number % 7}^2$." for number in range(2_000)]

    def kept(low, high) -> set[str]:
        return {one for one in statements if refused({"statement-share": [low, high]}, statement=one) is None}

    training, held_out = kept(None, 0.9), kept(0.9, None)
    assert training | held_out == {*statements} and not training & held_out
    assert 150 < len(held_out) < 250
    spelled = [one.replace(".", "").replace("Find", "find") for one in held_out]
    assert all(refused({"statement-share": [0.9, 1]}, statement=one) is None for one in spelled)
    assert re.fullmatch(r"at 0\.\d{3} of 1", refused({"statement-share": [0.9, 1]}, statement=min(training)))


def test_at_most_per_answer_balances_the_answers():
    """Rows that another filter rejected do not count, and rows without an answer are kept."""
    asked = list(ready(["has-solution", {"at-most-per-answer": 1}]))
    kept = []
    for number, (answer, solution) in enumerate(
        [("7", ""), ("7", "a"), ("7", "b"), ("0", "c"), (None, "d"), (None, "e")]
    ):
        row = {"statement": "s", "answer": answer, "solution": solution}
        if refusal(row, asked) is None:
            kept.append(number)
            for _, apply in asked:
                if hasattr(apply, "remember"):
                    apply.remember(row)
    assert kept == [1, 3, 4, 5]
    assert refusal({"solution": "s", "answer": "7"}, asked)[1] == "1 rows with this answer are kept before it"
