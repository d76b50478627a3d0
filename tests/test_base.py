"""Base models: from a folder, from the hub, or with random weights, with a row for each file."""

import json
import pickle
import random
import shutil

import pytest
from transformers import AutoModelForCausalLM

from damage import truncate
from dirty import BYTES
from mill import SMALL, Mill
from proofmill import base
from proofmill.base import JSON
from proofmill.schema.errors import HubError, RecipeError, TableError


def test_base_has_a_row_for_every_file(small):
    """The rows of a base model have the sizes and digests of its files."""
    table = small.table("base/tiny")
    rows = {row["file"]: row for row in table.rows()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(rows)
    assert all((table.folder / name).stat().st_size == row["bytes"] for name, row in rows.items())


def test_tokenizer_has_single_digits_and_a_template(small):
    """Every digit is a token, and the template ends an answer with the end token."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(small.table("sft/cold").weights())
    assert list("4711") == tokenizer.tokenize("4711")
    assert tokenizer.decode(tokenizer("abc ≡ é").input_ids) == "abc ≡ é"
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], tokenize=False
    )
    assert text == "<|user|>q<|assistant|>a<|end|>"


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_folder_without_a_model_is_refused(small, tmp_path, missing):
    """A base model from a folder needs a configuration and weights; the message names the missing files."""
    folder = tmp_path / "model"
    shutil.copytree(small.table("base/tiny").folder, folder)
    (folder / missing).unlink()
    made = Mill(tmp_path / "results", **{"base/x": {"source": "folder", "path": str(folder)}})
    with pytest.raises(TableError, match=r"no config.json|no weights"):
        made.make("base/x")


def digests(table):
    """Return the digest of each file of a model."""
    return {r["file"]: r["sha256"] for r in table.rows() if r["file"].endswith(("json", "safetensors"))}


def test_folder_becomes_a_base_model(small, tmp_path):
    """Weights from a folder have a row for each file."""
    made = Mill(tmp_path / "results", **{"base/x": {"source": "folder", "path": str(small.table("base/tiny").folder)}})
    found = digests(made.make("base/x"))
    assert all(found[name] == sha for name, sha in digests(small.table("base/tiny")).items())


def test_base_from_another_entry_has_its_weights(small):
    """A base from a training has its files, and the training as parent."""
    made = Mill(small.results, **SMALL, **{"base/taught": {"source": "sft/cold"}})
    table = made.make("base/taught")
    weights = [folder / "model.safetensors" for folder in (table.folder, small.table("sft/cold").folder)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert table.stamp["parents"].keys() == {"sft/cold"}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"source": "sft/none"}, "which no recipe declares"),
        ({"source": "sft/cold", "path": "x"}, "expected neither"),
        ({"source": "scrach"}, "expected"),
    ],
)
def test_base_from_an_unknown_entry_or_with_a_path_is_refused(small, entry, said):
    """An undeclared name, a path together with an entry, and an unknown source are refused."""
    with pytest.raises(RecipeError, match=said):
        Mill(small.results, **SMALL, **{"base/taught": entry})


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_model_of_the_hub_is_taken_at_its_commit(small, tmp_path, monkeypatch):
    """The hub's client loads exactly the pinned commit, here from its cache."""
    snapshot = tmp_path / "hub/models--org--tiny/snapshots" / COMMIT
    shutil.copytree(small.table("base/tiny").folder, snapshot)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub = {"source": "hub", "id": "org/tiny"}
    made = Mill(tmp_path / "results", **{"base/x": {**hub, "commit": COMMIT}, "base/y": {**hub, "commit": "f" * 40}})
    assert digests(small.table("base/tiny"))["model.safetensors"] == digests(made.make("base/x"))["model.safetensors"]
    with pytest.raises(HubError, match="cannot be downloaded"):
        made.make("base/y")


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("config.json", lambda path: path.write_text("{")),
        ("config.json", lambda path: path.write_text("[]")),
        ("tokenizer_config.json", lambda path: path.write_text("[" * 100_000)),
        ("config.json", lambda path: path.write_bytes(b"\xff\xfe")),
        ("tokenizer.json", lambda path: path.write_bytes(bytes(100))),
        ("model.safetensors", lambda path: truncate(path, 20_000)),
        ("model.safetensors", lambda path: path.write_bytes(b"")),
    ],
)
def test_damaged_model_folder_is_refused(small, tmp_path, name, harm):
    """A truncated file of a model is refused by name before anything is copied."""
    folder = tmp_path / "model"
    shutil.copytree(small.table("base/tiny").folder, folder)
    harm(folder / name)
    made = Mill(tmp_path / "results", **{"base/x": {"source": "folder", "path": str(folder)}})
    with pytest.raises(TableError, match=rf"model/{name}: cannot be read .*Copy it again"):
        made.make("base/x")


class Runs:
    """A pickle that writes a file when loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth", "weights.pkl", "last.ckpt"])
def test_pickled_weights_are_refused_and_never_loaded(small, tmp_path, name):
    """A folder with only a pickle is refused; next to safetensors the pickle is ignored. Its code never runs."""
    folder, ran = tmp_path / "model", tmp_path / "ran"
    shutil.copytree(small.table("base/tiny").folder, folder)
    (folder / name).write_bytes(pickle.dumps(Runs(ran)))
    made = Mill(tmp_path / "results", **{"base/x": {"source": "folder", "path": str(folder)}})
    weights = made.make("base/x").weights()
    AutoModelForCausalLM.from_pretrained(weights)
    (folder / "model.safetensors").unlink()
    made = Mill(tmp_path / "others", **{"base/x": {"source": "folder", "path": str(folder)}})
    with pytest.raises(TableError, match=rf"{name}: a pickle, .*; expected weights as \*\.safetensors"):
        made.make("base/x")
    assert not ran.exists()


def test_damaged_weights_are_copied_or_refused_by_name(small, tmp_path):
    """Two hundred folders with a randomly changed file are copied, or refused before anything is copied."""
    refused = 0
    for number in range(200):
        rng = random.Random(f"25-{number}")
        folder, taken = tmp_path / f"model-{number}", tmp_path / f"taken-{number}"
        shutil.copytree(small.table("base/tiny").folder, folder)
        path = folder / rng.choice((*JSON, "model.safetensors"))
        content = path.read_bytes()
        for spoil in rng.sample(BYTES, rng.choice((1, 2))):
            content = spoil(content, "", rng)
        path.write_bytes(content if rng.random() < 0.9 else rng.randbytes(rng.choice((0, 1, 8, 1000))))
        try:
            base._copy(folder, taken)
        except TableError as error:
            assert path.name in str(error) and "; expected " in str(error)
            assert not taken.exists()
            refused += 1
        shutil.rmtree(folder)
        shutil.rmtree(taken, ignore_errors=True)
    assert 50 < refused < 200


def with_config(table, folder, changes, without=()):
    """Copy a model's folder, with some settings of its config.json changed or removed."""
    shutil.copytree(table.folder, folder)
    config = json.loads((folder / "config.json").read_text())
    kept = {key: value for key, value in config.items() if key not in without}
    (folder / "config.json").write_text(json.dumps({**kept, **changes}))
    return {"source": "folder", "path": str(folder)}


@pytest.mark.parametrize("as_before", [False, True], ids=["rope_parameters", "rope_theta"])
def test_context_and_rope_of_a_model_are_raised(small, tmp_path, as_before):
    """The weights keep their bytes, and transformers reads the new base and length from both forms of config.json."""
    from transformers import AutoConfig, AutoTokenizer

    old = {"rope_theta": 10000.0, "max_position_embeddings": 64}
    table = small.table("base/tiny")
    entry = with_config(table, tmp_path / "m", old if as_before else {}, ["rope_parameters"] if as_before else [])
    settings = json.loads((tmp_path / "m/tokenizer_config.json").read_text())
    (tmp_path / "m/tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 64}))
    raised = {**entry, "context": 36864, "rope-theta": 3.0e5}
    made = Mill(tmp_path / "results", **{"base/x": raised}).make("base/x")
    assert digests(made)["model.safetensors"] == digests(table)["model.safetensors"]
    config = AutoConfig.from_pretrained(made.folder)
    assert (config.max_position_embeddings, config.rope_parameters["rope_theta"]) == (36864, 300_000)
    assert AutoTokenizer.from_pretrained(made.folder).model_max_length == 36864


def test_context_alone_changes_no_other_setting(small, tmp_path):
    """Only the setting in the entry changes; without one, config.json stays equal."""
    table = small.table("base/tiny")
    entry = with_config(table, tmp_path / "m", {})
    mill = Mill(tmp_path / "results", **{"base/x": {**entry, "context": 1024}, "base/y": entry})
    before, after = (json.loads((f / "config.json").read_text()) for f in (table.folder, mill.make("base/x").folder))
    assert after == {**before, "max_position_embeddings": 1024}
    assert (mill.make("base/y").folder / "config.json").read_text() == (tmp_path / "m/config.json").read_text()


@pytest.mark.parametrize(
    ("changes", "without", "found"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}, [], "stretched already .`yarn`"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, ["rope_parameters"], "stretched already .`linear`"),
        ({}, ["max_position_embeddings"], "`max_position_embeddings` is missing"),
    ],
)
def test_context_of_other_embeddings_is_refused(small, tmp_path, changes, without, found):
    """A model without rotary embeddings, or with stretched ones, is refused."""
    entry = with_config(small.table("base/tiny"), tmp_path / "m", changes, without)
    mill = Mill(tmp_path / "results", **{"base/x": {**entry, "context": 1024}})
    with pytest.raises(TableError, match=found):
        mill.make("base/x")


def test_scratch_model_has_a_default_context(small):
    """Without the fields a scratch model has a context of 512 tokens and the usual base."""
    config = json.loads((small.table("base/tiny").folder / "config.json").read_text())
    assert (config["max_position_embeddings"], config["rope_parameters"]["rope_theta"]) == (512, 10_000)
