"""The graph that Snakemake sees: what is due, what is up to date, shards, forced names, failures and commands."""

import os
import subprocess
import time

import pytest

from mill import Mill
from proofmill.artifacts.graph import Graph, command, find_forced, format_forced, shell_word
from proofmill.artifacts.tables import Table
from proofmill.schema.errors import MissingData

ENTRIES = {
    "problems/a": {"source": "arithmetic", "rows": 6},
    "problems/b": {"source": "problems/a"},
    "problems/c": {"source": "problems/b"},
    "schemes/b": {"problems": "problems/b", "model": "api/referee"},
    "problems/graded": {"source": "arithmetic-graded", "rows": 6},
    "responses/given": {"problems": "problems/graded", "model": "given"},
}


@pytest.fixture
def built(tmp_path, monkeypatch) -> Mill:
    """Return a results folder in which `problems/a` and `problems/b` are built."""
    monkeypatch.chdir(tmp_path)
    mill = Mill(tmp_path / "results", **ENTRIES)
    mill.make("problems/a", "problems/b")
    return mill


def graph(mill: Mill, shards=None, forced=()) -> Graph:
    return Graph(mill.config, shards or {}, lambda: forced)


def test_due_parents_and_current_ones_are_separate(built):
    """A parent whose table is as its entry says is current; a forced one, and what is built from it, is due."""
    inputs = graph(built).inputs("problems/c")
    assert (inputs.due, inputs.current) == ([], ["results/problems/b.parquet"])
    inputs = graph(built, forced=["problems/a"]).inputs("problems/c")
    assert (inputs.due, inputs.current) == (["results/problems/b.parquet"], [])


def test_artifact_up_to_date_waits_for_nothing(built):
    """Its tables are current, and so is every source."""
    inputs = graph(built).inputs("problems/b")
    assert (inputs.due, inputs.current) == ([], ["results/problems/a.parquet"])


def test_job_on_a_node_waits_for_nothing(built):
    """A job that builds one artifact alone takes its parents as they are."""
    inputs = graph(built, forced=["problems/a"]).inputs("problems/c", alone=True)
    assert (inputs.due, inputs.current) == ([], ["results/problems/b.parquet"])


def test_forced_names_are_asked_for_once(built):
    """The settings of a run are known when the first state is needed, not before."""
    calls = []
    shown = Graph(built.config, {}, lambda: calls.append(1) or ["problems/a"])
    assert not calls
    assert shown.is_due("problems/a") and shown.is_due("problems/b") and calls == [1]


def test_source_file_is_an_input(tmp_path, monkeypatch):
    """A file that an entry reads is current; without it, public data are missing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROOFMILL_DATA", str(tmp_path / "nowhere"))
    (tmp_path / "a.jsonl").write_text('{"statement": "Why?"}\n')
    address = "hub:AI-MO/aops@" + "0" * 40
    mill = Mill(
        tmp_path / "results",
        **{
            "problems/own": {"source": "table", "path": "a.jsonl"},
            "problems/public": {"source": "table", "path": f"{address}/x.parquet"},
        },
    )
    shown = graph(mill)
    assert shown.inputs("problems/own").current == ["a.jsonl"]
    assert shown.without_data(mill.config.entries) == ["problems/public"]
    with pytest.raises(MissingData):
        shown.inputs("problems/public")


def test_targets_of_a_command_line(built):
    """Words that name no recipe or artifact are left out; without a word it is the first recipe."""
    shown = graph(built)
    assert shown.targets(["problems/a", "Makefile"]) == ["problems/a"]
    assert shown.targets([]) == ["test"]


def test_shards_leave_one_file_each(built):
    """The number of an artifact overrides that of its kind; one job has no shards."""
    shown = graph(built, {"schemes": 2, "schemes/b": 3})
    assert list(shown.shard_files("schemes/b")) == [f"schemes/b.{n}-of-3" for n in (1, 2, 3)]
    assert shown.shard_files("problems/a") == graph(built, {"schemes": 1}).shard_files("schemes/b") == {}
    assert shown.shard_inputs("schemes/b") == [f"results/unfinished/schemes/b/shard-{n}-of-3" for n in (1, 2, 3)]


def test_given_responses_need_no_shards(built):
    """Responses that come with their problems call no model."""
    shown = graph(built, {"responses": 2})
    assert shown.shard_files("responses/given") and shown.shard_inputs("responses/given") == []


def test_failure_is_reported_with_its_last_words(built):
    """Jobs that logged in this run and left no table are named; those with a table, or of an earlier run, are not."""
    began = time.time() - 1
    for name, text in {"problems/a": "built", "problems/c": "one\ntwo", "schemes/b.1-of-2": "asking\nstopped"}.items():
        log = Table(name).log
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text)
    shown = graph(built, {"schemes": 2})
    assert list(shown.failures(began)) == [
        "problems/c failed: two (full log: results/problems/c.log)",
        "schemes/b.1-of-2 failed: stopped (full log: results/schemes/b.1-of-2.log)",
    ]
    os.utime(Table("problems/c").log, (0, 0))
    assert len(list(shown.failures(began))) == 1


def test_forced_by_table_name_or_kind(built):
    """Snakemake's forced files and rules both name artifacts."""
    config = built.config
    assert find_forced(config, {"results/problems/a.parquet", "other"}, set()) == {"problems/a"}
    assert find_forced(config, set(), {"schemes", "problems/c"}) == {"schemes/b", "problems/c"}


def test_variable_of_forced_names():
    """Tables and names both become names; the last word tells this run from others."""
    words = ["results/problems/a.parquet", "sft"]
    assert format_forced(words, False, "results", 7) == "problems/a sft run-7"
    assert format_forced([], True, "results", 7) == "all run-7"


@pytest.mark.parametrize("text", ["plain", "two words", "it's", '{"a": {"b": 1}}', "$HOME `x`"])
def test_word_of_a_shell_has_no_fields(text):
    """After Snakemake has formatted a command, the shell reads the same text."""
    line = "printf %s " + shell_word(text)
    assert subprocess.run(["bash", "-c", line.format()], capture_output=True, text=True, check=True).stdout == text


def test_command_of_a_shard_leaves_its_file(built):
    """Only a shard creates its output itself; a log of its own has its number."""
    table, shard = (command(built.config, "schemes", "python -m", shard) for shard in (False, True))
    assert "python -m proofmill.schemes schemes/{wildcards.name} --entry" in table and "touch" not in table
    assert "--shard {wildcards.shard}/{wildcards.shards} --entry" in shard and shard.endswith("touch {output}")
    assert ".{wildcards.shard}-of-{wildcards.shards}.log" in shard


@pytest.mark.parametrize(
    ("ends", "code", "said"), [("kill -9 $$", 137, "ended by SIGKILL; "), ("exit 3", 3, "started")]
)
def test_signal_that_ended_a_job_is_its_last_line(built, tmp_path, ends, code, said):
    """The log and the message of the run name the signal; a job that exits has its own last line."""
    (tmp_path / "program").write_text(f"echo started; {ends}")
    line = command(built.config, "problems", f"bash {tmp_path}/program").replace("{wildcards.name}", "none")
    for field in ("params.entry:q", "resources.engine_args:q", "resources.engine", "threads"):
        line = line.replace(f"{{{field}}}", "x")
    words = ["bash", "-e", "-o", "pipefail", "-c", line.replace("{{", "{").replace("}}", "}")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    last = (tmp_path / "results/problems/none.log").read_text().splitlines()[-1]
    assert done.returncode == code and said in done.stdout.splitlines()[-1] and said in last
