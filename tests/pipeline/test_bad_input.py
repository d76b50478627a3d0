"""Bad input stops the real command with exit code 1 and one message that says what was found and what was expected; no file
of the results changes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import yaml

from damage import fill, mounted
from mill import REFEREE, SMALL
from project import Project, snapshot
from proofmill.artifacts.weights import MANIFEST
from proofmill.calls import records
from proofmill.schema.errors import HubError, JournalError, RecipeError, ServiceError, SettingError, TableError

pytestmark = pytest.mark.slow

ERRORS = tuple(
    f"{error.__name__}: " for error in (RecipeError, TableError, JournalError, SettingError, ServiceError, HubError)
)


class Desk:
    """A folder with a configuration and finished small results, in which the real command line is run."""

    def __init__(self, folder: Path, finished: Path):
        self.folder, self.results = folder, folder / "results"
        folder.mkdir(exist_ok=True)
        shutil.copytree(finished, self.results)

    def write(self, name: str, content: bytes | str) -> str:
        """Write a source file; return its path."""
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def run(self, name: str, text: str | None = None, entries: dict | None = None, **environment: str):
        config = text or yaml.safe_dump({"r": {"api/referee": REFEREE, **SMALL, **(entries or {})}}, sort_keys=False)
        (self.folder / "config.yaml").write_text(config, encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-m", f"proofmill.{name.partition('/')[0]}", name],
            cwd=self.folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def state(self) -> dict[str, bytes]:
        """Return every file of the results but locks and the record of the configuration, which each run writes."""
        return {
            path: content
            for path, content in snapshot(self.results).items()
            if not path.endswith("/lock") and not path.startswith("configurations/")
        }

    def refused(
        self, name: str, *said: str, text: str | None = None, entries: dict | None = None, **environment
    ) -> None:
        """Assert that the command stops with one message that has all of `said`, and changes nothing."""
        before = self.state()
        done = self.run(name, text, entries, **environment)
        assert done.returncode == 1, done.stdout
        assert "Traceback" not in done.stdout, done.stdout
        messages = [line for line in done.stdout.splitlines() if line.startswith(ERRORS)]
        assert len(messages) == 1, done.stdout
        message = done.stdout[done.stdout.index(messages[0]) :]
        assert [part for part in (*said, "expected") if part not in message] == [], message
        assert before == self.state()


@pytest.fixture
def desk(small, tmp_path) -> Desk:
    return Desk(tmp_path / "desk", small.results)


def table(path: str, **more) -> dict:
    return {"problems/x": {"source": "table", "path": path, **more}}


# ---------------------------------------------------------------------------------------------------------------- files

GOOD = json.dumps({"id": "a", "statement": "Show that 2 divides 4.", "solution": "4 = 2 * 2."}) + "\n"


def parquet(tmp_path: Path) -> bytes:
    pl.DataFrame({"statement": [f"Show that {n} is {n}." for n in range(500)]}).write_parquet(
        tmp_path / "whole.parquet"
    )
    return (tmp_path / "whole.parquet").read_bytes()


@pytest.mark.sampled(5, "torn-json")
@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("a.jsonl", GOOD + '{"id": "b", "question": "Why?"}\n', ["a.jsonl:2", "statement"]),
        ("a.jsonl", GOOD + '{"id": "b", "statement": 7}\n', ["a.jsonl:2", "statement", "7"]),
        ("a.jsonl", GOOD + '{"id": "b", "statement": ["x"]}\n', ["a.jsonl:2", "statement"]),
        ("a.csv", "id,question\na,Why?\n", ["a.csv", "statement"]),
        ("a.jsonl", "", ["a.jsonl", "no rows"]),
        ("a.csv", "", ["a.csv"]),
        ("a.csv", "id,statement\n", ["a.csv", "no rows"]),
        ("a.parquet", b"", ["a.parquet"]),
        ("a.jsonl", GOOD.encode() + b'{"statement": "\xff\xfe"}\n', ["a.jsonl:2", "0xff", "UTF-8"]),
        ("a.csv", b"statement\nShow that \xff.\n", ["a.csv:2", "0xff", "UTF-8"]),
        ("a.jsonl", GOOD + '{"statement": "' + "x" * 10_000_000 + '"}\n', ["a.jsonl:2", "10,000,000"]),
        ("a.jsonl", GOOD + '{"statement": "cut of', ["a.jsonl:2", "not JSON"]),
        ("a.jsonl", GOOD + "[1, 2]\n", ["a.jsonl:2", "object"]),
        ("a.parquet", b"PAR1" + b"\x00" * 100 + b"PAR1", ["a.parquet", "Parquet"]),
        ("a.txt", "text\n", ["a.txt", "`.txt`", ".jsonl"]),
    ],
    ids=[
        "wrong-column", "wrong-type", "list-for-text", "wrong-column-csv", "empty-jsonl", "empty-csv", "header-only",
        "empty-parquet", "broken-utf-8", "broken-utf-8-csv", "ten-megabytes-in-a-line", "torn-json", "not-an-object",
        "corrupt-parquet", "unknown-format",
    ],
)  # fmt: skip
def test_source_file_that_cannot_be_read_is_refused(desk, file, content, said):
    """A file that is not what its reader needs is named with its line, and what was expected there."""
    desk.refused("problems/x", *said, entries=table(desk.write(file, content)))


@pytest.mark.long
def test_truncated_parquet_source_is_refused(desk, tmp_path):
    """A download that broke off is no table with fewer rows."""
    path = desk.write("a.parquet", parquet(tmp_path)[:-200])
    desk.refused("problems/x", "a.parquet", "Parquet", entries=table(path))


@pytest.mark.long
def test_duplicate_ids_of_a_source_are_refused(desk):
    """An id that stands for two rows is named, with both places."""
    path = desk.write("a.jsonl", GOOD + GOOD.replace("2 divides 4", "3 divides 9"))
    desk.refused("problems/x", "a.jsonl:2", "'a'", "a.jsonl:1", entries=table(path, columns={"problem": "id"}))


@pytest.mark.long
def test_missing_source_is_refused(desk):
    """A path that leads nowhere is shown as it is."""
    desk.refused("problems/x", "nowhere.jsonl", "no such file", entries=table("nowhere.jsonl"))


@pytest.mark.long
def test_path_with_an_unset_variable_is_refused(desk):
    """A variable that the environment has not is named, with the way to set it."""
    desk.refused("problems/x", "NO_SUCH_FOLDER", "export", entries=table("${NO_SUCH_FOLDER}/a.jsonl"))


# --------------------------------------------------------------------------------------------------------------- parents


def damaged(desk: Desk, name: str) -> Path:
    path = desk.results / f"{name}.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:-60] + b"\x00" * 60)
    return path


def test_corrupt_parent_is_refused(desk):
    """A damaged table of ours is named, and the table made from it before is left as it is."""
    damaged(desk, "problems/train")
    desk.refused("schemes/train", "problems/train.parquet", "cannot be read as Parquet")


@pytest.mark.long
def test_parent_with_damaged_rows_is_refused(desk):
    """A table whose stamp can be read and whose rows cannot is named too."""
    path = desk.results / "problems/train.parquet"
    content = bytearray(path.read_bytes())
    content[4:2000] = b"\xff" * 1996
    path.write_bytes(content)
    shutil.rmtree(desk.results / "archive")
    desk.refused("schemes/train", "problems/train.parquet", "cannot be read as Parquet")


@pytest.mark.long
def test_foreign_parent_is_refused(desk):
    """A Parquet file that proofmill did not write is not taken for a table."""
    pl.DataFrame({"problem": ["p"]}).write_parquet(desk.results / "problems/train.parquet")
    desk.refused("schemes/train", "problems/train.parquet", "no stamp")


def test_parent_with_other_columns_is_refused(desk):
    """A table of an older version, or of another kind, is refused by its columns."""
    path = desk.results / "problems/train.parquet"
    stamp = json.loads(pl.read_parquet_metadata(path)["proofmill"])
    stamp["content"] = f"other{stamp['content']}"
    del stamp["page"]  # which tables of versions before have not, whose footers have no digest either
    rows = pl.read_parquet(path).rename({"statement": "text"})
    rows.write_parquet(path, metadata={"proofmill": json.dumps(stamp)})
    desk.refused("schemes/train", "problems/train.parquet", "statement", "text")


def test_missing_parent_is_refused(desk):
    """A parent that is not there is named with the command that makes it."""
    (desk.results / "problems/train.parquet").unlink()
    desk.refused("schemes/train", "problems/train.parquet", "no such table", "snakemake")


# --------------------------------------------------------------------------------------------------------------- weights


@pytest.mark.sampled(0, "empty")
@pytest.mark.parametrize(("made", "said"), [(False, "no such"), (True, "no config.json")], ids=["absent", "empty"])
def test_missing_model_folder_is_refused(desk, made, said):
    """A base model from a folder that is not there, or is no model, is named with what is missing."""
    if made:
        (desk.folder / "model").mkdir()
    desk.refused("base/x", "model", said, entries={"base/x": {"source": "folder", "path": str(desk.folder / "model")}})


def other_training(**changed) -> dict:
    """Return an entry that was never made, so that nothing is restored and the weights are needed."""
    return {"sft/x": {**SMALL["sft/cold"], "steps": 2, **changed}}


def test_missing_weights_are_refused(desk):
    """A table without its weights trains nothing, and the message says how to make them again."""
    shutil.rmtree(desk.results / "base/tiny")
    desk.refused("sft/x", "base/tiny", "no weights", "rm ", entries=other_training())


@pytest.mark.long
def test_weights_of_another_fingerprint_are_refused(desk):
    """Weights that do not belong to the table next to them are not used."""
    grade = desk.results / "base/tiny" / MANIFEST
    grade.unlink()
    grade.write_text(json.dumps({"fingerprint": "0123456789abcdef"}))
    desk.refused("sft/x", "base/tiny", "weights of 0123456789abcdef", entries=other_training())


def test_example_longer_than_the_limit_is_refused(desk):
    """Text that would be truncated stops the training, with the limit and the longest."""
    desk.refused("sft/x", "max-length", "32", entries=other_training(**{"max-length": 32}))


# --------------------------------------------------------------------------------------------------------- configuration


@pytest.mark.sampled(5, "unknown-key")
@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"problems/x": {"source": "arithmetic", "rovs": 3}}, ["r > problems/x", "`rovs`", "Did you mean `rows`?"]),
        ({"examples/x": {"problems": "problems/trian"}}, ["`problems/trian`", "Did you mean `problems/train`?"]),
        ({"problems/x": {"source": "arithmetic", "rows": "many"}}, ["`rows`", "'many'", "integer"]),
        (
            {"problems/x": {"source": "problems/y"}, "problems/y": {"source": "problems/x"}},
            ["problems/x", "problems/y", "cycle"],
        ),
        ({"labels/x": {"problems": "problems/train", "model": "api/nobody"}}, ["`api/nobody`", "api/referee"]),
    ],
    ids=["unknown-key", "unknown-reference", "wrong-type", "cycle", "unknown-model"],
)
def test_configuration_with_a_mistake_is_refused(desk, entries, said):
    """A target with a mistake is refused with its place and a suggestion; other targets are made."""
    desk.refused(next(iter(entries)), *said, entries=entries)
    if "cycle" not in said:
        assert desk.run("problems/train", entries=entries).returncode == 0


ONE = "problems/x: {source: arithmetic, rows: 3}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"one:\n  {ONE}\ntwo:\n  {ONE}\n", ["two > problems/x", "`one`"]),
        (f"one:\n  {ONE}\n  {ONE}\n", ["config.yaml:3", "declared twice", "line 2"]),
        ("one: [\n", ["config.yaml", "YAML"]),
        ("- one\n", ["config.yaml", "list"]),
    ],
    ids=["in-two-recipes", "in-one-recipe", "no-yaml", "no-mapping"],
)
def test_configuration_that_contradicts_itself_is_refused(desk, text, said):
    """An entry that is declared twice, and a file that is no configuration, are named with the place."""
    desk.refused("problems/x", *said, text=text)


def test_undeclared_name_is_refused(desk):
    """A name on the command line that no recipe has is answered with those that there are."""
    desk.refused("problems/nobody", "problems/nobody", "problems/train")


def test_api_without_an_address_is_refused(desk):
    """A remote model that the environment does not say where to find is named with its variable."""
    judge = {
        "api/far": {"id": "far-1", "price": "unknown"},
        "schemes/x": {**SMALL["schemes/train"], "model": "api/far"},
    }
    desk.refused("schemes/x", "api/far", "PROOFMILL_FAR_URL", entries=judge)


# ---------------------------------------------------------------------------------------------------------------- places

NEW = {"problems/new": {"source": "arithmetic", "rows": 40, "seed": 5}}


def test_file_in_the_place_of_a_folder_is_refused(desk):
    """Results that cannot be made for a file is in the way are named."""
    shutil.rmtree(desk.results / "unfinished", ignore_errors=True)
    (desk.results / "unfinished").write_text("in the way")
    desk.refused("problems/new", "results/unfinished", "writable", entries=NEW)


@pytest.mark.long
def test_folder_in_the_place_of_a_journal_is_refused(desk):
    """A journal that cannot be opened is named before anything is asked."""
    (desk.results / "calls/schemes/x/calls.jsonl").mkdir(parents=True)
    entries = {"schemes/x": {**SMALL["schemes/train"], "problems": "problems/bench"}}
    desk.refused("schemes/x", "JournalError", "calls/schemes/x/calls.jsonl", entries=entries)


@pytest.fixture
def small_disk(small, tmp_path) -> Iterator[Desk]:
    """Return a desk with results on a small file system of their own."""
    with mounted(tmp_path / "mounted", "size=64m") as folder:
        yield Desk(folder, small.results)


@pytest.mark.long
def test_read_only_results_are_refused(small_disk):
    """Results on a file system that is read-only are named, and nothing is tried twice."""
    (small_disk.folder / "config.yaml").write_text(yaml.safe_dump({"r": NEW}))
    subprocess.run(["mount", "-o", "remount,ro", small_disk.folder], check=True)
    before = snapshot(small_disk.results)
    done = subprocess.run(
        [sys.executable, "-m", "proofmill.problems", "problems/new"],
        cwd=small_disk.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stdout) == (1, False), done.stdout
    assert done.stdout.startswith("TableError: ") and "Read-only file system" in done.stdout
    assert before == snapshot(small_disk.results)


def test_full_disk_leaves_the_tables_as_they_were(small_disk):
    """On a full disk nothing of a table is left; with room the same command makes it."""
    entries = {"problems/new": {**NEW["problems/new"], "rows": 400}}
    (small_disk.folder / "config.yaml").write_text("x" * 4096)  # its page is taken before the disk is full
    filler = fill(small_disk.folder, leave=12_288)
    small_disk.refused("problems/new", "No space left", entries=entries)
    filler.unlink()
    assert small_disk.run("problems/new", entries=entries).returncode == 0


def test_full_disk_keeps_what_was_answered(small_disk):
    """A full disk stops the calls with a message; their outputs are complete, and no call is repeated."""
    entries = {"schemes/x": SMALL["schemes/train"]}
    (small_disk.folder / "config.yaml").write_text("x" * 4096)
    filler = fill(small_disk.folder, leave=4 * 2**20 + 12_288)
    done = small_disk.run("schemes/x", entries=entries, PROOFMILL_CONCURRENCY="1")
    assert done.returncode == 1 and "Traceback" not in done.stdout, done.stdout
    assert "schemes/x: stopped because the disk is full; " in done.stdout.splitlines()[-1]
    answered = records.frame(small_disk.results / "calls/schemes/x")
    assert 0 < answered.height < 48
    done = small_disk.run("schemes/x", entries=entries)
    assert "No space left on device; expected room for 4 MiB of outputs" in done.stdout.splitlines()[-1]
    filler.unlink()
    assert small_disk.run("schemes/x", entries=entries).returncode == 0
    assert records.frame(small_disk.results / "calls/schemes/x").head(answered.height).equals(answered)


# ------------------------------------------------------------------------------------------------------- under Snakemake


@pytest.mark.sampled(0, "unknown-key")
@pytest.mark.pipeline
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("r:\n  problems/x: {source: arithmetic, rovs: 3}\n", ["r > problems/x: unknown key `rovs`", "`rows`"]),
        ("r:\n  problems/x: {source: problems/y}\n", ["`problems/y`"]),
        (f"r:\n  {ONE}\n  {ONE}\n", ["config.yaml:3", "declared twice"]),
    ],
    ids=["unknown-key", "unknown-reference", "declared-twice"],
)
def test_snakemake_shows_mistakes_of_the_configuration(tmp_path, config, said):
    """Snakemake shows the message that the command line shows, and starts no job."""
    project = Project(tmp_path / "project", config)
    done = project.snakemake()
    assert (done.returncode, "Traceback" in done.stdout) == (1, False), done.stdout
    assert [part for part in (*said, "RecipeError: ", "expected") if part not in done.stdout] == []
    assert not project.results.exists()


@pytest.mark.pipeline
def test_snakemake_shows_the_message_of_a_failed_job(tmp_path):
    """A job that stops with a message stops the run with exit code 1 and that message; what others made stays."""
    (tmp_path / "a.jsonl").write_text('{"statement": "Why?"}\n{"question": "Why?"}\n')
    bad = f"problems/bad: {{source: table, path: {tmp_path}/a.jsonl}}"
    project = Project(tmp_path / "project", f"r:\n  {ONE}\n  {bad}\n")
    done = project.snakemake()
    assert (done.returncode, "Traceback" in done.stdout) == (1, False), done.stdout
    assert "TableError: " in done.stdout and "a.jsonl:2" in done.stdout
    assert [path.name for path in project.results.rglob("*.parquet") if "archive" not in path.parts] == ["x.parquet"]
