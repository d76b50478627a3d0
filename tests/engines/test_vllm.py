"""Sampling with a real vLLM engine: the same table as with transformers, except for noise."""

import os
import subprocess
import time

import psutil
import pytest

from project import Project, copy_of

pytestmark = pytest.mark.vllm
CONFIG = """
served:
  problems/bench: {source: arithmetic, split: test, rows: 48}
  base/tiny: {source: scratch, problems: problems/bench}
  examples/cold: {problems: problems/bench}
  sft/tiny: {model: base/tiny, examples: examples/cold, steps: 120, learning-rate: 3.0e-3, beta2: 0.98}
  responses/greedy: {problems: problems/bench, model: sft/tiny, temperature: 0, max-tokens: 48}
  responses/sampled: {problems: problems/bench, model: sft/tiny, attempts: 2, max-tokens: 48}
  responses/long: {problems: problems/bench, model: sft/tiny, max-tokens: 500}
  responses/knobs:
    {problems: problems/bench, model: sft/tiny, top-k: 3, min-p: 0.2, top-p: 0.9, stop: ["=", ". "], max-tokens: 48}
"""
NAMES = ("responses/greedy", "responses/sampled", "responses/long", "responses/knobs")


def by_vllm(project: Project, name: str) -> None:
    done = project.job(name, "--engine", "vllm")
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> tuple[Project, Project]:
    """Return one model's responses, by transformers and by vLLM."""
    local = Project(tmp_path_factory.mktemp("vllm") / "transformers", CONFIG)
    local.made("served")
    vllm = copy_of(local, tmp_path_factory.mktemp("vllm") / "vllm")
    for name in NAMES:
        vllm.forget(name)
    by_vllm(vllm, "responses/greedy")
    vllm.made("results/responses/sampled.parquet", "--set-resources", "responses:engine=vllm")  # as in a profile
    return local, vllm


def test_both_engines_give_the_same_table(served):
    """Columns, rows, problems and ids are equal, and greedy answers up to rounding."""
    one, other = (project.frame("responses/greedy") for project in served)
    assert one.schema == other.schema
    assert one["problem"].to_list() == other["problem"].to_list()
    assert one["response"].to_list() == other["response"].to_list()
    assert (one["text"] == other["text"]).mean() >= 0.9


def test_stamp_names_the_engine(served):
    """The table names the engine, set by a profile or by the command line."""
    local, vllm = served
    made = ("responses/greedy", "responses/sampled")
    assert {"transformers"} == {local.table(name).stamp["engine"] for name in NAMES}
    assert {"vllm"} == {vllm.table(name).stamp["engine"] for name in made}


def test_vllm_says_why_it_stopped_and_counts_tokens(served):
    """`stop_reason`, tokens and prompt tokens mean the same from either engine."""
    one, other = (project.frame("responses/greedy") for project in served)
    same = one["text"] == other["text"]
    for column in ("stop_reason", "tokens", "prompt_tokens", "reason"):
        assert one.filter(same)[column].to_list() == other.filter(same)[column].to_list(), column


@pytest.mark.long
def test_vllm_samples_are_distinct_and_reproducible(served):
    """Two attempts differ; sampled again from an empty journal they are equal, by either engine."""
    local, vllm = served
    sampled = vllm.frame("responses/sampled")
    assert (sampled["text"] == local.frame("responses/sampled")["text"]).mean() >= 0.8
    first, second = (sampled.filter(attempt=a).sort("problem")["text"] for a in (0, 1))
    assert (first != second).mean() > 0.5
    vllm.forget("responses/sampled")
    by_vllm(vllm, "responses/sampled")
    assert (sampled["text"] == vllm.frame("responses/sampled")["text"]).mean() >= 0.9


@pytest.mark.long
def test_knobs_mean_the_same_to_vllm(served):
    """Excluded tokens and stop texts have the same effect in either engine."""
    by_vllm(served[1], "responses/knobs")
    assert served[1].table("responses/knobs").stamp["engine"] == "vllm"
    one, other = (project.frame("responses/knobs") for project in served)
    assert (one["text"] == other["text"]).mean() >= 0.8
    same = one["text"] == other["text"]
    for column in ("stop_reason", "tokens"):
        assert one.filter(same)[column].to_list() == other.filter(same)[column].to_list(), column
    assert not any("=" in text or ". " in text for frame in (one, other) for text in frame["text"])
    assert "end" in set(one["stop_reason"])


@pytest.mark.long
def test_second_run_asks_vllm_nothing(served):
    """Outputs in the journal are not sampled again, by any engine."""
    _, vllm = served
    before, keys = vllm.frame("responses/greedy"), vllm.journal("responses/greedy")
    vllm.table("responses/greedy").path.unlink()
    done = vllm.job("responses/greedy", PROOFMILL_FORCE="all")
    assert done.returncode == 0, done.stdout
    assert keys == vllm.journal("responses/greedy")
    assert before.equals(vllm.frame("responses/greedy"))


@pytest.mark.long
def test_prompt_that_does_not_fit_is_an_outcome(served):
    """A context that is too short is a row with its reason, by either engine."""
    by_vllm(served[1], "responses/long")
    assert served[1].table("responses/long").stamp["engine"] == "vllm"
    for project in served:
        assert {"too-long"} == set(project.frame("responses/long")["reason"])


# ------------------------------------------------------------------------------------------------ behind vLLM's server


@pytest.fixture(scope="module")
def behind_server(served, tmp_path_factory) -> Project:
    """Return the same responses from vLLM's own server, whose engine process is killed once on the way."""
    local, _ = served
    project = copy_of(local, tmp_path_factory.mktemp("vllm") / "server")
    for name in NAMES:
        project.forget(name)
    command = [*project.job_command("responses/sampled"), "--engine", "vllm-server", "--engine-args=--max-num-seqs 4"]
    process = subprocess.Popen(
        command,
        cwd=project.folder,
        env={**os.environ, "PROOFMILL_CONCURRENCY": "4"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    journal = project.table("responses/sampled").calls / "calls.jsonl"
    while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") >= 10):
        time.sleep(0.02)
    assert process.poll() is None, process.stdout.read()
    project.processes = psutil.Process(process.pid).children(recursive=True)
    servers = [
        p
        for p in project.processes
        if "--served-model-name" in p.cmdline()[:9] and "proofmill.engines.servers" not in p.cmdline()
    ]
    assert len(servers) == 1
    project.flags = servers[0].cmdline()
    servers[0].kill()
    project.said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, project.said
    return project


def test_server_gives_the_same_table(served, behind_server):
    """Behind the server the same model gives the same rows, except for sampling noise."""
    one, other = served[0].frame("responses/sampled"), behind_server.frame("responses/sampled")
    assert one.schema == other.schema
    assert one["response"].to_list() == other["response"].to_list()
    assert (one["text"] == other["text"]).mean() >= 0.8
    same = one["text"] == other["text"]
    for column in ("stop_reason", "tokens", "prompt_tokens", "reason"):
        assert one.filter(same)[column].to_list() == other.filter(same)[column].to_list(), column
    assert behind_server.table("responses/sampled").stamp["engine"] == "vllm-server"
    assert set(other["cost"]) == {0.0}


def test_server_that_crashed_was_started_again(behind_server):
    """A crash costs the calls in flight; the journal has each output once."""
    assert behind_server.said.count("the server died") == 1
    keys = behind_server.journal("responses/sampled")
    assert len(keys) == len(set(keys)) == 96


def test_server_has_the_flags_of_the_profile(behind_server):
    """Additional flags reach vLLM's command line and override ours; the server is on a free loopback port."""
    flags = behind_server.flags
    assert flags[len(flags) - 1 - flags[::-1].index("--max-num-seqs") + 1] == "4"
    assert flags[flags.index("--host") + 1] == "127.0.0.1"


def test_no_server_outlives_its_job(behind_server):
    """After the job no process of its servers remains, not even the workers of the killed one."""
    assert len(behind_server.processes) >= 3
    assert [p for p in behind_server.processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
    weights = str(behind_server.table("sft/tiny").folder)
    left = [p for p in psutil.process_iter(["cmdline"]) if weights in " ".join(p.info["cmdline"] or [])]
    assert left == []


@pytest.mark.long
def test_too_long_prompt_behind_the_server_is_an_outcome(behind_server):
    """A prompt that the server refuses as too long gives the same row as with the other engines."""
    done = behind_server.job("responses/long", "--engine", "vllm-server")
    assert done.returncode == 0, done.stdout
    assert {"too-long"} == set(behind_server.frame("responses/long")["reason"])


@pytest.mark.long
def test_flags_reach_the_engine_in_process(served, tmp_path):
    """The same flags are options of the in-process engine: a context of 64 tokens has no room for 48 of output."""
    project = copy_of(served[0], tmp_path / "flags")
    project.forget("responses/greedy")
    done = project.job("responses/greedy", "--engine", "vllm", "--engine-args=--max-model-len 64")
    assert done.returncode == 0, done.stdout
    assert "too-long" in set(project.frame("responses/greedy")["reason"])


@pytest.mark.long
def test_engine_that_does_not_start_is_one_message(served, tmp_path):
    """For a context that the model does not have, one line has the reason and the file with vLLM's output."""
    project = copy_of(served[0], tmp_path / "refused")
    project.forget("responses/greedy")
    done = project.job(
        "responses/greedy", "--engine", "vllm", "--engine-args=--max-model-len 100000 --gpu-memory-utilization 0.1"
    )
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert "ServiceError: sft/tiny: vLLM does not start (" in done.stdout and "max_model_len" in done.stdout
    assert "Traceback" in (project.folder / "results/unfinished/responses/greedy/vllm.log").read_text()
