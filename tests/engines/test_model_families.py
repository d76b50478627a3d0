"""Qwen2.5, Qwen3, Llama 3.2 and Gemma 3, tiny: their own files decide how prompts, ends and trained tokens differ."""

import json
import math
from datetime import datetime
from types import SimpleNamespace

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import chat_template_utils

import fixed_rollouts
from mill import Mill
from model_families import FAMILIES, make_tokenizer, template, write_checkpoint
from proofmill.calls.model_requests import ModelRequest
from proofmill.engines import decoding
from proofmill.engines.local import TransformersEngine, render
from proofmill.schema.errors import TableError
from proofmill.sft import IGNORED, Encoder
from proofmill.text.reasoning import opens_thought
from proofmill.training.losses import shared_prompts

pytestmark = pytest.mark.slow

EMPTY_THOUGHT = "<think>\n\n</think>\n\n"
TALK = [
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "It is 4."},
    {"role": "user", "content": "And 3 + 3?"},
    {"role": "assistant", "content": "That is 6."},
]
STEPS = {"learning-rate": 1e-3, "log-every": 1}
TRAININGS = {
    "problems/x": {"source": "arithmetic", "rows": 4},
    "sft/x": {"model": "base/x", "examples": "examples/x", "batch-size": 4, "steps": 2, **STEPS},
    "grpo/x": {
        "model": "sft/x", "problems": "problems/x", "grader": "arithmetic", "rewards": {"overlong": {"buffer": 96}},
        "unscored": "zero", "group-size": 4, "problems-per-step": 2, "steps": 1, "max-tokens": 96, "temperature": 4, **STEPS,
    },
}  # fmt: skip


@pytest.fixture(scope="session", params=FAMILIES)
def family(request, tmp_path_factory):
    """Import each checkpoint as `base/x`, and open its engine."""
    name, place = request.param, tmp_path_factory.mktemp(request.param)
    write_checkpoint(name, place / "model")
    (place / "chat.jsonl").write_text((json.dumps({"messages": TALK[:2]}) + "\n") * 8)
    base = {"source": "folder", "path": str(place / "model")}
    chats = {"source": "table", "path": str(place / "chat.jsonl")}
    mill = Mill(place / "results", **{"base/x": base, "examples/x": chats, **TRAININGS})
    engine = TransformersEngine(mill.make("base/x"))
    model, bos, _, ends, _, special, _ = FAMILIES[name]
    return SimpleNamespace(
        name=name, place=place, base=base, mill=mill, engine=engine, tokenizer=engine.tokenizer,
        model=model, bos=bos, ends=ends, special=special,
    )  # fmt: skip


@pytest.fixture(scope="session")
def trained(family):
    """Train by two steps of SFT and one of GRPO."""
    family.mill.make("problems/x", "examples/x", "sft/x", "grpo/x")
    return family


def ask(engine, requests):
    """Return the outputs in the order of the requests."""
    outputs = {}
    engine.ask(requests, lambda request, output: outputs.update({request.key: output}))
    return [outputs[request.key] for request in requests]


def asking(*texts: str, copies: int = 1, system: tuple = (), **options):
    options = {"temperature": 0.0, "max_tokens": 16, **options}
    return [ModelRequest("x", (*system, ("user", t)), sample=n, **options) for t in texts for n in range(copies)]


def rendered(tokenizer, *given, **options) -> str:
    return tokenizer.decode(render(tokenizer, asking(*given, **options))[0])


# ------------------------------------------------------------------------------------------------------------- rendering


def test_prompt_begins_once_and_ends_where_the_assistant_begins(family):
    """The template writes the token at the beginning, if the family has one, and the tokenizer adds no other."""
    (ids,) = render(family.tokenizer, asking("2"))
    begin = family.tokenizer.bos_token_id
    assert (ids[0], ids.count(begin), family.tokenizer("2")["input_ids"][0]) == (begin, 1, begin) or not family.bos
    assert rendered(family.tokenizer, "2").endswith(("assistant\n", "model\n", "assistant<|end_header_id|>\n\n"))


def test_text_writes_no_control_token(family):
    """A message that spells special tokens, and Qwen's call of a tool, has the control tokens of any other message."""
    spelled = (*family.special, *(["<tool_call>"] if "Qwen" in family.model else []))
    control = family.tokenizer.convert_tokens_to_ids([*spelled])
    plain, attack = render(family.tokenizer, asking("2", f"2{''.join(spelled)}"))
    assert [i for i in plain if i in control] == [i for i in attack if i in control] != []
    assert all(token.replace("<", "&lt;", 1) in family.tokenizer.decode(attack) for token in spelled)


def test_system_message_comes_before_the_question_or_is_refused(family):
    """It replaces a default, and Gemma 3 puts it into the first turn. Gemma 2 refuses it; the message says what to do."""
    system = (("system", "Count."),)
    text = rendered(family.tokenizer, "And 3?", system=system)
    assert text.index("Count.") < text.index("And 3?") and "Alibaba" not in text
    assert ("system" in text) == (family.model != "Gemma3")
    tokenizer = make_tokenizer(family.name)
    tokenizer.chat_template = template("gemma")
    with pytest.raises(
        TableError, match=r"refuses the roles system, user \(System role not supported\).*Remove `system`"
    ):
        rendered(tokenizer, "2", system=system)


def test_prompt_does_not_depend_on_the_day(family, monkeypatch):
    """Llama's template writes today's date; a fixed one takes its place."""
    texts = set()
    for day in (1, 2):
        clock = SimpleNamespace(now=lambda day=day: datetime(2031, 5, day))
        monkeypatch.setattr(chat_template_utils, "datetime", clock)
        texts.add(rendered(family.tokenizer, "2"))
    (text,) = texts
    assert ("Today Date: 26 Jul 2024\n" in text) == (family.model == "Llama")


def test_template_file_turns_reasoning_off(family):
    """Qwen3's template lets the model reason. A file that sets its variable does not, in prompts and in training."""
    file = family.place / "chat.jinja"
    file.write_text("{%- set enable_thinking = false %}\n" + template(family.name))
    mill = Mill(family.place / "quiet", **{"base/x": {**family.base, "chat-template": str(file)}})
    quiet = AutoTokenizer.from_pretrained(mill.make("base/x").weights())
    assert not opens_thought(family.tokenizer) and not opens_thought(quiet)
    thought = EMPTY_THOUGHT if family.name == "qwen3" else ""
    assert rendered(quiet, "2") == rendered(family.tokenizer, "2") + thought
    assert learned(quiet) == f"That is 6.{family.ends[0]}"


# -------------------------------------------------------------------------------------------------------------- sampling


def test_output_ends_at_every_end_token_of_the_family(trained, monkeypatch):
    """The text is that before the end token, with the files of the hub and with those of trained weights."""
    for table in ("base/x", "sft/x", "grpo/x"):
        engine = TransformersEngine(trained.mill.table(table))
        words = engine.tokenizer("It is 4.", add_special_tokens=False)["input_ids"]
        for end in engine.tokenizer.convert_tokens_to_ids([*trained.ends]):
            script = iter([*words, end, *words])
            monkeypatch.setattr(decoding, "greedy", lambda _, rows, script=script: torch.full_like(rows, next(script)))
            (output,) = ask(engine, asking("2"))
            assert (output.text, output.stop_reason, output.tokens) == ("It is 4.", "end", len(words) + 1)


def test_greedy_outputs_do_not_depend_on_their_batch(family, monkeypatch):
    """Padding, windows and prompts read once change no token; log-probabilities are those of passes over whole texts."""
    network, passed = family.engine.network, []
    forward = network.forward
    monkeypatch.setattr(network, "forward", lambda **given: passed.append(len(given["input_ids"])) or forward(**given))
    requests = asking("2", "Count the odd ones. " * 3, "What is 2 + 2?", copies=3, logprobs=True)
    together = ask(family.engine, requests)
    assert passed[:2] == [3, 9]
    alone = [ask(family.engine, [request])[0] for request in requests]
    assert [output.text for output in together] == [output.text for output in alone]
    assert len({output.text for output in alone}) == 3 and len(set("".join(output.text for output in alone))) > 9
    for prompt, output in zip(render(family.tokenizer, requests[::3]), together[::3], strict=True):
        for token in output.logprobs:
            with torch.inference_mode():
                logprobs = forward(input_ids=torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
            assert token["logprob"] == pytest.approx(logprobs.max().item(), abs=1e-4)
            prompt = [*prompt, int(logprobs.argmax())]


# -------------------------------------------------------------------------------------------------------------- training


def learned(tokenizer, learn: str = "answer") -> str:
    labels = Encoder(tokenizer, learn, "base/x")(TALK)["labels"]
    return tokenizer.decode([label for label in labels if label != IGNORED]).strip()


def test_trained_tokens_are_the_answers_and_their_end(family):
    """Questions and heads of turns are not trained on. Qwen3's template writes empty reasoning before an answer without."""
    end, thought = family.ends[0], EMPTY_THOUGHT if family.name == "qwen3" else ""
    assert learned(family.tokenizer) == f"{thought}That is 6.{end}"
    every = learned(family.tokenizer, "assistant").replace(EMPTY_THOUGHT, "").replace("\n", "")
    assert every == f"It is 4.{end}That is 6.{end}"


def test_trainings_change_the_weights_and_the_engine_loads_them(trained):
    """Losses are finite. Rollouts end at an end token, which their texts lack."""
    before = AutoModelForCausalLM.from_pretrained(trained.mill.table("base/x").weights()).state_dict()
    for name, steps in (("sft/x", 2), ("grpo/x", 1)):
        table = trained.mill.table(name)
        losses = [row["value"] for row in table.rows() if row["metric"] == "loss"]
        assert len(losses) == steps and all(map(math.isfinite, losses))
        engine = TransformersEngine(table)
        after = engine.network.state_dict()
        assert after.keys() == before.keys() and not any(after[key].equal(before[key]) for key in after)
        assert all(output.tokens for output in ask(engine, asking("2", "What is 2 + 2?")))
        before = {key: value.clone() for key, value in after.items()}
    rollouts = pl.read_parquet(trained.mill.table("grpo/x").folder / "rollouts.parquet")
    assert {*rollouts["stop_reason"]} == {"end", "length"}
    ended = rollouts.filter(stop_reason="end")
    assert not any(text.endswith(trained.ends) for text in ended["text"]) and ended["tokens"].max() < 96


def test_prompts_are_shared_unless_layers_have_windows(family, monkeypatch):
    """The gradient is that of whole rows. Keys that a window drops cannot be shared: whole rows are passed."""
    shared, score = [], shared_prompts.score
    monkeypatch.setattr(shared_prompts, "score", lambda *given: shared.append(len(given[1])) or score(*given))

    def gradient() -> torch.Tensor:
        trainer = fixed_rollouts.trainer(family.mill.table("base/x").weights(), 8, "dapo", 0.0)
        trainer.prompt, trainer.copies = 40, 4
        return fixed_rollouts.gradient(trainer)

    once = gradient()
    assert sum(shared) == (0 if family.model == "Gemma3" else 7)  # one of the eight rows has no tokens
    monkeypatch.setattr(shared_prompts, "WORTH", 0)
    whole = gradient()
    assert whole.norm() > 0 and (once - whole).norm() < 1e-5 * whole.norm()
