"""Dialogues: generators that ask in steps, are replayed from the journal, nest, and carry many calls of several models."""

from collections import Counter
from dataclasses import dataclass

import pytest

from proofmill.calls import dialogues
from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker, Spent
from proofmill.calls.dialogues import Ask, Dialogues, last_of, one_answer, together, until_read
from proofmill.calls.exchange import Answer, Question
from proofmill.calls.journal import Journal
from proofmill.schema.reasons import Reason


class Echo:
    """An engine that answers with the question and a word of its own; `dies_after` so many answers it is killed."""

    price = {"input": 0.0, "output": 0.0}  # noqa: RUF012
    max_parked = 0.0

    def __init__(self, model, dies_after=10**9):
        self.model, self.dies_after, self.asked = model, dies_after, []

    def batches(self, questions):
        yield questions

    def answer(self, questions, asking):
        for question in questions:
            if len(self.asked) == self.dies_after:
                raise KeyboardInterrupt
            self.asked.append(question.messages[-1][1])
            asking.take(question, Answer(f"{self.model}({question.messages[-1][1]})", "end", tokens=1, cost=0.5))

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
        return Dialogues(askers, {"upper": lambda texts: [text.upper() for text in texts]})

    def __exit__(self, *error):
        self.journal.__exit__(*error)

    @property
    def asked(self):
        return [text for engine in self.engines.values() for text in engine.asked]


def ask(model, text, sample=0):
    return Ask(model, Question(model, (("user", text),), sample=sample))


def chain(models, steps, text):
    """One call after another, each about the answer before it, by the models in turn."""
    for step in range(steps):
        (answer,) = yield [ask(models[step % len(models)], f"{step}:{text}")]
        text = answer.text
    return text


@pytest.fixture(params=["in memory", "replayed"])
def either(request, monkeypatch):
    """Both ways of carrying on: few dialogues stay in memory, many are replayed in windows."""
    if request.param == "replayed":
        monkeypatch.setattr(dialogues, "WINDOW", 3)


def test_sixty_calls_of_three_models_go_on_to_the_end(tmp_path, either):
    """Each dialogue gets its own answers, however many steps it takes and whoever is asked; nothing is asked twice."""
    desk = Desk(tmp_path / "calls", {name: Echo(name) for name in "abc"})
    with desk as running:
        results = list(
            running.results(lambda: ((f"row {n}", chain("abc", 60, f"start {n}")) for n in range(7)), quiet=True)
        )
    assert len(desk.asked) == 7 * 60 and max(Counter(desk.asked).values()) == 1
    alone = Desk(tmp_path / "alone", {name: Echo(name) for name in "abc"})
    with alone as running:
        one_by_one = [
            result
            for n in range(7)
            for result in running.results(lambda n=n: [(f"row {n}", chain("abc", 60, f"start {n}"))], quiet=True)
        ]
    assert results == one_by_one


def test_rounds_and_models_are_told_apart_in_the_log(tmp_path, capsys):
    """No two lines about finished calls say the same: each names its round, and its model if there are several."""
    with Desk(tmp_path / "calls", {name: Echo(name) for name in "ab"}) as running:
        list(running.results(lambda: ((f"row {n}", chain("ab", 4, f"start {n}")) for n in range(7))))
    said = [line.partition("(")[0].strip() for line in capsys.readouterr().err.splitlines()]
    assert said == [
        "x  7 of 7 calls of a",
        "x  7 of 7 calls of b in round 2",
        "x  7 of 7 calls of a in round 3",
        "x  7 of 7 calls of b in round 4",
    ]


@pytest.mark.parametrize("dies_after", [0, 1, 5, 13, 19])
def test_killed_dialogues_go_on_from_the_journal(tmp_path, either, dies_after):
    """After a kill at any call the same results come, and what was answered is not asked again."""

    def begin():
        return ((f"row {n}", chain("a", 4, f"start {n}")) for n in range(5))

    whole = Desk(tmp_path / "whole", {"a": Echo("a")})
    with whole as running:
        expected = list(running.results(begin, quiet=True))
    first = Desk(tmp_path / "calls", {"a": Echo("a", dies_after)})
    with pytest.raises(KeyboardInterrupt), first as running:
        list(running.results(begin, quiet=True))
    second = Desk(tmp_path / "calls", {"a": Echo("a")})
    with second as running:
        assert list(running.results(begin, quiet=True)) == expected
    assert sorted(first.asked + second.asked) == sorted(whole.asked)


def test_dialogues_side_by_side_inside_one_are_as_apart(tmp_path, either):
    """`together` gives the results in order though they take different numbers of steps; nested ones too."""

    def pair(n):
        short, nested = yield from together([chain("a", 1, f"s{n}"), both(n)])
        return short, nested

    def both(n):
        return (yield from together([chain("b", 3, f"t{n}"), chain("a", 2, f"u{n}")]))

    desk = Desk(tmp_path / "calls", {"a": Echo("a"), "b": Echo("b")})
    with desk as running:
        results = list(running.results(lambda: ((str(n), pair(n)) for n in range(5)), quiet=True))
    with Desk(tmp_path / "alone", {"a": Echo("a"), "b": Echo("b")}) as running:
        for n, (short, (three, two)) in enumerate(results):
            alone = [("s", chain("a", 1, f"s{n}")), ("t", chain("b", 3, f"t{n}")), ("u", chain("a", 2, f"u{n}"))]
            assert [short, three, two] == list(running.results(lambda alone=alone: iter(alone), quiet=True))


def test_program_answers_beside_models(tmp_path, either):
    """What no model is asked is answered by a program in the same step, and the dialogue sees no difference."""

    def mixed(text):
        said, loud = yield [ask("a", text), Ask("upper", text)]
        (again,) = yield [Ask("upper", said.text)]
        return loud, again

    with Desk(tmp_path / "calls", {"a": Echo("a")}) as running:
        results = list(running.results(lambda: ((t, mixed(t)) for t in ("x", "y", "x", "z")), quiet=True))
    assert results == [("X", "A(X)"), ("Y", "A(Y)"), ("X", "A(X)"), ("Z", "A(Z)")]


def test_dialogue_that_asks_nothing_has_its_result(tmp_path, either):
    """One that ends at once, and one that runs no step of `together`, cost no call."""

    def silent(n):
        results = yield from together([])
        return n, results

    desk = Desk(tmp_path / "calls", {"a": Echo("a")})
    with desk as running:
        assert list(running.results(lambda: ((str(n), silent(n)) for n in range(5)))) == [(n, []) for n in range(5)]
        assert list(running.results(lambda: ())) == []
    assert desk.asked == []


def test_same_again_until_it_can_be_read(tmp_path):
    """Each turn is another sample, no more than `requeries` are asked, and all are paid for."""
    desk = Desk(tmp_path / "calls", {"a": Echo("a")})
    question = Question("a", (("user", "q"),))
    with desk as running:
        (kept,) = running.results(lambda: [("r", one_answer("a", question, lambda answer: True, 2))], quiet=True)
        (answers,) = running.results(
            lambda: [("r", until_read(lambda turn: ask("a", "w", turn), lambda answer: False, 5))], quiet=True
        )
    assert (kept.cost, kept.tokens, len(desk.asked)) == (1.5, 3, 4)
    assert len(answers) == 1 and last_of(answers) == answers[0]


def test_unknown_cost_of_one_makes_the_sum_unknown():
    """The last answer has the tokens of all, and no cost when one has none."""
    summed = last_of([Answer("a", "end", tokens=2, cost=None), Answer("b", "end", tokens=3, cost=1.0)])
    assert (summed.text, summed.tokens, summed.cost) == ("b", 5, None)


def test_failure_after_a_paid_answer_costs_what_was_paid():
    """A requery that fails without a known cost neither loses nor hides what the first answer cost."""
    failed = last_of([Answer("unreadable", "end", cost=0.25), Answer("", "error", Reason.PROVIDER)])
    spent = Spent()
    assert list(spent.counted([failed])) == [failed]
    assert (failed.stop, failed.cost, spent.cost, spent.failures) == ("error", 0.25, 0.25, 1)


def test_first_questions_need_no_engine():
    """What is asked to begin with is known by model before anything is open, in the order of the rows."""
    first = Dialogues.first_questions(lambda: ((f"row {n}", chain("ab"[n % 2], 2, f"s{n}")) for n in range(5)))
    assert {model: len(questions) for model, questions in first.items()} == {"a": 3, "b": 2}
    assert [row for row, _ in first["a"].named()] == ["row 0", "row 2", "row 4"]
    assert Dialogues.first_questions(lambda: ()) == {}


@pytest.mark.parametrize("temperature", [0, 0.0, None, 0.6])
def test_question_that_is_asked_again_differs(temperature):
    """A greedy model is asked again at another temperature; where it samples, with another sample; the first stays."""
    first = Question("m", (("user", "q"),), temperature=temperature)
    dialogue = one_answer("m", first, lambda answer: not answer.text, requeries=2)
    asked = [next(dialogue)[0].what]
    asked += [dialogue.send([Answer("", "end")])[0].what for _ in range(2)]
    assert asked[0].key == first.key
    assert [question.temperature for question in asked[1:]] == [temperature or (0.7 if temperature == 0 else None)] * 2
    assert len({(question.row_seed, question.temperature) for question in asked}) == 3
