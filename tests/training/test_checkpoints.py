"""Checkpoints: whatever bytes they have, a training resumes from an undamaged one, or begins again."""

import hashlib
import json
import pickle
import random
import shutil

import pytest

from mill import SMALL, Mill
from proofmill.training.checkpoints import RUNNING, seal, unseal
from proofmill.training.rollout_log import ROLLOUT_LOG

pytestmark = pytest.mark.slow

SUMS = {"loss": 0.25, "logged": 4, "tokens": 12, "metrics": {"entropy": [1.5]}, "training": True}
CASES = 400
SFT = {**SMALL["sft/cold"], "steps": 8}


@pytest.fixture
def sealed(tmp_path):
    """Return a checkpoint with files of some sizes, one of them in a folder, and a rollout log next to it."""
    folder = tmp_path / "checkpoints/checkpoint-4"
    (folder / "shards").mkdir(parents=True)
    for name, size in {"model.safetensors": 3000, "optimizer.pt": 500, "shards/0.distcp": 40, "empty": 0}.items():
        (folder / name).write_bytes(random.Random(name).randbytes(size))
    (folder.parent / ROLLOUT_LOG).write_bytes(b'{"step": 4}\n')
    seal(folder, SUMS)
    return folder


def files(folder):
    return sorted(path for path in folder.parent.rglob("*") if path.is_file())


def mutated(folder, draw):
    """Change one file in a way that a draw decides."""
    path = draw.choice(files(folder))
    content = path.read_bytes()
    match draw.choice(("empty", "cut", "flip", "gone", "extra", "random", "json", "pickle", "zeros", "foreign")):
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(content[: draw.randint(0, len(content))])
        case "flip" if content:
            place = draw.randrange(len(content))
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :])
        case "gone":
            path.unlink()
        case "extra":
            path.write_bytes(content + draw.randbytes(draw.randint(1, 9)))
        case "random":
            path.write_bytes(draw.randbytes(draw.randint(0, 4000)))
        case "json":  # sealed, and of another form
            other = draw.choice(
                ("[]", "null", "{}", '{"files": 1}', '{"files": {"a": 1}, "sums": {}, "rollouts": null}')
            )
            other = draw.choice((other, "[" * 100_000, '{"files": {}, "rollouts": [1, 2, 3], "sums": 4}', "\udcff"))
            body = other.encode(errors="surrogateescape")
            (folder / RUNNING).write_bytes(body + b"\n" + hashlib.sha256(body).hexdigest().encode())
        case "pickle":
            path.write_bytes(pickle.dumps({"weights": draw.random()}))
        case "zeros":
            path.write_bytes(bytes(len(content)))
        case _:
            (folder / f"scaler-{draw.randrange(9)}.pt").write_bytes(pickle.dumps(draw.random()))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(4))
def test_checkpoint_with_any_bytes_is_usable_or_has_a_reason(sealed, tmp_path, part):
    """Of mutated checkpoints those are usable whose bytes are as written; every other one has one line of reason."""
    draw = random.Random(part)
    pristine = tmp_path / "pristine"
    shutil.copytree(sealed.parent, pristine)
    refused = 0
    for _ in range(CASES // 4):
        shutil.rmtree(sealed.parent)
        shutil.copytree(pristine, sealed.parent)
        for _ in range(draw.randint(1, 2)):
            mutated(sealed, draw)
        found = unseal(sealed)
        same = snapshot(sealed.parent) == snapshot(pristine)
        longer = (sealed.parent / ROLLOUT_LOG).exists() and (sealed.parent / ROLLOUT_LOG).read_bytes().startswith(
            b'{"step": 4}\n'
        )
        if found == SUMS:
            assert same or (longer and snapshot(sealed) == snapshot(pristine / sealed.name))
        else:
            assert isinstance(found, str) and "\n" not in found and not same
            refused += 1
    assert refused > CASES // 8


def snapshot(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_checkpoint_of_the_version_before_is_passed_over(sealed):
    """A record without digests vouches for nothing."""
    (sealed / RUNNING).write_text(json.dumps(SUMS))
    assert unseal(sealed) == f"`{RUNNING}` is damaged"


@pytest.fixture
def stopped(small, monkeypatch):
    """Return `stopped(name)`, a training that ended after its last checkpoint: a Mill, its table, and its checkpoints."""
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "2")

    def broken_off(name, **fields):
        made = Mill(small.results, **SMALL, **{name: {**SFT, **fields}})
        with monkeypatch.context() as patched:
            patched.setattr("proofmill.training.run.save", interrupted)
            with pytest.raises(InterruptedError):
                made.make(name)
        (folder,) = made.table(name).scratch.glob("checkpoints-*")
        return made, made.table(name), folder

    return broken_off


def interrupted(*_):
    raise InterruptedError


def test_two_newest_checkpoints_are_kept(stopped):
    """Of four checkpoints the last two stay, each of them usable."""
    _, _, folder = stopped("sft/two", seed=11)
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == ["checkpoint-6", "checkpoint-8"]
    assert not any(isinstance(unseal(path), str) for path in folder.glob("checkpoint-*"))


@pytest.mark.parametrize("harmed", [["checkpoint-8"], ["checkpoint-8", "checkpoint-6"]], ids=["one", "all"])
def test_training_resumes_before_what_is_damaged_and_ends_alike(small, stopped, capsys, harmed):
    """One line names each checkpoint that is passed over; table and weights are those of an unbroken training."""
    name = f"sft/harmed-{len(harmed)}"
    made, table, folder = stopped(name, seed=12)
    for checkpoint in harmed:
        (folder / checkpoint / "optimizer.pt").write_bytes(b"")
    capsys.readouterr()
    made.make(name)
    said = capsys.readouterr().err
    for checkpoint in harmed:
        assert (
            len([line for line in said.splitlines() if f"{folder / checkpoint}: `optimizer.pt` differs" in line]) == 1
        )
    assert ("resumes from checkpoint-6" in said) == (len(harmed) == 1)
    unbroken = Mill(small.results, **SMALL, **{f"{name}-unbroken": {**SFT, "seed": 12}})
    assert table.content == unbroken.make(f"{name}-unbroken").content


def test_forced_training_begins_at_its_first_step_once(stopped, monkeypatch, capsys):
    """Forced, it takes up no checkpoint; a job of the same run that is put back into the queue takes up its own."""
    made, _, folder = stopped("sft/forced", seed=13)
    monkeypatch.setenv("PROOFMILL_FORCE", "all run-1")
    with monkeypatch.context() as patched:
        patched.setattr("proofmill.training.run.save", interrupted)
        for resumes in (False, True):
            capsys.readouterr()
            with pytest.raises(InterruptedError):
                made.make("sft/forced")
            assert ("resumes from checkpoint-8" in capsys.readouterr().err) == resumes
    monkeypatch.setenv("PROOFMILL_FORCE", "all run-2")
    capsys.readouterr()
    made.make("sft/forced")
    assert "resumes from" not in capsys.readouterr().err and not folder.exists()


def test_training_that_continues_a_damaged_state_begins_anew_and_ends_alike(small, monkeypatch, capsys):
    """A state that is not what was kept is passed over with its reason; the longer training ends with the same table."""
    entries = {"sft/short": {**SFT, "seed": 14, "save-state": True, "schedule": "constant"}}
    entries["sft/long"] = {**entries["sft/short"], "steps": 12, "continues": "sft/short", "save-state": False}
    made = Mill(small.results, **SMALL, **entries)
    made.make("sft/short")
    (state,) = (
        made.table("sft/short").archive_of(made.table("sft/short").stamp["fingerprint"]).state.glob("checkpoint-*")
    )
    made.make("sft/long")
    content = made.table("sft/long").content
    assert "continues from the last step of sft/short" in capsys.readouterr().err
    (state / "optimizer.pt").write_bytes((state / "optimizer.pt").read_bytes()[:-1])
    monkeypatch.setenv("PROOFMILL_FORCE", "sft/long")
    made.make("sft/long")
    assert "sft/short has no state (`optimizer.pt` differs from the file that was written)" in capsys.readouterr().err
    assert made.table("sft/long").content == content
