"""One model, one distribution: whatever the model's files say, all engines answer by the settings of the entry alone."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

import habits
from habits import DRAWS, LEFT_OUT, LONG, TOKENS
from proofmill.artifacts.states import States

LEVEL = 1e-4
SETTINGS = {
    "responses/drawn": (DRAWS, TOKENS, {}),
    "responses/left-out": (DRAWS, TOKENS, LEFT_OUT),
    "responses/greedy": (1, LONG, {"temperature": 0}),
}
# A step of 512 tokens has room for one of the long prompts, and for a part of the next one.
IN_PARTS = "--enable-chunked-prefill --max-num-batched-tokens 512 --kv-cache-memory-bytes 100000000"
SCRIPT = Path(habits.__file__)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("habits") / "results"
    habits.make_habits(folder)
    return folder


@pytest.fixture(scope="module")
def by_hand(results):
    """`by_hand(problem, name)`: how often each answer comes, from the bare logits; each once."""
    hand, known = habits.ByHand(results.parent / "habits"), {}

    def answers(content: str, name: str) -> Counter:
        if (content, name) not in known:
            draws, tokens, setting = SETTINGS[name]
            known[content, name] = hand.answers(content, 4 * draws, tokens, **setting)
        return known[content, name]

    return answers


def place_for(results: Path, engine: str) -> Path:
    """Return a results folder of its own, as `results` is, for what an engine makes."""
    place = results.parent / engine / results.name
    if not place.exists():
        shutil.copytree(results, place)
        (place.parent / "habits").symlink_to(results.parent / "habits")
    return place


def made(results: Path, engine: str, *names: str) -> Path:
    """Make artifacts with an engine; returns the results folder."""
    place = place_for(results, engine)
    command = [sys.executable, str(SCRIPT), str(place), engine, *names]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return place


def agree(rows: pl.DataFrame, name: str, by_hand) -> None:
    """The answers to each problem, in rows with `prompt`, are distributed as by hand."""
    chances = []
    for (prompt,), of_problem in rows.group_by("prompt", maintain_order=True):
        outcomes = Counter(habits.outcome(*row) for row in of_problem.select("text", "tokens", "stop").iter_rows())
        assert outcomes.total() == SETTINGS[name][0]
        expected = by_hand(prompt, name)
        chances.append(habits.alike(outcomes, expected) if len(expected) > 1 else float(set(outcomes) == set(expected)))
    print(name, *(f"{chance:.2g}" for chance in chances))
    assert len(chances) == 2 and min(chances) > LEVEL, f"{name}: {chances}"


def same(results: Path, by_hand, names: Iterable[str] = SETTINGS) -> None:
    """All that was asked, with each setting, is answered as by hand."""
    for name in names:
        rows = habits.mill(results).table(name).scan().collect()
        agree(rows.with_columns(prompt=pl.col("history").list.last().struct.field("content")), name, by_hand)


def test_transformers_draws_as_the_entry_says(results, by_hand):
    """Neither a penalty, nor a ban, nor a limit of the model's own acts on what is drawn, or on what is likeliest."""
    place = made(results, "transformers", *SETTINGS)
    same(place, by_hand)
    mill = habits.mill(place)
    states = States(mill.book, place)
    assert {states[name].name for name in SETTINGS} == {"done"}
    base = mill.table("base/habits")
    assert mill.table("responses/drawn").stamp["parents"]["base/habits"] != base.content  # as it once counted
    assert base.model != base.stamp["model"] == base.model_given(*habits.SHIPPED)


@pytest.mark.vllm
def test_vllm_in_process_draws_as_the_entry_says(results, by_hand):
    """The same by vLLM in process."""
    same(made(results, "vllm", *SETTINGS), by_hand)


@pytest.mark.vllm
def test_vllm_server_draws_as_the_entry_says(results, by_hand):
    """The same by the server that a job starts, where each setting differs from the model's own."""
    same(made(results, "vllm-server", "responses/left-out"), by_hand, ["responses/left-out"])


@pytest.mark.vllm
def test_service_draws_as_the_entry_says(results, by_hand):
    """The same by a server of `proofmill serve`.

    Its flags have prompts read in parts, at which vLLM on a CPU dies of a seed: long ones are answered in spite of that.
    """
    place = place_for(results, "service")
    serve = (
        "import sys; from pathlib import Path; import habits; from proofmill.engines.services import serving\n"
        "from proofmill.engines.services.directory import Service\n"
        "folder = Path(sys.argv[1]); table = habits.mill(folder).table('base/habits')\n"
        "serving.serve(Service(table.name, folder), 0, serving.weights_of(table, sys.argv[2]), folder / 'service.log')\n"
    )
    served = subprocess.Popen(
        [sys.executable, "-c", serve, str(place), IN_PARTS],
        env={**os.environ, "PROOFMILL_SERVICE_HOST": "127.0.0.1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        same(made(results, "service", *SETTINGS, "responses/long"), by_hand)
    finally:
        served.terminate()
        served.wait()
    long = habits.mill(place).table("responses/long").scan().collect()
    assert set(long["reason"]) == {"ok"} and long["prompt_tokens"].min() > 300


@pytest.mark.parametrize("name", ["grpo/drawn", "grpo/ahead"])
def test_rollouts_are_drawn_as_the_entry_says(results, by_hand, name):
    """Rollouts of a training, with and without a lag, and the file of the weights that it writes has no habits left."""
    place = made(results, "transformers", name)
    table = habits.mill(place).table(name)
    rollouts = pl.read_parquet(table.folder / "rollouts.parquet")
    agree(rollouts, "responses/drawn", by_hand)
    written = json.loads((table.folder / "generation_config.json").read_text())
    assert sorted(written["eos_token_id"]) == sorted(habits.ends_of(results.parent / "habits"))
    assert not written.keys() & habits.SHIPPED.keys()
