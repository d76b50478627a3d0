"""Models of the hub: downloaded once into its cache, and local only if all files are."""

import json

import pytest
from huggingface_hub import constants

from downloads import Downloads, serving
from proofmill.schema.errors import HubError
from proofmill.sources import models

COMMIT = "5" * 40
INDEX = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
FILES = {
    "config.json": b"{}",
    "tokenizer_config.json": b"{}",
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    "model-1-of-2.safetensors": b"one",
    "model-2-of-2.safetensors": b"two",
    "pytorch_model.bin": b"another format",
}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with serving(Downloads()) as downloads:
        monkeypatch.setattr(constants, "ENDPOINT", downloads.url)
        template = downloads.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        downloads.repositories["model", "me/model"] = (COMMIT, FILES)
        yield downloads


def test_model_is_here_after_it_was_fetched(hub):
    """Weights and tokenizer are downloaded, other formats are not; afterwards no network is needed."""
    assert not models.is_here("me/model", COMMIT)
    folder = models.snapshot("me/model", COMMIT)
    assert {path.name for path in folder.iterdir()} == {*FILES} - {"pytorch_model.bin"}
    asked = len(hub.asked)
    assert models.is_here("me/model", COMMIT) and len(hub.asked) == asked


def test_model_without_one_of_its_files_is_not_here(hub):
    """The remains of a killed download do not count as a model, even without network."""
    folder = models.snapshot("me/model", COMMIT)
    (folder / "model-2-of-2.safetensors").unlink()
    assert not models.is_here("me/model", COMMIT)
    with pytest.raises(HubError, match=r"1 file\(s\) are missing"):
        models.snapshot("me/model", COMMIT, here=True)
    assert models.snapshot("me/model", COMMIT) and models.is_here("me/model", COMMIT)


def test_tokenizer_comes_without_the_weights(hub):
    """Only the tokenizer's files are requested."""
    folder = models.snapshot("me/model", COMMIT, weights=False)
    assert "tokenizer_config.json" in {path.name for path in folder.iterdir()}
    assert not [path for path in folder.iterdir() if path.suffix == ".safetensors"]
