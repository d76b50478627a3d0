"""Test the split of a batch into micro-batches: by devices, by hand, and by free memory, which changes no row."""

import json
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mill import SMALL, Mill
from proofmill.schema.errors import RecipeError, SettingError
from proofmill.training import memory, micro_batches, run

JOB = SimpleNamespace(name="sft/x")


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 30))
def test_batch_is_shared_out_whole_or_refused(world, most, batch):
    """Devices x rows x turns is the batch, and a device never takes more rows than it may."""
    environment = {"WORLD_SIZE": str(world), "LOCAL_RANK": "0", "PROOFMILL_MICRO_BATCH_SIZE": str(most)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            share = micro_batches.share_of(JOB, batch)
            rows = micro_batches.override_rows(JOB, share)
        except SettingError:
            assert batch % world or (batch // world) % min(most, batch // world)
            return
    assert world * rows * (share // rows) == batch and rows <= most


@pytest.mark.parametrize("given", ["0", "-1", "two", ""])
def test_rows_per_device_that_are_no_number_are_refused(monkeypatch, given):
    """The message names the variable and what it holds."""
    monkeypatch.setenv("PROOFMILL_MICRO_BATCH_SIZE", given)
    with pytest.raises(SettingError, match=f"PROOFMILL_MICRO_BATCH_SIZE is `{given}`"):
        micro_batches.override_rows(JOB, 4)


@given(st.integers(1, 64), st.integers(0, 100), st.integers(1, 20), st.integers(1, 2000))
def test_pass_is_the_largest_that_fits(share, resident, each, limit):
    """Rows divide the share; no larger divisor fits; without any that fits, a pass has one row."""

    def planned(rows):
        return SimpleNamespace(step=resident + rows * each)

    rows = micro_batches.fitting(planned, share, limit)
    fits = [r for r in range(1, share + 1) if share % r == 0 and planned(r).step <= memory.TIGHT * limit]
    assert rows == max(fits, default=1)
    assert micro_batches.fitting(planned, share, None) == share  # unknown memory limits nothing
    few = micro_batches.fitting(planned, share, limit, most=max(share // 4, 1))
    assert few <= rows and share % few == 0 and few <= max(share / 4, 1)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 9), st.booleans()), min_size=4, max_size=24), st.data())
def test_rows_are_sorted_into_passes_by_length(rows, data):
    """Each learned row is in one pass, with its tokens; no pass has too many or none, and none has a column of padding.

    If most tokens are in prompts, copies of a prompt are adjacent. Here prompts of one length are copies.
    """
    count = len(rows)
    turns = data.draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    prompts, replies, learned = zip(*rows, strict=True)
    step = {
        "prompt_ids": torch.tensor(prompts)[:, None].expand(count, 6),
        "prompt_mask": (torch.arange(6) >= 6 - torch.tensor(prompts)[:, None]).long(),
        "completion_mask": (torch.arange(9) < torch.tensor(replies)[:, None]).long(),
        "advantages": torch.arange(count),
        "old_per_token_logps": torch.arange(9) + 100.0 * torch.arange(count)[:, None],
        "num_items_in_batch": torch.tensor(7),
    }
    parts = micro_batches.by_length(step, turns, torch.tensor(learned))
    places = [part["advantages"].tolist() for part in parts]
    assert len(parts) == turns and all(1 <= len(place) <= count // turns for place in places)
    inside = [place for part in places for place in part]
    copies_first = sum(prompts) > sum(replies)
    assert [place for place in inside if learned[place]] == sorted(
        (place for place in range(count) if learned[place]),
        key=lambda place: (prompts[place] * copies_first, prompts[place] + replies[place]),
    )
    assert sum(not learned[place] for place in inside) == max(turns - sum(learned), 0)
    for part, place in zip(parts, places, strict=True):
        assert part["prompt_mask"].sum(1).tolist() == [prompts[n] for n in place]
        assert part["completion_mask"].sum(1).tolist() == [replies[n] for n in place]
        assert part["prompt_mask"].shape[1] == max(prompts[n] for n in place)
        assert part["completion_mask"].shape[1] == max(1, *(replies[n] for n in place))
        assert part["old_per_token_logps"][:, 0].tolist() == [100.0 * n for n in place]
        assert part["num_items_in_batch"] == 7


@pytest.fixture
def trained(small, tmp_path, monkeypatch):
    """Return a function that trains on a machine with this memory; it returns values by (step, metric), and the log."""
    monkeypatch.setenv("PROOFMILL_FORCE", "all")
    monkeypatch.setattr(memory, "part_of_machine", lambda threads: 1.0)
    monkeypatch.delenv("PROOFMILL_MICRO_BATCH_SIZE", raising=False)

    def train(name, there, **fields):
        monkeypatch.setattr(memory, "device_memory", lambda: (there, False))
        entry = {**SMALL["sft/cold"], "steps": 3, "batch-size": 8, "log-every": 1, **fields}
        deep = {**SMALL["base/tiny"], "layers": 6}
        table = Mill(small.results, **SMALL, **{"base/deep": deep, name: entry}).make(entry["model"], name)
        return {(row["step"], row["metric"]): row["value"] for row in table.rows()}

    return train


def test_little_memory_splits_the_batch_and_changes_no_row(trained, small, capsys):
    """With room for two rows the batch is learned in four turns, that is said, and the losses are those of one pass."""
    whole = trained("sft/roomy", 10**10)
    assert "rows a step" not in capsys.readouterr().err
    network = memory.build_empty(small.table("base/tiny").weights())
    two, four = (memory.plan(network, rows=rows, tokens_per_row=512).step for rows in (2, 4))
    split = trained("sft/short", int((two + four) / 2 / memory.TIGHT))
    said = capsys.readouterr().err
    assert "8 rows a step: 1 x 2 x 4 (devices, micro-batch, accumulation steps), as many as fit into memory" in said
    assert whole.keys() == split.keys()
    assert split == pytest.approx(whole, rel=1e-4)


def test_what_cannot_fit_is_refused_before_it_is_loaded(trained, monkeypatch):
    """The message has what is needed, what is there, and what helps; no weights were read."""
    monkeypatch.setattr(run, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    with pytest.raises(
        SettingError, match=r"sft/huge: training [\d,]+ parameters takes [\d.]+ MB .* a device has 0.1 MB; .*`lora`"
    ):
        trained("sft/huge", 10**5)


def test_resumed_training_keeps_its_micro_batch_size(tmp_path, monkeypatch):
    """A checkpoint has the micro-batch size; it is kept if it still divides the share."""
    (tmp_path / "trainer_state.json").write_text(json.dumps({"train_batch_size": 4}))
    monkeypatch.setattr(micro_batches, "last_checkpoint", lambda job: tmp_path)
    monkeypatch.setattr(memory, "device_memory", lambda: (None, False))
    monkeypatch.setattr(memory, "build_empty", lambda model: None)
    plan = SimpleNamespace(lines=list, device_bytes=None, step=1)
    monkeypatch.setattr(memory, "plan", lambda *_, **__: plan)
    entry = SimpleNamespace(model="base/x", precision="float32", lora=None)
    job = SimpleNamespace(name="sft/x", threads=1, stamp={}, parent=lambda name: SimpleNamespace(weights=lambda: None))
    rows = [micro_batches.split(entry, job, batch, 64)["per_device_train_batch_size"] for batch in (8, 6)]
    assert rows == [4, 6]


@given(
    st.integers(0, 100),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 300),
    st.sampled_from([None, True, False]),
)
def test_activations_are_recomputed_only_if_one_row_does_not_fit(resident, each, saved, limit, override):
    """They are kept if one row fits with them. An override applies. If nothing fits, a micro-batch has one row."""

    def planned(rows, checkpointing=False):
        return SimpleNamespace(step=resident + rows * max(each - checkpointing * saved, 0))

    def fits(rows, checkpointing):
        return planned(rows, checkpointing).step <= memory.TIGHT * limit

    rows, again = micro_batches.choice(planned, 8, limit, 8, recompute=override)
    assert again == (override if override is not None else not fits(1, False))
    assert fits(rows, again) or (rows == 1 and (override is not None or not fits(1, True)))
    assert micro_batches.choice(planned, 8, None, 8, recompute=override) == (8, bool(override))
    assert micro_batches.choice(planned, 8, limit, 8, rows=4)[0] == 4


@pytest.mark.parametrize(("value", "decided"), [(None, None), ("0", False), ("1", True)])
def test_override_of_checkpointing_is_yes_no_or_unset(monkeypatch, value, decided):
    """Whatever is neither 1 nor 0 is refused; a launch file that does it itself leaves nothing to decide."""
    monkeypatch.delenv("PROOFMILL_GRADIENT_CHECKPOINTING", raising=False)
    if value is not None:
        monkeypatch.setenv("PROOFMILL_GRADIENT_CHECKPOINTING", value)
    assert micro_batches.override_checkpointing(JOB) is decided
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_OFFLOAD_PARAMS", "true")
    if decided:
        with pytest.raises(SettingError, match=r"expected one of them\. Unset it"):
            micro_batches.override_checkpointing(JOB)
    else:
        assert micro_batches.override_checkpointing(JOB) is False
    monkeypatch.setenv("PROOFMILL_GRADIENT_CHECKPOINTING", "yes")
    with pytest.raises(SettingError, match="is `yes`; expected 1 or 0"):
        micro_batches.override_checkpointing(JOB)


def test_row_alone_in_its_pass_gets_no_mask(monkeypatch):
    """Nothing is padded next to it; packed examples are masked from each other, and FlashAttention needs no mask."""
    seen = []
    monkeypatch.setattr(memory, "plan", lambda network, **options: seen.append(options["masked"]))
    monkeypatch.delenv("PROOFMILL_ATTENTION", raising=False)
    entry = SimpleNamespace(precision="bfloat16", lora=None, packing=False)
    for rows in (1, 2):
        micro_batches.planner(None, entry, 64)(rows)
    micro_batches.planner(None, SimpleNamespace(**{**vars(entry), "packing": True}), 64)(1)
    monkeypatch.setenv("PROOFMILL_ATTENTION", "flash_attention_2")
    micro_batches.planner(None, entry, 64)(2)
    assert seen == [False, True, True, False]


def test_training_that_fits_only_so_computes_activations_again(trained, small, capsys):
    """With less memory than one row takes, that is said, and the losses are those of a roomy machine."""
    whole = trained("sft/whole", 10**10, model="base/deep")
    capsys.readouterr()
    network = memory.build_empty(small.table("base/deep").weights())
    kept, again = (memory.plan(network, rows=1, tokens_per_row=512, checkpointing=c, masked=False).step for c in (0, 1))
    tight = trained("sft/tight", int((kept + again) / 2 / memory.TIGHT), model="base/deep")
    assert "1 x 1 x 8 (devices, micro-batch, accumulation steps), as many as fit into memory" in (
        said := capsys.readouterr().err
    )
    assert "; recomputing activations" in said
    assert tight == pytest.approx(whole, rel=1e-4)


@pytest.mark.parametrize(("threads", "part"), [(1, 0.5), (2, 1.0), (8, 1.0)])
def test_job_plans_with_the_memory_of_its_threads(monkeypatch, threads, part):
    """On two processors a job of one thread leaves half of the memory to the one next to it."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    assert memory.part_of_machine(threads) == part


def test_rollouts_beyond_the_context_are_refused(small, monkeypatch):
    """An answer that may fill the whole context leaves no token for its prompt; that is said before anything is loaded."""
    monkeypatch.setattr(run, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    network = memory.build_empty(small.table("base/tiny").weights())
    micro_batches.check_context("base/tiny", network, 512, "an example has")
    entry = {
        "model": "base/tiny", "problems": "problems/train", "grader": "arithmetic", "rewards": {"grade": 1},
        "unscored": "drop", "steps": 1, "group-size": 2, "problems-per-step": 2, "max-tokens": 512,
    }  # fmt: skip
    with pytest.raises(
        RecipeError, match=r"base/tiny: a prompt .* may have 513 tokens, but the model's context has 512; .*`base`"
    ):
        Mill(small.results, **SMALL, **{"grpo/long": entry}).make("grpo/long")


@pytest.mark.parametrize("trained", [True, False], ids=["trained on", "held out"])
@pytest.mark.parametrize("more", [{}, {"max-staleness": 1}], ids=["in turn", "ahead"])
def test_prompts_that_leave_no_room_for_an_answer_are_refused(small, tmp_path, monkeypatch, trained, more):
    """A prompt that fits alone, but not with the longest answer, stops the training before its first step."""
    monkeypatch.setattr(run, "train", lambda *_, **__: pytest.fail("it trained"))
    path = tmp_path / "long.jsonl"
    path.write_text(f'{{"statement": "Find $5$.{" and then" * 120}", "answer": "5"}}\n')
    problems = {"problems/long": {"source": "table", "path": str(path), "question-type": "answer"}}
    named = {"problems": "problems/long"} if trained else {"problems": "problems/train", "evaluate": "problems/long"}
    entry = {
        "model": "base/tiny", "grader": "final-answer", "rewards": {"format": 1}, "unscored": "drop", "steps": 1,
        "group-size": 2, "problems-per-step": 1, "max-tokens": 256, **named, **more,
    }  # fmt: skip
    made = Mill(small.results, **SMALL, **problems, **{"grpo/long-prompts": entry})
    with pytest.raises(
        RecipeError, match=r"base/tiny: the longest prompt of problems/long with .* may have [67]\d\d tok"
    ):
        made.make("problems/long", "grpo/long-prompts")
