"""Weights are loaded only if they are those that were written."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from damage import copied, truncate, zero
from mill import SMALL, Mill
from proofmill.artifacts import weights
from proofmill.artifacts.tables import Table
from proofmill.artifacts.weights import MANIFEST
from proofmill.engines.local import TransformersEngine
from proofmill.schema.errors import TableError
from proofmill.schema.kinds import KINDS, ROLLOUTS

WEIGHTY = [kind for kind, about in KINDS.items() if about.weights]
SAFETENSORS = "model.safetensors"
GRPO = {
    "model": "sft/cold", "problems": "problems/train", "schemes": "schemes/train", "grader": "api/referee",
    "rewards": {"grade": 1}, "unscored": "drop", "group-size": 2, "problems-per-step": 2, "steps": 1, "max-tokens": 8,
}  # fmt: skip


def written(kind: str, results: Path, source: Path, **files: bytes) -> Table:
    """Return a table of a kind with the weights of `source` and further files next to it."""
    table, folder = Table(f"{kind}/x", results), results / "unfinished/new"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(MANIFEST))
    for name in KINDS[kind].extra_files:
        (folder / name).write_bytes(b"rollouts" * 100)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    table.write([], {"entry": {}, "fingerprint": "f"}, weights=folder)
    return table


@pytest.fixture(params=WEIGHTY)
def table(request, small, tmp_path) -> Table:
    """Return a table of each kind that has weights."""
    return written(request.param, tmp_path / "results", small.table("sft/cold").folder)


def middle(path: Path) -> int:
    return path.stat().st_size // 2


DAMAGE = {
    "zeros": (SAFETENSORS, lambda path: zero(path, middle(path), 400), "is damaged or another file of the same size"),
    "truncated": (
        SAFETENSORS,
        lambda path: truncate(path, middle(path)),
        "has [0-9,]+ bytes; expected [0-9,]+, as written",
    ),
    "empty": ("tokenizer.json", lambda path: truncate(path, 0), "has 0 bytes"),
    "gone": (SAFETENSORS, lambda path: path.unlink(), "no such file"),
    "garbage": ("config.json", lambda path: zero(path, 0, middle(path)), "is damaged or another file"),
    "folder": ("config.json", lambda path: (path.unlink(), path.mkdir()), "no such file"),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_weights_are_refused(table, damage):
    """Zeroed, truncated or missing files of weights are named, with the remedy."""
    name, harm, said = DAMAGE[damage]
    harm(table.folder / name)
    with pytest.raises(TableError, match=rf"{table.name}/{name}: {said}.*rm {table.path}; snakemake {table.path}"):
        table.weights()
    with pytest.raises(TableError, match=said):
        table.check()


def test_weights_of_another_model_are_refused(table, small):
    """Another model's file of the same size is not loaded, and neither is its full folder."""
    other = small.table("base/tiny").folder / SAFETENSORS
    assert other.stat().st_size == (table.folder / SAFETENSORS).stat().st_size
    shutil.copy2(other, table.folder / SAFETENSORS)
    with pytest.raises(TableError, match=rf"{SAFETENSORS}: is damaged or another file of the same size"):
        table.weights()
    mark = json.loads((table.folder / MANIFEST).read_text())
    facts = {path: vars(fact) for path, fact in weights.facts_of(table.folder).items()}
    (table.folder / MANIFEST).unlink()
    (table.folder / MANIFEST).write_text(json.dumps({**mark, "files": facts}))
    with pytest.raises(TableError, match=rf"{table.name}: its files are not those that were written"):
        table.weights()


def test_file_that_was_not_written_with_the_weights_is_refused(table):
    """A file that a library would load as well, such as an adapter, is refused; files of the system are ignored."""
    (table.folder / ".nfs0001").write_bytes(b"")
    table.weights()
    (table.folder / "adapter_config.json").write_text("{}")
    with pytest.raises(TableError, match=r"adapter_config.json: was not written with the weights of .* Move it away"):
        table.weights()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\x00" * 40, b"\xff", b"[]", b"3", b"{}", b'{"fingerprint": "f", "files": 3}',
     b'{"fingerprint": "f", "files": {"config.json": {"bytes": 3}}}'],
)  # fmt: skip
def test_garbage_of_a_mark_is_refused(table, content):
    """A file that is not the manifest of the weights is named."""
    (table.folder / MANIFEST).unlink()
    (table.folder / MANIFEST).write_bytes(content)
    with pytest.raises(TableError, match=rf"{MANIFEST}: is damaged .*; expected .*rm {table.path}"):
        table.weights()


def test_mark_that_is_a_folder_is_refused(table):
    """A folder instead of the manifest is named."""
    (table.folder / MANIFEST).unlink()
    (table.folder / MANIFEST).mkdir()
    with pytest.raises(TableError, match=rf"{MANIFEST}: is damaged"):
        table.weights()


def test_damaged_rollouts_are_refused(small, tmp_path):
    """Rollouts are not in the model's digest, but they are verified."""
    table = written("grpo", tmp_path / "results", small.table("sft/cold").folder)
    zero(table.folder / ROLLOUTS, 30)
    with pytest.raises(TableError, match=rf"{ROLLOUTS}: is damaged"):
        table.weights()


# -------------------------------------------------------------------------------------------------- what is not read


def remembered(table: Table) -> dict:
    return json.loads((table.folder / MANIFEST).read_text())["files"]


def test_copied_weights_are_read_once(table):
    """Files with another time of change and the same bytes are the same; their new time is remembered."""
    os.utime(table.folder / SAFETENSORS, ns=(0, 1))
    table.weights()
    assert remembered(table)[SAFETENSORS]["changed"] == 1


def test_mark_without_facts_is_completed(table):
    """Weights from before MANIFEST had facts are compared with the stamp, and later by facts."""
    before, mark = remembered(table), json.loads((table.folder / MANIFEST).read_text())
    old = json.dumps({key: mark[key] for key in ("fingerprint", "name")})
    (table.folder / MANIFEST).write_text(old)
    table.weights()
    assert remembered(table) == before
    (table.folder / MANIFEST).write_text(old)
    zero(table.folder / SAFETENSORS, middle(table.folder / SAFETENSORS), 400)
    with pytest.raises(TableError, match=rf"{table.name}: its files are not those that were written"):
        table.weights()


BIG = 64 * 2**20


@pytest.fixture
def big(small, tmp_path) -> Table:
    """Return weights of which one file is much larger than its sample."""
    content = random.Random(0).randbytes(2**20) * (BIG // 2**20)  # decides which places the sample has
    return written("sft", tmp_path / "results", small.table("sft/cold").folder, **{"more.bin": content})


def bytes_read() -> int:
    """Return the bytes that this process has read so far, from files and from the cache of the system."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_large_file_is_read_in_part(big):
    """Of files whose size and time are as written no more than a mebibyte is read; all of them with `deep`."""
    small_files = sum(path.stat().st_size for path in big.folder.iterdir()) - BIG
    before = bytes_read()
    big.weights()
    assert bytes_read() - before < small_files + 2 * 2**20
    before = bytes_read()
    big.check(deep=True)
    assert bytes_read() - before > BIG


@pytest.mark.parametrize("place", [0, BIG - 400])
def test_first_and_last_bytes_are_in_the_sample(big, place):
    """Where a copy or a crash lost the beginning or the end of a file and left its time, that is seen at once."""
    zero(big.folder / "more.bin", place, 400, keep_time=True)
    with pytest.raises(TableError, match=r"more.bin: is damaged"):
        big.weights()


def test_zeros_over_a_quarter_are_in_the_sample(big):
    """A quarter of a file that a crash left as zeros, with the time as it was, does not slip through the sample."""
    zero(big.folder / "more.bin", BIG // 4, BIG // 4, keep_time=True)
    with pytest.raises(TableError, match=r"more.bin: is damaged"):
        big.weights()


def test_forgotten_byte_is_seen_by_the_deep_check(big):
    """A few bytes that change without the time of the file are left to the check of every byte."""
    path = big.folder / "more.bin"
    for place in range(BIG // 2, BIG // 2 + 2**23, 2**18):  # one of them is in no block of the sample
        whole = path.read_bytes()[place : place + 4]
        zero(path, place, keep_time=True)
        try:
            big.weights()
            break
        except TableError:
            before = path.stat()
            with open(path, "r+b") as file:
                file.seek(place)
                file.write(whole)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(TableError, match=r"more.bin: is damaged"):
        big.check(deep=True)


# -------------------------------------------------------------------------------------------------------- who loads them


def test_damaged_weights_are_not_loaded(small, tmp_path):
    """Sampling and both trainings stop with the message, before a question is asked."""
    results = copied(small.results, tmp_path)
    entries = {
        **SMALL,
        "responses/new": {**SMALL["responses/cold"], "attempts": 1},
        "sft/new": {**SMALL["sft/cold"], "model": "sft/cold", "steps": 1},
        "grpo/new": GRPO,
    }
    mill = Mill(results, **entries)
    zero(results / "sft/cold" / SAFETENSORS, 20_000, 400)
    for name in ("responses/new", "sft/new", "grpo/new"):
        with pytest.raises(TableError, match=rf"sft/cold/{SAFETENSORS}: is damaged"):
            mill.make(name)
        assert not mill.table(name).path.exists()
    with pytest.raises(TableError, match=rf"sft/cold/{SAFETENSORS}: is damaged"):
        TransformersEngine(mill.table("sft/cold"))


def test_rollouts_as_responses_are_checked(small, tmp_path):
    """Rollouts that are taken for responses are those that were written."""
    table = written("grpo", tmp_path / "results", small.table("sft/cold").folder)
    taken = {"problems": "problems/train", "model": "grpo/x", "rollouts": True}
    mill = Mill(table.results, **SMALL, **{"grpo/x": GRPO, "responses/x": taken})
    mill.make("problems/train")
    zero(table.folder / ROLLOUTS, 30)
    with pytest.raises(TableError, match=rf"grpo/x/{ROLLOUTS}: is damaged"):
        mill.make("responses/x")
