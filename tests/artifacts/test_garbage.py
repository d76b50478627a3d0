"""`proofmill gc`: what can go and what it frees; nothing that a recipe needs, no answer that was paid for."""

import os
import sys
from pathlib import Path

import pytest
import yaml

from mill import REFEREE
from project import snapshot
from proofmill import __main__ as command
from proofmill.artifacts import configurations
from proofmill.artifacts.maintenance import garbage
from proofmill.calls.shards import Shard, ShardJournal
from proofmill.config.config import expand
from proofmill.runtime import locks
from proofmill.schema.errors import SettingError

ENTRIES = {
    "problems/p": {"source": "arithmetic", "rows": 6},
    "schemes/s": {"problems": "problems/p", "model": "api/referee"},
    "problems/q": {"source": "problems/p", "keep": [{"first": 3}]},
}


@pytest.fixture
def made(mill):
    """Return a finished chain whose end was rebuilt by an edit, with an artifact that is in no recipe any more."""
    old = mill(ENTRIES)
    old.make(*ENTRIES)
    edited = {name: dict(entry) for name, entry in ENTRIES.items()}
    edited["problems/q"]["keep"] = [{"first": 2}]
    del edited["schemes/s"]
    now = mill(edited)
    now.make("problems/p", "problems/q")
    return now


def found(made, sorts=garbage.SORTS):
    return {(each.sort, each.artifact): each for each in garbage.find_unused(made.config, made.results, sorts)}


def test_copies_of_other_entries_and_undeclared_tables_can_go(made):
    """The table of an edited entry stays, its older copy can go; so can all that no recipe has."""
    listed = found(made)
    assert set(listed) == {
        ("archive", "problems/q"), ("archive", "schemes/s"), ("unreachable", "schemes/s"), ("calls", "schemes/s"),
    } | {key for key in listed if key[0] == "unfinished"}  # fmt: skip
    (copy,) = listed["archive", "problems/q"].paths
    assert copy.name != made.table("problems/q").stamp["fingerprint"]
    assert made.table("schemes/s").path in listed["unreachable", "schemes/s"].paths


def test_journals_are_listed_only_when_asked_for(made):
    """Paid model outputs are not among the files that `gc` deletes without --journals."""
    assert not any(sort == "calls" for sort, _ in found(made, garbage.SORTS[:3]))


def test_logs_of_shards_can_go_once_the_table_is_made(made):
    """They say what each job did; of a stage that is not finished they stay, and the log of the artifact always does."""
    folder = made.results / "problems"
    logs = [folder / f"{name}.{shard}-of-2.log" for name in ("p", "later", "q") for shard in (0, 1)]
    for log in (*logs, folder / "p.log"):
        log.touch()
    made.table("problems/q").path.unlink()
    listed = {key: each.paths for key, each in found(made).items() if key[0] == "unfinished"}
    assert [path for path in listed["unfinished", "problems/p"] if path.suffix == ".log"] == logs[:2]
    assert listed["unfinished", "problems/later"] == tuple(logs[2:4])
    assert ("unfinished", "problems/q") not in listed


def test_links_free_nothing_while_another_holds_the_file(made):
    """An archived table and the table are one file: deleting one frees nothing, deleting both frees it once."""
    listed = found(made)
    copy, table = listed["archive", "schemes/s"], listed["unreachable", "schemes/s"]
    alone = [garbage.count_freed_bytes([each]) for each in (copy, table)]
    file = made.table("schemes/s").path
    assert os.stat(file).st_nlink == 2
    together = garbage.count_freed_bytes([copy, table])
    assert together >= sum(alone) + file.stat().st_blocks * 512


def test_delete_leaves_every_table_of_the_recipes_as_it_was(made, monkeypatch, capsys, tmp_path):
    """The command lists and touches nothing; with --delete it deletes what it listed and no more."""
    before = snapshot(made.results)
    config = {"r": {name: value for name, value in ENTRIES.items() if name != "schemes/s"}}
    config["r"]["problems/q"] = {**ENTRIES["problems/q"], "keep": [{"first": 2}]}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"results": "results", **config}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["proofmill", "gc"])
    command.main()
    said = capsys.readouterr().out
    assert "schemes/s: in no recipe" in said and "can be freed; `proofmill gc --delete`" in said
    assert snapshot(made.results) == before
    monkeypatch.setattr(sys, "argv", ["proofmill", "gc", "--delete"])
    command.main()
    after = snapshot(made.results)
    assert not made.table("schemes/s").path.exists() and made.table("schemes/s").calls.exists()
    for name in ("problems/p", "problems/q"):
        assert after[f"{name}.parquet"] == before[f"{name}.parquet"]
        assert made.table(name).archive_of(made.table(name).stamp["fingerprint"]).exists()
    monkeypatch.setattr(sys, "argv", ["proofmill", "gc"])
    command.main()
    assert capsys.readouterr().out.splitlines()[-1] == "no unused files"


def test_entry_with_a_mistake_keeps_its_tables(made, monkeypatch, tmp_path):
    """A slip of the pen in an entry deletes nothing of it: such a configuration is refused, in full."""
    before = snapshot(made.results)
    config = {
        "r": {**ENTRIES, "api/referee": REFEREE, "schemes/s": {"problems": "problems/p", "modell": "api/referee"}}
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"results": "results", **config}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["proofmill", "gc", "--delete", "--journals"])
    with pytest.raises(SystemExit, match="schemes/s: unknown key `modell`"):
        command.main()
    assert snapshot(made.results) == before


def test_copies_of_what_would_be_made_stay(made):
    """An entry of which a table has to be made first may be one of its copies again."""
    edited = {**ENTRIES, "problems/p": {"source": "arithmetic", "rows": 7}}
    listed = garbage.find_unused(expand({"r": {"api/referee": REFEREE, **edited}}), made.results)
    assert ("archive", "problems/q") not in {(each.sort, each.artifact) for each in listed}


def test_copy_that_an_entry_would_bring_back_stays(made):
    """An entry that was edited back, and not run yet, finds its copy."""
    back = expand({"r": {"api/referee": REFEREE, **ENTRIES}})
    listed = garbage.find_unused(back, made.results)
    assert ("archive", "problems/q") not in {(each.sort, each.artifact) for each in listed}


def test_running_stage_is_left_alone(made):
    """A held lock keeps everything of its artifact."""
    lock = made.table("schemes/s").lock
    lock.parent.mkdir(parents=True, exist_ok=True)
    with locks.alone(lock, "schemes/s"):
        assert not any(name == "schemes/s" for _, name in found(made))


def test_journal_that_shards_write_is_left_alone(made):
    """They write no table, and hold no lock of it; once they have ended, it is listed again."""
    with ShardJournal(made.table("schemes/s").calls, Shard(1, 2)):
        assert not any(name == "schemes/s" for _, name in found(made))
    assert ("calls", "schemes/s") in found(made)


# -------------------------------------------------------------------------------------------- what others have declared


def noted(made, entries, title="mine.yaml"):
    """Record a configuration that a run began with."""
    book = expand({"r": {"api/referee": REFEREE, **entries}})
    configurations.note(book, made.results, [title])
    return list(configurations.others(made.results, ["config.yaml"]))


def going(made, others, sorts=garbage.SORTS):
    return {(each.sort, each.artifact): each for each in garbage.find_unused(made.config, made.results, sorts, others)}


def test_what_another_configuration_declares_stays(made):
    """Its table, journal and archived table stay and are named with it; files that neither declares can go."""
    others = noted(made, ENTRIES)
    assert going(made, others) == {}
    assert garbage.list_held_by_others(made.config, made.results, garbage.SORTS, others) == {
        "mine.yaml": ["problems/q", "schemes/s"]
    }
    others = noted(made, {"problems/p": ENTRIES["problems/p"], "schemes/s": ENTRIES["schemes/s"]})
    assert set(going(made, others)) == {("archive", "problems/q")}


def test_copy_of_an_entry_that_no_configuration_has_can_go(made):
    """Of another configuration those copies stay that its entry would bring back, and no others."""
    older = {**ENTRIES, "problems/q": {"source": "problems/p", "keep": [{"first": 1}]}}
    assert ("archive", "problems/q") in going(made, noted(made, older))
    assert ("archive", "problems/q") not in going(made, noted(made, ENTRIES))


def test_unfinished_files_stay_where_another_configuration_has_the_artifact(made):
    """The names of checkpoints do not tell whose they are."""
    folder = made.table("problems/q").scratch / "checkpoints-0"
    folder.mkdir(parents=True)
    assert ("unfinished", "problems/q") in going(made, noted(made, {"problems/p": ENTRIES["problems/p"]}))
    assert ("unfinished", "problems/q") not in going(made, noted(made, ENTRIES))


def test_configuration_whose_record_is_replaced_gives_up_what_it_no_longer_declares(made):
    """The last run with the same files counts; with a mistake in it, what it declared before stays too."""
    assert noted(made, ENTRIES)[0].artifacts.keys() == ENTRIES.keys()
    fewer = {"problems/p": ENTRIES["problems/p"]}
    faulty = expand({"r": {**fewer, "api/referee": REFEREE, "schemes/s": {"problemz": "problems/p"}}}, drafts=True)
    assert faulty.faults
    configurations.note(faulty, made.results, ["mine.yaml"])
    (kept,) = configurations.others(made.results, ["config.yaml"])
    assert kept.artifacts.keys() == ENTRIES.keys()
    (now,) = noted(made, fewer)
    assert now.artifacts.keys() == fewer.keys()


def test_own_record_holds_nothing_of_an_edited_configuration(made):
    """Files of the same configuration before an edit can go; cosmetic values of a command line change nothing."""
    configurations.note(
        expand({"r": {"api/referee": REFEREE, **ENTRIES}}), made.results, ["config.yaml"], {"budget": 5}
    )
    assert list(configurations.others(made.results, ["config.yaml"])) == []


def test_command_keeps_what_a_second_configuration_made_until_it_is_forgotten(made, monkeypatch, capsys, tmp_path):
    """`gc --delete` leaves the tables of the other and names it; after `--forget`, they can go."""
    noted(made, ENTRIES)
    config = {"r": {**ENTRIES, "problems/q": {**ENTRIES["problems/q"], "keep": [{"first": 2}]}}}
    del config["r"]["schemes/s"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"results": "results", **config}))
    monkeypatch.chdir(tmp_path)
    before = snapshot(made.results)

    def gc(*arguments):
        monkeypatch.setattr(sys, "argv", ["proofmill", "gc", *arguments])
        command.main()
        return capsys.readouterr().out

    assert "kept for `mine.yaml`: problems/q, schemes/s" in gc("--delete", "--journals")
    assert snapshot(made.results) == before
    with pytest.raises(SystemExit, match=r"--forget other\.yaml: no such configuration"):
        gc("--forget", "other.yaml")
    gc("--forget", "mine.yaml")
    assert "kept for" not in gc("--delete", "--journals") and not made.table("schemes/s").calls.exists()


def test_record_is_known_where_the_project_was_moved_and_only_others_are_forgotten(made, monkeypatch, tmp_path):
    """Moved with its results, a project finds its record; of records with its title, only those of others go."""
    book = expand({"r": {"api/referee": REFEREE, **ENTRIES}})
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    monkeypatch.chdir(old)
    results = Path("results")
    configurations.note(book, results, ["config.yaml"])
    old.rename(new)
    monkeypatch.chdir(new)
    assert list(configurations.others(results, ["config.yaml"])) == []
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    configurations.note(book, new / "results", ["config.yaml"])
    monkeypatch.chdir(new)
    (other,) = configurations.others(results, ["config.yaml"])
    configurations.forget(results, ["config.yaml"], other.title)
    assert list((results / configurations.FOLDER).iterdir()) == [configurations.place(results, ["config.yaml"])]
    with pytest.raises(SettingError, match="no such configuration"):
        configurations.forget(results, ["config.yaml"], "config.yaml")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("damage", [b"", b"[]", b'{"title": 1}', b"\xff", b"[" * 100_000], ids=range(5))
def test_damaged_record_stops_the_search(made, damage):
    """Where it cannot be known what a configuration declares, nothing can go."""
    noted(made, ENTRIES)
    (path,) = (made.results / configurations.FOLDER).iterdir()
    path.write_bytes(damage)
    with pytest.raises(SettingError, match=r"is damaged .*; expected the artifacts that a configuration declares"):
        list(configurations.others(made.results, ["config.yaml"]))


@pytest.mark.pipeline
def test_run_records_what_its_configuration_declares(chain):
    """After a run of Snakemake the results folder knows its files, and every artifact of theirs."""
    (known,) = configurations.others(chain.results, [])
    assert known.title == "config.yaml" and known.artifacts == configurations.of(chain.config)
