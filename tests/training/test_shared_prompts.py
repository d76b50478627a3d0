"""Prompts that are read once: log-probabilities and gradients are those of whole rows."""

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from trl.trainer.utils import add_fused_lm_head

import fixed_rollouts
from proofmill.training.losses import shared_prompts
from proofmill.training.run import logits_of_trained_tokens

VOCABULARY, WIDTH, COUNT, COPIES = 97, 24, 7, 4
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
SHAPES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, **HEADS)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, **HEADS, head_dim=16)),
    "neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, num_attention_heads=4)),
}


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask of three prompts of different lengths with four completions each, shuffled."""
    torch.manual_seed(1)
    ids = torch.zeros(3 * COPIES, WIDTH + COUNT, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, length in enumerate((10, WIDTH, 17)):
        prompt = torch.randint(3, VOCABULARY, (length,))
        for row in range(number * COPIES, (number + 1) * COPIES):
            written = row % (COUNT + 1)  # an empty completion, too
            ids[row, WIDTH - length : WIDTH], mask[row, WIDTH - length : WIDTH + written] = prompt, 1
            ids[row, WIDTH : WIDTH + written] = torch.randint(3, VOCABULARY, (written,))
    order = torch.randperm(len(ids))
    return ids[order], mask[order]


@pytest.mark.parametrize("shape", SHAPES)
def test_log_probabilities_and_gradients_are_those_of_whole_rows(shape):
    """For every completion token, and for every weight; the padding of a prompt changes nothing."""
    torch.manual_seed(0)
    logits_of_trained_tokens()
    model = SHAPES[shape]().train()
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids, mask = rows()
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :WIDTH] = -100
    assert shared_prompts.can_share(model) and shared_prompts.are_worth_it(ids, mask, COUNT)

    def found(output):
        model.zero_grad()
        logprobs, entropies = output.log_probs[:, -COUNT:], output.entropy[:, -COUNT:]
        (logprobs * torch.linspace(-1, 1, logprobs.numel()).view_as(logprobs) + 0.1 * entropies).sum().backward()
        return logprobs.detach(), torch.cat([weight.grad.ravel() for weight in model.parameters()])

    whole, by_rows = found(model(ids, attention_mask=mask, labels=labels, fused_lm_head=True))
    once, shared = found(shared_prompts.score(model, ids, mask, COUNT))
    assert whole.abs().sum() > 1 and torch.allclose(once, whole, atol=1e-5)
    assert by_rows.norm() > 0 and (shared - by_rows).norm() < 1e-5 * by_rows.norm()


@pytest.mark.parametrize("tokens", [WIDTH - 1, WIDTH])
def test_only_the_tokens_of_prompts_are_passed_once(tokens):
    """The first pass has a row for each prompt, the second one the rest of all rows."""
    model, passed = SHAPES["llama"](), []
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    model.base_model.register_forward_pre_hook(
        lambda module, given, named: passed.append(given[0].shape), with_kwargs=True
    )
    ids, mask = rows()
    shared_prompts.score(model, ids[:, WIDTH - tokens :], mask[:, WIDTH - tokens :], COUNT)
    assert [tuple(shape) for shape in passed] == [(3, tokens - 1), (12, COUNT + 1)]


def test_models_that_cannot_share_are_told():
    """A sliding window drops keys, dropout would be shared, and recomputation keeps no cache."""
    assert not shared_prompts.can_share(
        Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, **HEADS, head_dim=16, sliding_window=16))
    )
    assert not shared_prompts.can_share(
        GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4))
    )
    model = SHAPES["llama"]()
    model.gradient_checkpointing_enable()
    assert not shared_prompts.can_share(model)


@pytest.mark.parametrize(
    ("prompts", "copies", "width", "count", "worth"),
    [(2, 4, 24, 7, True), (8, 1, 24, 7, False), (2, 4, 2, 30, False), (1, 8, 1, 7, False), (1, 8, 20, 7, True)],
)
def test_few_copies_or_short_prompts_are_not_worth_it(prompts, copies, width, count, worth):
    """Two passes pay if they have clearly fewer tokens; a prompt of one token leaves none for the first pass."""
    ids = torch.arange(prompts).repeat_interleave(copies)[:, None].expand(-1, width + count)
    assert shared_prompts.are_worth_it(ids, torch.ones_like(ids), count) == worth


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["dapo", "dapo:0.05", "sequence_sum"])
@pytest.mark.parametrize("in_pass", [8, 4])
def test_step_has_the_gradient_of_whole_rows(small, monkeypatch, setting, in_pass):
    """The trainer reads prompts once where that pays, in the loss and for a reference, and its step is the same."""
    weights, seen, score = small.table("sft/cold").folder, [], shared_prompts.score
    loss, _, entropy = setting.partition(":")
    monkeypatch.setattr(
        shared_prompts, "score", lambda model, ids, *more: seen.append(len(ids)) or score(model, ids, *more)
    )

    def learned() -> torch.Tensor:
        trainer = fixed_rollouts.trainer(weights, in_pass, loss, float(entropy or 0))
        trainer.prompt, trainer.copies = 40, 4
        return fixed_rollouts.gradient(trainer)

    once = learned()
    assert sum(seen) == 7  # one of the eight rows has no tokens
    monkeypatch.setattr(shared_prompts, "WORTH", 0)
    whole = learned()
    assert sum(seen) == 7 and whole.norm() > 0 and (once - whole).norm() < 1e-5 * whole.norm()


@pytest.mark.slow
def test_reference_is_passed_in_parts(small):
    """Log-probabilities of a reference come in batches of rows, and equal those of all rows."""
    trainer = fixed_rollouts.trainer(small.table("sft/cold").folder, 8, "dapo", 0.0)
    trainer.prompt, trainer.copies = 40, 4
    inputs = trainer._generate_and_score_completions([None] * 8)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    with torch.no_grad():
        whole, none, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, fixed_rollouts.TOKENS)
        parts, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, fixed_rollouts.TOKENS, batch_size=4, num_images=None
        )
    assert none is None and whole.shape == (8, fixed_rollouts.TOKENS) and torch.allclose(whole, parts, atol=1e-5)
