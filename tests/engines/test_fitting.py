"""What vLLM is given of a CPU's memory, and what a person reads when it cannot start."""

import sys

import pytest

from proofmill.engines import fitting, vllm
from proofmill.engines.servers import Server
from proofmill.schema.errors import ServiceError, SettingError
from proofmill.training import memory


@pytest.fixture
def fit(small, monkeypatch):
    """Fits the tiny model into so many bytes, of which the job may plan with all."""
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    weights = small.table("base/tiny").weights()

    def fitted(there, asked=None, cuda=False):
        monkeypatch.setattr(memory, "device_memory", lambda: (there, cuda))
        return fitting.fit("responses/x", weights, asked or {}, 10**6, cuda)

    return fitted


def test_model_that_fits_keeps_its_context_and_reads_each_prompt_at_once(fit):
    """Much memory is not taken: the cache holds what is written at once. A prompt is never read in parts."""
    fitted = fit(10**11)
    assert fitted.options["max_model_len"] == 512 and not fitted.shortened
    assert fitted.options["max_num_batched_tokens"] >= 512 and not fitted.options["enable_chunked_prefill"]
    assert fitted.options["kv_cache_memory_bytes"] < 2e8
    assert "a context has up to 512 tokens" in fitted.said


def test_cache_is_what_the_memory_leaves(fit, small):
    """Cache, weights, libraries and the reading of prompts together take no more than the job may plan with."""
    there = int((fitting.LIBRARIES + 2e7) / memory.TIGHT)
    fitted = fit(there)
    network = memory.made(small.table("base/tiny").weights())
    read = fitted.options["max_num_batched_tokens"] * fitting.bytes_to_read(network)
    taken = fitted.options["kv_cache_memory_bytes"] + read + fitting.LIBRARIES + 4 * memory.parameters(network)
    assert taken <= memory.TIGHT * there
    assert fitted.options["kv_cache_memory_bytes"] < fit(10**11).options["kv_cache_memory_bytes"]


def test_model_that_cannot_fit_is_refused_before_it_is_loaded(fit):
    """The message has what is needed, what there is, and what to do."""
    with pytest.raises(
        SettingError, match=r"responses/x: vLLM needs at least 1\.\d GB .* 1\.0 GB that are free; .*End what else runs"
    ):
        fit(10**9)


def test_shorter_context_never_cuts_a_question_in_silence():
    """What is too long for the memory alone stops the stage; what is too long for the model is an outcome, as ever."""
    short = fitting.Fit({}, "", "the model's context of 8,192 tokens does not fit in 3.0 GB, one of 2,048 does", 8192)
    with pytest.raises(SettingError, match="has 4,000 tokens, and the model's context of 8,192 tokens does not fit"):
        fitting.check_length(short, "responses/x", 4000)
    fitting.check_length(short, "responses/x", 9000)
    fitting.check_length(fitting.Fit({}), "responses/x", 9000)


@pytest.mark.parametrize("wanted", [512, 8192, 131_072])
def test_context_is_the_longest_that_one_sequence_and_its_reading_fit(wanted):
    """One token more of a shortened context would not fit, up to the grain; a whole one is not rounded."""
    tokens = fitting.room_for(1e8, each=3e4, reading=1e4, wanted=wanted)
    assert tokens == min(wanted, 2304)
    assert tokens * (3e4 + 1e4) <= 1e8


def test_profile_decides_where_it_says_something(fit, monkeypatch):
    """Flags about memory are taken as they are; others win over ours; a GPU's memory is vLLM's own affair."""
    by_hand = fit(10**9, {"gpu_memory_utilization": 0.2}).options
    assert "kv_cache_memory_bytes" not in by_hand and by_hand["gpu_memory_utilization"] == 0.2
    assert fit(10**11, {"max_num_seqs": 4, "max_model_len": 64}).options["max_model_len"] == 64
    assert fit(10**11, cuda=True).options == {"max_num_seqs": fitting.AT_ONCE}
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    assert "kv_cache_memory_bytes" not in fit(10**9).options


def test_options_are_flags_of_the_server():
    """A true option is a flag alone, a false one its negation, any other a flag with its value."""
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
    """What follows from it is no reason; a log without an error has its last line, an empty one says so."""
    assert vllm.reason_in(LOG) == "Available memory (1.2/2.0 GiB) is less than desired."
    assert vllm.reason_in("one\nKilled\n") == "Killed"
    pydantic = (
        "pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, too long [type=value]\n"
    )
    assert vllm.reason_in(f"Traceback\n{pydantic}    For further information") == "Value error, too long"
    assert vllm.reason_in("") == "it said nothing"


def test_server_that_does_not_start_says_why_and_where_the_rest_is(tmp_path):
    """One message with the reason; the ninety lines are in the file that it names."""
    log, script = tmp_path / "deep/vllm.log", tmp_path / "server.py"
    script.write_text(f"print({LOG!r})")
    command = [sys.executable, str(script)]
    with pytest.raises(ServiceError, match=r"Available memory \(1.2/2.0 GiB\)") as refused:
        Server("base/x", lambda port: command, 30, log=log, reason=vllm.reason_in).__enter__()
    assert "Traceback" not in str(refused.value) and f"All that it said is in {log}." in str(refused.value)
    assert "Traceback" in log.read_text()
