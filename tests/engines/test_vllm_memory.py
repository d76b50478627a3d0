"""vLLM's memory settings, and the messages if it cannot start."""

import sys

import pytest
from transformers import AutoConfig, DeepseekV3Config, Qwen3Config

from proofmill.artifacts.jobs import Job
from proofmill.artifacts.tables import Table
from proofmill.calls.shards import Shard
from proofmill.engines import vllm, vllm_memory
from proofmill.engines.servers import Server
from proofmill.planning import hours
from proofmill.planning.shapes import read_published
from proofmill.schema.errors import ServiceError, SettingError
from proofmill.training import memory


@pytest.fixture
def fit(small, monkeypatch):
    """Return a function that fits the tiny model into `there` bytes, all of which the job may use."""
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    weights = small.table("base/tiny").weights()

    def fitted(there, asked=None, cuda=False):
        monkeypatch.setattr(memory, "device_memory", lambda: (there, cuda))
        return vllm_memory.fit("responses/x", weights, asked or {}, 10**6, cuda)

    return fitted


def test_model_that_fits_keeps_its_context_and_reads_each_prompt_at_once(fit):
    """The cache holds only as many outputs as are generated at once. Prompts are never read in chunks."""
    fitted = fit(10**11)
    assert fitted.options["max_model_len"] == 512 and not fitted.shortened
    assert fitted.options["max_num_batched_tokens"] >= 512 and not fitted.options["enable_chunked_prefill"]
    assert fitted.options["kv_cache_memory_bytes"] < 2e8
    assert "a context has up to 512 tokens" in fitted.notice


def test_cache_is_what_the_memory_leaves(fit, small):
    """Cache, weights, libraries and prefill together take no more than the job may use."""
    there = int((vllm_memory.LIBRARIES + 2e7) / memory.TIGHT)
    fitted = fit(there)
    network = memory.build_empty(small.table("base/tiny").weights())
    read = fitted.options["max_num_batched_tokens"] * vllm_memory.bytes_to_read(network)
    taken = fitted.options["kv_cache_memory_bytes"] + read + vllm_memory.LIBRARIES + 4 * memory.parameters(network)
    assert taken <= memory.TIGHT * there
    assert fitted.options["kv_cache_memory_bytes"] < fit(10**11).options["kv_cache_memory_bytes"]


def test_model_that_cannot_fit_is_refused_before_it_is_loaded(fit):
    """The message has the required memory, the free memory, and advice."""
    with pytest.raises(
        SettingError, match=r"responses/x: vLLM needs at least 1\.\d GB .* 1\.0 GB that are free; .*Stop other programs"
    ):
        fit(10**9)


def test_shortened_context_never_drops_a_request_silently():
    """A request that is too long for the memory stops the stage; one too long for the model is a `too-long` row."""
    short = vllm_memory.Fit(
        {}, "", "the model's context of 8,192 tokens does not fit in 3.0 GB, one of 2,048 does", 8192
    )
    with pytest.raises(SettingError, match="has 4,000 tokens, and the model's context of 8,192 tokens does not fit"):
        vllm_memory.check_length(short, "responses/x", 4000)
    vllm_memory.check_length(short, "responses/x", 9000)
    vllm_memory.check_length(vllm_memory.Fit({}), "responses/x", 9000)


@pytest.mark.parametrize("wanted", [512, 8192, 131_072])
def test_context_is_the_longest_that_fits(wanted):
    """A shortened context is the longest that fits, rounded down to the grain; a full one is not rounded."""
    tokens = vllm_memory.room_for(1e8, each=3e4, reading=1e4, wanted=wanted)
    assert tokens == min(wanted, 2304)
    assert tokens * (3e4 + 1e4) <= 1e8


def test_profile_overrides_the_choice(fit, monkeypatch):
    """Memory flags of the profile replace ours, other flags override ours. A GPU with room needs no choice."""
    by_hand = fit(10**9, {"gpu_memory_utilization": 0.2}).options
    assert "kv_cache_memory_bytes" not in by_hand and by_hand["gpu_memory_utilization"] == 0.2
    assert fit(10**11, {"max_num_seqs": 4, "max_model_len": 64}).options["max_model_len"] == 64
    assert fit(10**11, cuda=True).options == {"max_num_seqs": vllm_memory.AT_ONCE}
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    assert "kv_cache_memory_bytes" not in fit(10**9).options


def test_options_are_flags_of_the_server():
    """A true option is a bare flag, a false one its negation, any other a flag with its value."""
    flags = vllm.flags({"enforce_eager": True, "enable_chunked_prefill": False, "max_model_len": 512})
    assert flags == ["--enforce-eager", "--no-enable-chunked-prefill", "--max-model-len", "512"]


LOG = """INFO 11-22 04:40:22 [core.py:99] Initializing
(EngineCore pid=7) ERROR 11-22 04:40:22 [core.py:1110] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-22 04:40:22 [core.py:1110] ValueError: Available memory (1.2/2.0 GiB) is less than desired.
Traceback (most recent call last):
  File "api_server.py", line 1, in <module>
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""


def test_reason_is_the_first_error_of_the_log():
    """Later errors are ignored. A log without an error gives its last line; an empty one gives `no output`."""
    assert vllm.reason_in(LOG) == "Available memory (1.2/2.0 GiB) is less than desired."
    assert vllm.reason_in("one\nKilled\n") == "Killed"
    pydantic = (
        "pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, too long [type=value]\n"
    )
    assert vllm.reason_in(f"Traceback\n{pydantic}    For further information") == "Value error, too long"
    assert vllm.reason_in("") == "no output"


def test_server_that_does_not_start_says_why_and_where_the_rest_is(tmp_path):
    """One message has the reason and names the file with the full output."""
    log, script = tmp_path / "deep/vllm.log", tmp_path / "server.py"
    script.write_text(f"print({LOG!r})")
    command = [sys.executable, str(script)]
    with pytest.raises(ServiceError, match=r"Available memory \(1.2/2.0 GiB\)") as refused:
        Server("base/x", lambda port: command, 30, log=log, reason=vllm.reason_in).start()
    assert "Traceback" not in str(refused.value) and f"Its full output is in {log}." in str(refused.value)
    assert "Traceback" in log.read_text()


def test_engines_of_two_shards_start_at_once_and_leave_their_folder(tmp_path):
    """Each shard has its own log, removed once it has started. The shared folder stays."""
    table = Table("responses/x", tmp_path)
    logs = [Job(table, {}, "", {}, shard=Shard(number, 2)).engine_log for number in (1, 2)]
    assert logs[0] != logs[1]
    with vllm.starting("responses/x.1-of-2", logs[0]):
        with vllm.starting("responses/x.2-of-2", logs[1]):
            pass
        assert logs[0].exists()
    assert table.scratch.is_dir() and not any(table.scratch.iterdir())


# -------------------------------------------------------------------------------------------------------------- on a GPU

FOUR_B = Qwen3Config(  # the shape of Qwen3-4B: 36 layers, 8 groups of keys of 128 numbers
    vocab_size=151936, hidden_size=2560, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8,
    head_dim=128, intermediate_size=9728, max_position_embeddings=262_144, tie_word_embeddings=True,
)  # fmt: skip


@pytest.fixture
def four_b(tmp_path, monkeypatch):
    """Return a function that fits a model of 4 billion parameters on a GPU of `there` bytes."""
    FOUR_B.save_pretrained(tmp_path)

    def fitted(there, **asked):
        monkeypatch.setattr(memory, "device_memory", lambda: (there, True))
        return vllm_memory.fit("responses/x", tmp_path, asked, 1, cuda=True)

    return fitted


def test_context_that_a_gpu_cannot_hold_is_shortened_and_reported(four_b):
    """262,144 tokens of 147 kB do not fit next to 8 GB of weights in 40 GB. A longer request stops the stage."""
    assert vllm_memory.cache_bytes(memory.build_empty(FOUR_B)) == 36 * 2 * 8 * 128 * 2
    short = four_b(40 * 10**9)
    tokens = short.options["max_model_len"]
    assert tokens % vllm_memory.GRAIN == 0 and 100_000 < tokens < 262_144
    assert vllm_memory.count_cached_tokens(memory.build_empty(FOUR_B), 0.92 * 40e9) - vllm_memory.GRAIN < tokens
    with pytest.raises(SettingError, match=r"the model's context of 262,144 tokens does not fit in 36\.8 GB of a GPU"):
        vllm_memory.check_length(short, "responses/x", 200_000)


@pytest.mark.parametrize(
    "asked", [{"max_model_len": 4096}, {"tensor_parallel_size": 2}, {"kv_cache_memory_bytes": 10**9}, {}]
)
def test_gpu_that_holds_the_context_or_is_configured_is_left_alone(four_b, asked):
    """Two GPUs of 40 GB, or a larger one, hold the context; a profile's own length or cache size is kept."""
    there = (40 if asked else 80) * 10**9
    assert four_b(there, **asked).options == {"max_num_seqs": vllm_memory.AT_ONCE, **asked}


DEEPSEEK = DeepseekV3Config(  # layers of DeepSeek-V3's attention: a latent of 512 numbers and 64 of rotations for all heads
    vocab_size=1000, hidden_size=256, num_hidden_layers=3, num_attention_heads=8, intermediate_size=512, q_lora_rank=64,
    kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, first_k_dense_replace=3,
)  # fmt: skip


@pytest.mark.parametrize(
    ("config", "numbers", "groups"), [(FOUR_B, 36 * 2 * 8 * 128, 8), (DEEPSEEK, 3 * (512 + 64), 1)]
)
@pytest.mark.parametrize("parallel", [1, 2, 8, 16])
def test_gpus_share_a_cache_by_whole_groups_of_keys(config, numbers, groups, parallel):
    """GPUs beyond the number of key groups hold copies, as they do of a latent that all heads read."""
    network = memory.build_empty(config)
    each = 2 * numbers / min(parallel, groups)
    assert vllm_memory.cache_bytes(network, parallel) == each
    left = 40e9 - 2 * memory.parameters(network) / parallel - vllm_memory.working_bytes(network, parallel)
    assert vllm_memory.count_cached_tokens(network, 40e9, parallel) == int(left / each)


def test_cache_next_to_vllms_own_working_memory_has_the_size_that_vllm_reported():
    """Of 0.9 of 79.22 GiB, Llama-3-8B leaves 53.29 GiB (vLLM's pull request 10511); more GPUs share the widest layer."""
    fields = read_published()["meta-llama/Llama-3.1-8B"]
    network = memory.build_empty(AutoConfig.for_model(**fields))
    tokens = vllm_memory.count_cached_tokens(network, 0.9 * 79.22 * 2**30)
    assert tokens * vllm_memory.cache_bytes(network) == pytest.approx(53.29 * 2**30, rel=0.03)
    alone, shared = (vllm_memory.working_bytes(network, parallel) for parallel in (1, 4))
    assert alone - shared == vllm_memory.READ * 2 * 3 * fields["intermediate_size"] * 3 / 4


@pytest.mark.parametrize(
    ("id", "billions", "active", "gigabytes"),
    [("openai/gpt-oss-20b", 20.9, 3.6, 13.8), ("openai/gpt-oss-120b", 116.8, 5.1, 65.2)],
)
def test_weights_of_four_bits_have_the_published_size(id, billions, active, gigabytes):
    """Table 1 of gpt-oss' model card: parameters, active ones without the input embeddings, and GB of the files."""
    network = memory.build_empty(AutoConfig.for_model(**read_published()[id]))
    assert memory.parameters(network) == pytest.approx(billions * 1e9, rel=0.01)
    embeddings = network.get_input_embeddings().weight.numel()
    assert hours.active(network) - embeddings == pytest.approx(active * 1e9, rel=0.02)
    assert vllm_memory.weights_on_gpu(network, 1, "mxfp4") == pytest.approx(gigabytes * 1e9, rel=0.01)


def test_gpu_that_cannot_hold_the_weights_is_refused(four_b):
    """The message has vLLM's share, the size of the weights, and how to distribute them."""
    with pytest.raises(
        SettingError, match=r"may take 7\.4 GB .* the weights alone take 8\.0 GB .*--tensor-parallel-size"
    ):
        four_b(8 * 10**9)


def test_rollouts_get_what_the_training_leaves():
    """Next to a training with 12 of 80 GB, vLLM takes three quarters, sleeps between, and has the full context."""
    network = memory.build_empty(FOUR_B)
    found = vllm_memory.fit_next_to_training("grpo/x", network, 12 * 10**9, 80 * 10**9, 50_000, {})
    assert found == {"enable_sleep_mode": True, "gpu_memory_utilization": 0.75, "max_model_len": 262_144}
    by_hand = {"gpu_memory_utilization": 0.5, "max_model_len": 60_000, "tensor_parallel_size": 2}
    found = vllm_memory.fit_next_to_training("grpo/x", network, 12 * 10**9, 80 * 10**9, 50_000, by_hand)
    assert found == {"enable_sleep_mode": True, **by_hand}
    awake = vllm_memory.fit_next_to_training(
        "grpo/x", network, 12 * 10**9, 80 * 10**9, 50_000, {"enable_sleep_mode": False}
    )
    assert awake["gpu_memory_utilization"] == vllm_memory.AWAKE and 50_000 <= awake["max_model_len"] < 262_144


def test_rollouts_without_room_are_refused_before_anything_is_loaded():
    """If the rest is smaller than the weights, the message says what the training holds and what helps."""
    with pytest.raises(SettingError, match=r"holds 70\.0 GB all the time, .* would hold 0 tokens; .* 50,000\. .*FSDP2"):
        vllm_memory.fit_next_to_training("grpo/x", memory.build_empty(FOUR_B), 70 * 10**9, 80 * 10**9, 50_000, {})
