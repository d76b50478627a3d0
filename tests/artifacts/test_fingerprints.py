"""Fingerprints: each file and each parent counts with its name; where a folder is on this machine does not."""

import shutil
from pathlib import Path

import pytest

from proofmill.artifacts import fingerprints
from proofmill.artifacts.states import States
from proofmill.config.entry_values import entry_from
from proofmill.config.source_paths import read_known_digests
from proofmill.public_data import registry

FILES = {"a.jsonl": '{"statement": "a"}\n', "b.jsonl": '{"statement": "b"}\n', "sub/c.jsonl": '{"statement": "c"}\n'}


@pytest.fixture
def corpus(tmp_path, monkeypatch) -> Path:
    """Return a folder of three files, below a folder that `${DATA}` names."""
    folder = tmp_path / "data/corpus"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setenv("DATA", str(folder.parent))
    return folder


def fingerprint(path: str = "${DATA}/corpus", kind: str = "problems", source: str = "table", **fields) -> str:
    entry = entry_from(kind, {"source": source, "path": path, **fields})
    return fingerprints.fingerprint_of(f"{kind}/x", entry, {}, {}, fingerprints.sources_of(kind, entry, {}.get))


def swap(folder: Path) -> None:
    first, second = (folder / name for name in ("a.jsonl", "b.jsonl"))
    texts = first.read_text(), second.read_text()
    second.write_text(texts[0])
    first.write_text(texts[1])


EDITS = {
    "renamed": lambda folder: (folder / "a.jsonl").rename(folder / "z.jsonl"),
    "disabled": lambda folder: (folder / "a.jsonl").rename(folder / "a.jsonl.off"),
    "swapped": swap,
    "moved inside": lambda folder: (folder / "a.jsonl").rename(folder / "sub/a.jsonl"),
    "a folder renamed": lambda folder: (folder / "sub").rename(folder / "sup"),
    "added twice": lambda folder: shutil.copy(folder / "a.jsonl", folder / "d.jsonl"),
    "another format": lambda folder: (folder / "a.jsonl").rename(folder / "a.csv"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_edit_of_the_names_in_a_folder_is_another_fingerprint(corpus, edit):
    """The same contents under other names give other rows, or rows in another order."""
    before = fingerprint()
    edit(corpus)
    assert fingerprint() != before


def test_folder_in_another_place_has_the_same_fingerprint(corpus, tmp_path, monkeypatch):
    """The folder above, other times of the files and links to them count for nothing."""
    before = fingerprint()
    shutil.copytree(corpus, tmp_path / "elsewhere/corpus")
    monkeypatch.setenv("DATA", str(tmp_path / "elsewhere"))
    assert fingerprint() == before
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/corpus").symlink_to(corpus)
    monkeypatch.setenv("DATA", str(tmp_path / "linked"))
    assert fingerprint() == before


def test_name_behind_a_variable_counts(corpus, monkeypatch):
    """`origin`, the format and some ids come from a file name, also if a variable holds all of it."""
    monkeypatch.setenv("FILE", str(corpus / "a.jsonl"))
    before = fingerprint("${FILE}")
    (corpus / "a.jsonl").rename(corpus / "z.jsonl")
    monkeypatch.setenv("FILE", str(corpus / "z.jsonl"))
    assert fingerprint("${FILE}") != before


def test_renamed_chat_template_of_a_model_is_another_fingerprint(tmp_path):
    """A tokenizer finds its template by the name of the file."""
    for name in ("config.json", "model.safetensors", "chat_template.jinja"):
        (tmp_path / name).write_text(name)
    before = fingerprint(str(tmp_path), "base", "folder")
    (tmp_path / "chat_template.jinja").rename(tmp_path / "old_template.jinja")
    assert fingerprint(str(tmp_path), "base", "folder") != before


def test_parents_that_swap_their_contents_are_another_fingerprint():
    """A parent counts by its name and its content, not by its content alone."""
    entry = entry_from("overlaps", {"problems": ["problems/a"], "against": ["problems/b"]})
    one, other = {"problems/a": "1", "problems/b": "2"}, {"problems/a": "2", "problems/b": "1"}
    found = {fingerprints.fingerprint_of("overlaps/x", entry, {}, parents, {}) for parents in (one, other)}
    assert len(found) == 2


@pytest.mark.parametrize(
    ("fields", "draws"),
    [
        ({"mix": {"examples/a": 1.0}}, True),
        ({"concatenate": {"examples/a": 0.5}}, True),
        ({"problems": "problems/a"}, False),
    ],
)
def test_name_counts_where_it_decides_rows(fields, draws):
    """A renamed table is rebuilt if it draws rows, since the seed of its draws has its name."""
    entry = entry_from("examples", fields)
    found = {fingerprints.fingerprint_of(name, entry, {}, {}, {}) for name in ("examples/one", "examples/other")}
    assert len(found) == 1 + draws


def test_public_data_that_are_gone_have_the_names_that_they_had(tmp_path, monkeypatch):
    """A table made from a fetched folder is still done when only the lock knows the files."""
    monkeypatch.chdir(tmp_path)
    address = "hub:me/set@main/train-*.jsonl"
    copy = registry.FETCHED / registry.place(address)
    copy.mkdir(parents=True)
    for name, text in (("train-0.jsonl", "{}"), ("train-1.jsonl", "{ }")):
        (copy / name).write_text(text)
    entry = entry_from("problems", {"source": "table", "path": address})
    here = fingerprints.sources_of("problems", entry, {}.get)
    rows = [f"{address},{registry.place(address)}/{Path(name).name},2,{sha},main" for name, sha in here.items()]
    registry.LOCK.write_text("\n".join([",".join(registry.LOCK_COLUMNS), *rows]) + "\n")
    assert read_known_digests(address) == here
    assert sorted(here) == [f"{address}/train-0.jsonl", f"{address}/train-1.jsonl"]


def test_plan_names_the_files_that_came_and_went(corpus, mill):
    """A renamed file is one that is gone and one that is new; an edited one is named as it is in the entry."""
    made = mill({"problems/x": {"source": "table", "path": "${DATA}/corpus"}})
    made.make("problems/x")
    (corpus / "a.jsonl").rename(corpus / "z.jsonl")
    (corpus / "b.jsonl").write_text('{"statement": "other"}\n')
    state = States(made.config, made.results)["problems/x"]
    assert state.why == (
        "${DATA}/corpus/b.jsonl was edited", "${DATA}/corpus/z.jsonl is new", "${DATA}/corpus/a.jsonl was removed",
    )  # fmt: skip
