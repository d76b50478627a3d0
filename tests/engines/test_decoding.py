"""Our token loop: the tokens of transformers' own loop, in fewer forward passes with fewer rows."""

from functools import partial

import pytest
import torch
import transformers

from proofmill.engines.decoding import decode, sample_with_ours

ENDS = [1, *range(50, 60)]  # many, so that rows end at many places
SIZES = {
    "vocab_size": 100, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 128,
}  # fmt: skip
MODELS = {
    "Qwen3": SIZES,
    "Gemma3Text": {**SIZES, "sliding_window": 8},
    "GptOss": {**SIZES, "sliding_window": 8, "num_local_experts": 2, "num_experts_per_tok": 1},
    "Bloom": {"vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 2},
    "Mamba": {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
}
SETTINGS = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "temperature": 0.7},
    "left out": {"do_sample": True, "top_p": 0.8, "top_k": 7, "min_p": 0.05},
    "penalized": {"do_sample": True, "repetition_penalty": 1.3},
    "without cache": {"do_sample": True, "use_cache": False},
}


def made(name: str) -> torch.nn.Module:
    """Build a model with flat distributions, so that its output depends on all previous tokens."""
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**MODELS[name], pad_token_id=0, eos_token_id=1, bos_token_id=2)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for weight in model.parameters():
        weight.data *= 4 if weight.dim() > 1 else 1
    return model


def prompts(copies: int = 4) -> dict[str, torch.Tensor]:
    """Build six prompts of four to nine tokens, each repeated in adjacent rows."""
    ids = torch.randint(3, 50, (6, 9), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(9) >= torch.arange(6)[:, None]).long()
    return {"input_ids": (ids * mask).repeat_interleave(copies, 0), "attention_mask": mask.repeat_interleave(copies, 0)}


def written(model, seed: int = 3, tokens: int = 40, **options) -> torch.Tensor:
    torch.manual_seed(seed)
    way = {"max_new_tokens": tokens, "eos_token_id": ENDS, "pad_token_id": 0, "top_k": 0}
    return model.generate(**prompts(), **{**way, **options})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_those_of_transformers(name):
    """Tokens are equal from the same random state, for each sampling setting, and so is the next random number."""
    model = made(name)
    for way, options in SETTINGS.items():
        theirs = written(model, **options)
        after = torch.rand(1)
        ours = written(model, custom_generate=decode, **options)
        assert theirs.equal(ours), way
        assert after == torch.rand(1), way
        assert way == "greedy" or len(set(map(tuple, ours[:, 9:].tolist()))) > 18


def test_pass_has_only_open_rows(monkeypatch):
    """Copies of a prompt are read once, and a row is in no pass after the one that ended it."""
    model, rows = made("Qwen3"), []
    forward = type(model).forward
    monkeypatch.setattr(
        type(model), "forward", lambda self, *a, **k: rows.append(k["input_ids"].shape) or forward(self, *a, **k)
    )
    ours = written(model, custom_generate=decode, do_sample=True)
    new = ours[:, 9:]
    lengths = (torch.isin(new, torch.tensor(ENDS)).int().cumsum(1) == 0).sum(1) + 1
    assert rows[0] == (6, 9)
    going = [int((lengths > step).sum()) for step in range(1, new.shape[1])]
    assert [shape[0] for shape in rows[1:]] == [count for count in going if count]
    assert going[0] > going[-1] > 0


@pytest.mark.parametrize("name", ["Qwen3", "Mamba"])
def test_log_probabilities_are_the_models_own(name):
    """They equal those of one forward pass of the full text, before top-k, top-p and min-p; 0 after a row's end."""
    model, kept = made(name), []
    ours = written(model, custom_generate=decode, logprobs=kept, **SETTINGS["left out"])
    found, new = torch.stack(kept, dim=1), ours[:, 9:]
    mask = torch.cat([prompts()["attention_mask"], torch.ones_like(new)], dim=1)
    with torch.no_grad():
        logits = model(input_ids=ours, attention_mask=mask, **positions(name, mask)).logits[:, 8:-1]
    expected = logits.log_softmax(-1).gather(2, new[:, :, None]).squeeze(2)
    ended = torch.isin(new, torch.tensor(ENDS)).int().cumsum(1)
    written_NT = (ended == 0) | ((ended == 1) & torch.isin(new, torch.tensor(ENDS)))
    assert torch.allclose(found, expected * written_NT, atol=1e-4)


def test_log_probabilities_are_those_at_the_temperature_of_the_draw():
    """At temperature 0.5 they equal log_softmax(logits / 0.5), for the same tokens."""
    options = {"do_sample": True, "temperature": 0.5, "eos_token_id": [99]}
    model, kept = made("Qwen3"), []
    ours = written(model, custom_generate=partial(decode, logprobs=kept, heat=0.5), **options)
    assert ours.equal(written(model, **options))
    new = ours[:, 9:]
    mask = torch.cat([prompts()["attention_mask"], torch.ones_like(new)], dim=1)
    with torch.no_grad():
        logits = model(input_ids=ours, attention_mask=mask, **positions("Qwen3", mask)).logits[:, 8:-1]
    expected = (logits / 0.5).log_softmax(-1).gather(2, new[:, :, None]).squeeze(2)
    before = torch.cat([torch.zeros_like(new[:, :1]), new[:, :-1]], dim=1)
    open_NT = (before == 99).int().cumsum(1) == 0
    assert torch.allclose(torch.stack(kept, dim=1), expected * open_NT, atol=1e-4)


def positions(name: str, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    return {} if name == "Mamba" else {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)}


def test_one_token_and_rows_that_all_end_at_once():
    """The shortest outputs work: a limit of one token, and a model for which every token is an end token."""
    model = made("Qwen3")
    for options in ({"tokens": 1}, {"eos_token_id": list(range(100))}):
        assert written(model, custom_generate=decode, do_sample=True, **options).shape == (24, 10)


def test_adapter_is_sampled_from():
    """Through the wrapper of an adapter the tokens equal those of transformers, and include the adapter's weights."""
    from peft import LoraConfig, get_peft_model

    plain = written(made("Qwen3"), do_sample=True)
    model = get_peft_model(made("Qwen3"), LoraConfig(r=2, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    model.eval()
    theirs = written(model, do_sample=True)
    sample_with_ours(model)
    assert theirs.equal(written(model, do_sample=True)) and not plain.equal(theirs)
