"""Fetching public data: from a server that speaks as the hub does, and from one of plain files."""

import hashlib
import io
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from huggingface_hub import constants

from downloads import Downloads, serving
from mill import Mill
from project import snapshot
from proofmill.public_data import download, registry
from proofmill.public_data.locations import local_path
from proofmill.public_data.registry import FETCHED, LOCK, REGISTER, place, read_lock
from proofmill.schema.errors import HubError, MissingData, SettingError, TableError

ROWS = b'{"statement": "Prove that 1 + 1 = 2.", "answer": "2"}\n{"statement": "What is 2 + 2?", "answer": "4"}\n'
COMMIT = "5" * 40
HEADER = "name,source,file,bytes,sha256,license,rows,checked\n"


@pytest.fixture
def there(tmp_path, monkeypatch):
    """Return a server, and a new project in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROOFMILL_DATA", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with serving(Downloads()) as downloads:
        monkeypatch.setattr(constants, "ENDPOINT", downloads.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", downloads.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", downloads.url)
        yield downloads


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def registered(source: str, content: bytes | None, file: str = "set/rows.jsonl") -> str:
    """Register the address with the digest of this content."""
    REGISTER.parent.mkdir(exist_ok=True)
    digest = sha256(content) if content is not None else ""
    REGISTER.write_text(f"{HEADER}A set,{source},{file},,{digest},CC-BY-4.0,2,\n")
    return source


# ------------------------------------------------------------------------------------------------------------- whole


def test_url_is_fetched_once_and_noted(there):
    """A file of a URL is in place with its digest in the lock; a second fetch makes no request."""
    there.files["/a/rows.jsonl"] = ROWS
    source = f"{there.url}/a/rows.jsonl"
    download.fetch(source)
    copy = local_path(source)
    assert copy.read_bytes() == ROWS and str(copy).startswith(f"{FETCHED}/url/")
    (row,) = read_lock()
    assert (row["source"], row["sha256"], row["bytes"]) == (source, sha256(ROWS), str(len(ROWS)))
    asked = len(there.asked)
    download.fetch(source)
    assert len(there.asked) == asked and not download.UNFINISHED.joinpath("x").exists()


def test_files_of_the_hub_come_as_a_folder(there):
    """A pattern stands for several files of a dataset at its commit, and a loader reads them as one."""
    files = {"data/train-0.jsonl": ROWS, "data/train-1.jsonl": ROWS.replace(b"1 + 1", b"1 + 2"), "README.md": b"#"}
    there.repositories["dataset", "me/set"] = (COMMIT, files)
    source = f"hub:me/set@{COMMIT}/data/train-*.jsonl"
    download.fetch(source)
    assert sorted(path.name for path in local_path(source).iterdir()) == ["train-0.jsonl", "train-1.jsonl"]
    assert {row["commit"] for row in read_lock()} == {COMMIT}
    mill = Mill(Path("results"), **{"problems/x": {"source": "table", "path": source, "where": {"answer": [2]}}})
    rows = mill.make("problems/x").rows()
    assert [row["statement"] for row in rows] == ["Prove that 1 + 1 = 2.", "Prove that 1 + 2 = 2."]


def test_branch_of_the_hub_is_noted_with_its_commit(there):
    """Where no commit is pinned, the first fetch notes the one that it saw."""
    there.repositories["dataset", "me/set"] = (COMMIT, {"rows.jsonl": ROWS})
    download.fetch("hub:me/set@main/rows.jsonl")
    assert [row["commit"] for row in read_lock()] == [COMMIT]


def test_file_of_an_archive_is_taken_out(there):
    """`#member` names the file of a zip; its digest is that of the file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("rows.jsonl", ROWS)
    there.files["/rows.zip"] = packed.getvalue()
    source = registered(f"{there.url}/rows.zip#rows.jsonl", ROWS)
    download.fetch(source)
    assert local_path(source) == FETCHED / "set/rows.jsonl"
    assert local_path(source).read_bytes() == ROWS


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Return a folder with the wheel of a package of rows; pip looks for packages only there."""
    folder = tmp_path / "index"
    folder.mkdir()
    metadata = "Metadata-Version: 2.1\nName: rows\nVersion: 1.0\n"
    with zipfile.ZipFile(folder / "rows-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("rows/train.jsonl", ROWS)
        wheel.writestr("rows-1.0.dist-info/METADATA", metadata)
        wheel.writestr("rows-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("rows-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_file_of_a_package_is_taken_out(there, index):
    """`pip:` names a file of a package's wheel; only this file is put in place, with its digest in the lock."""
    source = "pip:rows@1.0/rows/train.jsonl"
    download.fetch(source)
    assert local_path(source) == FETCHED / "pip/rows/1.0/rows/train.jsonl"
    assert local_path(source).read_bytes() == ROWS
    assert [row["sha256"] for row in read_lock()] == [sha256(ROWS)]
    assert list(download.UNFINISHED.iterdir()) == []


def test_package_that_changed_is_refused(there, index):
    """A file of a package whose digest is not the registered one is not put into place."""
    source = registered("pip:rows@1.0/rows/train.jsonl", ROWS * 2)
    with pytest.raises(HubError, match=f"its SHA-256 is {sha256(ROWS)}; expected {sha256(ROWS * 2)}"):
        download.fetch(source)
    assert not (FETCHED / "set/rows.jsonl").exists()


@pytest.mark.parametrize(
    "source, found",
    [
        (
            "pip:rows@2.0/rows/train.jsonl",
            r"pip cannot download rows==2.0 \(No matching distribution .*below PROOFMILL_DATA",
        ),
        (
            "pip:rows@1.0/rows/test.jsonl",
            r"rows-1.0-py3-none-any.whl has no such file; expected one of .*rows/train.jsonl",
        ),
    ],
)
def test_file_that_no_package_has_is_said(there, index, source, found):
    """A version that the index lacks, and a file that the wheel lacks, are a message each."""
    with pytest.raises(HubError, match=found):
        download.fetch(source)


def test_copies_of_ones_own_come_first(there, tmp_path, monkeypatch):
    """PROOFMILL_DATA overrides downloads, and its files are used as they are."""
    there.files["/rows.jsonl"] = ROWS
    source = registered(f"{there.url}/rows.jsonl", ROWS)
    own = tmp_path / "own" / "set" / "rows.jsonl"
    own.parent.mkdir(parents=True)
    own.write_bytes(ROWS[: ROWS.index(b"\n") + 1])
    download.fetch(source)
    monkeypatch.setenv("PROOFMILL_DATA", str(tmp_path / "own"))
    assert local_path(source) == own
    mill = Mill(Path("results"), **{"problems/x": {"source": "table", "path": source}})
    assert len(mill.make("problems/x").rows()) == 1


# -------------------------------------------------------------------------------------------------------- killed, changed

FETCH = "from proofmill.public_data import download; import sys; download.fetch(sys.argv[1])"


def test_killed_download_goes_on_and_nothing_half_is_believed(there, tmp_path):
    """After SIGKILL in the middle there is no copy; the next fetch requests only the rest, and the file is correct."""
    large = os.urandom(1 << 20) * 25
    there.files["/large.bin"], there.stop_after = large, 21 << 20
    source = f"{there.url}/large.bin"
    environment = {**os.environ, "HF_HUB_OFFLINE": "0"}
    killed = subprocess.Popen([sys.executable, "-c", FETCH, source], env=environment, stderr=subprocess.DEVNULL)
    assert there.stopped.wait(60)
    (part,) = _parts(killed)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (FETCHED / place(source)).exists() and not LOCK.exists()
    with pytest.raises(MissingData):
        local_path(source)
    begun, there.stop_after = part.stat().st_size, None
    there.release.set()
    download.fetch(source)
    assert there.asked[-1] == ("GET", "/large.bin", f"bytes={begun}-") and begun > 0
    assert sha256((FETCHED / place(source)).read_bytes()) == sha256(large)


def _parts(process) -> list[Path]:
    """Return the partial files, once one has content."""
    import time

    while process.poll() is None:
        if found := [path for path in download.UNFINISHED.rglob("*.part") if path.stat().st_size]:
            return found
        time.sleep(0.02)
    raise AssertionError("it ended before anything was written")


def test_changed_source_is_refused_and_says_both_digests(there):
    """An unexpected file is not put in place; the message has the expected and the actual digest."""
    there.files["/rows.jsonl"] = ROWS + b"{}\n"
    source = registered(f"{there.url}/rows.jsonl", ROWS)
    with pytest.raises(HubError) as error:
        download.fetch(source)
    assert sha256(ROWS) in str(error.value) and sha256(ROWS + b"{}\n") in str(error.value)
    assert not (FETCHED / "set/rows.jsonl").exists() and read_lock() == []
    there.files["/rows.jsonl"] = ROWS
    download.fetch(source)
    assert local_path(source).read_bytes() == ROWS


def test_source_without_a_digest_is_compared_with_its_first_fetch(there):
    """The lock file of a first fetch, taken to another machine, refuses what has changed since."""
    there.repositories["dataset", "me/set"] = (COMMIT, {"rows.jsonl": ROWS})
    source = "hub:me/set@main/rows.jsonl"
    download.fetch(source)
    local_path(source).unlink()
    there.repositories["dataset", "me/set"] = ("6" * 40, {"rows.jsonl": ROWS * 2})
    before = snapshot(Path("data"))
    with pytest.raises(HubError, match=f"its SHA-256 is {sha256(ROWS * 2)}; expected {sha256(ROWS)}"):
        download.fetch(source)
    assert {path: before[path] for path in before if "lock.csv" in path} == {
        str(LOCK.relative_to("data")): LOCK.read_bytes()
    }


def test_folder_of_the_hub_that_has_grown_is_refused(there):
    """A branch that has another file than at the first fetch is named with what is new."""
    there.repositories["dataset", "me/set"] = (COMMIT, {"data/a.jsonl": ROWS})
    source = "hub:me/set@main/data/*.jsonl"
    download.fetch(source)
    (local_path(source) / "a.jsonl").unlink()
    local_path(source).rmdir()
    there.repositories["dataset", "me/set"] = ("6" * 40, {"data/a.jsonl": ROWS, "data/b.jsonl": ROWS})
    with pytest.raises(
        HubError, match=r"new: b.jsonl; missing: nothing; expected the files that data/sources.lock.csv has"
    ):
        download.fetch(source)


@pytest.mark.parametrize("source", ["{url}/gone.jsonl", "hub:me/set@main/gone.jsonl", "hub:me/gone@main/rows.jsonl"])
def test_source_that_is_gone_says_what_was_expected(there, source):
    """A file or repository that is not there any more is named with the digest that it had, and what to do."""
    there.repositories["dataset", "me/set"] = (COMMIT, {"rows.jsonl": ROWS})
    source = registered(source.format(url=there.url), ROWS)
    with pytest.raises(HubError, match=f"cannot be fetched .*expected the file with SHA-256 {sha256(ROWS)}"):
        download.fetch(source)


def test_pattern_that_fits_nothing_says_what_there_is(there):
    """The files of the repository are named."""
    there.repositories["dataset", "me/set"] = (COMMIT, {"rows.jsonl": ROWS})
    with pytest.raises(HubError, match=r"no file matches `data/\*`; expected one of rows.jsonl"):
        download.fetch("hub:me/set@main/data/*")


def test_fetched_file_that_was_edited_is_refused(there):
    """A downloaded file that has changed makes no table."""
    there.files["/rows.jsonl"] = ROWS
    source = registered(f"{there.url}/rows.jsonl", None)
    download.fetch(source)
    local_path(source).write_bytes(ROWS * 2)
    mill = Mill(Path("results"), **{"problems/x": {"source": "table", "path": source}})
    with pytest.raises(TableError, match=f"its SHA-256 is {sha256(ROWS * 2)}; expected {sha256(ROWS)}"):
        mill.make("problems/x")


def test_network_that_is_forbidden_is_not_asked(there, monkeypatch):
    """HF_HUB_OFFLINE forbids plain files too, and the message says so."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SettingError, match="HF_HUB_OFFLINE is set"):
        download.fetch(f"{there.url}/rows.jsonl")
    assert there.asked == []


# --------------------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    "text",
    [
        "hub:me/set/rows.jsonl",
        "hub:me/set@main/",
        "github:me@1/x",
        "https://host",
        "hub:me/set@main/../../x",
        "pip:rows/a",
        "pip:rows@1/../a",
    ],
)
def test_address_that_cannot_be_read_is_a_mistake(text):
    """The recipe is refused before anything is asked, and the forms of an address are named."""
    assert "Fix it" in registry.fault_of(text)


def test_missing_data_name_the_command():
    """A table that is made without its data says where they were expected and what brings them."""
    with pytest.raises(MissingData, match=r"data/fetched/hub/me/set/main/x.jsonl. Fetch it: proofmill fetch TARGET"):
        local_path("hub:me/set@main/x.jsonl")


def test_server_that_does_not_answer_is_said(there):
    """A dead port is a message with the address and the place for a copy of one's own, not a traceback."""
    source = registered("http://127.0.0.1:9/rows.jsonl", None)
    with pytest.raises(HubError, match=r"cannot be fetched .*put a copy at set/rows.jsonl below PROOFMILL_DATA"):
        download.fetch(source)
