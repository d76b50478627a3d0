"""Errors of libraries on a full disk or a damaged file become one message; a mistake in code stays a traceback."""

import errno
import fcntl
import json
import shutil

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from damage import copied, fill, mounted, zero
from mill import SMALL, Mill
from proofmill.artifacts import jobs
from proofmill.artifacts.system_errors import no_room
from proofmill.config.identity import identity_of
from proofmill.schema.errors import TableError

GRPO = {
    "model": "sft/cold", "problems": "problems/train", "schemes": "schemes/train", "grader": "api/referee",
    "rewards": {"grade": 1}, "unscored": "drop", "group-size": 2, "problems-per-step": 2, "steps": 2, "max-tokens": 8,
}  # fmt: skip
ENTRIES = {**SMALL, "grpo/new": GRPO, "sft/new": {**SMALL["sft/cold"], "seed": 1}}


# ------------------------------------------------------------------------------------------------------------ full disk


@pytest.fixture
def small_disk(small, tmp_path):
    """Return a mill with the small chain's results on a file system of 64 MB."""
    with mounted(tmp_path / "mounted", "size=64m") as folder:
        yield Mill(copied(small.results, folder), **ENTRIES)


JOURNAL = 4 * 2**20  # bytes that a journal reserves before the first question


@pytest.mark.parametrize(
    ("name", "leave"),
    [
        *[("base/tiny", leave) for leave in (0, 8_192, 40_960)],
        *[("sft/new", leave) for leave in (0, 40_960, 151_552, 401_408)],
        *[("grpo/new", JOURNAL + leave) for leave in (40_960, 151_552, 401_408)],
    ],
)
def test_full_disk_in_a_training_is_one_message(small_disk, monkeypatch, name, leave):
    """A full disk gives one message, in weights, checkpoint, tokenizer or table; with room the job resumes."""
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "1")
    monkeypatch.setenv("PROOFMILL_FORCE", name)
    filler = fill(small_disk.results.parent, leave)
    said = rf"expected room and permission to write there. Free space and rerun: {name} resumes."
    with pytest.raises(TableError, match=said):
        small_disk.make(name)
    filler.unlink()
    small_disk.make(name).check(deep=True)


def save_torch(folder):
    torch.save({"a": torch.zeros(10**6)}, folder / "x.pt")


def save_safetensors(folder):
    save_file({"a": torch.zeros(10**6)}, folder / "x.safetensors")


def save_tokenizer(folder):
    Tokenizer(models.BPE({f"t{number}": number for number in range(10**5)}, [])).save(str(folder / "tokenizer.json"))


def save_json(folder):
    (folder / "x.json").write_text(json.dumps(list(range(10**6))))


@pytest.mark.parametrize("options", ["size=1m", "size=16m,nr_inodes=1"], ids=["no room", "no inode"])
@pytest.mark.parametrize("save", [save_torch, save_safetensors, save_tokenizer, save_json])
def test_full_disk_is_known_by_every_library(tmp_path, save, options):
    """The errors of torch, safetensors, tokenizers and Python on a full disk differ from others."""
    with mounted(tmp_path / "mounted", options) as folder, pytest.raises(Exception) as raised:
        save(folder)
    assert no_room(raised.value)
    assert no_room(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None


# ------------------------------------------------------------------------------------------------------ damaged parents


def made_by(main, mill: Mill, name: str):
    jobs.make(main, name, identity_of(mill.config.entries[name], mill.config.declared), mill.results)


@pytest.fixture
def own(small, tmp_path) -> Mill:
    """Return the small chain in its own results folder."""
    return Mill(copied(small.results, tmp_path), **ENTRIES)


def read_json(folder):
    json.loads((folder / "config.json").read_text())


def read_safetensors(folder):
    from safetensors import safe_open

    safe_open(folder / "model.safetensors", "numpy")


def read_model(folder):
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize(
    ("file", "read"),
    [("config.json", read_json), ("config.json", read_model), ("model.safetensors", read_safetensors)],
)
def test_damaged_parent_is_named_instead_of_a_librarys_error(own, file, read):
    """Where a library meets damage that no check before it saw, the parent and the file are named."""
    folder = own.table("base/tiny").weights()
    zero(folder / file, 0, 30, keep_time=True)
    with pytest.raises(TableError, match=rf"base/tiny/{file}: is damaged.*snakemake .*base/tiny.parquet"):
        made_by(lambda entry, job: read(folder), own, "sft/new")


def test_damaged_parent_is_named_by_the_stage_that_streams_it(own):
    """Grades of a table whose pages are damaged stop with the name of that table."""
    shutil.rmtree(own.results / "archive/grades")
    zero(own.table("responses/cold").path, 600, 4000)
    with pytest.raises(TableError, match=r"responses/cold.parquet: is damaged"):
        own.make("grades/cold")


def test_mistake_of_the_code_stays_what_it_is(own):
    """Errors behind which nothing is damaged pass as they are."""

    def wrong(entry, job):
        raise error

    for error in (KeyError("x"), OSError("x"), json.JSONDecodeError("x", "", 0), RuntimeError("x")):
        with pytest.raises(type(error)) as raised:
            made_by(wrong, own, "sft/new")
        assert raised.value is error


def test_file_that_vanished_is_named(own):
    """If another program removed a file of the results during the job, the message names it and the remedy."""
    path = own.results / "calls/sft/new/calls.jsonl"
    with pytest.raises(
        TableError, match=r"calls.jsonl: No such file or directory; .*no other program .*sft/new resumes"
    ):
        made_by(lambda entry, job: path.read_bytes(), own, "sft/new")


def test_file_elsewhere_that_vanished_is_not_blamed_on_the_results(own, tmp_path):
    """A file outside of the results folder is not blamed on it."""
    with pytest.raises(FileNotFoundError):
        made_by(lambda entry, job: (tmp_path / "absent").read_bytes(), own, "sft/new")


# -------------------------------------------------------------------------------------------------------------- no locks


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_file_system_without_locks_is_named(own, monkeypatch, number):
    """Where `flock` does not work, the message says on which file, and what to mount."""

    def flock(*_):
        raise OSError(number, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(TableError, match=r"unfinished/sft/new.lock: this file system has no locks .*Lustre: -o flock"):
        own.make("sft/new")
