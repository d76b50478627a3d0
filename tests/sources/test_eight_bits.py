"""8-bit weights in blocks, as in DeepSeek-V3: dequantized by their scales, or rejected; trained and sampled."""

import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3Config

from mill import SMALL, Mill
from proofmill.schema.errors import TableError
from proofmill.sources import models

BLOCK = models.BLOCK


def quantize(folder, other):
    """Write the model of a folder in 8 bits to one folder, and dequantized by slow loops to the other."""
    exact = {}
    state = load_file(folder / "model.safetensors")
    for name, weight in list(state.items()):
        if name.endswith("proj.weight"):
            rows, columns = (math.ceil(length / BLOCK) for length in weight.shape)
            scales, bits, exact[name] = torch.zeros(rows, columns), torch.zeros_like(weight), torch.zeros_like(weight)
            for i in range(rows):
                for j in range(columns):
                    place = slice(i * BLOCK, (i + 1) * BLOCK), slice(j * BLOCK, (j + 1) * BLOCK)
                    scales[i, j] = weight[place].abs().max() / 448  # the largest number of float8_e4m3fn
                    bits[place] = (weight[place] / scales[i, j]).to(torch.float8_e4m3fn).float()
                    exact[name][place] = bits[place] * scales[i, j]
            state[name], state[f"{name}_scale_inv"] = bits.to(torch.float8_e4m3fn), scales
    shutil.copytree(folder, other)
    save_file({**load_file(folder / "model.safetensors"), **exact}, other / "model.safetensors", {"format": "pt"})
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    block = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK]}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": block}))


def saved(folder, hidden, inside):
    """Save a small model of these sizes to a folder, in float32."""
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
    config = Qwen3Config(vocab_size=64, hidden_size=hidden, intermediate_size=inside, tie_word_embeddings=True, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def test_blocks_are_multiplied_out_by_their_scales(tmp_path):
    """Every weight is its 8 bits times the scale of its block, in float32, and saving gives an ordinary model."""
    saved(tmp_path / "eight", 256, 384)
    quantize(tmp_path / "eight", tmp_path / "exact")
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "eight", **models.in_float32(tmp_path / "eight"))
    wanted = load_file(tmp_path / "exact/model.safetensors")
    found = read.state_dict()
    assert all(
        torch.equal(found[name], weight) and found[name].dtype == torch.float32 for name, weight in wanted.items()
    )
    read.save_pretrained(tmp_path / "saved")
    assert "quantization_config" not in json.loads((tmp_path / "saved/config.json").read_text())


def test_layers_without_whole_blocks_are_refused(tmp_path):
    """160 rows are a block and a quarter; transformers would use two blocks of 80 and read other weights."""
    saved(tmp_path / "eight", 160, 384)
    quantize(tmp_path / "eight", tmp_path / "exact")
    with pytest.raises(
        TableError, match=r"14 of its 8-bit layers, such as model\.layers\.0\.mlp\.down_proj, do not consist"
    ):
        models.in_float32(tmp_path / "eight")
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "eight", dtype="float32").state_dict()
    assert any(not torch.allclose(read[n], w) for n, w in load_file(tmp_path / "exact/model.safetensors").items())


@pytest.mark.parametrize("method", ["gptq", "awq", "mxfp4"])
def test_other_quantizations_are_refused(tmp_path, method):
    """Before loading; the message has the method and the alternative."""
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": method}}))
    with pytest.raises(TableError, match=rf"are quantized \(`{method}`\); expected .* before quantization"):
        models.in_float32(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert models.in_float32(tmp_path) == {"dtype": "float32"}


@pytest.mark.long
def test_eight_bits_are_trained_and_asked_like_what_they_say(small, tmp_path):
    """A training from 8-bit files, and samples of such a model, equal those of the same numbers in float32."""
    results = tmp_path / "results"
    shutil.copytree(small.results, results)
    shutil.copytree(small.table("base/tiny").weights(), tmp_path / "eight")
    quantize(tmp_path / "eight", tmp_path / "exact")
    entries, said = {}, {}
    for name in ("eight", "exact"):
        entries |= {
            f"base/{name}": {"source": "folder", "path": str(tmp_path / name)},
            f"sft/{name}": {**SMALL["sft/cold"], "model": f"base/{name}"},
            f"responses/{name}": {**SMALL["responses/cold"], "model": f"base/{name}", "temperature": 0.0},
        }
    mill = Mill(results, **SMALL, **entries)
    for name in ("eight", "exact"):
        steps = mill.make(f"base/{name}", f"sft/{name}").rows()
        said[name] = (steps, [row["text"] for row in mill.make(f"responses/{name}").rows()])
    assert said["eight"] == said["exact"]
