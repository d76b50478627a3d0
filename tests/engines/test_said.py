"""One model, one distribution: all engines sample by the entry's settings only, not by those in the model's files."""

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
CHUNKED = "--enable-chunked-prefill --max-num-batched-tokens 512 --kv-cache-memory-bytes 100000000"
SCRIPT = Path(habits.__file__)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("habits") / "results"
    habits.make_habits(folder)
    return folder


@pytest.fixture(scope="module")
def by_hand(results):
    """Return `by_hand(problem, name)`, the counts of each answer computed from the bare logits, cached."""
    hand, known = habits.ByHand(results.parent / "habits"), {}

    def answers(content: str, name: str) -> Counter:
        if (content, name) not in known:
            draws, tokens, setting = SETTINGS[name]
            known[content, name] = hand.answers(content, 4 * draws, tokens, **setting)
        return known[content, name]

    return answers


def place_for(results: Path, engine: str) -> Path:
    """Return a copy of the results folder for an engine."""
    place = results.parent / engine / results.name
    if not place.exists():
        shutil.copytree(results, place)
        (place.parent / "habits").symlink_to(results.parent / "habits")
    return place


def made(results: Path, engine: str, *names: str) -> Path:
    """Make artifacts with an engine and return its results folder."""
    place = place_for(results, engine)
    command = [sys.executable, str(SCRIPT), str(place), engine, *names]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return place


def agree(rows: pl.DataFrame, name: str, by_hand) -> None:
    """Check that the answers to each problem, in rows with `prompt`, are distributed as computed by hand."""
    chances = []
    for (prompt,), of_problem in rows.group_by("prompt", maintain_order=True):
        outcomes = Counter(
            habits.outcome(*row) for row in of_problem.select("text", "tokens", "stop_reason").iter_rows()
        )
        assert outcomes.total() == SETTINGS[name][0]
        expected = by_hand(prompt, name)
        chances.append(habits.alike(outcomes, expected) if len(expected) > 1 else float(set(outcomes) == set(expected)))
    print(name, *(f"{chance:.2g}" for chance in chances))
    assert len(chances) == 2 and min(chances) > LEVEL, f"{name}: {chances}"


def same(results: Path, by_hand, names: Iterable[str] = SETTINGS) -> None:
    """Check the responses of each setting against the distribution computed by hand."""
    for name in names:
        rows = habits.mill(results).table(name).scan().collect()
        agree(rows.with_columns(prompt=pl.col("request_messages").list.last().struct.field("content")), name, by_hand)


def test_transformers_draws_as_the_entry_says(results, by_hand):
    """No penalty, ban or limit in the model's own files changes a draw or a greedy choice."""
    place = made(results, "transformers", *SETTINGS)
    same(place, by_hand)
    mill = habits.mill(place)
    states = States(mill.config, place)
    assert {states[name].name for name in SETTINGS} == {"done"}
    base = mill.table("base/habits")
    assert (
        mill.table("responses/drawn").stamp["parents"]["base/habits"] != base.content
    )  # parents are recorded by another digest
    assert base.model != base.stamp["model"] == base.model_given(*habits.SHIPPED)


@pytest.mark.long
@pytest.mark.vllm
def test_vllm_in_process_draws_as_the_entry_says(results, by_hand):
    """The same holds for vLLM in process."""
    same(made(results, "vllm", *SETTINGS), by_hand)


@pytest.mark.long
@pytest.mark.vllm
def test_vllm_server_draws_as_the_entry_says(results, by_hand):
    """The same holds for the server that a job starts, if each setting differs from the model's own."""
    same(made(results, "vllm-server", "responses/left-out"), by_hand, ["responses/left-out"])


@pytest.mark.long
@pytest.mark.vllm
def test_service_draws_as_the_entry_says(results, by_hand):
    """The same holds for a server of `proofmill serve`.

    Its flags enable chunked prefill, at which vLLM on a CPU crashes if requests have seeds; long prompts are answered
    nevertheless.
    """
    place = place_for(results, "service")
    serve = (
        "import sys; from pathlib import Path; import habits; from proofmill.engines.services import server_job\n"
        "from proofmill.engines.services.directory import Service\n"
        "folder = Path(sys.argv[1]); table = habits.mill(folder).table('base/habits')\n"
        "server_job.serve(Service(table.name, folder), 0, server_job.weights_of(table, sys.argv[2]), folder / 'service.log')\n"
    )
    served = subprocess.Popen(
        [sys.executable, "-c", serve, str(place), CHUNKED],
        env={**os.environ, "PROOFMILL_SERVICE_HOST": "127.0.0.1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        same(made(results, "service", *SETTINGS, "responses/long"), by_hand)
    finally:
        served.terminate()
        served.wait()
    long = habits.mill(place).table("responses/long").scan().collect()
    assert set(long["reason"]) == {"ok"} and long["prompt_tokens"].min() > 300


@pytest.mark.long
@pytest.mark.parametrize("name", ["grpo/drawn", "grpo/ahead"])
def test_rollouts_are_drawn_as_the_entry_says(results, by_hand, name):
    """This holds for rollouts, with and without staleness; the saved weights have none of the settings left."""
    place = made(results, "transformers", name)
    table = habits.mill(place).table(name)
    rollouts = pl.read_parquet(table.folder / "rollouts.parquet")
    agree(rollouts, "responses/drawn", by_hand)
    written = json.loads((table.folder / "generation_config.json").read_text())
    assert sorted(written["eos_token_id"]) == sorted(habits.ends_of(results.parent / "habits"))
    assert not written.keys() & habits.SHIPPED.keys()
