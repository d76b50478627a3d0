"""Sampling with a real vLLM engine: the same table as from transformers, apart from noise."""

import os
import subprocess
import time

import psutil
import pytest

from project import Project, copy_of

pytestmark = pytest.mark.vllm
CONFIG = """
served:
  problems/bench: {source: arithmetic, part: test, rows: 48}
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
    """One model's responses, by transformers and by vLLM."""
    local = Project(tmp_path_factory.mktemp("vllm") / "transformers", CONFIG)
    local.made("served")
    vllm = copy_of(local, tmp_path_factory.mktemp("vllm") / "vllm")
    for name in NAMES:
        vllm.forget(name)
    by_vllm(vllm, "responses/greedy")
    by_vllm(vllm, "responses/long")
    by_vllm(vllm, "responses/knobs")
    vllm.made("results/responses/sampled.parquet", "--set-resources", "responses:engine=vllm")  # as a profile says it
    return local, vllm


def test_both_engines_give_the_same_table(served):
    """Columns, rows, problems and ids are the same; greedy answers too, but for rounding in a close race."""
    one, other = (project.frame("responses/greedy") for project in served)
    assert one.schema == other.schema
    assert one["problem"].to_list() == other["problem"].to_list()
    assert one["response"].to_list() == other["response"].to_list()
    assert (one["text"] == other["text"]).mean() >= 0.9


def test_stamp_names_the_engine(served):
    """Whether a profile or the command line chose it, the table says which engine answered."""
    local, vllm = served
    assert {"transformers"} == {local.table(name).stamp["engine"] for name in NAMES}
    assert {"vllm"} == {vllm.table(name).stamp["engine"] for name in NAMES}


def test_vllm_says_why_it_stopped_and_counts_tokens(served):
    """`stop`, tokens and prompt tokens mean the same from either engine."""
    one, other = (project.frame("responses/greedy") for project in served)
    same = one["text"] == other["text"]
    for column in ("stop", "tokens", "prompt_tokens", "reason"):
        assert one.filter(same)[column].to_list() == other.filter(same)[column].to_list(), column


def test_vllm_samples_are_distinct_and_reproducible(served):
    """Two attempts differ; asked again from nothing with the same seeds, they are the same, from either engine."""
    local, vllm = served
    sampled = vllm.frame("responses/sampled")
    assert (sampled["text"] == local.frame("responses/sampled")["text"]).mean() >= 0.8
    first, second = (sampled.filter(attempt=a).sort("problem")["text"] for a in (0, 1))
    assert (first != second).mean() > 0.5
    vllm.forget("responses/sampled")
    by_vllm(vllm, "responses/sampled")
    assert (sampled["text"] == vllm.frame("responses/sampled")["text"]).mean() >= 0.9


def test_knobs_mean_the_same_to_vllm(served):
    """The tokens that are left out and the texts at which an answer ends are the same ones in either engine."""
    one, other = (project.frame("responses/knobs") for project in served)
    assert (one["text"] == other["text"]).mean() >= 0.8
    same = one["text"] == other["text"]
    for column in ("stop", "tokens"):
        assert one.filter(same)[column].to_list() == other.filter(same)[column].to_list(), column
    assert not any("=" in text or ". " in text for frame in (one, other) for text in frame["text"])
    assert "end" in set(one["stop"])


def test_second_run_asks_vllm_nothing(served):
    """What is in the journal is not sampled again, by whatever engine it is asked for."""
    _, vllm = served
    before, keys = vllm.frame("responses/greedy"), vllm.journal("responses/greedy")
    vllm.table("responses/greedy").path.unlink()
    done = vllm.job("responses/greedy", PROOFMILL_FRESH="all")
    assert done.returncode == 0, done.stdout
    assert keys == vllm.journal("responses/greedy")
    assert before.equals(vllm.frame("responses/greedy"))


def test_prompt_that_does_not_fit_is_an_outcome(served):
    """A context that is too short is a row with its reason, from either engine."""
    for project in served:
        assert {"too-long"} == set(project.frame("responses/long")["reason"])


# ------------------------------------------------------------------------------------------------ behind vLLM's server


@pytest.fixture(scope="module")
def behind_server(served, tmp_path_factory) -> Project:
    """The same responses from vLLM's own server, whose engine process is killed once in the middle."""
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
    journal = project.table("responses/sampled").calls / "answers.jsonl"
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
    """Behind the server the same model gives the same rows, apart from sampling noise."""
    one, other = served[0].frame("responses/sampled"), behind_server.frame("responses/sampled")
    assert one.schema == other.schema
    assert one["response"].to_list() == other["response"].to_list()
    assert (one["text"] == other["text"]).mean() >= 0.8
    same = one["text"] == other["text"]
    for column in ("stop", "tokens", "prompt_tokens", "reason"):
        assert one.filter(same)[column].to_list() == other.filter(same)[column].to_list(), column
    assert behind_server.table("responses/sampled").stamp["engine"] == "vllm-server"
    assert set(other["cost"]) == {0.0}


def test_server_that_crashed_was_started_again(behind_server):
    """A crash in mid-stage costs what was in flight; the journal has each answer once."""
    assert behind_server.said.count("the server died") == 1
    keys = behind_server.journal("responses/sampled")
    assert len(keys) == len(set(keys)) == 96


def test_server_has_the_flags_of_the_profile(behind_server):
    """Further flags reach vLLM's command line, and win over ours; the port is free and on the loopback."""
    flags = behind_server.flags
    assert flags[len(flags) - 1 - flags[::-1].index("--max-num-seqs") + 1] == "4"
    assert flags[flags.index("--host") + 1] == "127.0.0.1"


def test_no_server_outlives_its_job(behind_server):
    """When the job is over nothing of its servers is left, not even the workers of the one that was killed."""
    assert len(behind_server.processes) >= 3
    assert [p for p in behind_server.processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
    weights = str(behind_server.table("sft/tiny").folder)
    left = [p for p in psutil.process_iter(["cmdline"]) if weights in " ".join(p.info["cmdline"] or [])]
    assert left == []


def test_too_long_prompt_behind_the_server_is_an_outcome(behind_server):
    """What the server refuses as too long is the same row as from the other engines."""
    done = behind_server.job("responses/long", "--engine", "vllm-server")
    assert done.returncode == 0, done.stdout
    assert {"too-long"} == set(behind_server.frame("responses/long")["reason"])


def test_flags_reach_the_engine_in_process(served, tmp_path):
    """The same flags are options of the engine in this process: a context of 64 tokens leaves no room for 48 of answer."""
    project = copy_of(served[0], tmp_path / "flags")
    project.forget("responses/greedy")
    done = project.job("responses/greedy", "--engine", "vllm", "--engine-args=--max-model-len 64")
    assert done.returncode == 0, done.stdout
    assert "too-long" in set(project.frame("responses/greedy")["reason"])


def test_engine_that_does_not_start_is_one_message(served, tmp_path):
    """A context that the model does not have: the reason on one line, and the file with all that vLLM said."""
    project = copy_of(served[0], tmp_path / "refused")
    project.forget("responses/greedy")
    done = project.job(
        "responses/greedy", "--engine", "vllm", "--engine-args=--max-model-len 100000 --gpu-memory-utilization 0.1"
    )
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert "ServiceError: sft/tiny: vLLM does not start (" in done.stdout and "max_model_len" in done.stdout
    assert "Traceback" in (project.folder / "results/unfinished/responses/greedy/vllm.log").read_text()
