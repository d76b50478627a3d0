"""A round of the game: what is asked, what becomes of proposals, what replies earn, and that it can be taken up again."""

import math
from collections.abc import Callable, Sequence

import pytest

from proofmill.schema.selfplay_entry import Selfplay
from proofmill.tasks import play
from proofmill.tasks.play import Messages, Play, Reply, measures
from proofmill.tasks.tasks import REASONS, Invalid, Task

FIRST = [
    {"kind": "deduce", "program": "def f(a):\n return a + 1", "input": "1"},
    {"kind": "deduce", "program": "def f(a):\n return a * 2", "input": "3"},
    {"kind": "induce", "program": "def f(a):\n return a - 1", "inputs": ["1", "2", "3", "4"], "message": ""},
]


def replied(answer: str) -> str:
    return f"<think>?</think>\n<answer>{answer}</answer>"


def asked_for(messages: Messages) -> str:
    """What a terse prompt asks for: its first line."""
    return messages[0]["content"].splitlines()[0]


class Player:
    """Answers each prompt by what its first line asks for; keeps what it was asked."""

    def __init__(self, answers: dict[str, Callable[[int], str] | str]):
        self.answers, self.asked, self.counts = answers, [], {}

    def __call__(self, prompts: Sequence[Messages]) -> list[Reply]:
        return [self.reply(messages) for messages in prompts]

    def reply(self, messages: Messages) -> Reply:
        what = asked_for(messages)
        self.asked.append(messages[0]["content"])
        count = self.counts[what] = self.counts.get(what, -1) + 1
        answer = self.answers.get(what, "no")
        return Reply(answer(count) if callable(answer) else answer, ids=[1])


PROPOSED = replied("def f(a):\n return a + 5\nf(7)")
GOOD = {
    "propose deduce": PROPOSED, "propose abduce": PROPOSED, "propose induce": replied("f(5)\nf(6)\nf(7)\nf(8)"),
    "deduce": replied("12"), "abduce": replied("7"), "induce": replied("def f(a):\n return a - 1"),
}  # fmt: skip


@pytest.fixture
def game(executor):
    """The game of an entry with changed fields, which has its first tasks."""

    def made(**changed) -> Play:
        values = {"wording": "tasks-terse", "batch": 2, "attempts": 4, "inputs": 4, "references": 2, **changed}
        ready = Play(Selfplay(model="base/x", steps=1, **values), executor, lambda messages: True)
        ready.begin(Player({}), FIRST)
        return ready

    return made


def of(turns: Sequence[play.Turn], kind: str, role: str) -> list[play.Turn]:
    return [turn for turn in turns if (turn.kind, turn.role) == (kind, role)]


def test_first_tasks_of_a_table_are_run_again(game):
    """A program with one input is a task of each kind that has one; outputs are what it gives here."""
    made = game()
    assert {kind: len(tasks) for kind, tasks in made.buffers.tasks.items()} == {"abduce": 2, "deduce": 2, "induce": 1}
    assert [task.output for task in made.buffers.tasks["deduce"]] == ["2", "6"]
    assert made.buffers.tasks["induce"][0].outputs == ("0", "1", "2", "3")


def test_round_asks_each_task_in_each_role(game):
    """A batch of proposals and one of solutions of each task; the turns come in their order, proposals first."""
    turns = game().step(1, Player(GOOD))
    assert [(turn.kind, turn.role) for turn in turns] == [
        (kind, role) for kind in ("abduce", "deduce", "induce") for role in ("propose", "solve") for _ in range(2)
    ]


def test_attempts_say_what_a_proposal_is_worth(game):
    """Three of four attempts are right: 1 - 3/4. All or none: -0.5. What cannot run: -1, and nobody attempts it."""
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
    assert [(turn.task.reason, turn.reward, turn.marks) for turn in refused] == [("raised", -1.0, [])] * 2
    assert player.counts["deduce"] == 1  # the two solutions of the round


def test_form_is_asked_of_both_roles(game):
    """A reply without its tags earns -1, however right it is."""
    bare = {"propose deduce": "def f(a):\n return a + 5\nf(7)", "deduce": "2"}
    turns = game(tasks=["deduce"]).step(1, Player(bare))
    assert [turn.reward for turn in turns] == [-1.0] * 4
    assert {turn.formed for turn in turns} == {False}


def test_valid_proposals_are_solved_in_the_next_step(game):
    """Those of a step are what its successor asks first, and none of their own step is asked what was proposed in it."""
    made = game(tasks=["deduce"])
    first, second = (made.step(step, Player(GOOD)) for step in (1, 2))
    proposed = {turn.task.id for turn in of(first, "deduce", "propose")}
    assert not proposed & {turn.task.id for turn in of(first, "deduce", "solve")}
    assert proposed <= {turn.task.id for turn in of(second, "deduce", "solve")}
    assert [turn.is_new for turn in of(first, "deduce", "propose")] == [True, False]  # the same twice


def test_solutions_earn_by_execution(game):
    """The output, an input that gives it, a program that fits the hidden pairs earn 1, and others -0.5."""
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
        ({"learnability": "inverse", "nothing": -0.25}, -0.25),
        ({"learnability": "none", "intrinsic": {"complexity": {"weight": 1.0}}}, 1.0),
        ({"learnability": "none", "intrinsic": {"edit-distance": {"weight": 1.0, "most": 0.001}}}, 1.001),
        ({"learnability": "none", "intrinsic": {"answer-diversity": {"weight": 1.0}}, "combine": "multiply"}, 0.5),
        ({"learnability": "none", "intrinsic": {"input-diversity": {"weight": 1.0}}}, 1.0),
    ],
)
def test_rewards_of_proposals_are_what_the_entry_says(game, changed, reward):
    """Any valid task is worth 1 without learnability; intrinsic rewards are weighed, bounded and combined with it."""
    turn = of(game(tasks=["deduce"], **changed).step(1, Player(GOOD)), "deduce", "propose")[0]
    assert turn.reward == pytest.approx(reward)


def test_frozen_proposer_is_not_measured_by_attempts(game):
    """It proposes and its tasks enter the buffer; nobody attempts them, unless the buffer admits by attempts."""
    player = Player(GOOD)
    turns = game(tasks=["deduce"], proposer="frozen").step(1, player)
    assert player.counts == {"propose deduce": 1, "deduce": 1}
    proposed = of(turns, "deduce", "propose")
    assert [(turn.accuracy, turn.reward, turn.is_unscored) for turn in proposed] == [(None, None, False)] * 2
    player = Player(GOOD)
    made = game(tasks=["deduce"], proposer="frozen", admits="non-one")
    turns = made.step(1, player)
    assert player.counts["deduce"] == 1 + 8
    assert len(made.buffers.tasks["deduce"]) == 2  # all attempts solve what was proposed


def test_absent_proposer_is_asked_nothing(game):
    """The solver has the first tasks, again and again."""
    player = Player(GOOD)
    assert {turn.role for turn in game(proposer="absent").step(5, player)} == {"solve"}
    assert not any(what.startswith("propose") for what in player.counts)


def test_composite_must_call_what_it_was_given(game):
    """A program that calls the function it was given is a task with it; one that does not is refused."""
    changed = {"tasks": ["deduce"], "composite": {"chance": 1.0, "functions": 1}}
    refused = of(game(**changed).step(1, Player(GOOD)), "deduce", "propose")
    assert [turn.task.reason for turn in refused] == ["composite"] * 2
    calls = {**GOOD, "propose deduce": replied("def f(a):\n return g_0(a) + 5\nf(7)")}
    task = of(game(**changed).step(1, Player(calls)), "deduce", "propose")[0].task
    assert isinstance(task, Task) and task.program.startswith("def g_0") and task.own.startswith("def f")


def test_prompts_that_are_too_long_are_drawn_again(executor):
    """References are shown as long as they fit, and tasks that do not are not asked."""
    entry = Selfplay(model="base/x", steps=1, wording="tasks-terse", batch=2, tasks=["deduce"], references=2)
    made = Play(entry, executor, lambda messages: len(messages[0]["content"]) < 60)
    long = {"kind": "deduce", "program": "def f(a):\n return a" + " + 1" * 30, "input": "1"}
    made.begin(Player({}), [*FIRST, long])
    player = Player(GOOD)
    made.step(1, player)
    assert long["program"] in {task.program for task in made.buffers.tasks["deduce"]}
    assert all(len(text) < 60 for text in player.asked)
    proposed = replied(f"{long['program']}\nf(7)")
    turns = made.step(2, Player({**GOOD, "propose deduce": proposed}))
    assert {turn.task.reason for turn in of(turns, "deduce", "propose")} == {"too-long"}  # nobody could be asked


def test_saved_game_goes_on_like_the_one_that_was_not(game, tmp_path):
    """Buffer and counters come back, and the next round draws and earns the same."""
    made, again = game(), game()
    made.step(1, Player(GOOD))
    made.save(tmp_path / "buffer.parquet")
    again.restore(tmp_path / "buffer.parquet")
    assert again.counters.state() == made.counters.state()
    one, two = made.step(2, Player(GOOD)), again.step(2, Player(GOOD))
    assert one == two and measures(one, made) == measures(two, again)


def test_measures_add_up(game):
    """Shares of proposals are of all of them; what nobody was asked is NaN, and not 0."""
    made = game()
    turns = made.step(1, Player({**GOOD, "propose abduce": "no"}))
    found = measures(turns, made)
    assert found["abduce/propose/valid"] + sum(found[f"abduce/propose/invalid/{reason}"] for reason in REASONS) == 1
    assert found["abduce/propose/invalid/format"] == 1.0 and math.isnan(found["abduce/propose/accuracy"])
    assert found["deduce/propose/accuracy"] == 1.0 and found["deduce/propose/solved-always"] == 1.0
    assert found["deduce/propose/buffer"] == 3
    assert {turn.task for turn in of(turns, "abduce", "propose")} == {Invalid("format")}


def test_what_cannot_be_marked_has_no_reward(game, monkeypatch):
    """A proposal whose attempts have no mark, and a solution without one, are unscored: neither is wrong."""
    made = game(tasks=["deduce"])
    monkeypatch.setattr(play.solutions, "grade", lambda tasks, *_: [None] * len(tasks))
    turns = made.step(1, Player(GOOD))
    assert {(turn.reward, turn.is_unscored) for turn in turns} == {(None, True)}
    assert measures(turns, made)["unscored"] == 1.0
