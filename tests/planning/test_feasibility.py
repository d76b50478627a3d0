"""Recipes on machines: verdicts on trainings and on what asks their weights, and that the job chooses the same."""

import json
import math
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from mill import ROOT, SMALL, Mill
from proofmill import __main__ as command
from proofmill import grpo
from proofmill.config import yaml_files
from proofmill.config.config import expand
from proofmill.engines import vllm_memory
from proofmill.engines.vllm_memory import shares
from proofmill.planning import hours
from proofmill.planning._feasibility_text import format_ends
from proofmill.planning.feasibility import Feasibility
from proofmill.planning.machines import machine
from proofmill.planning.plan import RunPlan
from proofmill.planning.shapes import Shapes
from proofmill.runtime import free_memory
from proofmill.runtime.cluster import launching, site_resources, slurm
from proofmill.training import memory, micro_batches

BOOK = expand(yaml_files.read("config.yaml"))
RECIPES = [recipe for recipe in BOOK.recipes if not recipe.endswith("-seeds")]


def plan(recipe: str) -> RunPlan:
    """Return the plan of a recipe of config.yaml."""
    return RunPlan(BOOK, recipe)


def hub(id, **more):
    return {"source": "hub", "id": id, "commit": "a" * 40, **more}


MODELS = {
    "base/half": hub("Qwen/Qwen2.5-0.5B-Instruct"),
    "base/maths": hub("Qwen/Qwen2.5-Math-1.5B"),
    "base/seven": hub("Qwen/Qwen2.5-7B"),
    "base/thirty-two": hub("Qwen/Qwen2.5-32B"),
    "base/v3": hub("deepseek-ai/DeepSeek-V3-Base"),
    "base/unknown": hub("somebody/model"),
}
JUDGE = {"weights": "base/maths", "price": {"input": 0, "output": 0}, "temperature": 0, "max-tokens": 512}
GRADERS = {
    "api/own": JUDGE,
    "grader/own": {"judges": ["api/own"], "prompt": "answer-equivalence"},
    "grader/jury": {"judges": ["api/referee", "api/own"], "prompt": "grade-imo"},
    "grader/first": {"judges": ["api/referee"], "prompt": "grade-imo", "escalate-to": "api/own"},
}
SFT = {"examples": "examples/cold", "steps": 100, "batch-size": 32, "precision": "bfloat16", "max-length": 4096}
GRPO = {
    "problems": "problems/train", "grader": "final-answer", "rewards": {"grade": 1}, "unscored": "drop", "steps": 100,
    "group-size": 8, "problems-per-step": 8, "max-tokens": 2048, "precision": "bfloat16",
}  # fmt: skip


def without_host(text: str) -> str:
    """Return lines for a site without the cores and the memory of a node."""
    return re.sub(r", cpus_per_task: \d+, mem_mb: \d+", "", text)


def entry(of, model, **more):
    """Return `sft/x`, `grpo/x` or `responses/x` of a base, with further fields."""
    plain = {"sft": SFT, "grpo": GRPO, "responses": {"problems": "problems/bench"}}[of]
    return {f"{of}/x": {**plain, "model": f"base/{model}", **{key.replace("_", "-"): more[key] for key in more}}}


@pytest.fixture
def feasibility(tmp_path):
    """Return what a target takes on a machine, where nothing is made."""

    def whole(target, entries, on="8xH100", fill=1.0):
        book = Mill(tmp_path, **{**SMALL, **MODELS, **entries}).config
        return Feasibility(RunPlan(book, target, tmp_path), machine(on), fill)

    return whole


@pytest.fixture
def judged(feasibility):
    """Return the verdict on the first of some entries."""

    def verdict(entries, on="8xH100", fill=1.0):
        name = next(iter(entries))
        return next(v for v in feasibility(name, entries, on, fill).verdicts if v.stage == name)

    return verdict


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        *((recipe, "8xH100") for recipe in RECIPES),
        ("deepseek-r1", "4x24GB"),
        ("smol", "cpu"),
        ("smol-gsm8k", "cpu"),
        ("qed-nano", "cpu"),
    ],
)
def test_every_recipe_has_a_verdict(recipe, name):
    """Every stage that holds weights fits, or says why not and what would; no shape is unknown."""
    whole = Feasibility(plan(recipe), machine(name))
    assert all(verdict.fits is not None for verdict in whole.verdicts if not verdict.judge)
    assert all(bool(verdict.faults) != bool(verdict.fits) for verdict in whole.verdicts)
    text = "\n".join(whole.lines())
    assert text.startswith(f"{recipe} on ") and json.dumps(whole.data())
    assert whole.fits == ("does not fit" not in text)


@pytest.mark.parametrize(
    ("model", "on", "layout", "again"),
    [
        ("half", "H100", "one process", False),
        ("half", "8xH100", "ddp", False),
        ("seven", "8xH100", "fsdp2", False),
        ("seven", "8xRTX-4090", "fsdp2-offload", True),
        ("thirty-two", "8xH100", "fsdp2-offload", True),
        ("thirty-two", "4x8xH100", "fsdp2", True),
    ],
)
def test_training_takes_the_first_layout_that_fits(judged, model, on, layout, again):
    """Full copies before shards, shards before host memory, recomputation only if needed."""
    verdict = judged(entry("sft", model), on)
    way = verdict.ways[0]
    assert verdict.fits and (way.layout, way.again) == (layout, again)
    assert way.bytes <= memory.TIGHT * machine(on).bytes and way.devices == min(machine(on).devices, SFT["batch-size"])


def test_what_does_not_fit_says_what_would(judged):
    """7 B do not fit one GPU of 80 GB; the need, the largest part and the smallest larger machine are named."""
    verdict = judged(entry("sft", "seven"), "H100")
    assert verdict.fits is False and not verdict.ways
    assert re.fullmatch(
        r"one process: needs 1.*, more than 90 % of 80.0 GB \(largest part: optimizer\)", verdict.faults[0]
    )
    assert verdict.faults[1].startswith("fits 8xH100 with fsdp2, ")


def test_host_memory_limits_what_is_kept_there(judged):
    """671 B parameters cannot be loaded in float32 with 2 TB of host memory; more nodes change nothing."""
    verdict = judged(entry("sft", "v3"))
    said = "fsdp2-offload: needs 2,684.1 GB of host memory to load the weights, 10,851.0 GB in training, of 2,048.0 GB"
    assert said in verdict.faults and verdict.faults[-1] == "does not fit 32x8xH100 either: use a smaller model"


@pytest.mark.parametrize(
    ("on", "model", "more", "copies", "processes"),
    [
        ("H100", "half", {}, 1, 1),
        ("8xH100", "half", {}, 8, 8),
        ("2x8xH100", "half", {"problems-per-step": 3, "group-size": 4}, 6, 6),
        ("8xH100", "seven", {}, 1, 8),
        ("8xH100", "seven", {"kl": 0.01}, 2, 8),
        ("8xH100", "half", {"preferences": {"base/maths": {"weight": 1}}}, 8, 8),
    ],
)
def test_host_memory_of_a_computer_is_what_its_processes_read(judged, on, model, more, copies, processes):
    """Each process of DDP loads full weights, of FSDP2 the first one, which holds the reference as well."""
    verdict = judged(entry("grpo", model, **more), on)
    reward = 4 * 1_543_714_304 * ("preferences" in more)
    assert verdict.ways[0].host_bytes == 4 * verdict.parameters * copies + reward + processes * vllm_memory.LIBRARIES


def test_host_memory_of_a_computer_is_what_is_kept_there(judged):
    """FSDP2 offloads more to the host than it loads: weights, gradients, two moments, inputs of layers."""
    verdict = judged(entry("sft", "thirty-two"))
    assert verdict.ways[0].layout == "fsdp2-offload" and verdict.ways[0].host_bytes > 16 * verdict.parameters


def test_reference_that_is_renewed_keeps_whole_weights(judged):
    """With `reference-sync-steps` only full copies are tried; the remedy without it is named. A smaller model keeps it."""
    small, large = (judged(entry("grpo", model, kl=0.001, reference_sync_steps=10)) for model in ("half", "seven"))
    assert small.fits and {way.layout for way in small.ways} == {"ddp"}
    without = "without `reference-sync-steps`, which need full weights on each device, fits 8xH100 with fsdp2, "
    assert large.faults[0].startswith("ddp: ") and large.faults[1].startswith(without) and len(large.faults) == 2
    assert judged(entry("grpo", "seven", kl=0.001)).ways[0].layout == "fsdp2"


@pytest.mark.parametrize(
    ("entries", "fits"),
    [
        (entry("sft", "maths", max_length=4096), True),
        (entry("sft", "maths", max_length=4097), False),
        (entry("grpo", "maths", max_tokens=4096), False),  # no room for a prompt
        (entry("responses", "maths", max_tokens=2048), True),
        (entry("responses", "maths", max_tokens=4096), False),
    ],
)
def test_rows_beyond_the_context_do_not_fit(judged, entries, fits):
    """A model made for 4,096 tokens learns and writes rows of 4,096; with another `context` it may do longer ones."""
    verdict = judged(entries)
    said = "base/maths: a row may have 4,097 tokens, but the model's context has 4,096; expected rows that fit. "
    assert verdict.fits is fits and [fault.partition("Lower")[0] for fault in verdict.faults] == [said] * (not fits)
    assert judged({**entries, "base/maths": {**MODELS["base/maths"], "context": 8192, "rope-theta": 1e5}}).fits


def test_prompts_do_not_shrink_with_answers(judged):
    """Short answers are to long questions, too; only a short context leaves less room for them."""
    many = {"problems_per_step": 256, "group-size": 16}
    verdict = judged(entry("grpo", "half", max_tokens=32, **many), "H100")
    assert verdict.tokens == grpo.PROMPT_TOKENS + 32 and verdict.ways[0].rows <= 64
    assert judged(entry("grpo", "maths", max_tokens=3072 + 512, **many)).tokens == 4096
    assert judged(entry("responses", "half", max_tokens=32), "H100").tokens == grpo.PROMPT_TOKENS + 32


@pytest.mark.parametrize(
    ("entries", "devices"),
    [
        *((entry("sft", "half", batch_size=batch), devices) for batch, devices in ((32, 8), (12, 6), (7, 7), (1, 1))),
        (entry("grpo", "half", group_size=4, problems_per_step=4, summarizer="api/referee", summaries=2), 2),
    ],
)
def test_batch_decides_among_how_many_gpus_it_divides(judged, entries, devices):
    """The most that divide it; two problems with two states of four attempts that think together each need two."""
    assert judged(entries).ways[0].devices == devices


@pytest.mark.parametrize(("model", "parallel"), [("half", 1), ("seven", 1), ("thirty-two", 2), ("v3", None)])
def test_asked_weights_are_shared_out_by_vllm_where_they_have_to_be(judged, model, parallel):
    """The fewest GPUs that hold the weights and one row; 671 B fit no eight of 80 GB."""
    verdict = judged(entry("responses", model, max_tokens=24576))
    assert verdict.fits == (parallel is not None)
    assert [way.parallel for way in verdict.ways][:1] == [parallel] * verdict.fits


@pytest.mark.parametrize(
    ("heads", "groups", "numbers"),
    [(40, 10, [1, 2]), (40, 8, [1, 2, 4, 8]), (16, 2, [1, 2, 4, 8]), (14, 2, [1, 2]), (12, 12, [1, 2, 4])],
)
def test_vllm_shares_out_whole_heads_and_groups_of_keys(heads, groups, numbers):
    """Ten groups neither divide among four GPUs nor replicate evenly; two groups are on two of four."""
    config = SimpleNamespace(num_attention_heads=heads, num_key_value_heads=groups)
    network = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: config))
    assert shares(network, 8) == numbers


def test_model_that_plays_a_judge_is_a_stage_with_weights(judged):
    """`api/<name>` with weights is asked like any artifact's model, with its own limit of tokens."""
    labels = {"labels/x": {"problems": "problems/train", "model": "api/own"}}
    verdict = judged({**labels, "api/own": {**JUDGE, "weights": "base/half"}}, "H100")
    assert verdict.fits and (verdict.model, verdict.tokens) == ("base/half", 1024 + 512)
    assert verdict.asks and not judged(entry("sft", "half")).asks


@pytest.mark.parametrize(
    ("grading", "tokens", "fits"),
    [
        ({"grader": "api/own", "grader-prompt": "grade-imo"}, 30_000 + 1024 + 512, False),
        (
            {"grader": "api/own", "grader-prompt": "answer-equivalence"},
            1024 + 512,
            True,
        ),  # it is shown the answer alone
        ({"grader": "grader/jury"}, 30_000 + 1024 + 512, False),
        ({"grader": "grader/first"}, 30_000 + 1024 + 512, False),
    ],
)
def test_judge_has_to_have_room_for_what_it_grades(judged, grading, tokens, fits):
    """A judge of 4,096 tokens cannot be shown proofs of 30,000, whichever grader's it is."""
    entries = {"grades/x": {"responses": "responses/x", **grading}, **entry("responses", "half", max_tokens=30_000)}
    verdict = judged({**entries, **GRADERS}, "H100")
    assert (verdict.model, verdict.tokens, verdict.fits) == ("base/maths", tokens, fits)
    if not fits:
        assert verdict.faults[0].startswith("base/maths: a row may have 31,536 tokens")
        long = {"base/maths": {**MODELS["base/maths"], "context": 32_768, "rope-theta": 1e6}}
        assert judged({**entries, **GRADERS, **long}, "H100").fits


@pytest.mark.parametrize(
    "asked",
    [
        {"grader": "grader/own"},
        {"grader": "grader/first"},
        {"audit": "api/own", "audit-prompt": "grade-imo"},
        {"preferences": {"api/own": {"weight": 1, "prompt": "prefer-helpful"}}},
        {"summarizer": "api/own", "summaries": 2},
    ],
)
def test_training_does_not_open_a_judge_on_its_own_gpus(judged, asked):
    """A model of ours that rewards, escalates, audits, prefers or sums up would be next to the training."""
    entries = {**entry("grpo", "half", **asked), **GRADERS}
    verdict = judged(entries)
    assert verdict.fits is False and len(verdict.faults) == 1
    assert re.match("api/own is base/maths, .*`id` instead of `weights`", verdict.faults[0])
    served = {key: value for key, value in JUDGE.items() if key != "weights"}
    assert judged({**entries, "api/own": {**served, "id": "judge", "price": "unknown"}}).fits


@pytest.mark.parametrize(
    "entries", [entry("sft", "unknown"), entry("grpo", "half", preferences={"base/unknown": {"weight": 1}})]
)
def test_unknown_shape_is_neither_yes_nor_no(feasibility, entries):
    """A model of unknown shape, trained or rewarding, is named; its stage has no verdict, and fails no other."""
    (name,) = entries
    whole = feasibility(name, entries)
    said = {v.stage: v.faults for v in whole.verdicts if v.fits is None}
    assert said == {name: ["base/unknown: its shape is unknown until it is downloaded"]} and whole.fits


def test_model_that_cannot_be_built_does_not_fit(judged, tmp_path):
    """Its stage says why, in training or inference; the plan of the others continues."""
    (tmp_path / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    sees = {"base/sees": {"source": "folder", "path": str(tmp_path)}}
    for entries in (entry("sft", "sees"), entry("responses", "sees")):
        verdict = judged({**entries, **sees})
        assert verdict.fits is False and verdict.faults[0].startswith("base/sees: Unrecognized configuration class")


def test_shorter_texts_take_fewer_hours_and_no_other_layout(judged):
    """`fill` is the mean length: half of it takes less than half of the time of attention, and no less memory."""
    whole, half = (judged(entry("grpo", "seven"), fill=fill) for fill in (1.0, 0.5))
    assert half.ways == whole.ways
    for part in ("busy", "booked", "days"):
        assert 0 < getattr(half.hours, part)[0] < getattr(whole.hours, part)[0]


def test_hours_on_a_gpu_without_rates_are_not_known(judged):
    """A GPU of one's own has memory and no speed."""
    for entries in (entry("grpo", "half"), entry("responses", "half", max_tokens=512)):
        verdict = judged(entries, "8x48GB")
        assert verdict.fits and verdict.hours is None


@pytest.mark.parametrize(
    ("more", "passes"),
    [({}, 1), ({"kl": 0.01}, 2), ({"top-k": 20}, 0), ({"top-k": 20, "mini-batches": 2}, 1), ({"max-staleness": 1}, 0)],
)
def test_probabilities_for_vllms_correction_are_a_pass_more(judged, monkeypatch, more, passes):
    """Where vLLM draws from all tokens a step has a forward pass more, as with `mini-batches`; not with a `max-staleness`."""
    found = []
    monkeypatch.setattr(hours, "sampling", lambda *args: (0, 0))
    monkeypatch.setattr(hours, "learning", lambda *args: found.append(args[-1]) or 0)
    judged(entry("grpo", "half", **more))
    assert set(found) == {passes}


@pytest.mark.parametrize(
    ("more", "rows"),
    [
        ({}, 6400),
        ({"summarizer": "api/referee", "summaries": 2}, 6400 + 400 * 3),
        ({"idle": "replace", "idle-rounds": 3}, 6400 * 3),
        ({"evaluate": "problems/bench", "evaluate-every": 50, "evaluate-attempts": 2}, 6400 + 3 * 2 * 12),
    ],
)
def test_all_texts_of_a_training_are_sampled(judged, monkeypatch, more, rows):
    """So are turns of thought before two groups of eight, further batches for idle groups, and held-out problems."""
    found = []
    monkeypatch.setattr(hours, "sampling", lambda _, texts, *rest: found.append(texts.rows) or (0, 0))
    judged(entry("grpo", "half", **more))
    assert set(found) == {rows}


@pytest.mark.parametrize(
    ("more", "rows"),
    [
        ({}, 20 * 3 * 8 * (2 + 4)),
        ({"iterations": 4}, 5 * 3 * 8 * (2 + 4)),
        ({"proposer": "frozen"}, 20 * 3 * 8 * 2),
        ({"proposer": "frozen", "buffer-admits": "non-one"}, 20 * 3 * 8 * (2 + 4)),
        ({"proposer": "absent", "seed-tasks": "problems/train"}, 20 * 3 * 8),
    ],
)
def test_all_replies_of_self_play_are_sampled(judged, monkeypatch, more, rows):
    """Of each task and role, and the attempts at proposed tasks, if they are made."""
    found = []
    monkeypatch.setattr(hours, "sampling", lambda _, texts, *rest: found.append(texts.rows) or (0, 0))
    judged({"selfplay/x": {"model": "base/half", "steps": 20, "batch-size": 8, "attempts": 4, **more}})
    assert set(found) == {rows}


@pytest.mark.parametrize("length", [{"steps": 100, "last-step": 90}, {"epochs": 2.0}])
def test_training_that_continues_counts_its_own_steps(feasibility, length):
    """Rows of the training before are not counted again."""
    plain = {key: value for key, value in SFT.items() if key != "steps"}
    first = {**plain, "model": "base/half", "schedule": "constant", "save-state": True, **length}
    longer = {"steps": 100, "last-step": None} if "steps" in length else {"epochs": 3.0}
    entries = {"sft/x": first, "sft/y": {"continue": "sft/x", **longer}}
    verdicts = feasibility("sft/y", entries).verdicts
    before, after = (v.hours.booked[1] for v in verdicts if v.stage in ("sft/x", "sft/y"))
    assert after == pytest.approx(before / (9 if "steps" in length else 2))


def test_site_has_the_neediest_layout_and_what_cannot_share_it(feasibility):
    """One line for each kind of job fits all stages it can; full weights or a small batch need a line of their own."""
    entries = {
        "sft/small": {**SFT, "model": "base/half"},
        "grpo/large": {**GRPO, "model": "base/seven"},
        "grpo/renewed": {**GRPO, "model": "base/half", "kl": 0.01, "reference-sync-steps": 5},
        "responses/x": {"problems": "problems/bench", "model": "grpo/large"},
        "responses/y": {"problems": "problems/train", "model": "grpo/large"},
        "scores/x": {"problems": ["problems/bench"], "metrics": ["text-tokens"], "tokenizer": "base/half"},
    }
    text = without_host("\n".join(feasibility("test", entries).lines()))
    launch = "launch: python -m proofmill.runtime.cluster.launching"
    assert (
        f"  sft: {{gpu: 8, {launch} ddp}}\n  grpo: {{gpu: 8, {launch} fsdp2, engine: vllm, engine_args: --tensor-parallel-size 4}}\n"
        in text
    )
    assert "  inference: {gpu: 1, engine: vllm}\n" in text
    assert f"  sft/cold: {{gpu: 4, {launch} ddp --processes 4}}\n" in text
    assert f"  grpo/renewed: {{gpu: 8, {launch} ddp, engine: vllm}}" in text
    assert "responses/x and 1 more " in text


@pytest.mark.parametrize(
    ("on", "trained", "line", "own"),
    [
        ("8xH100", {"a": ("seven", 6), "b": ("seven", 8), "c": ("half", 11)}, "gpu: 8, fsdp2", {"a": "gpu: 6, fsdp2", "c": "gpu: 1"}),
        ("8xH100", {"a": ("seven", 6), "b": ("seven", 8), "c": ("half", 6)}, "gpu: 8, fsdp2", {"a": "gpu: 6, fsdp2", "c": "gpu: 6, ddp"}),
        ("8xH100", {"a": ("seven", 8), "b": ("half", 8), "c": ("half", 8)}, "gpu: 8, ddp", {"a": "gpu: 8, fsdp2"}),
        ("4x8xH100", {"a": ("thirty-two", 32), "b": ("half", 4)}, "nodes: 4, gpu: 32, fsdp2", {"b": "gpu: 4, ddp"}),
    ],
)  # fmt: skip
def test_line_of_a_site_starts_most_trainings_and_others_have_their_own(feasibility, on, trained, line, own):
    """Each training starts in its fastest way: by the line that most of them take, of equally many the neediest, or its own."""
    entries = {"examples/all": {"concatenate": {f"examples/{name}": 1 for name in trained}}}
    for name, (model, batch) in trained.items():
        entries[f"sft/{name}"] = {**SFT, "model": f"base/{model}", "batch-size": batch}
        entries[f"responses/{name}"] = {"problems": "problems/train", "model": f"sft/{name}", "max-tokens": 1024}
        entries[f"examples/{name}"] = {"responses": f"responses/{name}"}
    text = "\n".join(feasibility("examples/all", entries, on).lines())
    said = re.sub(r"launch: \S+ -m \S+ | --processes \d+", "", without_host(text))
    assert re.findall(r"^  sft: {(.*)}", said, re.MULTILINE) == [line]
    assert dict(re.findall(r"^  sft/(\w): {(.*)}", said, re.MULTILINE)) == own


def test_training_that_is_judged_by_our_weights_has_a_line_of_each(feasibility):
    """On processors a training and the judge that its own job asks are two lines: how it learns, and how that is asked."""
    judge = {**JUDGE, "weights": "sft/cold", "max-tokens": 64}
    grader = {"judges": ["api/own"], "prompt": "answer-equivalence"}
    trained = {**GRPO, "model": "sft/cold", "max-tokens": 64, "grader": "grader/own"}
    lines = feasibility("grpo/x", {"api/own": judge, "grader/own": grader, "grpo/x": trained}, "cpu").lines()
    said = [line for line in lines if line.startswith("grpo/x  ")]
    assert ["one process" in line for line in said] == ["processors" not in line for line in said] == [True, False]


@pytest.mark.parametrize(
    ("on", "entry", "words", "processes"),
    [
        ("8xH100", {}, {"gpu": 8}, [8]),
        ("2x8xH100", {}, {"nodes": 2, "gpu": 16}, [16, 16]),
        ("2x8xH100", {"problems-per-step": 3}, {"nodes": 2, "gpu": 16}, [12, 12]),
        ("8xH100", {"max-staleness": 4}, {"gpu": 8}, [4]),
        ("2xH100", {"max-staleness": 4, "model": "base/half"}, {"gpu": 2}, [1]),
        ("2x8xH100", {"max-staleness": 4}, {"nodes": 2, "gpu": 16}, [8]),
        ("3x8xH100", {"max-staleness": 4, "model": "base/thirty-two"}, {"nodes": 3, "gpu": 24}, [16, 16]),
    ],
)
def test_lines_for_a_site_start_what_was_planned(
    feasibility, monkeypatch, capsys, tmp_path, on, entry, words, processes
):
    """Where SLURM gives what a line asks for, its launch starts the processes, and the server, of the verdict."""
    entries = {"grpo/x": {**GRPO, "model": "base/seven", "group-size": 4, "problems-per-step": 16, **entry}}
    whole = feasibility("grpo/x", entries, on)
    (way, *_), lines = next(v.ways for v in whole.verdicts if v.stage == "grpo/x"), whole.lines()
    (line,) = [line for line in lines if re.search(r"^  grpo: |: grpo/x by ", line)]
    (found,) = re.findall(r"{.*}", line)
    monkeypatch.chdir(tmp_path)
    Path("site.yaml").write_text(f"grpo: {found}\n")
    given = site_resources.set_resources(ROOT / "profiles/slurm")["grpo"]
    assert {word: given[word] for word in words} == words and given["nodes"] == words.get("nodes", 1)
    assert way.host_bytes < given["mem_mb"] * 2**20 < machine(on).host
    assert given["cpus_per_task"] * given["nodes"] == 8 * given["gpu"]
    monkeypatch.chdir(ROOT)
    nodes = [f"node{number}" for number in range(given["nodes"])]
    monkeypatch.setattr(slurm, "nodes", lambda: nodes)
    monkeypatch.setattr(slurm, "address", str)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(given["gpu"] // given["nodes"]))))
    launch = shlex.split(yaml.safe_load(found)["launch"])[3:]
    job = ["proofmill.grpo", "grpo/x", "--entry", '{"entry": {"model": "base/seven", "max_staleness": 1}}']
    monkeypatch.setattr("sys.argv", ["launching", "--dry-run", *launch, *job])
    launching.main()
    said = capsys.readouterr().out
    assert list(map(int, re.findall(r"--num_processes (\d+)", said))) == processes == [way.devices] * len(processes)
    sizes = [int(size) for size in re.findall(r"--(?:data|tensor)-parallel-size (\d+)", said)]
    inside = re.findall(r"engine_args: --tensor-parallel-size (\d+)", found)
    assert math.prod(sizes) == (way.apart or 1) and way.parallel in (1, *sizes, *map(int, inside))


@pytest.mark.parametrize(("model", "on"), [("half", "H100"), ("seven", "H100"), ("thirty-two", "8xH100")])
def test_line_for_jobs_that_serve_has_memory_for_their_weights(feasibility, tmp_path, monkeypatch, model, on):
    """The neediest of several decides; those of its kind that ask a remote model keep the little that is shipped."""
    names = dict.fromkeys(["half", model])
    entries = {"scores/x": {"grades": [f"grades/{name}" for name in names], "metrics": ["avg-at-k"]}}
    for name in names:
        asked = {"problems": "problems/bench", "max-tokens": 1024, "model": f"base/{name}"}
        graded = {"responses": f"responses/{name}", "grader": "final-answer"}
        entries |= {f"responses/{name}": asked, f"grades/{name}": graded}
    whole = feasibility("scores/x", entries, on)
    (line,) = [line for line in whole.lines() if line.startswith("  inference: ")]
    monkeypatch.chdir(tmp_path)
    Path("site.yaml").write_text(line)
    given = site_resources.set_resources(ROOT / "profiles/slurm")["responses"]["mem_mb"]
    (there,) = map(int, re.findall(r"^\((\d+) if .* else 4000\)$", given))
    assert 2 * max(verdict.parameters for verdict in whole.verdicts) < there * 2**20 < machine(on).host


def test_rollouts_ahead_have_gpus_of_their_own(judged):
    """With a `max-staleness` a server samples on what the batch leaves, at least what holds its weights; one GPU is too few."""
    ahead = entry("grpo", "seven", max_staleness=4)
    verdict = judged(ahead)
    way = verdict.ways[0]
    assert verdict.fits and way.share is None and 0 < way.apart <= 8 - way.devices
    assert judged(entry("grpo", "seven")).ways[0].apart == 0
    # Rows that are learned ahead are not sorted by their lengths, and may all be in one pass (grpo._train_async).
    few = entry("grpo", "half", problems_per_step=1, max_staleness=2)
    for on in ("8xH100", "2xH100"):
        way = judged(few, on).ways[0]
        assert way.rows * way.devices == 8
    alone = judged(ahead, "B200")
    assert alone.fits is False and alone.faults[0].startswith("`max-staleness` needs at least 1 further GPUs")


def test_examples_are_counted_as_if_nothing_were_refused(judged):
    """Epochs over attempts that are not graded yet take at most as long as over all of them."""
    entries = {
        **entry("responses", "half", problems="problems/train", attempts=3),
        "grades/x": {"responses": "responses/x", "grader": "final-answer"},
        "examples/x": {"grades": "grades/x", "keep": ["solved"]},
        "examples/both": {"concatenate": {"examples/x": 1, "examples/cold": 0.5}},
    }
    steps = {key: value for key, value in SFT.items() if key != "steps"}
    by_epochs = {**steps, "model": "base/half", "examples": "examples/both", "epochs": 2.0}
    found = judged({"sft/x": by_epochs, **entries}).hours.booked[0]
    rows = 2 * (3 * 48 + 0.5 * 48)
    assert found == pytest.approx(judged(entry("sft", "half", batch_size=8, steps=int(rows // 8))).hours.booked[0])


def test_job_chooses_what_was_planned(judged, tmp_path, monkeypatch):
    """The rows, the recomputing and vLLM's share of a verdict are those that the job itself takes on such GPUs."""
    entries = entry("grpo", "seven", kl=0.01)
    way = judged(entries).ways[0]
    whole = Mill(tmp_path, **{**SMALL, **MODELS, **entries}).config
    from proofmill.engines import rollout_engines

    network = Shapes(whole, tmp_path).of("base/seven")
    for name, value in {"WORLD_SIZE": "8", "LOCAL_RANK": "0", "RANK": "0", "ACCELERATE_USE_FSDP": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(memory, "device_memory", lambda: (80 * 10**9, True))
    monkeypatch.setattr(micro_batches.processes, "broadcast", lambda value=None: value)
    monkeypatch.setattr(micro_batches, "last_checkpoint", lambda job: None)
    parent = SimpleNamespace(weights=lambda: network)
    job = SimpleNamespace(name="grpo/x", threads=1, engine="vllm", engine_args="", parent=lambda _: parent, stamp={})
    trained = whole.entries["grpo/x"]
    extra_memory = grpo.footprint(trained, network, [])
    sampling = rollout_engines.sampling(job, trained, 8, **extra_memory)
    rows = micro_batches.split(
        trained, job, 64, at_least=micro_batches.LENGTHS, **extra_memory, **rollout_engines.footprint(sampling, 8)
    )
    assert way.layout == "fsdp2" and way.share == sampling["vllm_gpu_memory_utilization"]
    assert (way.rows, way.again) == (rows["per_device_train_batch_size"], rows["gradient_checkpointing"])
    assert sampling["vllm_max_model_length"] >= extra_memory["tokens"] and way.share <= vllm_memory.ALONE


def test_job_on_processors_chooses_what_was_planned(judged, tmp_path, monkeypatch):
    """On this machine, too: of its free memory a job plans with the part of its threads, whatever its GPUs hold."""
    monkeypatch.setattr(free_memory, "least", lambda: 64 * 10**9)
    monkeypatch.setattr(memory.os, "sched_getaffinity", lambda _: range(8))
    monkeypatch.setattr(micro_batches, "last_checkpoint", lambda job: None)
    entries = entry("sft", "half", batch_size=16, max_length=1024)
    book = Mill(tmp_path, **{**SMALL, **MODELS, **entries}).config
    network = Shapes(book, tmp_path).of("base/half")
    job = SimpleNamespace(name="sft/x", threads=1, stamp={}, parent=lambda _: SimpleNamespace(weights=lambda: network))
    with monkeypatch.context() as on_processors:
        on_processors.setattr(memory, "device_memory", lambda: (free_memory.least(), False))
        rows = micro_batches.split(book.entries["sft/x"], job, 16, tokens=1024)
    monkeypatch.setattr(memory, "device_memory", lambda: (24 * 10**9, True))
    verdict = judged(entries, "cpu")
    chosen = (rows["per_device_train_batch_size"], rows["gradient_checkpointing"])
    assert (verdict.ways[0].rows, verdict.ways[0].again) == chosen == (1, True) and verdict.fits


def test_command_says_no_by_its_exit_code(monkeypatch, capsys):
    """`proofmill plan RECIPE --machine NAME`: 1 where a stage does not fit, with what would; lines for `site.yaml` where it does."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["proofmill", "plan", *words])
        command.main()
        return capsys.readouterr().out

    with pytest.raises(SystemExit) as left:
        run("r1-zero", "--machine", "8xH100")
    said = capsys.readouterr().out
    assert left.value.code == 1 and "grpo/r1-zero-short" in said and "does not fit" in said
    said = without_host(run("qed-nano", "--machine", "8xH100", "--mean-length", "0.33"))
    assert "  grpo: {gpu: 8, launch: python -m proofmill.runtime.cluster.launching fsdp2, engine: vllm}\n" in said
    assert "if the mean length of texts is 0.33 of the maximum" in said
    assert json.loads(run("gsm8k-length", "--machine", "H100", "--json"))["fits"] is True
    with pytest.raises(SystemExit, match="--mean-length 2: is not such a share; expected one above 0"):
        run("nano", "--machine", "H100", "--mean-length", "2")
    with pytest.raises(SystemExit, match="--machine 8xG200: no such machine"):
        run("nano", "--machine", "8xG200")


def test_split_of_the_gpus_follows_the_rates_of_both_parts(judged):
    """Long rollouts need more GPUs for sampling than short ones, of more than two splits that fit."""
    splits = {}
    for tokens in (512, 16384):
        verdict = judged(entry("grpo", "seven", max_staleness=4, max_tokens=tokens))
        assert verdict.hours.busy[1] < verdict.hours.booked[1]
        splits[tokens] = verdict.ways[0].apart
        assert len({way.apart for way in verdict.ways}) > 2
    assert splits[16384] > splits[512]


@pytest.mark.parametrize(
    ("on", "problems", "tokens", "layout", "parallel"),
    [
        ("2xH100", 64, 4096, "fsdp2", 2),
        ("2xH100", 64, 16384, "fsdp2-offload", 1),
        ("2xH100", 64, 1024, "fsdp2", 1),
        ("8xH100", 64, 4096, "fsdp2", 1),
    ],
)
def test_layout_is_the_fastest_by_its_own_hours(judged, on, problems, tokens, layout, parallel):
    """On two GPUs, shards of 7 B leave vLLM little room: long rollouts need both GPUs for its weights, or host memory."""
    verdict = judged(entry("grpo", "seven", max_tokens=tokens, problems_per_step=problems), on)
    assert (verdict.ways[0].layout, verdict.ways[0].parallel) == (layout, parallel)


def test_judge_of_open_weights_has_hours_on_a_server_of_its_own(feasibility):
    """Each of 6,400 rollouts is one call; a judge with a price, or of unknown shape, has no hours."""
    judge = {"id": "openai/gpt-oss-20b", "commit": "a" * 40, "price": "unknown", "max-tokens": 512}
    asked = {**entry("grpo", "half", grader="api/open", grader_prompt="grade-imo")}
    planned = feasibility("grpo/x", {"api/open": judge, **asked})
    verdict = next(v for v in planned.verdicts if v.judge)
    assert (verdict.judge, verdict.stage, verdict.fits) == ("api/open", "grpo/x", True)
    expected = {**judge, "expected-tokens": {"input": 100, "output": 51}}
    less = next(v for v in feasibility("grpo/x", {"api/open": expected, **asked}).verdicts if v.judge)
    assert 0 < less.hours.booked[0] < verdict.hours.booked[0] / 5
    text = "\n".join(planned.lines())
    assert re.search(r"^api/open for grpo/x .* on further GPUs .* fits ", text, re.MULTILINE)
    training = next(v for v in planned.verdicts if v.stage == "grpo/x" and not v.judge)
    assert list(planned.booked) == list(training.hours.booked + verdict.hours.booked)
    assert planned.days[1] < (training.hours.days + verdict.hours.days)[1]
    paid = {**judge, "price": {"input": 1, "output": 1}, "price-source": "a test, 2026-11-27"}
    assert not [v for v in feasibility("grpo/x", {"api/open": paid, **asked}).verdicts if v.judge]
    other = feasibility("grpo/x", {"api/open": {**judge, "id": "owner/model"}, **asked})
    unknown = next(v for v in other.verdicts if v.judge)
    assert other.fits and unknown.fits is None and unknown.hours is None
    assert unknown.faults == ["api/open: the shape of owner/model is unknown; its GPU-hours are not included"]


def test_days_are_those_of_the_longest_chain_and_of_all_gpus_at_work(feasibility):
    """A chain adds up; three trainings on four of eight GPUs each take half of their sum, not the longest of them."""
    chain = {"sft/y": {**SFT, "model": "sft/x"}, **entry("sft", "half")}
    planned = feasibility("sft/y", chain)
    days = [verdict.hours.days for verdict in planned.verdicts]
    assert len(days) == 2 and list(planned.days) == pytest.approx(list(sum(days)))
    assert json.loads(json.dumps(planned.data()))["days"] == list(planned.days)
    one = {**SFT, "model": "base/half", "batch-size": 4}
    several = {f"sft/{name}": one for name in "abc"}
    names = {f"responses/{name}": {"problems": "problems/bench", "model": f"sft/{name}"} for name in "abc"}
    sums = {f"examples/{name}": {"responses": f"responses/{name}"} for name in "abc"}
    target = {"examples/all": {"concatenate": {f"examples/{name}": 1 for name in "abc"}}}
    planned = feasibility("examples/all", {**several, **names, **sums, **target})
    trained = [verdict.hours for verdict in planned.verdicts if not verdict.asks and verdict.stage in several]
    asked = [verdict.hours for verdict in planned.verdicts if verdict.asks]
    booked = sum(estimate.booked[1] for estimate in trained + asked)
    assert planned.days[1] == pytest.approx(booked / 8 / 24) and len(trained) == 3


def test_hours_of_published_weights_are_told_by_benchmark():
    """Each benchmark of `released` has its GPU-hours on one GPU, which add up to the total and to that in the docs."""
    planned = Feasibility(plan("released"), machine("1xH100"), 0.4)
    assert planned.fits
    text = "\n".join(planned.lines())
    (listed,) = re.findall(r"^by benchmark: (.*)$", text, re.MULTILINE)
    highest = {
        name: float(high.replace(",", "")) for name, high in re.findall(r"(\S+) (?:\S+ to )?([\d.,]+)(?:, |$)", listed)
    }
    assert set(highest) > {"proofbench", "answerbench", "gpqa-diamond", "contests", "humaneval-plus", "minerva"}
    assert sum(highest.values()) == pytest.approx(planned.booked[1], rel=0.01)
    page = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
    assert f"GPU-hours by benchmark: {format_ends(planned.booked)} in all" in page


def test_table_in_the_docs_is_what_the_command_says():
    """docs/recipes.md: GPU-hours and days of each training system on eight H100, at full length and at a third of it."""
    page = (ROOT / "docs/recipes.md").read_text(encoding="utf-8").partition("on 8xH100 | fits")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()[2:]]
    assert len(rows) > 8
    for name, said, *figures in rows:
        planned = plan(name.strip("`"))
        for fill, booked, days in zip((1.0, 0.33), figures[::2], figures[1::2], strict=True):
            whole = Feasibility(planned, machine("8xH100"), fill)
            assert whole.fits == said.startswith(("yes", "the same")), name
            known = ["" if ends is None else format_ends(ends) for ends in (whole.booked, whole.days)]
            assert [booked, days] == known, name
