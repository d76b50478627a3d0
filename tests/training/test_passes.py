"""How a batch is split into passes: by the devices, by hand, and by the memory there is, which changes no row."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mill import SMALL, Mill
from proofmill.schema.errors import SettingError
from proofmill.training import memory, passes, run

JOB = SimpleNamespace(name="sft/x")


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 30))
def test_batch_is_shared_out_whole_or_refused(world, most, batch):
    """Devices x rows x turns is the batch, and a device never takes more rows than it may."""
    environment = {"WORLD_SIZE": str(world), "LOCAL_RANK": "0", "PROOFMILL_ROWS_PER_DEVICE": str(most)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            share = passes.share_of(JOB, batch)
            rows = passes.rows_by_hand(JOB, share)
        except SettingError:
            assert batch % world or (batch // world) % min(most, batch // world)
            return
    assert world * rows * (share // rows) == batch and rows <= most


@pytest.mark.parametrize("given", ["0", "-1", "two", ""])
def test_rows_per_device_that_are_no_number_are_refused(monkeypatch, given):
    """The message names the variable and what it holds."""
    monkeypatch.setenv("PROOFMILL_ROWS_PER_DEVICE", given)
    with pytest.raises(SettingError, match=f"PROOFMILL_ROWS_PER_DEVICE is `{given}`"):
        passes.rows_by_hand(JOB, 4)


@given(st.integers(1, 64), st.integers(0, 100), st.integers(1, 20), st.integers(1, 2000))
def test_pass_is_the_largest_that_fits(share, resident, each, limit):
    """Rows divide the share; no larger divisor fits; without any that fits, a pass has one row."""

    def planned(rows):
        return SimpleNamespace(step=resident + rows * each)

    rows = passes.fitting(planned, share, limit)
    fits = [r for r in range(1, share + 1) if share % r == 0 and planned(r).step <= memory.TIGHT * limit]
    assert rows == max(fits, default=1)
    assert passes.fitting(planned, share, None) == share  # unknown memory limits nothing


@pytest.fixture
def trained(small, tmp_path, monkeypatch):
    """Trains on a machine with so many bytes; returns the table of steps by (step, measure), and what was said."""
    monkeypatch.setenv("PROOFMILL_FRESH", "all")
    monkeypatch.setattr(memory, "part_of_machine", lambda threads: 1.0)
    monkeypatch.delenv("PROOFMILL_ROWS_PER_DEVICE", raising=False)

    def train(name, there, **fields):
        monkeypatch.setattr(memory, "device_memory", lambda: (there, False))
        entry = {**SMALL["sft/cold"], "steps": 3, "batch": 8, "log-every": 1, **fields}
        table = Mill(small.results, **SMALL, **{name: entry}).make(name)
        return {(row["step"], row["measure"]): row["value"] for row in table.rows()}

    return train


def test_little_memory_splits_the_batch_and_changes_no_row(trained, small, capsys):
    """With room for two rows the batch is learned in four turns, that is said, and the losses are those of one pass."""
    whole = trained("sft/roomy", 10**10)
    assert "rows a step" not in capsys.readouterr().err
    network = memory.made(small.table("base/tiny").weights())
    two, four = (memory.plan(network, rows=rows, tokens_per_row=512).step for rows in (2, 4))
    split = trained("sft/short", int((two + four) / 2 / memory.TIGHT))
    said = capsys.readouterr().err
    assert (
        "8 rows a step: 1 x 2 x 4 (devices, rows at a time, turns), as many at a time as the memory has room for"
        in said
    )
    assert whole.keys() == split.keys()
    assert split == pytest.approx(whole, rel=1e-4)


def test_what_cannot_fit_is_refused_before_it_is_loaded(trained, monkeypatch):
    """The message has what is needed, what is there, and what helps; no weights were read."""
    monkeypatch.setattr(run, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    with pytest.raises(
        SettingError, match=r"sft/huge: training [\d,]+ parameters takes [\d.]+ MB .* a device has 0.1 MB; .*`adapter`"
    ):
        trained("sft/huge", 10**5)


def test_training_goes_on_with_the_rows_of_its_passes(tmp_path, monkeypatch):
    """A checkpoint says how many rows its passes had; they are taken again if they still divide the share."""
    (tmp_path / "trainer_state.json").write_text(json.dumps({"train_batch_size": 4}))
    monkeypatch.setattr(passes, "last_checkpoint", lambda job: tmp_path)
    monkeypatch.setattr(memory, "device_memory", lambda: (None, False))
    monkeypatch.setattr(memory, "made", lambda model: None)
    plan = SimpleNamespace(lines=list, there=None)
    monkeypatch.setattr(memory, "plan", lambda *_, **__: plan)
    entry = SimpleNamespace(model="base/x", precision="float32", adapter=None)
    job = SimpleNamespace(name="sft/x", threads=1, parent=lambda name: SimpleNamespace(weights=lambda: None))
    rows = [passes.split(entry, job, batch, 64)["per_device_train_batch_size"] for batch in (8, 6)]
    assert rows == [4, 6]


@pytest.mark.parametrize(("threads", "part"), [(1, 0.5), (2, 1.0), (8, 1.0)])
def test_job_plans_with_the_memory_of_its_threads(monkeypatch, threads, part):
    """On two processors a job of one thread leaves half of the memory to the one beside it."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    assert memory.part_of_machine(threads) == part
