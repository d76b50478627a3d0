"""Seeding: the identity, a table, a model; always what the sandbox says."""

import json
import random

import pytest

from proofmill.tasks import asking
from proofmill.tasks.proposals import Proposal
from proofmill.tasks.seeding import PATIENCE, from_model, from_rows, identity
from proofmill.tasks.tasks import TASKS, Invalid, Task
from proofmill.tasks.validity import valid


@pytest.mark.parametrize("kind", TASKS)
def test_identity_is_a_valid_task(executor, kind):
    """What all begins with is right by the sandbox's own values."""
    task = identity(kind)
    proposal = Proposal(kind, task.program, task.inputs or (task.input,), task.message)
    assert valid([proposal], executor) == [task]


def test_identity_of_an_induction_has_as_many_pairs_as_are_asked_for():
    """Ten as published, six for a small model."""
    assert (len(identity("induce").inputs), len(identity("induce", 6).outputs)) == (10, 6)


def test_rows_are_executed_again(executor):
    """Recorded outputs, which may be cut, are not read; a row that is no task says why."""
    rows = [
        {"program": "def f(a):\n    return a * 3", "input": "'ab'", "output": "'aba...'"},
        {"snippet": "def g(a):\n    return a[0]", "input": "[]", "output": "None"},
        {
            "kind": "induce",
            "program": "def f(a):\n    return -a",
            "inputs": ["1", "2"],
            "outputs": ["1", "2"],
            "message": "m",
        },
        {"program": "x = 1", "input": "1"},
        {"program": "def f(a):\n    return a"},
    ]
    found = from_rows(rows, ["deduce", "abduce", "induce"], executor)
    program = "def f(a):\n    return a * 3"
    assert found[:2] == [Task(kind, program, "'ab'", "'ababab'") for kind in ("deduce", "abduce")]
    assert [each.reason for each in found[2:4]] == ["raised", "raised"]
    assert found[4] == Task("induce", "def f(a):\n    return -a", inputs=("1", "2"), outputs=("-1", "-2"), message="m")
    assert found[5:] == [Invalid("no-function"), Invalid("no-input")]
    assert from_rows(rows[:1], ["induce"], executor) == []


class Model:
    """Writes programs in the form that its prompt shows, each with a number; every third reply is nonsense."""

    def __init__(self, repeat=False):
        self.asked, self.repeat = [], repeat

    def __call__(self, conversations):
        return [self.reply(messages[-1]["content"]) for messages in conversations]

    def reply(self, prompt):
        self.asked.append(prompt)
        number = 1 if self.repeat else len(self.asked)
        if number % 3 == 0:
            return "I would rather not."
        if prompt.startswith("propose induce"):
            return "\n".join(f"f({n})" for n in range(number, number + 4))
        return f'def f(a):\n    """Number {number}."""\n    return a * {number}  # times\nf({number})'


WORDS = asking.wording("tasks-terse")


def seeded(model, executor, kinds, **more):
    """What a model's seeds are."""
    return from_model(
        model, kinds, executor, WORDS, random.Random(0), **{"target": 12, "batch": 4, "inputs": 4, **more}
    )


def test_model_fills_all_buffers_from_the_identity(executor):
    """One proposal with one input serves deduction and abduction; inductions are about its programs."""
    model = Model()
    seeds = seeded(model, executor, ["deduce", "abduce", "induce"])
    assert {kind: len(tasks) for kind, tasks in seeds.tasks.items()} == {"deduce": 12, "abduce": 12, "induce": 12}
    assert [tasks[0] for tasks in seeds.tasks.values()] == [identity(kind, 4) for kind in seeds.tasks]
    assert [task.program for task in seeds.tasks["deduce"]] == [task.program for task in seeds.tasks["abduce"]]
    assert all("#" not in task.program and '"""' not in task.program for task in seeds.tasks["deduce"])
    assert all(task.step == 0 for tasks in seeds.tasks.values() for task in tasks)
    assert {prompt.split("\n")[0] for prompt in model.asked} == {"propose deduce", "propose abduce", "propose induce"}
    assert {task.program for task in seeds.tasks["induce"]} <= {task.program for task in seeds.tasks["deduce"]}


def test_error_seeds_have_the_exception_s_name(executor):
    """A program that ends well raises none, whatever it returns."""
    seeds = seeded(Model(), executor, ["deduce", "error"], target=6)
    assert {task.output for task in seeds.tasks["error"]} == {"NoError"}
    assert all(task.output.startswith(("'", "1", "4", "9", "16", "25", "36", "49")) for task in seeds.tasks["deduce"])


def test_induction_alone_is_about_the_identity(executor):
    """Without other kinds there is no other program."""
    seeds = seeded(Model(), executor, ["induce"], target=5)
    assert {task.program for task in seeds.tasks["induce"]} == {identity("deduce").program}


def test_model_that_repeats_itself_is_given_up(executor):
    """After rounds that add nothing, what there is must do."""
    model = Model(repeat=True)
    seeds = seeded(model, executor, ["deduce"], batch=1)
    assert len(seeds.tasks["deduce"]) == 2 and len(model.asked) == 1 + PATIENCE


def test_seeds_are_those_of_their_draws(executor):
    """The same model and the same seed give the same tasks."""
    first, second = (seeded(Model(), executor, ["deduce", "induce"]) for _ in range(2))
    assert first.tasks == second.tasks


def test_published_seeds_are_read(executor, data):
    """Of 64 seeds with one input, all but those listed give the recorded output; so do those of inductions."""
    rows = [json.loads(line) for line in (data / "azr/seed_io_64.jsonl").read_text().splitlines()]
    found = from_rows(rows, ["deduce"], executor)
    assert [each.reason for each in found if isinstance(each, Invalid)] == ["refused", "bad-input", "refused"]
    same = [row["output"] == each.output for row, each in zip(rows, found, strict=True) if isinstance(each, Task)]
    assert (len(same), sum(same)) == (61, 58)  # one in other quotes, two that were cut there
    rows = [json.loads(line) for line in (data / "azr/seed_code_f_64.jsonl").read_text().splitlines()]
    reasons = [each.reason for each in from_rows(rows, ["induce"], executor) if isinstance(each, Invalid)]
    assert sorted(reasons) == ["refused"] * 3 + ["tells", "too-long"] + ["unshowable"] * 2
