"""GPU-hours against sums that one can do by hand."""

import numpy as np
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
    assert unit[0] < unit[1]
    for again, more, factor in ((False, 0, 3), (True, 0, 4), (False, 1, 4), (True, 2, 6)):
        found = hours.learning(DENSE, tokens, 0, H100, "bfloat16", again, more)
        assert found == pytest.approx(factor * unit)
    single = hours.learning(DENSE, tokens, 0, H100, "float32", False, 0)
    assert single == pytest.approx(3 * unit * H100.bfloat16 / H100.float32)


def test_attention_is_two_products_with_half_of_the_row():
    """Of a row of 100 tokens each meets 50 keys on average, in 4 layers of 4 heads of 64 numbers."""
    by_hand = sum(4 * 2 * (2 * 4 * 64) * keys for keys in range(1, 101)) / 100
    assert hours.attention(DENSE, 101) == pytest.approx(by_hand)


def test_only_the_experts_that_a_token_is_sent_to_are_active():
    """Of DeepSeek-V3's 671 billion parameters 37 to 38 billion are (its report, section 4.2); of a dense model all."""
    network = memory.build_empty(AutoConfig.for_model(**shapes.read_published()["deepseek-ai/DeepSeek-V3-Base"]))
    assert 37e9 < hours.active(network) < 38.5e9
    assert hours.active(DENSE) == memory.parameters(DENSE)


def server(parallel=1, most=1, stored=""):
    return hours.Server(H100, 60e9, parallel, most, stored)


def test_sampling_reads_weights_once_a_step_and_each_copy_of_a_cache():
    """A token alone takes as long as reading the weights and its half-written cache; four together take less each.

    Four GPUs with two groups of keys hold each of them twice: together they read the cache twice, the weights once.
    Prompts are read like a forward pass.
    """
    texts, alone = hours.Rollouts(rows=10, prompt=100, written=200), {}
    prompts = 1000 * (2 * memory.parameters(DENSE) + hours.attention(DENSE, 100)) / (H100.bfloat16 * hours.LEARNING)
    for parallel, copies in ((1, 1), (2, 1), (4, 2)):
        read = 2 * memory.parameters(DENSE) + copies * 200 * vllm_memory.cache_bytes(DENSE)
        seconds = 2000 * read / (H100.bandwidth * hours.READING) + prompts
        alone[parallel], _ = hours.sampling(DENSE, texts, server(parallel))
        assert alone[parallel] == pytest.approx(seconds / 3600)
    four, _ = hours.sampling(DENSE, texts, server(most=4))
    assert (four < alone[1] / 3).all()


def test_weights_of_8_bits_are_read_in_half_the_time():
    """vLLM serves the files as they are: one byte a parameter instead of two."""
    texts = hours.Rollouts(rows=1, prompt=0, written=1e-6)
    full, half = (hours.sampling(DENSE, texts, server(stored=stored))[0] for stored in ("", "fp8"))
    assert half == pytest.approx(full / 2, rel=1e-3)


def test_batch_waits_for_its_longest_text_at_the_slow_end_alone():
    """Two batches of four wait for 800 tokens after the mean text of 200, at the pace of one sequence of 1,100."""
    texts = hours.Rollouts(rows=8, prompt=100, written=200, longest=1000)
    seconds = 2 * 800 * hours.step(DENSE, 1, 1100, server())
    _, waited = hours.sampling(DENSE, texts, server(most=4))
    assert list(waited) == pytest.approx([0, seconds[1] / 3600])
    whole = hours.serving(DENSE, texts, server(parallel=2, most=4))
    assert whole.booked[0] == pytest.approx(whole.busy[0]) and whole.booked[1] > whole.busy[1]


def test_communication_and_offloading_take_the_bytes_that_they_move():
    """FSDP2 moves weights twice and gradients in each micro-batch; DDP gradients, there and back, once per step."""
    assert list(hours.exchanging(10**9, 10**9, 3, 450e9)) == pytest.approx([0, 3 * 8e9 / 450e9])
    assert list(hours.exchanging(10**9, 10**7, 0, 450e9)) == pytest.approx([0, 8e7 / 450e9])
    seconds = 3 * (12e9 / 8 + 2 * 1e6) / hours.COPYING + 1e9 / 8 / hours.ADAMW
    assert hours.offloading(10**9, 10**9, 1e6, 8, 3) == pytest.approx(seconds)


def test_booked_hours_are_all_gpus_until_the_end():
    """Eight GPUs for three hours are 24 booked hours and an eighth of a day, whatever part of them computes."""
    found = hours.Estimate(np.array([10, 20]), np.array([3, 6]), 8)
    assert found.data() == {"busy": [10, 20], "booked": [24, 48], "days": [3 / 24, 6 / 24]}
