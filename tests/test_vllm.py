"""Sampling with a real vLLM engine: the same table as from transformers, apart from noise."""

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
"""
NAMES = ("responses/greedy", "responses/sampled", "responses/long")


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
