"""Queries to SLURM; those to a real one are in tests/pipeline/test_slurm_stops.py."""

import os
import stat
from types import SimpleNamespace

import pytest
from snakemake.iocontainers import Wildcards
from snakemake.resources import Resource

from mill import ROOT
from proofmill.runtime.cluster import site_resources, slurm


@pytest.fixture
def answering(tmp_path, monkeypatch):
    """Install a `squeue` that prints a text, in a job of number 7."""

    def made(text: str) -> None:
        program = tmp_path / "squeue"
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{text}'\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("SLURM_JOB_ID", "7")

    return made


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:45", 45), ("12:30", 750), ("2:00:01", 7201), ("1-00:00:00", 86400), ("UNLIMITED", None), ("INVALID", None)],
)
def test_time_left_is_read_as_squeue_writes_it(answering, text, seconds):
    """Minutes and seconds, with hours and days before them; None for a job without a limit."""
    answering(text)
    assert slurm.seconds_left() == seconds


def test_outside_of_slurm_nothing_is_asked(monkeypatch):
    """Without a job's number there is no time left to tell, nothing to put back, and one machine."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert slurm.seconds_left() is None and not slurm.requeue() and slurm.nodes() == []


def test_job_waits_for_those_of_the_same_artifact_and_folder(answering, tmp_path, monkeypatch):
    """Not for those of another folder, of another name that begins alike, or of another kind."""
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path)
    rule = "rule_sft_wildcards_cold"
    answering(
        f"1|{here}|{rule}\n2|/other|{rule}\n3|{here}|{rule}er\n4|{here}|rule_grpo_wildcards_cold\n5|{here}|{rule}"
    )
    monkeypatch.delenv("SLURM_JOB_ID")
    assert slurm.after("sft", "cold") == " --dependency=afterany:1:5"
    assert slurm.after("sft", "warm") == ""


def test_shard_waits_for_itself_and_the_artifact_for_all_shards(answering, tmp_path, monkeypatch):
    """Not for its siblings, nor for shards of a name that ends like one; but for those of another number, and the artifact."""
    monkeypatch.chdir(tmp_path)
    shards = [f"responses_shard_wildcards_responses_{end}" for end in ("big_1_4", "big_2_4", "big_1_16", "big_1_2_4")]
    rules = [*shards, "responses_wildcards_big", "grades_shard_wildcards_grades_big_2_4", "responses_wildcards_big_2_4"]
    answering("\n".join(f"{number}|{tmp_path}|rule_{rule}" for number, rule in enumerate(rules, 1)))
    monkeypatch.delenv("SLURM_JOB_ID")
    assert slurm.after("responses", "big") == " --dependency=afterany:1:2:3:5"
    assert slurm.after("responses", "big", "2", "4") == " --dependency=afterany:2:3:5"
    assert slurm.after("responses", "big_1", "3", "4") == ""


@pytest.mark.parametrize(("wildcards", "numbers"), [({}, "1:2"), ({"shard": "2", "shards": "4"}, "2")])
def test_profile_submits_a_shard_behind_itself(answering, tmp_path, monkeypatch, wildcards, numbers):
    """Shards inherit the resources of their kind; the guard uses their own wildcards, as the plugin writes them."""
    slurm_plugin = pytest.importorskip("snakemake_executor_plugin_slurm.utils")
    of_rule = {
        number: Wildcards(fromdict={"kind": "grades", "name": "g", "shard": number, "shards": "4"}) for number in "12"
    }
    comments = [
        f"rule_grades_shard_wildcards_{slurm_plugin.get_job_wildcards(SimpleNamespace(wildcards=each))}"
        for each in of_rule.values()
    ]
    answering("\n".join(f"{number}|{tmp_path}|{comment}" for number, comment in enumerate(comments, 1)))
    extra = site_resources.set_resources(ROOT / "profiles/slurm")["grades"]["slurm_extra"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID")
    found = Resource.cli_evaluator(
        "slurm_extra", extra, wildcards=Wildcards(fromdict={"name": "g", **wildcards}), input=[], attempt=1,
        async_run=lambda awaited: awaited,
    )  # fmt: skip
    assert found.endswith(f" --dependency=afterany:{numbers}")
