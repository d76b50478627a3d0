"""A round of self-play: requests, proposals, rewards, and resuming."""

import math
from collections.abc import Callable, Sequence

import pytest

from proofmill.schema.entries.selfplay_entry import Selfplay
from proofmill.selfplay_tasks import round
from proofmill.selfplay_tasks.round import Messages, PolicyReply, SelfplayRound, metrics
from proofmill.selfplay_tasks.tasks import REASONS, Invalid, Task

FIRST = [
    {"kind": "deduce", "program": "def f(a):\n return a + 1", "input": "1"},
    {"kind": "deduce", "program": "def f(a):\n return a * 2", "input": "3"},
    {"kind": "induce", "program": "def f(a):\n return a - 1", "inputs": ["1", "2", "3", "4"], "message": ""},
]


def replied(answer: str) -> str:
    return f"<think>?</think>\n<answer>{answer}</answer>"


def asked_for(messages: Messages) -> str:
    """Return the first line of a terse prompt, which names the task."""
    return messages[0]["content"].splitlines()[0]


class Player:
    """Answers each prompt by its first line, and keeps the prompts."""

    def __init__(self, answers: dict[str, Callable[[int], str] | str]):
        self.answers, self.prompts, self.counts = answers, [], {}

    def __call__(self, prompts: Sequence[Messages]) -> list[PolicyReply]:
        return [self.reply(messages) for messages in prompts]

    def reply(self, messages: Messages) -> PolicyReply:
        task = asked_for(messages)
        self.prompts.append(messages[0]["content"])
        count = self.counts[task] = self.counts.get(task, -1) + 1
        answer = self.answers.get(task, "no")
        return PolicyReply(answer(count) if callable(answer) else answer, ids=[1])


PROPOSED = replied("def f(a):\n return a + 5\nf(7)")
GOOD = {
    "propose deduce": PROPOSED, "propose abduce": PROPOSED, "propose induce": replied("f(5)\nf(6)\nf(7)\nf(8)"),
    "deduce": replied("12"), "abduce": replied("7"), "induce": replied("def f(a):\n return a - 1"),
}  # fmt: skip


@pytest.fixture
def game(executor):
    """Return a function that builds the self-play of an entry with changed fields, with its seed tasks."""

    def made(**changed) -> SelfplayRound:
        values = {"prompt_set": "tasks-terse", "batch_size": 2, "attempts": 4, "inputs": 4, "references": 2, **changed}
        ready = SelfplayRound(Selfplay(model="base/x", steps=1, **values), executor, lambda messages: True)
        ready.begin(Player({}), FIRST)
        return ready

    return made


def of(turns: Sequence[round.Turn], kind: str, role: str) -> list[round.Turn]:
    return [turn for turn in turns if (turn.kind, turn.role) == (kind, role)]


def test_seed_tasks_of_a_table_are_executed(game):
    """A program with one input is a task of each kind with one input; its output is computed here."""
    made = game()
    assert {kind: len(tasks) for kind, tasks in made.buffers.tasks.items()} == {"abduce": 2, "deduce": 2, "induce": 1}
    assert [task.output for task in made.buffers.tasks["deduce"]] == ["2", "6"]
    assert made.buffers.tasks["induce"][0].outputs == ("0", "1", "2", "3")


def test_round_asks_each_task_in_each_role(game):
    """A round has a batch of proposals and one of solutions per task; turns are ordered by task, proposals first."""
    turns = game().step(1, Player(GOOD))
    assert [(turn.kind, turn.role) for turn in turns] == [
        (kind, role) for kind in ("abduce", "deduce", "induce") for role in ("propose", "solve") for _ in range(2)
    ]


def test_attempts_decide_the_worth_of_a_proposal(game):
    """Three correct attempts of four earn 1 - 3/4, all or none -0.5; an invalid proposal earns -1 without attempts."""
    right_but_once = Player({**GOOD, "deduce": lambda count: replied("0" if count % 4 == 0 else "12")})
    worth = {
        "some": of(game(tasks=["deduce"]).step(1, right_but_once), "deduce", "propose"),
        "all": of(game(tasks=["deduce"]).step(1, Player(GOOD)), "deduce", "propose"),
        "none": of(game(tasks=["deduce"]).step(1, Player({**GOOD, "deduce": "no"})), "deduce", "propose"),
    }
    assert [turn.accuracy for turn in worth["some"]] == [0.75, 0.75] or [t.accuracy for t in worth["some"]] == [
        0.5,
        0.75,
    ]
    for turn in worth["some"]:
        assert turn.reward == 1 - turn.accuracy
    assert [turn.reward for turn in worth["all"]] == [-0.5, -0.5]
    assert [turn.reward for turn in worth["none"]] == [-0.5, -0.5]
    player = Player({**GOOD, "propose deduce": replied("def f(a):\n return a / 0\nf(7)")})
    refused = of(game(tasks=["deduce"]).step(1, player), "deduce", "propose")
    assert [(turn.task.reason, turn.reward, turn.grades) for turn in refused] == [("raised", -1.0, [])] * 2
    assert player.counts["deduce"] == 1  # the two solutions of the round


def test_both_roles_need_the_form(game):
    """A reply without tags earns -1, even if it is correct."""
    bare = {"propose deduce": "def f(a):\n return a + 5\nf(7)", "deduce": "2"}
    turns = game(tasks=["deduce"]).step(1, Player(bare))
    assert [turn.reward for turn in turns] == [-1.0] * 4
    assert {turn.formed for turn in turns} == {False}


@pytest.mark.parametrize(
    ("kind", "answer", "reward"),
    [
        ("induce", "It is one less.", -1.0),
        ("induce", "```output\n0\n```", -1.0),
        ("induce", "```python\nno program\n```", -0.5),
        ("deduce", "I do not know.", -0.5),
        ("abduce", "I do not know.", -0.5),
    ],
)
def test_induction_without_a_program_is_malformed(game, kind, answer, reward):
    """It earns -1, a block that is not a program -0.5; any text in the tags is an answer to the other tasks."""
    turns = of(game().step(1, Player({kind: replied(answer)})), kind, "solve")
    assert [(turn.reward, turn.formed, turn.accuracy) for turn in turns] == [(reward, reward > -1, 0.0)] * 2


def test_several_functions_are_allowed_and_the_last_is_the_entry(game):
    """Seeds of the model and proposals follow the fields of the entry."""
    two = "def h(a):\n return a * 3\ndef g(a):\n return h(a) + 5"
    player = Player({**GOOD, "propose deduce": replied(f"{two}\nf(7)")})
    for changed, output in (({"entry_function": "f-or-last"}, "26"), ({}, "21")):
        made = game(tasks=["deduce"], max_seed_tasks=2, **changed)
        made.begin(player)
        seed = made.buffers.tasks["deduce"][-1]
        tasks = [turn.task for turn in of(made.step(1, player), "deduce", "propose")]
        assert [task.output for task in (seed, *tasks)] == [output] * 3
    made = game(tasks=["deduce"], max_seed_tasks=2, one_function=True)
    made.begin(player)
    assert [turn.task.reason for turn in of(made.step(1, player), "deduce", "propose")] == ["many-functions"] * 2
    assert not any("def h" in task.program for task in made.buffers.tasks["deduce"])


def test_valid_proposals_are_solved_in_the_next_step(game):
    """The next step draws them first; the step that proposed them does not use them."""
    made = game(tasks=["deduce"])
    first, second = (made.step(step, Player(GOOD)) for step in (1, 2))
    proposed = {turn.task.id for turn in of(first, "deduce", "propose")}
    assert not proposed & {turn.task.id for turn in of(first, "deduce", "solve")}
    assert proposed <= {turn.task.id for turn in of(second, "deduce", "solve")}
    assert [turn.is_new for turn in of(first, "deduce", "propose")] == [True, False]  # the same twice


def test_solutions_earn_by_execution(game):
    """A correct output, an input that gives the output, and a program for the hidden pairs earn 1, others -0.5."""
    made, program = game(), "def f(a):\n return a - 1"
    for kind, answer in (("deduce", "2"), ("deduce", "6"), ("abduce", "1"), ("abduce", "3"), ("induce", program)):
        turns = of(made.step(1, Player({kind: replied(answer)})), kind, "solve")
        assert sorted(turn.reward for turn in turns) == ([1.0, 1.0] if kind == "induce" else [-0.5, 1.0])
    wrong = of(made.step(1, Player({"induce": replied("def f(a):\n return 0")})), "induce", "solve")
    assert [turn.reward for turn in wrong] == [-0.5, -0.5]


@pytest.mark.parametrize(
    ("changed", "reward"),
    [
        ({"learnability": "none"}, 1.0),
        ({"learnability": "inverse", "wrong_reward": -0.25}, -0.25),
        ({"learnability": "none", "intrinsic_rewards": {"complexity": {"weight": 1.0}}}, 1.0),
        ({"learnability": "none", "intrinsic_rewards": {"edit-distance": {"weight": 1.0, "max": 0.001}}}, 1.001),
        (
            {"learnability": "none", "intrinsic_rewards": {"answer-diversity": {"weight": 1.0}}, "combine": "multiply"},
            0.5,
        ),
        ({"learnability": "none", "intrinsic_rewards": {"input-diversity": {"weight": 1.0}}}, 1.0),
    ],
)
def test_entry_sets_the_rewards_of_proposals(game, changed, reward):
    """Without learnability a valid task is worth 1; intrinsic rewards are weighted, bounded and combined with it."""
    turn = of(game(tasks=["deduce"], **changed).step(1, Player(GOOD)), "deduce", "propose")[0]
    assert turn.reward == pytest.approx(reward)


def test_tasks_of_a_frozen_proposer_are_not_attempted(game):
    """Its tasks enter the buffer; they are attempted only if the buffer admits tasks by their accuracy."""
    player = Player(GOOD)
    turns = game(tasks=["deduce"], proposer="frozen").step(1, player)
    assert player.counts == {"propose deduce": 1, "deduce": 1}
    proposed = of(turns, "deduce", "propose")
    assert [(turn.accuracy, turn.reward, turn.is_unscored) for turn in proposed] == [(None, None, False)] * 2
    player = Player(GOOD)
    made = game(tasks=["deduce"], proposer="frozen", buffer_admits="non-one")
    turns = made.step(1, player)
    assert player.counts["deduce"] == 1 + 8
    assert len(made.buffers.tasks["deduce"]) == 2  # all attempts solve the proposed tasks


def test_absent_proposer_gets_no_requests(game):
    """The solver gets the seed tasks repeatedly."""
    player = Player(GOOD)
    assert {turn.role for turn in game(proposer="absent").step(5, player)} == {"solve"}
    assert not any(task.startswith("propose") for task in player.counts)


def test_composite_must_call_the_given_functions(game):
    """A program that calls the given function is a task that contains it; one that does not is invalid."""
    changed = {"tasks": ["deduce"], "composite": {"probability": 1.0, "functions": 1}}
    refused = of(game(**changed).step(1, Player(GOOD)), "deduce", "propose")
    assert [turn.task.reason for turn in refused] == ["composite"] * 2
    calls = {**GOOD, "propose deduce": replied("def f(a):\n return g_0(a) + 5\nf(7)")}
    task = of(game(**changed).step(1, Player(calls)), "deduce", "propose")[0].task
    assert isinstance(task, Task) and task.program.startswith("def g_0") and task.own.startswith("def f")


def test_prompts_that_are_too_long_are_redrawn(executor):
    """References are shown while they fit, and tasks that do not fit are not drawn."""
    entry = Selfplay(model="base/x", steps=1, prompt_set="tasks-terse", batch_size=2, tasks=["deduce"], references=2)
    made = SelfplayRound(entry, executor, lambda messages: len(messages[0]["content"]) < 60)
    long = {"kind": "deduce", "program": "def f(a):\n return a" + " + 1" * 30, "input": "1"}
    made.begin(Player({}), [*FIRST, long])
    player = Player(GOOD)
    made.step(1, player)
    assert long["program"] in {task.program for task in made.buffers.tasks["deduce"]}
    assert all(len(text) < 60 for text in player.prompts)
    proposed = replied(f"{long['program']}\nf(7)")
    turns = made.step(2, Player({**GOOD, "propose deduce": proposed}))
    assert {turn.task.reason for turn in of(turns, "deduce", "propose")} == {"too-long"}  # no solver prompt fits


def test_restored_game_continues_like_the_original(game, tmp_path):
    """Buffers and counters are restored, and the next round has the same turns."""
    made, again = game(), game()
    made.step(1, Player(GOOD))
    made.save(tmp_path / "buffer.parquet")
    again.restore(tmp_path / "buffer.parquet")
    assert again.counters.state() == made.counters.state()
    one, two = made.step(2, Player(GOOD)), again.step(2, Player(GOOD))
    assert one == two and metrics(one, made) == metrics(two, again)


def test_metrics_add_up(game):
    """Shares are of all proposals; the accuracy of an unattempted task is NaN, not 0."""
    made = game()
    turns = made.step(1, Player({**GOOD, "propose abduce": "no"}))
    numbers = metrics(turns, made)
    assert numbers["abduce/propose/valid"] + sum(numbers[f"abduce/propose/invalid/{reason}"] for reason in REASONS) == 1
    assert numbers["abduce/propose/invalid/format"] == 1.0 and math.isnan(numbers["abduce/propose/accuracy"])
    assert numbers["deduce/propose/accuracy"] == 1.0 and numbers["deduce/propose/solved-always"] == 1.0
    assert numbers["deduce/propose/buffer"] == 3
    assert {turn.task for turn in of(turns, "abduce", "propose")} == {Invalid("format")}


def test_reply_without_a_grade_has_no_reward(game, monkeypatch):
    """A proposal whose attempts have no grade, and a solution without a grade, are unscored, not wrong."""
    made = game(tasks=["deduce"])
    monkeypatch.setattr(round.solutions, "grade", lambda tasks, *_: [None] * len(tasks))
    turns = made.step(1, Player(GOOD))
    assert {(turn.reward, turn.is_unscored) for turn in turns} == {(None, True)}
    numbers = metrics(turns, made)
    assert numbers["unscored"] == 1.0 and numbers["deduce/solve/length"] == 1.0
    for metric in ("reward", "length-right", "length-wrong", "reflecting-right"):
        assert math.isnan(numbers[f"deduce/solve/{metric}"])
