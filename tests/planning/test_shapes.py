"""Models without weights: sizes against the published files, and what an entry changes."""

import json

import pytest

from mill import SMALL, Mill
from proofmill.config import yaml_files
from proofmill.config.config import expand
from proofmill.engines import vllm_memory
from proofmill.planning.shapes import Shapes, read_published
from proofmill.public_data.registry import register
from proofmill.schema.names import kind_of
from proofmill.training import memory

FILES = {source.partition(":")[2].partition("@")[0]: known.bytes for source, known in register().items()}


@pytest.fixture
def shapes(tmp_path):
    """Return the shapes of some entries without results."""
    return lambda **entries: Shapes(Mill(tmp_path, **SMALL, **entries).config, tmp_path)


def hub(id, **more):
    return {"source": "hub", "id": id, "commit": "a" * 40, **more}


@pytest.mark.parametrize("id", [id for id, figures in read_published().items() if "quantization_config" not in figures])
def test_published_shape_has_the_bytes_of_its_files(shapes, id):
    """Two bytes a parameter, four in float32, are the size of the published weights to a hundred-thousandth."""
    width = memory.WIDTH[read_published()[id].get("dtype", "bfloat16")]
    if id.endswith(".gguf"):
        network, size = shapes(**{"base/x": {"source": "gguf", "path": f"pip:a@1/{id}"}}).of("base/x"), 2 * 134_515_008
    else:
        network, size = shapes(**{"base/x": hub(id)}).of("base/x"), FILES[id]
    assert width * memory.parameters(network) == pytest.approx(size, rel=1e-5)


def test_shape_of_deepseek_v3_has_its_published_size(shapes):
    """671 billion parameters, stored in 8 bits."""
    network = shapes(**{"base/x": hub("deepseek-ai/DeepSeek-V3-Base")}).of("base/x")
    assert (
        memory.parameters(network) == pytest.approx(671e9, rel=1e-3) and vllm_memory.read_quantization(network) == "fp8"
    )


def test_frozen_weights_are_those_of_the_files_until_a_training_has_saved_them(shapes):
    """An adapter over Qwen3-4B leaves bfloat16 weights, over a model trained from it the float32 ones that were saved."""
    made = shapes(**{"base/x": hub("Qwen/Qwen3-4B-Thinking-2507"), "sft/x": {**SMALL["sft/cold"], "model": "base/x"}})
    held = [memory.precision_in_memory(made.of(name).config, "bfloat16", {"rank": 4}) for name in ("base/x", "sft/x")]
    assert held == ["bfloat16", "float32"]


def test_every_base_of_the_recipes_has_a_shape(tmp_path):
    """No model of a recipe has to be fetched before it is planned; those that are tokenizers alone have none."""
    shapes = Shapes(expand(yaml_files.read("config.yaml")), tmp_path)
    bases = {n: e for n, e in shapes.config.entries.items() if kind_of(n) == "base" and e.source != "tokenizer"}
    assert bases and not [name for name in bases if shapes.of(name) is None]


def test_scratch_model_has_the_shape_that_is_made(small):
    """The planned network has as many parameters as the weights, within the tokens that its corpus lacks."""
    planned = Shapes(small.config, small.results / "none").of("sft/cold")
    made = memory.parameters(memory.build_empty(small.table("base/tiny").weights()))
    assert memory.parameters(planned) == made and memory.context_of(planned) == 512


def test_context_of_an_entry_is_that_of_the_shape(shapes):
    """`context` counts in place of the model's own, and everything that is trained from it has it too."""
    plain, longer = hub("Qwen/Qwen2.5-Math-1.5B"), hub("Qwen/Qwen2.5-Math-1.5B", context=36864)
    tuned = {**SMALL["sft/cold"], "model": "base/longer"}
    found = shapes(**{"base/plain": plain, "base/longer": longer, "sft/longer": tuned})
    assert [memory.context_of(found.of(name)) for name in ("base/plain", "base/longer", "sft/longer")] == [
        4096,
        36864,
        36864,
    ]


def test_unpublished_model_has_no_shape_until_it_is_here(shapes, tmp_path, small, monkeypatch):
    """An unknown id is never guessed; config.json is read from a folder, and from the hub's cache before any weights."""
    assert shapes(**{"base/x": hub("somebody/model")}).of("base/x") is None
    there = tmp_path / "hub/models--somebody--model/snapshots" / ("a" * 40)
    there.mkdir(parents=True)
    config = json.loads((small.table("base/tiny").weights() / "config.json").read_text())
    (there / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 640}))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for entry in ({"source": "folder", "path": str(there)}, hub("somebody/model")):
        found = shapes(**{"base/x": entry}).of("base/x")
        assert memory.context_of(found) == 640
        assert memory.parameters(found) == memory.parameters(Shapes(small.config, small.results).of("base/tiny"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "qwen2_5_vl"}, "Unrecognized configuration class"),
        ({"model_type": "qwen9"}, "has model type `qwen9` but Transformers does not recognize this architecture"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "its rotary embeddings are stretched already (`yarn`)"),
        ({"max_position_embeddings": None}, "`max_position_embeddings` is missing"),
    ],
)
def test_model_that_no_job_could_build_has_a_fault(shapes, tmp_path, small, changed, said):
    """A model that transformers cannot build, and positions that `base` would refuse, are faults, not exceptions."""
    config = json.loads((small.table("base/tiny").weights() / "config.json").read_text())
    if "rope_scaling" in changed or "model_type" in changed:
        config.pop("rope_parameters", None)
    changed = {key: value for key, value in {**config, **changed}.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    found = shapes(**{"base/x": {"source": "folder", "path": str(tmp_path), "context": 8192}})
    assert found.of("base/x") is None and found.faults["base/x"].startswith("base/x: ")
    assert said in found.faults["base/x"]


def test_published_positions_that_are_stretched_are_not_stretched_again(shapes):
    """Llama 3.1 and DeepSeek-V3 come with a factor: `base` would refuse another context once it is fetched."""
    for id in ("meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V3-Base"):
        found = shapes(**{"base/x": hub(id, context=262_144)})
        assert found.of("base/x") is None and "stretched already" in found.faults["base/x"]


def test_base_from_a_trained_artifact_has_its_shape(shapes):
    """A `base` that copies the weights of an artifact is planned like that artifact."""
    found = shapes(**{"base/copy": {"source": "sft/cold"}})
    assert memory.parameters(found.of("base/copy")) == memory.parameters(found.of("sft/cold"))
