"""GGUF files: the written model is read back, and a damaged file raises a message."""

import random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import gguf_model
from damage import truncate
from mill import Mill
from proofmill.schema.errors import RecipeError, TableError
from proofmill.sources.models import unpack_gguf


@pytest.fixture(scope="module")
def tokenizer(small):
    return AutoTokenizer.from_pretrained(small.table("base/tiny").weights())


def made(folder, path):
    """Return the base model of a GGUF file."""
    mill = Mill(folder / "results", **{"base/x": {"source": "gguf", "path": str(path)}})
    return mill.make("base/x").weights()


@pytest.mark.parametrize(("quantized", "apart"), [(False, 1e-6), (True, 2e-2)])
def test_gguf_gives_the_model_that_it_was_written_from(tmp_path, tokenizer, quantized, apart):
    """Logits equal those of the model up to the 8-bit rounding; the weights become plain safetensors."""
    path = tmp_path / "tiny.gguf"
    model = gguf_model.write(path, tokenizer, quantized)
    folder = made(tmp_path, path)
    read = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    ids = torch.tensor([tokenizer("Prove that 12 divides 144.").input_ids])
    assert (read(ids).logits - model(ids).logits).abs().max() < apart
    assert (folder / "model.safetensors").exists() and not hasattr(read.config, "quantization_config")


def test_gguf_has_its_own_special_tokens_and_template(tmp_path, tokenizer):
    """A turn ends with the token that the file states, and texts and conversations are tokenized as by the original."""
    path = tmp_path / "tiny.gguf"
    gguf_model.write(path, tokenizer)
    read = AutoTokenizer.from_pretrained(made(tmp_path, path))
    assert (read.bos_token, read.eos_token, read.pad_token) == ("<|user|>", "<|end|>", "<|pad|>")
    talk = [{"role": "user", "content": "Is 4711 prime ?"}, {"role": "assistant", "content": "Yes , it is ."}]
    ids = read.apply_chat_template(talk, return_dict=False)
    assert ids == tokenizer.apply_chat_template(talk, return_dict=False)
    assert read.decode(ids) == "<|user|>Is 4711 prime ?<|assistant|>Yes , it is .<|end|>"


def test_gguf_model_is_trained_and_asked_like_any_other(tmp_path, tokenizer):
    """A model from a GGUF file takes a training step, and the result generates text."""
    path = tmp_path / "tiny.gguf"
    gguf_model.write(path, tokenizer)
    mill = Mill(
        tmp_path / "results",
        **{
            "base/x": {"source": "gguf", "path": str(path)},
            "problems/gguf": {"source": "arithmetic", "rows": 4},
            "examples/gguf": {"problems": "problems/gguf"},
            "sft/gguf": {"model": "base/x", "examples": "examples/gguf", "steps": 1, "batch-size": 2},
            "responses/gguf": {"problems": "problems/gguf", "model": "sft/gguf", "attempts": 1, "max-tokens": 4},
        },
    )
    table = mill.make("base/x", "problems/gguf", "examples/gguf", "sft/gguf", "responses/gguf")
    assert len(table.rows()) == 4


@pytest.mark.parametrize("kept", [0, 3, 40, 2_000, 9_000, 0.5, 0.999])
def test_gguf_that_was_cut_off_is_refused(tmp_path, tokenizer, kept):
    """For an incomplete copy of any length, the message has the file and the advice to copy it again."""
    path = tmp_path / "tiny.gguf"
    gguf_model.write(path, tokenizer)
    truncate(path, kept if isinstance(kept, int) else int(kept * path.stat().st_size))
    with pytest.raises(
        TableError, match=r"tiny\.gguf: cannot be read \(.+\); expected a complete GGUF file .* Copy it again"
    ):
        made(tmp_path, path)


def test_gguf_that_was_changed_is_a_model_or_one_message_that_names_it(tmp_path, tokenizer):
    """Twenty-four files with bytes changed before the weights, also in the tokenizer's merges."""
    whole = tmp_path / "whole.gguf"
    gguf_model.write(whole, tokenizer)
    content, refused = whole.read_bytes(), 0
    merges = content.find(b"tokenizer.ggml.merges")
    for number in range(24):
        rng = random.Random(f"25-{number}")
        spoilt, path = bytearray(content), tmp_path / f"changed-{number}.gguf"
        for _ in range(rng.choice((1, 3))):
            at = rng.randrange(merges + 2_000) if number % 2 else merges + rng.randrange(40, 400)
            spoilt[at] ^= 1 << rng.randrange(8)
        path.write_bytes(spoilt)
        (tmp_path / f"{number}").mkdir()
        try:
            unpack_gguf(path, tmp_path / f"{number}")
        except TableError as error:
            assert path.name in str(error) and "; expected " in str(error)
            refused += 1
    assert refused > 5


def test_gguf_of_an_unknown_architecture_is_refused(tmp_path, tokenizer):
    """The message about a model that transformers does not support has the alternative."""
    path = tmp_path / "tiny.gguf"
    gguf_model.write(path, tokenizer)
    path.write_bytes(path.read_bytes().replace(b"llama", b"lhama"))
    with pytest.raises(TableError, match=r"tiny\.gguf: transformers cannot load it \(.*lhama.*\)"):
        made(tmp_path, path)


@pytest.mark.parametrize("what", ["missing.gguf", "folder.gguf", "model.bin"])
def test_path_that_is_no_gguf_file_is_refused(tmp_path, what):
    """A missing file, a folder and a file of another kind have a message each."""
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "folder.gguf/x").write_text("x")
    (tmp_path / "model.bin").write_text("x")
    with pytest.raises(TableError, match=f"{what}: .*(no such file|is a folder|does not end in .gguf)"):
        made(tmp_path, tmp_path / what)


def test_gguf_without_a_path_is_a_mistake_of_the_recipe(tmp_path):
    """The recipe is rejected when it is read."""
    with pytest.raises(RecipeError, match="source `gguf` needs `path`"):
        Mill(tmp_path, **{"base/x": {"source": "gguf"}})
