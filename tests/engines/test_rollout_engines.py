"""The trainer's options for vLLM next to it: from the memory plan on a GPU, or from the profile if it sets them."""

from types import SimpleNamespace

import pytest
from transformers import Qwen3Config
from trl import GRPOConfig

from proofmill.engines import rollout_engines
from proofmill.schema.errors import SettingError
from proofmill.training import memory

HALF_B = Qwen3Config(
    vocab_size=151936, hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
    head_dim=64, intermediate_size=4864, max_position_embeddings=32_768, tie_word_embeddings=True,
)  # fmt: skip
ENTRY = SimpleNamespace(model="base/x", precision="bfloat16", lora=None)


@pytest.fixture
def options_for(tmp_path, monkeypatch):
    """Return a function that gives GRPOConfig's options on GPUs of `there` bytes."""
    HALF_B.save_pretrained(tmp_path)

    def options(there, tokens=16_384, engine="vllm", **more):
        weights = SimpleNamespace(weights=lambda: tmp_path)
        job = SimpleNamespace(name="grpo/x", engine=engine, engine_args="", parent=lambda name: weights)
        monkeypatch.setattr(memory, "device_memory", lambda: (there, True))
        return rollout_engines.sampling(job, ENTRY, 64, tokens, **more)

    return options


def test_rollouts_on_a_gpu_take_what_the_plan_leaves(options_for, capsys):
    """Half a billion parameters hold 7 GB while sampling; vLLM gets the rest up to 90 %, and sleeps between."""
    found = options_for(80 * 10**9, reference=False, trained_tokens=16_384)
    held = memory.plan(HALF_B, rows=1, tokens_per_row=8, precision="bfloat16").resident
    share = found["vllm_gpu_memory_utilization"]
    assert share <= memory.TIGHT - held / 80e9 < share + 0.01
    assert found == {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": share,
        "vllm_max_model_length": 32_768,
        "vllm_enable_sleep_mode": True,
    }
    assert (
        f"vLLM takes {share:.0%} of each GPU while it samples, for contexts of up to 32,768" in capsys.readouterr().err
    )
    assert rollout_engines.footprint(found, 64) == {"sampled": 0, "vllm_share": share, "vllm_sleeps": True}


def test_reference_leaves_less_for_rollouts(options_for):
    """A reference model takes memory next to the trained one all the time."""
    alone, with_reference = (options_for(80 * 10**9, reference=r)["vllm_gpu_memory_utilization"] for r in (False, True))
    assert alone - with_reference == pytest.approx(4 * memory.parameters(memory.build_empty(HALF_B)) / 80e9, abs=0.011)


def test_server_takes_weights_at_the_port_of_its_job(options_for, monkeypatch):
    """Two trainings on one machine would share TRL's default port; without a setting that is used."""
    monkeypatch.setenv("PROOFMILL_ROLLOUT_SERVER_URL", "http://127.0.0.1:20004")
    server = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": "http://127.0.0.1:20004"}
    assert options_for(80 * 10**9, engine="vllm-server") == server
    monkeypatch.setenv("PROOFMILL_WEIGHT_SYNC_PORT", "20005")
    assert options_for(80 * 10**9, engine="vllm-server") == {**server, "vllm_group_port": 20_005}
    assert GRPOConfig(**server, vllm_group_port=20_005, use_cpu=True, bf16=False).vllm_group_port == 20_005
    monkeypatch.setenv("PROOFMILL_WEIGHT_SYNC_PORT", "any")
    with pytest.raises(SettingError, match="PROOFMILL_WEIGHT_SYNC_PORT=any: is not a positive number"):
        options_for(80 * 10**9, engine="vllm-server")


def test_rollouts_that_fit_on_no_gpu_are_refused(options_for):
    """On 10 GB the training and vLLM's own needs leave no room for a rollout."""
    with pytest.raises(SettingError, match=r"grpo/x: next to the training, .* room for one rollout of 16,384"):
        options_for(10 * 10**9)
