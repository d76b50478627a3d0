"""Self-play: what a step leaves behind, who is trained, and a training that is broken off and continues."""

import json
from pathlib import Path

import polars as pl
import pytest
from pyarrow import parquet

from mill import Mill
from playing import SELFPLAY, entries
from proofmill.analysis import training_series
from proofmill.artifacts.tables import Table
from proofmill.schema.errors import RecipeError
from proofmill.schema.ids import file_sha256
from proofmill.schema.kinds import BUFFER, ROLLOUTS
from proofmill.selfplay_tasks import round
from proofmill.selfplay_tasks.tasks import Task
from proofmill.viewer.curves import training_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def player(tmp_path_factory) -> Mill:
    """Train a tiny model on the form of proposals and solutions, with first tasks."""
    folder = tmp_path_factory.mktemp("player")
    made = Mill(folder / "results", **entries(folder / "files"))
    made.make("problems/play", "problems/seeds", "base/play", "examples/play", "sft/play")
    return made


@pytest.fixture(scope="module")
def train(player):
    """Return a function that runs self-play of the tiny model with changed fields, and returns its table."""

    def made(name: str, **changed) -> Table:
        values = {key: value for key, value in {**SELFPLAY, **changed}.items() if value is not None}
        return Mill(player.results, **entries(player.results.parent / "files"), **{name: values}).make(name)

    return made


@pytest.fixture(scope="module")
def played(train) -> Table:
    return train("selfplay/x")


def rollouts(table: Table) -> pl.DataFrame:
    return pl.read_parquet(table.folder / ROLLOUTS)


def buffer(table: Table) -> pl.DataFrame:
    return pl.read_parquet(table.folder / BUFFER)


def measured(table: Table, task: str | None, role: str | None, metric: str) -> list[float]:
    wanted = {"task": task, "role": role, "metric": metric}
    return [row["value"] for row in table.rows() if all(row[key] == value for key, value in wanted.items())]


def test_every_reply_that_was_learned_from_is_kept(played):
    """Six batches a step, in the order of tasks and roles; advantages over a batch's tokens add up to nothing."""
    frame = rollouts(played)
    batches = frame.group_by("step", "task", "role", maintain_order=True).agg(
        pl.len(), (pl.col("advantage") * pl.col("tokens")).sum(), pl.col("advantage").abs().max().alias("most")
    )
    roles = [(task, role) for task in ("abduce", "deduce", "induce") for role in ("propose", "solve")]
    assert batches.select("task", "role").rows() == roles * 3
    assert set(batches["len"]) == {4} and batches["advantage"].abs().max() < 1e-3
    assert batches["most"].max() > 0.5  # something was learned


def test_rewards_are_those_of_the_paper(played):
    """A right solution earns 1, a wrong one -0.5, a proposal what its attempts leave to learn, and no form -1."""
    for row in rollouts(played).iter_rows(named=True):
        if not row["well_formed"] or row["reason"] != "ok":
            assert row["reward"] == -1
        elif row["role"] == "solve":
            assert row["reward"] == (1 if row["accuracy"] else -0.5)
        else:
            assert row["reward"] == (1 - row["accuracy"] if 0 < row["accuracy"] < 1 else -0.5)


def test_what_is_proposed_in_a_step_is_solved_in_the_next(played):
    """Valid proposals of a step are in the buffer with its number; the next step's solver is asked them first."""
    frame, tasks = rollouts(played), buffer(played)
    valid = frame.filter(pl.col("role") == "propose", pl.col("reason") == "ok")
    assert set(valid["task_id"]) <= set(tasks["id"])
    steps = {id: step for id, step in tasks.select("id", "step").rows()}
    for step in (2, 3):
        new = {id for id, made in steps.items() if made == step - 1}
        solved = frame.filter(pl.col("role") == "solve", pl.col("step") == step)
        for task in ("abduce", "deduce", "induce"):
            of_task = new & set(tasks.filter(pl.col("kind") == task)["id"])
            asked = set(solved.filter(pl.col("task") == task)["task_id"])
            assert len(asked & of_task) == min(len(of_task), 4)


def test_metrics_are_by_task_and_role(played):
    """The share that is valid and the shares by reason add up to 1; what is of the whole step has no task."""
    for task in ("abduce", "deduce", "induce"):
        reasons = {row["metric"] for row in played.rows() if row["metric"].startswith("invalid/")}
        shares = [measured(played, task, "propose", name) or [0.0] * 3 for name in ("valid", *reasons)]
        assert [sum(step) for step in zip(*shares, strict=True)] == pytest.approx([1.0] * 3)
        assert len(measured(played, task, "solve", "accuracy")) == 3
        assert measured(played, task, "propose", "buffer")[-1] == buffer(played).filter(pl.col("kind") == task).height
    assert len(measured(played, None, None, "loss")) == 3
    mean = rollouts(played).group_by("step").agg(pl.col("reward").mean()).sort("step")["reward"]
    assert measured(played, None, None, "reward") == pytest.approx(mean.to_list())


def test_curves_name_task_and_role(played):
    """Without other wishes the rewards, valid shares and accuracies of each task are drawn."""
    shown = training_page.draw([training_series.read(played.name, played.results)], training_page.View())
    found = {panel["id"]: panel["lines"] for panel in shown["panels"]}
    assert {"reward", "deduce/solve/accuracy", "abduce/propose/valid", "induce/propose/reward"} <= set(found)
    (line,) = found["deduce/solve/accuracy"]
    assert line["step"] == [1, 2, 3]
    assert line["value"] == pytest.approx(measured(played, "deduce", "solve", "accuracy"), abs=1e-4)


def test_buffer_is_no_part_of_the_model(played, tmp_path):
    """Another buffer or other rollouts next to the same weights make no other model; the table's content is another."""
    from proofmill.artifacts.weights import facts_of, model_digest

    before = model_digest("selfplay", facts_of(played.folder))
    assert before == played.model
    other = tmp_path / "weights"
    other.mkdir()
    for path in played.folder.iterdir():
        (other / path.name).write_bytes(b"another" if path.name in (BUFFER, ROLLOUTS) else path.read_bytes())
    assert model_digest("selfplay", facts_of(other)) == before


@pytest.mark.parametrize("proposer", ["frozen", "absent"])
def test_proposer_that_is_not_trained_has_no_rollouts(train, proposer):
    """Frozen, it fills the buffer and is not trained on; absent, the solver has the first tasks alone."""
    table = train(f"selfplay/{proposer}", proposer=proposer, steps=2)
    assert set(rollouts(table)["role"]) == {"solve"}
    assert rollouts(table).height == 2 * 3 * 4
    assert (buffer(table)["step"].max() > 0) == (proposer == "frozen")
    assert bool(measured(table, "deduce", "propose", "valid")) == (proposer == "frozen")


def test_replies_that_all_earn_the_same_say_that_nothing_was_learned(train, capsys):
    """Replies of one token are all malformed and earn the same: the notice says that nothing was learned."""
    table = train("selfplay/constant", **{"max-tokens": 1, "batch-size": 2}, steps=2)
    assert rollouts(table)["reward"].n_unique() == 1
    (notice,) = table.stamp["notices"]
    assert notice.startswith("no reward varied") and notice in capsys.readouterr().err


def test_model_writes_its_own_first_tasks(train):
    """Without a table it begins with the function that returns its argument, and asks about it until there are enough."""
    table = train("selfplay/alone", **{"seed-tasks": None, "max-seed-tasks": 6}, steps=1, tasks=["deduce", "induce"])
    first = buffer(table).filter(pl.col("step") == 0)
    assert "def f(a):\n    return a" in set(first["program"])
    assert 1 < first.filter(pl.col("kind") == "induce").height <= 6


def test_options_of_the_game_are_played(train):
    """One task, intrinsic rewards, a small buffer that keeps the newest, one baseline, two updates of each round."""
    table = train(
        "selfplay/options", tasks=["induce"],
        **{"intrinsic-rewards": {"complexity": {"weight": 1.0}, "input-diversity": {"weight": 0.1}}, "buffer-size": 5},
        **{"buffer-admits": "non-one", "induction-reward": "mean", "buffer-keeps": "newest", "baselines": "global", "baseline-over": "rollout", "dual-clip": 3.0},
        iterations=2, steps=4,
    )  # fmt: skip
    assert set(rollouts(table)["step"]) == {1, 3}
    assert buffer(table).group_by("kind").len()["len"].max() <= 5
    sums = rollouts(table).group_by("step").agg(pl.col("advantage").sum())["advantage"]
    assert sums.abs().max() < 1e-3


class Broken(Exception):
    """A training that is killed."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("at", [1, 2, 4])
def test_broken_off_training_ends_with_the_same_table_weights_and_tasks(player, train, monkeypatch, at):
    """Killed in its first, second or fourth step, with a checkpoint every second, it ends like one that was not."""
    fields = {"steps": 5, "seed": 3, "seed-tasks": None, "max-seed-tasks": 5}
    whole = train("selfplay/whole", **fields)
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "2")
    name, step = f"selfplay/broken-{at}", round.SelfplayRound.step

    def until(self, number, ask):
        turns = step(self, number, ask)
        if number == at:
            raise Broken
        return turns

    with monkeypatch.context() as broken, pytest.raises(Broken):
        broken.setattr(round.SelfplayRound, "step", until)
        train(name, **fields)
    table = train(name, **fields)
    assert table.scan().collect().equals(whole.scan().collect())
    assert file_sha256(table.folder / "model.safetensors") == file_sha256(whole.folder / "model.safetensors")
    assert rollouts(table).drop("rollout").equals(rollouts(whole).drop("rollout"))
    assert buffer(table).equals(buffer(whole))
    counted = [parquet.read_schema(t.folder / BUFFER).metadata[round.COUNTERS] for t in (table, whole)]
    assert json.loads(counted[0]) == json.loads(counted[1])


DECLARED = {
    "base/x": {"source": "folder", "path": "x"},
    "problems/seeds": {"source": "table", "path": "x.jsonl"},
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tasks": ["deduce", "deduce"]}, "`tasks` names `deduce` 2 times"),
        ({"proposer": "absent", "seed-tasks": None}, "`proposer: absent` needs `seed-tasks`"),
        (
            {"proposer": "frozen", "intrinsic-rewards": {"complexity": {"weight": 1.0}}},
            "`intrinsic-rewards` rewards proposals",
        ),
        ({"tasks": ["induce"], "composite": {"probability": 0.5}}, "`composite` applies to new programs"),
        ({"dual-clip": 1.1}, "`dual-clip` is 1.1"),
        ({"prompts": {"solve-deduce": "prove"}}, "`prompts` > `solve-deduce`"),
        ({"prompts": {"solve-deduce": "tasks/solve-abduce"}}, "which has the fields output"),
        ({"tasks": []}, "tasks"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(changed, said):
    """Each mistake is a sentence before anything is trained."""
    values = {key: value for key, value in {**SELFPLAY, **changed}.items() if value is not None}
    with pytest.raises(RecipeError, match=said):
        Mill(Path("results"), **DECLARED, **{"selfplay/x": {**values, "model": "base/x"}})


def test_task_of_a_row_has_its_id(played):
    """An id in the buffer is that of the task: nothing of it is lost."""
    from proofmill.selfplay_tasks.tasks import from_row

    for row in buffer(played).iter_rows(named=True):
        task = from_row(row)
        assert isinstance(task, Task) and task.id == row["id"]
