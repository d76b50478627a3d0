"""GPU-hours against sums that one can do by hand."""

import pytest
from transformers import AutoConfig, Qwen3Config

from proofmill.engines import vllm_memory
from proofmill.planning import hours, shapes
from proofmill.planning.machines import GPUS
from proofmill.training import memory

H100 = GPUS["H100"]
DENSE = memory.build_empty(
    Qwen3Config(
        vocab_size=1000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
        intermediate_size=512, tie_word_embeddings=True,
    )
)  # fmt: skip


def test_learning_takes_six_operations_a_parameter_and_token():
    """Short rows: 6 N operations a token, 8 N computed again, 2 N more for each further forward pass."""
    n, tokens = memory.parameters(DENSE), 1e12
    unit = tokens * 2 * n / (H100.bfloat16 * hours.LEARNING) / 3600
    for again, more, factor in ((False, 0, 3), (True, 0, 4), (False, 1, 4), (True, 2, 6)):
        found = hours.learning(DENSE, tokens, 0, H100, "bfloat16", again, more)
        assert found == pytest.approx(factor * unit)
    assert hours.learning(DENSE, tokens, 0, H100, "float32", False) == pytest.approx(
        3 * unit * H100.bfloat16 / H100.float32
    )


def test_attention_is_two_products_with_half_of_the_row():
    """Of a row of 100 tokens each meets 50 keys on average, in 4 layers of 4 heads of 64 numbers."""
    by_hand = sum(4 * 2 * (2 * 4 * 64) * keys for keys in range(1, 101)) / 100
    assert hours.attention(DENSE, 101) == pytest.approx(by_hand)


def test_only_the_experts_that_a_token_is_sent_to_are_active():
    """Of DeepSeek-V3's 671 billion parameters 37 to 38 billion are (its report, section 4.2); of a dense model all."""
    network = memory.build_empty(AutoConfig.for_model(**shapes.read_published()["deepseek-ai/DeepSeek-V3-Base"]))
    assert 37e9 < hours.active(network) < 38.5e9
    assert hours.active(DENSE) == memory.parameters(DENSE)


def test_sampling_reads_weights_once_a_step_and_each_copy_of_a_cache():
    """A token alone takes as long as reading the weights and its half-written cache; four together take less each.

    Four GPUs with two groups of keys hold each of them twice: together they read the cache twice, the weights once.
    """
    texts = hours.Rollouts(rows=10, prompt=100, written=200)
    for parallel, copies in ((1, 1), (2, 1), (4, 2)):
        read = 2 * memory.parameters(DENSE) + copies * 200 * vllm_memory.cache_bytes(DENSE)
        seconds = 2000 * read / (H100.bandwidth * hours.READING)
        assert hours.sampling(DENSE, texts, H100, 60e9, parallel, most=1) == pytest.approx(seconds / 3600)
    alone, four = (hours.sampling(DENSE, texts, H100, 60e9, 1, most) for most in (1, 4))
    assert four < alone / 3


def test_weights_of_8_bits_are_read_in_half_the_time():
    """vLLM serves the files as they are: one byte a parameter instead of two."""
    texts = hours.Rollouts(rows=1, prompt=0, written=1e-6)
    whole, half = (hours.sampling(DENSE, texts, H100, 60e9, 1, 1, stored) for stored in ("", "fp8"))
    assert half == pytest.approx(whole / 2, rel=1e-3)
