"""Final answers against gold answers: equality, and a verdict for every pair, whatever happens to its worker."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.answers import final_answers, verifier
from proofmill.answers.extraction import extract, find_boxes, normal
from proofmill.answers.final_answers import (
    CANARIES,
    AnswerPair,
    Decision,
    EqualityCheck,
    by_integers,
    by_mathematics,
    judge,
    read_pair,
)
from proofmill.answers.reading import formulas
from proofmill.answers.verifier import CHUNK, WINDOW, Verifier, _Worker
from proofmill.answers.workers import parse_in_two_stages
from proofmill.schema.errors import VerifierError

# SymPy would compute for hours; both are answers that a counting problem may have.
HANGS = [r"\sum_{k=1}^{10^9}\sin(k)", r"2^{2^{2^{50}}}"]
EATS = r"\sqrt[3]{2^{2^{36}}}"  # more than a worker may have


def hanging(answer: str = HANGS[0]) -> tuple[str, str]:
    return "2^{2024}", f"\\boxed{{{answer}}}"


def gone(process: int) -> bool:
    """Return whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def all_gone(processes: list[int]) -> bool:
    """Wait for them to end, for a minute at most."""
    for _ in range(600):
        if all(map(gone, processes)):
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def pool():
    """Open a verifier for all tests that do not change it, with a long time limit, since the machine may be busy."""
    with Verifier(2, seconds=60) as made:
        yield made


@pytest.fixture(scope="module")
def records(data) -> list[dict]:
    """Return the rows of MATH."""
    return [json.loads(line) for line in (data / "math/train_every5th.jsonl").read_text("utf-8").splitlines()]


# ------------------------------------------------------------------------------------------------------------- one pair


@pytest.mark.parametrize(
    ("gold", "text", "status"),
    [
        ("18", r"\boxed{18}", "correct"),
        ("$18$", r"\boxed{18.}", "correct"),
        (r"\boxed{18}", r"\boxed{$18$}", "correct"),
        (r"So it is $\boxed{18}$.", "#### 18", "correct"),
        ("She has\n#### 1,080", r"\boxed{1{,}080}", "correct"),
        ("18", r"\boxed{018}", "correct"),
        ("18", r"\boxed{-18}", "wrong"),
        ("0.5", r"\boxed{\frac{1}{2}}", "correct"),
        (r"\frac13", r"\boxed{0.333333}", "correct"),
        (r"\frac13", r"\boxed{0.33}", "wrong"),
        (r"\sqrt{8}", r"\boxed{2\sqrt2}", "correct"),
        ("x+1", r"\boxed{1+x}", "correct"),
        ("x+1", r"\boxed{y+1}", "wrong"),  # strict: names matter
        (r"\{1,2\}", r"\boxed{2} and \boxed{1}", "correct"),
        ("(2,1)", r"\boxed{\{1,2\}}", "wrong"),  # strict: a set is no tuple
        ("(1,2,3)", r"\boxed{(1,3,2)}", "wrong"),
        ("[0,1)", r"\boxed{(0,1)}", "wrong"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{pmatrix} 1 \\ 2 \end{pmatrix}}", "correct"),
        (r"\text{Monday}", r"\boxed{\text{Tuesday}}", "wrong"),
        (r"k \equiv 3 \pmod 4", r"\boxed{k \equiv 3 \pmod 4}", "correct"),
        (r"4", r"\boxed{k \equiv 3 \pmod 4}", "wrong"),  # a number in it is not extracted
        ("18", "It is 18.", "no-answer"),
        ("18", r"\boxed{}", "no-answer"),
        ("18", r"\boxed{五}", "unparsable"),
        ("五", r"\boxed{五}", "correct"),
        ("18", r"\boxed{$.$}", "unparsable"),
    ],
)
def test_judge_of_two_answers_is_strict_mathematics(gold, text, status):
    """Equal values in any spelling are correct, names and order matter, no answer is no verdict."""
    assert judge(gold, text).status == status


@pytest.mark.parametrize(
    ("gold", "text", "status", "detail"),
    [
        ("", r"\boxed{5}", "no-gold", "gold answer is empty"),
        ("$$", r"\boxed{5}", "no-gold", "gold answer is empty"),
        ("$$", r"\boxed{" + "1" * 1001 + "}", "no-gold", "gold answer is empty"),
        ("5", r"\boxed{\,}", "unparsable", "answer is empty"),
        (r"\frac{7}", r"\boxed{5}", "no-gold", r"gold answer cannot be read: \frac{7}"),
        (r"\frac{7}", r"\boxed{\frac{8}}", "no-gold", r"gold answer cannot be read: \frac{7}"),
        ("5", r"\boxed{\frac{7}}", "unparsable", r"cannot be read: \frac{7}"),
        ("5", r"\boxed{" + "1" * 1001 + "}", "unparsable", "over 1,000 characters"),
        (r"\frac{1}{0}", r"\boxed{5}", "no-gold", r"gold answer cannot be read: \frac{1}{0}"),
    ],
)
def test_judge_of_what_cannot_be_judged_says_why(gold, text, status, detail):
    """A pair without a verdict names the gold answer or the answer as the cause, and the problem."""
    assert judge(gold, text) == EqualityCheck(status, extract(text), detail)


def test_judge_of_the_longest_answer_goes_on():
    """An answer of 1,000 characters is judged."""
    assert judge("5", r"\boxed{" + "1" * 1000 + "}").status == "wrong"


def test_canaries_have_their_statuses_and_some_need_mathematics():
    """`judge` gives the known statuses; every status occurs, and no fast path settles most of them."""
    assert [judge(gold, text).status for gold, text, _ in CANARIES] == [status for _, _, status in CANARIES]
    assert {status for _, _, status in CANARIES} == {"correct", "wrong", "no-answer", "unparsable"}
    asked = [read_pair(gold, text)[1] for gold, text, _ in CANARIES]
    slow = [pair for pair in asked if isinstance(pair, AnswerPair) and not by_integers(pair)]
    assert len(slow) >= 6


# ------------------------------------------------------------------------------------------------- what needs no parser

INTEGERS = st.builds(
    lambda sign, zeros, digits: f"{sign}{'0' * zeros}{digits}",
    st.sampled_from(["", "-"]),
    st.integers(0, 2),
    st.one_of(st.integers(0, 30), st.integers(0, 10**40)),
)


@settings(max_examples=60, deadline=None)
@given(INTEGERS, st.one_of(INTEGERS, st.none()), st.booleans())
def test_integers_have_the_verdict_of_mathematics(gold, other, negative):
    """The fast path for two plain integers agrees with math-verify, and handles all of them."""
    answer = ("-" if negative else "") + (gold.lstrip("-0") or "0") if other is None else other
    pair = AnswerPair(gold, answer, answer)
    assert by_integers(pair) == by_mathematics(pair)


@pytest.mark.parametrize("text", ["", "+5", "--5", "5.", "1,234", "1 234", "５", "5e3", "0x5", "5\n", "5_3", "1" * 301])
def test_integers_in_other_spellings_are_left_to_mathematics(text):
    """The fast path handles nothing but plain integers."""
    assert by_integers(AnswerPair("5", text, text)) is None
    assert by_integers(AnswerPair(text, "5", "5")) is None


@pytest.fixture
def two_stages(monkeypatch):
    """Install the parser of the workers."""
    from latex2sympy2_extended import latex2sympy2

    monkeypatch.setattr(latex2sympy2, "PSParser", latex2sympy2.PSParser)
    parse_in_two_stages()


def shown(forms: list[str]) -> list[str]:
    return [f"{type(found := formulas.parse.__wrapped__(form))} {found}" for form in forms]


FORMS = [
    r"\frac{3\sqrt{2}}{4}", r"(-9x^2+x+2)(9x^2+x+2)", r"11z^{17}(5+11z^{17})", "2x^5", r"[-1,0)\cup(0,\infty)", "x^2+y^2=1",
    r"x\in(-5,5]", r"-2,1+i\sqrt{3},1-i\sqrt{3}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\text{Monday}", r"\frac{7}",
    r"\log_2 3", r"\sin^2 x", r"\binom{10}{3}", "5!", r"x\le 3", r"90^\circ", r"k\equiv1\pmod4", "((1", r"3\frac12",
    r"|x-1|<2", r"\sum_{k=1}^n k", "f(x)=x^2", r"25\%", "12:30", r"\{(1,2),(2,1)\}",
]  # fmt: skip


def test_parser_of_workers_reads_what_the_plain_parser_reads(two_stages, monkeypatch):
    """SLL prediction before LL changes no tree, even if SLL finds none, and no failure."""
    quick = shown(FORMS)
    monkeypatch.undo()
    assert shown(FORMS) == quick
    assert sum(found.endswith(" None") for found in quick) >= 3  # some cannot be parsed either way


def test_parser_of_workers_reads_math_as_the_plain_parser(records, two_stages, monkeypatch):
    """The same holds for gold answers and boxes of MATH, also those that are equal after `normal`."""
    texts = {text for row in records[::9] for text in (row["answer"], *find_boxes(row["solution"]))}
    forms = sorted(set(map(normal, texts)))
    quick = shown(forms)
    monkeypatch.undo()
    assert shown(forms) == quick


def test_normal_form_means_what_the_answer_means(records):
    """A normal form is parsed like the answer itself, unless the answer could not be parsed."""
    texts = {text for row in records[::9] for text in find_boxes(row["solution"])}
    for text in texts:
        before, after = (formulas.parse(one) for one in (text, normal(text)))
        assert before is None or before == after


def test_answers_of_one_normal_form_are_equal_by_mathematics(records):
    """The fast path for texts agrees with the slow one: each gold answer of MATH equals itself."""
    for row in records[::3]:
        form = normal(row["answer"])
        assert by_mathematics(AnswerPair(form, form, form))._replace(last=False) == Decision("correct")


# ------------------------------------------------------------------------------------------------------------- the pool


def test_check_gives_what_judge_gives_on_real_pairs(records, pool):
    """Gold answers of MATH with solutions of the same and of other rows have the verdict of `judge`, in order."""
    rng = random.Random(1)
    pairs = [(row["answer"], row["solution"]) for row in rng.sample(records, 60)]
    pairs += [(rng.choice(records)["answer"], rng.choice(records)["solution"]) for _ in range(120)]
    assert list(pool.check(pairs)) == [judge(gold, text) for gold, text in pairs]


def test_check_keeps_the_order_of_thousands(pool):
    """3,000 pairs of all kinds, some slower than others, return in the order of the input."""
    rng, pairs, expected = random.Random(0), [], []
    for n in range(3000):
        kind = rng.choice(["integer", "text", "sum", "none", "long"])
        right = rng.random() < 0.5
        if kind == "integer":
            pairs.append((str(n), f"\\boxed{{{n if right else n + 1}}}"))
        elif kind == "text":
            pairs.append((f"x+{n}", f"\\boxed{{x + {n if right else n + 1}}}"))
        elif kind == "sum":
            pairs.append((f"x+{n % 50}", f"\\boxed{{{n % 50 if right else n % 50 + 1}+x}}"))
        elif kind == "none":
            pairs.append((str(n), f"it is {n}"))
        else:
            pairs.append((str(n), f"\\boxed{{{n}{'0' * 1000}}}"))
        unasked = {
            "none": EqualityCheck("no-answer", None),
            "long": EqualityCheck("unparsable", None, "over 1,000 characters"),
        }
        made = unasked.get(kind, EqualityCheck("correct" if right else "wrong", None))
        expected.append(EqualityCheck(made.status, extract(pairs[-1][1]), made.detail))
    assert list(pool.check(pairs)) == expected


def test_check_of_an_endless_input_reads_a_window_ahead(pool):
    """Checks are yielded while pairs are still read, and no more than a window of pairs is held."""
    read = itertools.count()
    pairs = ((f"x+{next(read)}", r"\boxed{x+y}") for _ in itertools.repeat(None))
    some = pool.check(pairs)
    for n in range(300):
        assert next(some).status == "wrong"
        assert next(read) <= 2 * n + WINDOW + CHUNK  # each reading of the count adds one to it
    some.close()


def test_check_judges_a_repeated_pair_once(pool, monkeypatch):
    """A worker receives each distinct pair of gold answer and answer once, whatever the texts around it."""
    sent, give = [], _Worker.give

    def counted(self, chunk):
        sent.extend(asked.pair for asked in chunk)
        give(self, chunk)

    monkeypatch.setattr(_Worker, "give", counted)
    texts = [f"Try {n}: $\\boxed{{ a + {n % 3} }}$" for n in range(90)]
    found = list(pool.check(("$b+1$", text) for text in texts)) + list(pool.check([("b+1", texts[0])]))
    assert {check.status for check in found} == {"wrong"} and len(found) == 91
    assert sorted(sent) == [AnswerPair("b+1", *[f"a+{n}"] * 2) for n in range(3)]


def test_check_of_an_input_that_fails_passes_the_error_on(pool):
    """An error of the caller's input is raised unchanged, and the verifier can be used again."""

    def pairs():
        yield from ((f"x+{n}", r"\boxed{y}") for n in range(100))
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(pool.check(pairs()))
    assert [check.status for check in pool.check([("x+99", r"\boxed{y}")])] == ["wrong"]


def test_check_that_is_left_leaves_no_verdicts_to_the_next(pool):
    """After a check is closed early, the next one has its own verdicts, also for pairs that were in flight."""
    pairs = [(f"z+{n}", f"\\boxed{{{n}+z}}" if n % 2 else r"\boxed{y}") for n in range(500)]
    some = pool.check(pairs)
    assert next(some).status == "wrong"
    some.close()
    assert [check.status for check in pool.check(pairs)] == ["wrong", "correct"] * 250


def test_second_check_at_once_is_refused(pool):
    """One verifier runs one check at a time; a second one raises an error."""
    first, second = pool.check([("x", r"\boxed{y}")] * 3), pool.check([])
    next(first)
    with pytest.raises(VerifierError, match=r"not finished; expected one at a time\. Open a second Verifier"):
        next(second)
    assert len(list(first)) == 2


def test_check_outside_the_context_is_refused_and_nothing_runs():
    """Without an open pool there is no verdict, neither before nor half way, and no process is left."""
    made = Verifier(1, seconds=600)
    with pytest.raises(VerifierError, match="not open"):
        made.check([])
    with made:
        some = made.check([("x", r"\boxed{y}"), hanging()])
        next(some)
        processes = [made._server.process.pid, made._crew[0].id]
    assert all(map(gone, processes))
    with pytest.raises(VerifierError, match="not open"):
        next(some)


@pytest.mark.parametrize(("workers", "seconds"), [(0, 5), (-1, 5), (2, 0), (2, -1.0), (2, float("nan"))])
def test_verifier_without_workers_or_time_is_refused(workers, seconds):
    """A verifier needs at least one worker and a positive time limit."""
    with pytest.raises(VerifierError, match="at least 1 worker"):
        Verifier(workers, seconds)


# -------------------------------------------------------------------------------------------------- what answers can do


def test_pair_that_hangs_is_unparsable_and_the_rest_is_judged():
    """Pairs that would take hours time out at any position of the input, and affect no other verdict."""
    pairs = [(f"x+{n}", f"\\boxed{{{n}+x}}") for n in range(200)]
    for place, answer in ((0, HANGS[0]), (100, HANGS[1]), (150, HANGS[0]), (203, HANGS[1])):
        pairs.insert(place, hanging(answer))
    with Verifier(2, seconds=1) as made:
        found = list(made.check(pairs))
    assert found == [
        EqualityCheck("unparsable", extract(text), "took longer than 1 s")
        if gold == "2^{2024}"
        else EqualityCheck("correct", extract(text))
        for gold, text in pairs
    ]


def test_pair_that_needs_the_machines_memory_is_unparsable(pool):
    """A worker has a memory limit, and the pair that exceeds it is reported."""
    pairs = [("5", f"\\boxed{{{EATS}}}"), ("x+1", r"\boxed{1+x}")]
    assert [(check.status, check.detail) for check in pool.check(pairs)] == [
        ("unparsable", "MemoryError"),
        ("correct", ""),
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("killed", ["workers", "server"])
def test_process_killed_from_outside_costs_no_more_than_its_pair(killed):
    """If a process is killed while a worker judges a long pair, all other pairs still get their verdicts."""
    pairs = [(f"x+{n}", f"\\boxed{{{n}+x}}") for n in range(300)]

    with Verifier(2, seconds=600) as made:

        def killing():
            yield hanging()
            yield from pairs[:150]  # the first chunks have been sent by then
            ids = [worker.id for worker in made._crew]
            for process in [made._server.process.pid] if killed == "server" else ids:  # workers go with the server
                os.kill(process, signal.SIGKILL)
            yield from pairs[150:]

        first, *rest = made.check(killing())
        processes = [made._server.process.pid, *(worker.id for worker in made._crew)]
    assert first.status == "unparsable" and first.detail.startswith("its worker died")
    lost = [check for check in rest if check.status != "correct"]
    assert len(rest) == 300 and len(lost) <= 1  # the pair of the second worker
    assert all("its worker died" in check.detail for check in lost)
    assert all_gone(processes)


def test_worker_killed_while_it_waits_costs_nothing(pool):
    """A worker that dies between two checks is replaced without losing a verdict."""
    dead = [worker.id for worker in pool._crew]
    for process in dead:
        os.kill(process, signal.SIGKILL)
    assert all_gone(dead)
    assert [check.status for check in pool.check([("w+1", r"\boxed{1+w}")] * 2)] == ["correct"] * 2


ORPHANS = """
import os
from proofmill.answers.verifier import Verifier
with Verifier(2, seconds=600) as made:
    def pairs():
        yield from [("2^{2024}", f"\\\\boxed{{\\\\binom{{10^9}}{{5 \\\\cdot 10^8 + {n}}}}}") for n in range(64)]
        print(made._server.process.pid, *(worker.id for worker in made._crew), flush=True)
        yield from (("x", f"\\\\boxed{{{n}}}") for n in range(10**9))
    print("lazy" if next(made.check(pairs())) else "")
"""


def test_processes_of_a_killed_parent_end_though_they_are_busy():
    """Neither the server nor a busy worker outlives a killed parent."""
    with subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True) as parent:
        processes = list(map(int, parent.stdout.readline().split()))
        assert len(processes) == 3 and not any(map(gone, processes))
        parent.kill()
    assert all_gone(processes)


@pytest.mark.parametrize("place", [1, 4])
def test_canary_that_fails_stops_the_verifier(monkeypatch, place):
    """A wrong status of a known answer stops the verifier, by a fast path or by a worker."""
    gold, text, status = CANARIES[place]
    wrong = "wrong" if status == "correct" else "correct"
    monkeypatch.setattr(final_answers, "CANARIES", (*CANARIES[:place], (gold, text, wrong), *CANARIES[place + 1 :]))
    started, popen = [], subprocess.Popen

    def noted(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    with pytest.raises(VerifierError, match=f"is {status}; expected {wrong}. Install"), Verifier(1):
        pass
    assert all(process.poll() is not None for process in started)


def test_verifier_whose_library_cannot_be_imported_says_so(monkeypatch, tmp_path, capfd):
    """Without math-verify the message names a command to try, and Python's error is on standard error."""
    (tmp_path / "math_verify.py").write_text("raise ImportError('no such library here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(VerifierError, match="died, exit code 1; expected it to judge"), Verifier(1):
        pass
    assert "no such library here" in capfd.readouterr().err


def test_parent_of_the_workers_imports_no_algebra():
    """SymPy, math-verify and the parser are imported by workers alone."""
    code = (
        "import sys; from proofmill.answers.verifier import Verifier\n"
        "with Verifier(1) as made: print([c.status for c in made.check([('x+1', r'\\boxed{1+x}')])])\n"
        "print(sorted({'sympy', 'math_verify', 'antlr4', 'latex2sympy2_extended', 'mpmath'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[:2] == ["['correct']", "[]"]
    assert found.stderr == ""


# --------------------------------------------------------------------------------------------------------- real answers


def test_gold_answers_of_math_and_gsm8k_equal_themselves(records, data, pool):
    """Each gold answer, boxed, equals itself, in both sets."""
    golds = [row["answer"] for row in records]
    golds += [extract(json.loads(line)["answer"]) for line in (data / "gsm8k/train.jsonl").open(encoding="utf-8")]
    assert None not in golds
    assert {check.status for check in pool.check((gold, f"\\boxed{{{gold}}}") for gold in golds)} == {"correct"}


def test_solutions_of_gsm8k_give_their_gold_answer(data, pool):
    """Every solution of GSM8K is correct against the number after its `####`, as written."""
    rows = [
        json.loads(line)["answer"]
        for name in ("train.jsonl", "test_first660.jsonl")
        for line in (data / "gsm8k" / name).open(encoding="utf-8")
    ]
    assert {check.status for check in pool.check((row.rpartition("####")[2], row) for row in rows)} == {"correct"}


@pytest.mark.long
def test_solutions_of_math_give_their_gold_answer(records, pool):
    """At least 99 % of solutions are correct against their gold answer; the other cases are known."""
    checks = list(pool.check((row["answer"], row["solution"]) for row in records))
    failures = [(row["answer"], check) for row, check in zip(records, checks, strict=True) if check.status != "correct"]
    assert len(failures) <= len(records) / 100
    assert all(check.detail for _, check in failures if check.status == "unparsable")
    for gold, check in failures:  # the gold column lost a part of the answer: `\text`, degrees
        assert check.status == "unparsable" or set(gold) - set("{}, ") <= set(check.answer), (gold, check)


def test_workers_that_no_process_forks_give_the_same_checks_and_end_at_the_limit(monkeypatch):
    """As on macOS and Windows: known answers are judged, a pair that hangs is ended, and the next one has a verdict."""
    pairs = [
        ("0.5", r"\boxed{\frac{1}{2}}"),
        hanging(HANGS[1]),
        (r"\sqrt2", r"\boxed{2/\sqrt2}"),
        (r"\frac{", r"\boxed{1}"),
    ]
    monkeypatch.setattr(verifier, "_FORKS", False)
    with Verifier(1, seconds=2) as alone:
        checks = list(alone.check(pairs))
    assert [check.status for check in checks] == ["correct", "unparsable", "correct", "no-gold"]
    assert checks[1].detail == "took longer than 2 s"
