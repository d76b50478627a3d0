"""Seed tasks: the identity, a table, a model; outputs are always those of the sandbox."""

import json
import random

import pytest

from proofmill.selfplay_tasks import requests
from proofmill.selfplay_tasks.proposals import Proposal
from proofmill.selfplay_tasks.seeding import PATIENCE, SeedSizes, from_model, from_rows, identity
from proofmill.selfplay_tasks.tasks import TASKS, Invalid, Task
from proofmill.selfplay_tasks.validity import valid


@pytest.mark.parametrize("kind", TASKS)
def test_identity_is_a_valid_task(executor, kind):
    """Its values are those that the sandbox computes."""
    task = identity(kind)
    proposal = Proposal(kind, task.program, task.inputs or (task.input,), task.message)
    assert valid([proposal], executor) == [task]


def test_identity_of_an_induction_has_the_requested_pairs():
    """Ten pairs by default, six if requested."""
    assert (len(identity("induce").inputs), len(identity("induce", 6).outputs)) == (10, 6)


def test_rows_are_executed(executor):
    """Recorded outputs are ignored, and an invalid row has a reason."""
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
    tasks = from_rows(rows, ["deduce", "abduce", "induce"], executor)
    program = "def f(a):\n    return a * 3"
    assert tasks[:2] == [Task(kind, program, "'ab'", "'ababab'") for kind in ("deduce", "abduce")]
    assert [each.reason for each in tasks[2:4]] == ["raised", "raised"]
    assert tasks[4] == Task("induce", "def f(a):\n    return -a", inputs=("1", "2"), outputs=("-1", "-2"), message="m")
    assert tasks[5:] == [Invalid("no-function"), Invalid("no-input")]
    assert from_rows(rows[:1], ["induce"], executor) == []


class Model:
    """Writes numbered programs in the form of its prompt; every third reply is nonsense."""

    def __init__(self, repeat=False):
        self.prompts, self.repeat = [], repeat

    def __call__(self, conversations):
        return [self.reply(messages[-1]["content"]) for messages in conversations]

    def reply(self, prompt):
        self.prompts.append(prompt)
        number = 1 if self.repeat else len(self.prompts)
        if number % 3 == 0:
            return "I would rather not."
        if prompt.startswith("propose induce"):
            return "\n".join(f"f({n})" for n in range(number, number + 4))
        return f'def f(a):\n    """Number {number}."""\n    return a * {number}  # times\nf({number})'


WORDS = requests.wording("tasks-terse")


def seeded(model, executor, kinds, **more):
    """Return the seeds of a model."""
    sizes = SeedSizes(**{"target": 12, "batch": 4, "inputs": 4, **more})
    return from_model(model, executor=executor, kinds=kinds, words=WORDS, rng=random.Random(0), sizes=sizes)


def test_model_fills_all_buffers_from_the_identity(executor):
    """A proposal with one input gives a deduction and an abduction; inductions use its programs."""
    model = Model()
    seeds = seeded(model, executor, ["deduce", "abduce", "induce"])
    assert {kind: len(tasks) for kind, tasks in seeds.tasks.items()} == {"deduce": 12, "abduce": 12, "induce": 12}
    assert [tasks[0] for tasks in seeds.tasks.values()] == [identity(kind, 4) for kind in seeds.tasks]
    assert [task.program for task in seeds.tasks["deduce"]] == [task.program for task in seeds.tasks["abduce"]]
    assert all("#" not in task.program and '"""' not in task.program for task in seeds.tasks["deduce"])
    assert all(task.step == 0 for tasks in seeds.tasks.values() for task in tasks)
    assert {prompt.split("\n")[0] for prompt in model.prompts} == {"propose deduce", "propose abduce", "propose induce"}
    assert {task.program for task in seeds.tasks["induce"]} <= {task.program for task in seeds.tasks["deduce"]}


def test_error_seeds_have_the_exception_s_name(executor):
    """The output is `NoError` for a program that raises nothing."""
    seeds = seeded(Model(), executor, ["deduce", "error"], target=6)
    assert {task.output for task in seeds.tasks["error"]} == {"NoError"}
    assert all(task.output.startswith(("'", "1", "4", "9", "16", "25", "36", "49")) for task in seeds.tasks["deduce"])


def test_induction_alone_is_about_the_identity(executor):
    """Without other kinds the identity is the only program."""
    seeds = seeded(Model(), executor, ["induce"], target=5)
    assert {task.program for task in seeds.tasks["induce"]} == {identity("deduce").program}


def test_sampling_from_a_model_that_repeats_itself_ends(executor):
    """Sampling ends after PATIENCE rounds that add no task."""
    model = Model(repeat=True)
    seeds = seeded(model, executor, ["deduce"], batch=1)
    assert len(seeds.tasks["deduce"]) == 2 and len(model.prompts) == 1 + PATIENCE


def test_seeds_are_reproducible(executor):
    """The same model and the same seed give the same tasks."""
    first, second = (seeded(Model(), executor, ["deduce", "induce"]) for _ in range(2))
    assert first.tasks == second.tasks


def test_published_seeds_are_valid(executor, data):
    """All but the listed ones of 64 seeds are valid, and give the recorded outputs."""
    rows = [json.loads(line) for line in (data / "azr/seed_io_64.jsonl").read_text().splitlines()]
    tasks = from_rows(rows, ["deduce"], executor)
    assert [each.reason for each in tasks if isinstance(each, Invalid)] == ["refused", "bad-input", "refused"]
    same = [row["output"] == each.output for row, each in zip(rows, tasks, strict=True) if isinstance(each, Task)]
    assert (len(same), sum(same)) == (61, 58)  # one has other quotes, two are truncated there
    rows = [json.loads(line) for line in (data / "azr/seed_code_f_64.jsonl").read_text().splitlines()]
    reasons = [each.reason for each in from_rows(rows, ["induce"], executor) if isinstance(each, Invalid)]
    assert sorted(reasons) == ["refused"] * 3 + ["tells", "too-long"] + ["unshowable"] * 2
