"""The public data of a target: what is needed, what is missing, and the plan and the run without it."""

import re
import sys
from pathlib import Path

import pytest
import yaml
from huggingface_hub import constants

from downloads import Downloads, serving
from mill import ROOT, Mill
from project import Project
from proofmill import __main__ as command
from proofmill.config import yaml_files
from proofmill.config.config import expand
from proofmill.planning import data as listing
from proofmill.planning.data import Needed, lines
from proofmill.planning.plan import RunPlan
from proofmill.public_data import registry
from proofmill.schema.errors import HubError
from proofmill.schema.ids import file_sha256

ROWS = b'{"statement": "Prove that 1 + 1 = 2."}\n{"statement": "Prove that 2 + 2 = 4."}\n'
HUB = "hub:me/set@main/rows.jsonl"
REGISTER = f"name,source,file,bytes,sha256,license,rows,checked\nA set,{HUB},set/rows.jsonl,1500000,,MIT,2000,\n"
JUDGE = {"id": "judge-1", "price": "unknown", "expected-tokens": {"input": 10, "output": 10}}
ENTRIES = {
    "api/judge": JUDGE,
    "problems/all": {"source": "table", "path": HUB},
    "problems/some": {"source": "problems/all", "keep": ["has-solution"]},
    "problems/other": {"source": "table", "path": "hub:me/other@main/rows.jsonl", "every": 2},
    "problems/few": {"source": "problems/all", "keep": ["has-solution", {"first": 30}]},
    "labels/all": {"problems": "problems/all", "model": "api/judge"},
    "labels/few": {"problems": "problems/few", "model": "api/judge"},
    "labels/some": {"problems": "problems/some", "model": "api/judge"},
    "labels/other": {"problems": "problems/other", "model": "api/judge"},
}


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Enter a project without data, whose register knows one of two addresses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROOFMILL_DATA", raising=False)
    Path("data").mkdir()
    Path("data/sources.csv").write_text(REGISTER)
    Path("config.yaml").write_text(yaml.safe_dump({"mine": ENTRIES}))
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["proofmill", *arguments])
    command.main()


def test_every_address_of_a_shipped_recipe_is_registered():
    """Each address and each model of the hub in config.yaml has a row in data/sources.csv with a license; no path is local."""
    config = expand(yaml_files.read(ROOT / "config.yaml"))
    sources = [item.source for item in listing.list_needed(config, config.entries)]
    assert len(sources) > 20
    assert {source for source in sources if source not in registry.register()} == set()
    assert all(registry.register()[source].license for source in sources)
    paths = [entry.path for entry in config.entries.values() if getattr(entry, "path", None)]
    assert [path for path in paths if not registry.is_public(path)] == []


def test_addresses_of_shipped_recipes_are_pinned():
    """Only data sets and weights without a known commit are named by a branch."""
    config = expand(yaml_files.read(ROOT / "config.yaml"))
    moving = {address.partition(":")[2].partition("@")[0] for address in listing.list_moving(config, config.entries)}
    assert {name for name in moving if not name.startswith("andrewzh")} == {
        *("AI-MO/aops", "AI-MO/olympiads-ref-base", "open-r1/Mixture-of-Thoughts", "open-r1/OpenR1-Distill-7B"),
        *("MathArena/imo_2025", "MathArena/imc_2025", "MathArena/putnam_2025"),
        *("lm-provers/QED-Nano", "lm-provers/QED-Nano-SFT", "lm-provers/FineProofs-RL-test"),
        *("lm-provers/matharena-gradingbench", "lm-provers/olympiads-proof-graderbench", "wenjiema02/ProofBench"),
    }


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (f"hub:me/set@{'a1' * 20}/a.jsonl", False),
        (f"github:me/set@{'0b' * 20}/data/a@main.csv", False),
        ("hub:me/set@61c9ade/a.jsonl", True),
        (f"hub-model:me/model@{'a1' * 20}", False),
        ("pip:package@0.1.2/package/a.gguf", False),
        ("https://example.org/a@main/b.jsonl", False),
        ("hub:me/set@main/a.jsonl", True),
        ("github:me/set@v1.0/a.zip#a.jsonl", True),
        ("hub-model:me/model@refs-pr-1", True),
        (f"hub:me/set@{'a1' * 20}-fix/a.jsonl", True),
    ],
)
def test_branch_is_told_from_a_commit(address, expected):
    """Only a full hash is a commit on the hub; a package's version and a URL have none that could move."""
    assert registry.is_moving(address) is expected


def test_plan_names_what_may_change(alone):
    """Each address by a branch is named with its entries, in text and JSON, with the fetched commit if there is one."""
    row = f"{HUB},set/rows.jsonl,3,{'0' * 64},{'5' * 40}\n"
    Path("data/sources.lock.csv").write_text(f"{','.join(registry.LOCK_COLUMNS)}\n{row}")
    streamed = {"source": "hub", "id": "me/third", "commit": "dev"}
    plan = RunPlan(expand({"mine": {**ENTRIES, "problems/third": streamed}}), "mine", alone / "results")
    text = "\n".join(plan.lines())
    assert f"problems/all: {HUB} is not pinned and may change; set a commit (fetched: {'5' * 40})" in text
    assert "problems/other: hub:me/other@main/rows.jsonl is not pinned and may change; set a commit\n" in text
    assert "problems/third: hub:me/third@dev is not pinned" in text
    assert plan.data()["moving"][HUB] == ["problems/all"]


def test_register_says_only_what_can_be_told_apart():
    """Places are distinct, digests are SHA-256 or its first 16 digits, and who has seen a digest is said for each."""
    known = registry.register().values()
    places = [row.file for row in known if row.file]
    assert len(set(places)) == len(places)
    for row in known:
        assert bool(row.sha256) == (row.checked in ("copy", "others")), row.name
        assert row.sha256 is None or re.fullmatch("[0-9a-f]{64}|[0-9a-f]{16}", row.sha256), row.name


def test_registered_digest_is_that_of_the_copy(data):
    """Where the register says `copy`, a local copy has that digest and size."""
    checked = [row for row in registry.register().values() if row.checked == "copy" and (data / row.file).exists()]
    assert len(checked) >= 3
    for row in checked:
        path = data / row.file
        assert (file_sha256(path), path.stat().st_size) == (row.sha256, row.bytes), row.name


def test_list_names_every_address_with_size_and_license(alone, monkeypatch, capsys):
    """`proofmill fetch --list` works offline; unknown metadata is shown as unknown."""
    run(monkeypatch, "fetch", "mine", "--list")
    text = capsys.readouterr().out
    assert re.search(r"A set +1.5 MB +2,000 rows +MIT +missing", text)
    assert re.search(r"hub/me/other/main/rows.jsonl +size \? +rows not known +not known +missing", text)
    assert "2 in all, at least 1.5 MB; missing: all" in text


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ([(4_200_000, True)], "1 in all, 4.2 MB; missing: all"),
        ([(4_200_000, False)], "1 in all, 4.2 MB; missing: nothing"),
        ([(None, True)], "1 in all, size not known; missing: all"),
        ([(8_000_000, False), (2_000, True), (None, True)], "3 in all, at least 8.0 MB; missing: 2, at least 2.0 kB"),
    ],
)
def test_last_line_of_a_list_reads_well(sizes, said):
    """Number, size, and what is missing: one, several, all and nothing."""
    needed = [
        Needed(f"https://host/{i}", f"{i}", count, "MIT", None, None if missing else "here", lambda: None)
        for i, (count, missing) in enumerate(sizes)
    ]
    assert [*lines(needed)][-1] == said


def test_plan_without_data_is_whole(alone):
    """Declared rows are counted, filters leave a lower bound, what is unknown is named, and so is the command."""
    plan = RunPlan(expand({"mine": ENTRIES}), "mine", alone / "results")
    assert {stage.state for stage in plan.stages.values()} == {"make"}
    assert plan.stages["problems/all"].why == ["its data are not on this machine"]
    assert (plan.stages["labels/all"].calls, plan.stages["labels/all"].at_most) == (2000, False)
    assert (plan.stages["labels/some"].calls, plan.stages["labels/some"].at_most) == (2000, True)
    assert (plan.stages["labels/few"].calls, plan.stages["labels/few"].at_most) == (30, True)
    assert plan.stages["labels/other"].calls is None
    text = "\n".join(plan.lines(verbose=True))
    assert "at most 2,000 calls" in text
    bounds = "at least 2,000 calls, 4,030 if no filter drops a row, and those of 1 stage with unknown rows"
    assert f"{bounds}: at least 80,600 tokens" in text
    assert "`proofmill fetch mine` downloads it" in text and f"A set, 1.5 MB, license MIT: {HUB}" in text


def test_plan_of_another_source_does_not_count_the_rows_that_are_there(alone, tmp_path):
    """A table that began with other rows, such as a rehearsal's, says nothing about the real one."""
    small = {"problems/all": {"source": "arithmetic", "rows": 3}}
    Mill(tmp_path / "results", **small).make("problems/all")
    plan = RunPlan(expand({"mine": ENTRIES}), "mine", tmp_path / "results")
    assert plan.stages["labels/all"].calls == 2000
    less = {**ENTRIES, "problems/all": {**small["problems/all"], "keep": ["has-solution"]}}
    assert RunPlan(expand({"mine": less}), "mine", tmp_path / "results").stages["labels/all"].calls == 3


def test_fetch_brings_what_is_missing_and_names_all_that_failed(alone, monkeypatch):
    """Available data are downloaded although another address is gone; that one is named at the end."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with serving(Downloads()) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        hub.repositories["dataset", "me/set"] = ("5" * 40, {"rows.jsonl": ROWS})
        config = expand({"mine": ENTRIES})
        with pytest.raises(HubError, match=r"hub:me/other@main/rows\.jsonl: cannot be fetched"):
            listing.fetch(listing.list_needed(config, config.entries))
    assert [item.where for item in listing.list_needed(config, config.entries)] == [None, "data/fetched/set/rows.jsonl"]
    mill = Mill(alone / "results", **ENTRIES)
    assert len(mill.make("problems/all").rows()) == 2


def test_table_that_was_made_needs_its_data_no_more(alone, monkeypatch):
    """Where the digest is known, a finished table stays finished after its data were removed; an edited entry needs them."""
    copy = Path("data/fetched/set/rows.jsonl")
    copy.parent.mkdir(parents=True)
    copy.write_bytes(ROWS)
    Path("data/sources.csv").write_text(REGISTER.replace(",1500000,,", f",1500000,{file_sha256(copy)},"))
    Mill(alone / "results", **ENTRIES).make("problems/all")
    copy.unlink()
    assert RunPlan(expand({"mine": ENTRIES}), "problems/all", alone / "results").stages["problems/all"].state == "done"
    edited = {**ENTRIES, "problems/all": {**ENTRIES["problems/all"], "rows": 1}}
    plan = RunPlan(expand({"mine": edited}), "problems/all", alone / "results")
    assert (plan.stages["problems/all"].state, [item.name for item in plan.missing]) == ("make", ["A set"])


def test_snakemake_names_all_that_is_missing_at_once(tmp_path):
    """One message with every address of the target that is not here, and the command."""
    project = Project(tmp_path / "project", yaml.safe_dump({"mine": ENTRIES}))
    (project.folder / "data/sources.csv").write_text(REGISTER)
    done = project.snakemake("mine", "-n", PROOFMILL_DATA="")
    assert done.returncode != 0
    named = "hub/me/other/main/rows.jsonl (size ?), A set (1.5 MB)"
    assert f"mine: public data are not on this machine: {named}; expected them in data/fetched" in done.stdout
    assert "Run: proofmill fetch mine" in done.stdout
