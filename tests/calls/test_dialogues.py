"""Dialogues: generators that make calls in steps, are replayed from the journal, nest, and call several models."""

from collections import Counter
from dataclasses import dataclass

import pytest

from proofmill.calls import runner
from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker, Spent
from proofmill.calls.dialogues import Ask, first_requests, last_of, one_answer, together, until_read
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelOutput, ModelRequest
from proofmill.schema.reasons import Reason


class Echo:
    """An engine that outputs its name and the request; it is killed after `dies_after` outputs."""

    price = {"input": 0.0, "output": 0.0}  # noqa: RUF012
    max_failed = 0.0
    flows = False
    pace = None

    def __init__(self, model, dies_after=10**9):
        self.model, self.dies_after, self.asked, self.batches_asked = model, dies_after, [], []

    def batches(self, requests):
        if requests := list(requests):
            self.batches_asked.append(len(requests))
            yield requests

    def answer(self, requests, asking):
        for question in requests:
            if len(self.asked) == self.dies_after:
                raise KeyboardInterrupt
            self.asked.append(question.messages[-1][1])
            asking.take(question, ModelOutput(f"{self.model}({question.messages[-1][1]})", "end", tokens=1, cost=0.5))

    def read(self, answer):
        return answer


@dataclass
class Desk:
    """Engines by name over one journal."""

    folder: object
    engines: dict

    def __enter__(self):
        self.journal = Journal(self.folder).__enter__()
        askers = {
            name: Asker("x", engine, self.journal, Budget(None, self.folder, self.journal))
            for name, engine in self.engines.items()
        }
        programs = {"upper": lambda texts: [text.upper() for text in texts]}
        return lambda begin, quiet=True: runner.results(begin, askers, "rows", programs, quiet=quiet)

    def __exit__(self, *error):
        self.journal.__exit__(*error)

    @property
    def asked(self):
        return [text for engine in self.engines.values() for text in engine.asked]


def ask(model, text, sample=0):
    return Ask(model, ModelRequest(model, (("user", text),), sample=sample))


def chain(models, steps, text):
    """Make sequential calls, each about the previous output, to the models in turn."""
    for step in range(steps):
        (answer,) = yield [ask(models[step % len(models)], f"{step}:{text}")]
        text = answer.text
    return text


@pytest.fixture(params=["all open", "few open"])
def either(request, monkeypatch):
    """Run a test with all dialogues open at a time, and with a few."""
    if request.param == "few open":
        monkeypatch.setattr(runner, "OPEN", 1)
        monkeypatch.setattr(runner, "BLOCK", 2)


def test_sixty_calls_of_three_models_go_on_to_the_end(tmp_path, either):
    """Each dialogue gets its own outputs, whatever its steps and models; no call is made twice."""
    desk = Desk(tmp_path / "calls", {name: Echo(name) for name in "abc"})
    with desk as running:
        results = list(running(lambda: ((f"row {n}", chain("abc", 60, f"start {n}")) for n in range(7))))
    assert len(desk.asked) == 7 * 60 and max(Counter(desk.asked).values()) == 1
    alone = Desk(tmp_path / "alone", {name: Echo(name) for name in "abc"})
    with alone as running:
        one_by_one = [
            result for n in range(7) for result in running(lambda n=n: [(f"row {n}", chain("abc", 60, f"start {n}"))])
        ]
    assert results == one_by_one


def test_batches_hold_all_that_is_queued(tmp_path):
    """An engine in this process gets the same requests together as if all dialogues advanced in lock-step."""
    desk = Desk(tmp_path / "calls", {"a": Echo("a")})
    with desk as running:
        list(running(lambda: ((f"row {n}", chain("a", 3, f"start {n}")) for n in range(100))))
    assert [text[0] for text in desk.asked] == ["0"] * 100 + ["1"] * 100 + ["2"] * 100
    assert desk.engines["a"].batches_asked == [100, 100, 100]


@pytest.mark.parametrize("dies_after", [0, 1, 5, 13, 19])
def test_killed_dialogues_go_on_from_the_journal(tmp_path, either, dies_after):
    """After a kill at any call the results are the same, and completed calls are not repeated."""

    def begin():
        return ((f"row {n}", chain("a", 4, f"start {n}")) for n in range(5))

    whole = Desk(tmp_path / "whole", {"a": Echo("a")})
    with whole as running:
        expected = list(running(begin))
    first = Desk(tmp_path / "calls", {"a": Echo("a", dies_after)})
    with pytest.raises(KeyboardInterrupt), first as running:
        list(running(begin))
    second = Desk(tmp_path / "calls", {"a": Echo("a")})
    with second as running:
        assert list(running(begin)) == expected
    assert sorted(first.asked + second.asked) == sorted(whole.asked)


def test_dialogues_side_by_side_inside_one_are_as_apart(tmp_path, either):
    """`together` returns results in order although they take different numbers of steps, also if nested."""

    def pair(n):
        short, nested = yield from together([chain("a", 1, f"s{n}"), both(n)])
        return short, nested

    def both(n):
        return (yield from together([chain("b", 3, f"t{n}"), chain("a", 2, f"u{n}")]))

    desk = Desk(tmp_path / "calls", {"a": Echo("a"), "b": Echo("b")})
    with desk as running:
        results = list(running(lambda: ((str(n), pair(n)) for n in range(5))))
    with Desk(tmp_path / "alone", {"a": Echo("a"), "b": Echo("b")}) as running:
        for n, (short, (three, two)) in enumerate(results):
            alone = [("s", chain("a", 1, f"s{n}")), ("t", chain("b", 3, f"t{n}")), ("u", chain("a", 2, f"u{n}"))]
            assert [short, three, two] == list(running(lambda alone=alone: iter(alone)))


def test_programs_and_models_answer_concurrently(tmp_path, either):
    """A program answers in the same step as models, and the dialogue sees no difference."""

    def mixed(text):
        said, loud = yield [ask("a", text), Ask("upper", text)]
        (again,) = yield [Ask("upper", said.text)]
        return loud, again

    with Desk(tmp_path / "calls", {"a": Echo("a")}) as running:
        results = list(running(lambda: ((t, mixed(t)) for t in ("x", "y", "x", "z"))))
    assert results == [("X", "A(X)"), ("Y", "A(Y)"), ("X", "A(X)"), ("Z", "A(Z)")]


def test_dialogue_that_asks_nothing_has_its_result(tmp_path, either):
    """One that ends at once, and one that runs no step of `together`, cost no call."""

    def silent(n):
        results = yield from together([])
        return n, results

    desk = Desk(tmp_path / "calls", {"a": Echo("a")})
    with desk as running:
        assert list(running(lambda: ((str(n), silent(n)) for n in range(5)))) == [(n, []) for n in range(5)]
        assert list(running(lambda: ())) == []
    assert desk.asked == []


def test_same_again_until_it_can_be_read(tmp_path):
    """Each turn is another sample, at most `parse_retries` retries are made, and all calls are paid for."""
    desk = Desk(tmp_path / "calls", {"a": Echo("a")})
    question = ModelRequest("a", (("user", "q"),))
    with desk as running:
        (kept,) = running(lambda: [("r", one_answer("a", question, lambda answer: True, 2))])
        (answers,) = running(lambda: [("r", until_read(lambda turn: ask("a", "w", turn), lambda answer: False, 5))])
    assert (kept.cost, kept.tokens, len(desk.asked)) == (1.5, 3, 4)
    assert len(answers) == 1 and last_of(answers) == answers[0]


def test_unknown_cost_of_one_makes_the_sum_unknown():
    """The last output has the tokens of all, and no cost if one has none."""
    summed = last_of([ModelOutput("a", "end", tokens=2, cost=None), ModelOutput("b", "end", tokens=3, cost=1.0)])
    assert (summed.text, summed.tokens, summed.cost) == ("b", 5, None)


def test_failure_after_a_paid_answer_costs_what_was_paid():
    """A parse retry that fails without a known cost keeps the cost of the first output."""
    failed = last_of([ModelOutput("unreadable", "end", cost=0.25), ModelOutput("", "error", Reason.PROVIDER)])
    spent = Spent()
    assert list(spent.count([failed])) == [failed]
    assert (failed.stop_reason, failed.cost, spent.cost, spent.failures) == ("error", 0.25, 0.25, 1)


def test_first_questions_need_no_engine():
    """The first requests are known by model before any engine is open, in the order of the rows."""
    first = first_requests(lambda: ((f"row {n}", chain("ab"[n % 2], 2, f"s{n}")) for n in range(5)))
    assert {model: len(requests) for model, requests in first.items()} == {"a": 3, "b": 2}
    assert [row for row, _ in first["a"].with_rows()] == ["row 0", "row 2", "row 4"]
    assert first_requests(lambda: ()) == {}


@pytest.mark.parametrize("temperature", [0, 0.0, None, 0.6])
def test_repeated_request_differs(temperature):
    """A retry of a greedy model has another temperature, and of a sampling model another sample index."""
    first = ModelRequest("m", (("user", "q"),), temperature=temperature)
    dialogue = one_answer("m", first, lambda answer: not answer.text, parse_retries=2)
    asked = [next(dialogue)[0].what]
    asked += [dialogue.send([ModelOutput("", "end")])[0].what for _ in range(2)]
    assert asked[0].key == first.key
    assert [question.temperature for question in asked[1:]] == [temperature or (0.7 if temperature == 0 else None)] * 2
    assert len({(question.row_seed, question.temperature) for question in asked}) == 3
