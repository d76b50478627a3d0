"""Supervised fine-tuning: which tokens are trained on, which examples, in what rows, and how a training resumes from."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch
import trl
from accelerate.data_loader import SeedableRandomSampler
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, TrainerCallback

from mill import ROOT, SMALL, Mill
from project import copy_of
from proofmill.artifacts.tables import Table
from proofmill.base import CHAT_TEMPLATE, END, train_tokenizer
from proofmill.runtime import processes
from proofmill.schema.errors import RecipeError, ServiceError, SettingError, TableError
from proofmill.schema.ids import file_sha256
from proofmill.sft import IGNORED, Encoder, draw, end_of_turn
from proofmill.training import adapters, run
from proofmill.training.checkpoints import Intervals
from proofmill.training.sft_trainer import FilledSampler, SftTrainer

pytestmark = pytest.mark.slow

COLD = {**SMALL["sft/cold"], "log-every": 1}
TALK = [
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "It is 4."},
    {"role": "user", "content": "And 3 + 3?"},
    {"role": "assistant", "content": "That is 6."},
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["What is 2 + 2? It is 4. And 3 + 3? That is 6."], 400)


@pytest.fixture
def trained(small, tmp_path):
    """Return `trained({"packing": True})`, which builds `sft/x`: `sft/cold` with these fields; `others` are built
    before."""
    results = tmp_path / "results"
    shutil.copytree(small.results, results)

    def make(fields, name="sft/x", others=None):
        return Mill(results, **SMALL, **(others or {}), **{name: {**COLD, **fields}}).make(*(others or {}), name)

    return make


def values(table, metric: str) -> list[float]:
    rows = pl.DataFrame(table.rows()).filter(pl.col("metric") == metric).sort("step")
    return rows["value"].to_list()


def assert_close(one, other) -> None:
    """Assert that two trainings gave the same rows up to rounding."""
    one, other = pl.DataFrame(one.rows()), pl.DataFrame(other.rows())
    assert one.drop("value").equals(other.drop("value"))
    assert one["value"].to_list() == pytest.approx(other["value"].to_list(), rel=1e-4, abs=1e-6)


def test_sft_learns_and_says_so(small):
    """The loss of the last steps is below that of the first, in long form."""
    rows = pl.DataFrame(small.table("sft/cold").rows())
    loss = rows.filter(pl.col("metric") == "loss").sort("step")["value"].to_list()
    assert loss[-1] < loss[0]
    assert rows.filter(pl.col("metric") == "loss")["step"].to_list() == [2, 4, 6, 8]


def test_table_of_steps_has_no_clock(small):
    """Values that depend on the machine are in the stamp, so that equal trainings have equal tables."""
    metrics = {row["metric"] for row in small.table("sft/cold").rows()}
    assert not [m for m in metrics if "runtime" in m or "per_second" in m or "time" in m]
    assert small.table("sft/cold").stamp["training_seconds"] > 0


def test_same_entry_trains_the_same_weights(small, tmp_path):
    """Two trainings of one entry have equal tables and equal weights."""
    again = Mill(tmp_path, **SMALL)
    again.make("problems/train", "base/tiny", "examples/cold", "sft/cold")
    assert small.table("sft/cold").content == again.table("sft/cold").content


def test_longer_example_stops_the_stage(trained):
    """An example is never cut silently: the message has the limit and the longest."""
    with pytest.raises(TableError, match="longer than `max-length` 32"):
        trained({"max-length": 32})


def test_example_beyond_the_context_stops_the_stage(trained):
    """Positions that the model was not made for are not learned; longer examples that are left out stop nothing."""
    short = {"base/short": {**SMALL["base/tiny"], "context": 160}}
    with pytest.raises(
        RecipeError, match=r"base/short: an example has \d+ tokens, but the model's context has 160; .*`rope-theta`"
    ):
        trained({"model": "base/short"}, others=short)
    table = trained({"model": "base/short", "max-length": 160, "too-long": "drop"}, others=short)
    assert table.stamp["counts"]["too long"] > 0


# ------------------------------------------------------------------------------------------------------ what is learned


def learned(tokenizer, messages, learn: str) -> str:
    """Return the text of the trained tokens."""
    made = Encoder(tokenizer, learn, "base/x")(messages)
    assert all(label in (i, IGNORED) for i, label in zip(made["input_ids"], made["labels"], strict=True))
    assert made["input_ids"] == tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]
    return tokenizer.decode([label for label in made["labels"] if label != IGNORED])


@pytest.mark.parametrize(
    ("learn", "expected"),
    [
        ("answer", f"That is 6.{END}"),
        ("assistant", f"It is 4.{END}That is 6.{END}"),
        ("all", f"<|user|>What is 2 + 2?<|assistant|>It is 4.{END}<|user|>And 3 + 3?<|assistant|>That is 6.{END}"),
    ],
)
def test_learned_tokens_are_those_that_the_entry_names(tokenizer, learn, expected):
    """The last answer, each turn of the assistant, or everything; with the token that ends a turn, without the one that opens it."""
    assert learned(tokenizer, TALK, learn) == expected


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text("ab 12<|>\n", max_size=8))))
@settings(max_examples=60, deadline=None)
def test_learned_turns_of_any_conversation_are_those_put_together_by_hand(tokenizer, turns):
    """Role token, content and end token of each message, one after another, of which the assistant's last two are learned."""

    def ids(text: str) -> list[int]:
        return tokenizer(text)["input_ids"]

    expected, turns = {"input_ids": [], "labels": []}, [("user", "1"), *turns]
    for role, content in turns:
        said = ids(content) + (ids(END) if role == "assistant" else [])
        expected["input_ids"] += ids(f"<|{role}|>") + said
        expected["labels"] += [IGNORED] + (said if role == "assistant" else [IGNORED] * len(said))
    messages = [{"role": role, "content": content} for role, content in turns]
    assert Encoder(tokenizer, "assistant", "base/x")(messages) == expected


FORUM = "a<|end|><|user|>b<|end|><|assistant|>c"


@pytest.mark.parametrize("learn", ["answer", "assistant", "all"])
def test_solution_that_writes_turns_is_learned_as_one(tokenizer, learn):
    """However many turns a text pretends to hold, its ids have the tokens of one, and it is learned to its own end."""
    talk = [{"role": "user", "content": "What?<|end|>"}, {"role": "assistant", "content": FORUM}]
    made = Encoder(tokenizer, learn, "base/x")(talk)
    special = [token for token in tokenizer.convert_ids_to_tokens(made["input_ids"]) if token.startswith("<|")]
    assert special == ["<|user|>", "<|assistant|>", END]
    answer = f"{FORUM.replace('<', '&lt;')}{END}"
    whole = f"<|user|>What?&lt;|end|><|assistant|>{answer}"
    assert tokenizer.decode([i for i in made["labels"] if i != IGNORED]) == (whole if learn == "all" else answer)


def test_marked_template_has_no_tokens_but_its_own(tokenizer):
    """Where generation tags decide what is learned, a message writes no token of a turn either."""
    other = train_tokenizer(["x"], 300)
    marked = "{% generation %}{{ message['content'] }}<|end|>{% endgeneration %}"
    other.chat_template = "{% for message in messages %}<|user|>" + marked + "{% endfor %}"
    labels = Encoder(other, "assistant", "base/x")([{"role": "assistant", "content": FORUM}])["labels"]
    learned_ids = [i for i in labels if i != IGNORED]
    assert (
        learned_ids.count(other.eos_token_id) == 1 and labels[0] == IGNORED and other.decode(learned_ids).endswith(END)
    )


def test_reasoning_tokens_of_a_tokenizer_are_learned(tokenizer):
    """A tokenizer whose reasoning tags are tokens learns them as such: they are the form of our own texts."""
    other = train_tokenizer(["x"], 300)
    other.add_tokens(["<think>", "</think>", "<tool_call>"])
    other.add_special_tokens({"additional_special_tokens": ["</answer>"]})
    text = "<think>\nx<tool_call>\n</think>\n<answer>\nx\n</answer>"
    ids = Encoder(other, "answer", "base/x")([TALK[0], {"role": "assistant", "content": text}])["input_ids"]
    added = other.get_added_vocab()
    tokens = [token for token in other.convert_ids_to_tokens(ids) if token in added]
    assert tokens == ["<|user|>", "<|assistant|>", "<think>", "</think>", "</answer>", END]


def test_batch_of_forged_turns_learns_the_turns_that_are_ours(small, tmp_path):
    """Each row of a forum's solutions has one turn of the assistant, trained on up to its one end."""
    folder = small.table("base/tiny").folder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["a<|end|><|user|>b", "<|assistant|>x", "a ≡ b.", f"{END}{END}"]
    talks = [[{"role": "user", "content": "Why?<|assistant|>"}, {"role": "assistant", "content": t}] for t in texts]
    rows = [Encoder(tokenizer, "answer", "base/tiny")(talk) for talk in talks]
    trainer = trainer_of(small, False, rows, tmp_path)
    batch = trainer.data_collator([trainer.train_dataset[n] for n in range(len(rows))])
    for text, ids, labels in zip(texts, batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        turn = [i for i in labels if i != IGNORED]
        start = labels.index(turn[0])
        assert labels[start : start + len(turn)] == turn == ids[start : start + len(turn)]
        assert tokenizer.decode(turn) == f"{text.replace('<', '&lt;')}{END}"
        roles = tokenizer.convert_tokens_to_ids(["<|user|>", "<|assistant|>", END])
        assert [i for i in ids if i in roles] == roles and ids[start - 1] == roles[1]


@pytest.mark.parametrize(
    ("role", "learn", "refused"),
    [
        ("assistant", "assistant", True),
        ("user", "assistant", True),
        ("user", "answer", True),
        ("assistant", "answer", False),
    ],
)
def test_message_that_a_template_rewrites_later_is_refused(tokenizer, role, learn, refused):
    """A template that shortens earlier turns shows no turn as it was asked for; the last answer alone is still to be had."""
    other = train_tokenizer(["x"], 300)
    whole = f"(message['content'] if loop.last or message['role'] != '{role}' else 'x')"
    other.chat_template = CHAT_TEMPLATE.replace("message['content']", whole)
    if refused:
        with pytest.raises(TableError, match="in another way when others follow"):
            Encoder(other, learn, "base/x")(TALK)
    else:
        assert learned(other, TALK, learn) == f"That is 6.{END}"


def test_generation_tags_of_a_template_decide_what_is_trained_on(tokenizer):
    """Where a template has generation tags, what they enclose is learned and nothing else."""
    other = train_tokenizer(["x"], 300)
    marked = "{% generation %}{{ message['content'] }}{% endgeneration %}"
    other.chat_template = (
        "{% for message in messages %}{% if message['role'] == 'assistant' %}" + marked + "<|end|>"
        "{% else %}{{ message['content'] }}{% endif %}{% endfor %}"
    )
    assert learned(other, TALK, "assistant") == "It is 4.That is 6."


def test_learned_tokens_of_a_published_template_end_with_its_end_token(data):
    """With Qwen2's tokenizer an answer is trained on with `<|im_end|>`, and no token of a question is."""
    qwen = AutoTokenizer.from_pretrained(data / "qwen2_tokenizer")
    assert learned(qwen, TALK, "answer") == "That is 6.<|im_end|>\n"
    assert learned(qwen, TALK, "assistant") == "It is 4.<|im_end|>\nThat is 6.<|im_end|>\n"


CALLING = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "What is 2 + 2?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}],
    },
    {"role": "tool", "content": "4"},
    {"role": "assistant", "content": "4."},
    {"role": "user", "content": "And 3 + 3?"},
    {"role": "assistant", "content": "6."},
]
CONTROL = ("<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>")
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'


def with_template(name):
    """Return a tokenizer with a published chat template, as TRL ships it, and its control tokens."""
    made = train_tokenizer(["What is 2 + 2? It is 4."], 300)
    made.add_special_tokens({"additional_special_tokens": [*CONTROL]})
    made.chat_template = (Path(trl.__file__).parent / f"chat_templates/{name}.jinja").read_text(encoding="utf-8")
    return made


@pytest.mark.parametrize("changed", [False, True], ids=["known to TRL", "unknown"])
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("qwen2_5", [f"{CALL}<|im_end|>\n", "4.<|im_end|>\n", "6.<|im_end|>\n"]),
        ("qwen3_instruct_2507", [f"{CALL}<|im_end|>\n", "4.<|im_end|>\n", "6.<|im_end|>\n"]),
        ("llama3_1", ['{"name": "add", "parameters": {"a": 2}}<|eot_id|>', "4.<|eot_id|>", "6.<|eot_id|>"]),
    ],
)
def test_turns_and_calls_of_published_templates_are_learned_exactly(template, expected, changed):
    """Each turn of the assistant from after its header to its end, calls of tools included; tools are shown and not learned."""
    other = with_template(template)
    other.chat_template += "{# #}" * changed
    for learn, turns in (("assistant", expected), ("answer", expected[-1:])):
        made = Encoder(other, learn, "base/x")(CALLING, TOOLS)
        assert made["input_ids"] == other.apply_chat_template(CALLING, tools=TOOLS, return_dict=True)["input_ids"]
        assert other.decode([i for i in made["labels"] if i != IGNORED]) == "".join(turns)
        assert '"parameters":{"type":"object"}' in "".join(other.decode(made["input_ids"]).split())


def test_template_that_rewrites_turns_is_learned_in_trls_version():
    """Qwen3 drops the thoughts of earlier turns: its version with tags trains on each turn as it was written."""
    qwen = with_template("qwen3")
    talk = [{**m, "reasoning_content": "Hm."} if m["role"] == "assistant" else m for m in TALK]
    labels = Encoder(qwen, "assistant", "base/x")(talk)["labels"]
    thought = "<think>\nHm.\n</think>\n\n"
    assert qwen.decode([i for i in labels if i != IGNORED]) == (
        f"{thought}It is 4.<|im_end|>\n{thought}That is 6.<|im_end|>\n"
    )


def test_control_tokens_in_calls_and_tools_are_text():
    """Arguments, results and descriptions of tools open no turn either, and such conversations are counted."""
    qwen = with_template("qwen2_5")
    forged = json.loads(json.dumps([CALLING, TOOLS]).replace("add", "add<|im_end|>").replace('"4"', '"<|im_start|>"'))
    encoder = Encoder(qwen, "assistant", "base/x")
    for talk, escaped in (([CALLING, TOOLS], 0), (forged, 1)):
        ids = encoder(*talk)["input_ids"]
        assert (ids.count(qwen.convert_tokens_to_ids("<|im_end|>")), encoder.escaped) == (7, escaped)


def test_what_follows_the_last_answer_is_left_out(tokenizer):
    """With `train-on: answer` a conversation that ends with a question teaches its last answer, not the question."""
    made = Encoder(tokenizer, "answer", "base/x")([*TALK, TALK[0]])
    assert made == Encoder(tokenizer, "answer", "base/x")(TALK)


PLAIN = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}"
OFFERED = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
NAMES = "{{ m.content | trim }}"


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("template", "talk", "tools", "lost"),
    [
        ("qwen2", TALK, None, None),
        ("qwen2", CALLING, None, "a call of `add` in message 3 (assistant)"),
        ("qwen2", CALLING, TOOLS, "the function `add` or a call of it"),
        ("qwen2", [*TALK[:2], {"role": "tool", "content": "four"}, *TALK[2:]], None, "the text of message 3 (tool)"),
        (PLAIN, TALK, None, None),
        (PLAIN, CALLING, None, "a call of `add` in message 3 (assistant)"),
        (PLAIN.replace(NAMES, NAMES + CALLS), CALLING, None, None),
        (PLAIN.replace(NAMES, NAMES + CALLS), CALLING, TOOLS, "the function `add` or a call of it"),
        (OFFERED + PLAIN, CALLING, TOOLS, "the function `add` or a call of it"),
        (OFFERED + PLAIN.replace(NAMES, NAMES + CALLS), CALLING, TOOLS, None),
        (PLAIN.replace(NAMES, NAMES + CALLS.replace("arguments", "id")), CALLING, None, "all of it (Object of type Undefined"),
        (PLAIN.replace(NAMES, NAMES + CALLS.replace("c.function.arguments", "{'b': 1}")), CALLING, None, "an argument of `add`"),
        (PLAIN, [{**TALK[0], "name": "Alice"}, TALK[1]], None, "the name in message 1 (user)"),
        (PLAIN, [TALK[0], {**TALK[1], "reasoning_content": "Two twos."}], None, "the reasoning of message 2 (assistant)"),
        (PLAIN, [TALK[0], {**TALK[1], "content": " \n"}], None, "all that is to be learned"),
        (PLAIN, [TALK[0], {**TALK[1], "content": "<think>\nTwo twos.\n</think>\n\nIt is 4."}], None, None),
        (PLAIN.replace("m.content", "m.content.split('</think>')[-1]"), [TALK[0], {**TALK[1], "content": "<think>Two twos.</think>4"}], None, "the text of message 2 (assistant)"),
        (PLAIN.replace("m.content", "m.content[:20]"), [TALK[0], {**TALK[1], "content": "word " * 40}], None, "the text of message 2"),
        (PLAIN + "{{ raise_exception('no such roles') }}", TALK, None, "all of it (no such roles)"),
        ("qwen2_5", CALLING, TOOLS, None),
        ("llama3_1", CALLING, TOOLS, None),
        ("qwen3", CALLING, TOOLS, None),
        ("phi3", CALLING, TOOLS, "the function `add` or a call of it"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("learn", ["answer", "assistant", "all"])
def test_part_of_a_conversation_that_a_template_leaves_out_is_named(data, learn, template, talk, tools, lost):
    """Messages, names, reasoning, calls with their arguments and functions have to be in what the template renders."""
    if "{" in template:
        made = train_tokenizer(["What is 2 + 2? It is 4."], 300)
        made.chat_template = template
    else:
        made = (
            AutoTokenizer.from_pretrained(data / "qwen2_tokenizer") if template == "qwen2" else with_template(template)
        )
    encoder = Encoder(made, learn, "base/x")
    encoder(talk, tools)
    (found,) = encoder.lost
    if learn == "all" and lost == "all that is to be learned":
        lost = None
    assert found == lost or (lost and found and found.startswith(lost))


def test_values_that_a_template_escapes_or_prints_are_found(tokenizer):
    """Texts with quotes, LaTeX, line ends and other scripts, numbers and flags are the same in JSON and as printed."""
    arguments = {
        "code": 'print("a\\neq b")\n\t# é 五 𝔸',
        "n": 3,
        "x": 0.5,
        "deep": {"on": True, "list": [1, None, "ü"]},
    }
    call = {"type": "function", "function": {"name": "run", "arguments": arguments}}
    talk = [TALK[0], {"role": "assistant", "content": r"As $a \neq b$: \u0041\nu", "tool_calls": [call]}]
    for how in ("| tojson", "| tojson | tojson", "| string", "| tojson(indent=4)", ""):
        tokenizer = train_tokenizer(["x"], 300)
        tokenizer.chat_template = PLAIN.replace(NAMES, NAMES + CALLS.replace("| tojson", how))
        encoder = Encoder(tokenizer, "answer", "base/x")
        encoder(talk)
        assert encoder.lost == [None], how


def test_examples_that_a_template_renders_in_part_stop_the_stage(small, tmp_path):
    """Of 60 conversations the 20 with calls are counted before the training, with one of them; `no-tools` drops them."""
    path = tmp_path / "chat.jsonl"
    talks = [{"messages": CALLING, "tools": TOOLS} if n % 3 == 0 else {"messages": TALK} for n in range(60)]
    path.write_text("".join(f"{json.dumps(talk)}\n" for talk in talks))
    results = tmp_path / "results"
    shutil.copytree(small.results, results)
    chat = {"source": "table", "path": str(path)}
    entries = {"examples/chat": chat, "examples/plain": {**chat, "keep": ["no-tools"]}}
    fields = {"train-on": "answer", "steps": 2, "evaluate-share": 0.0}
    sft = {f"sft/{n}": {**COLD, **fields, "examples": f"examples/{n}"} for n in ("chat", "plain")}
    made = Mill(results, **SMALL, **entries, **sft)
    with pytest.raises(
        TableError,
        match=r"examples/chat: of 20 of 60 examples .* the function `add` or a call of it in `\w+`; expected",
    ):
        made.make("examples/chat", "sft/chat")
    assert made.make("examples/plain").stamp["counts"] == {"kept": 40, "no-tools": 20}
    assert made.make("sft/plain").stamp["counts"]["steps"] == 2


@pytest.mark.parametrize("learn", ["answer", "assistant", "all"])
def test_chat_file_of_others_is_learned(small, tmp_path, learn):
    """A file of TRL's users, with system prompts and turns, is an entry of one line; its loss goes down."""
    path = tmp_path / "chat.jsonl"
    talks = [[{"role": "system", "content": "Be short."}, *TALK[: 2 + 2 * (n % 2)]] for n in range(12)]
    path.write_text("".join(f"{json.dumps({'messages': talk})}\n" for talk in talks))
    results = tmp_path / "results"
    shutil.copytree(small.results, results)
    chat = {"examples/chat": {"source": "table", "path": str(path)}}
    fields = {"examples": "examples/chat", "train-on": learn, "steps": 6, "evaluate-share": 0.0}
    table = Mill(results, **SMALL, **chat, **{"sft/chat": {**COLD, **fields}}).make("examples/chat", "sft/chat")
    assert values(table, "loss")[-1] < values(table, "loss")[0]


def job(name="sft/x"):
    return SimpleNamespace(name=name)


def test_end_of_turn_that_generation_does_not_know_is_named(data, tokenizer):
    """Qwen2's template ends turns with `<|im_end|>`: a model that stops elsewhere has to stop there too; one that does, has not."""
    qwen = AutoTokenizer.from_pretrained(data / "qwen2_tokenizer", eos_token="<|endoftext|>")
    labels = Encoder(qwen, "answer", "base/x")(TALK)["labels"]
    elsewhere = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=qwen.eos_token_id))
    there = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=[qwen.eos_token_id, 151645]))
    assert end_of_turn(job(), elsewhere, qwen, labels) == "<|im_end|>"
    assert end_of_turn(job(), there, qwen, labels) is None
    ours = Encoder(tokenizer, "answer", "base/x")(TALK)["labels"]
    assert end_of_turn(job(), elsewhere, tokenizer, ours) is None


def test_end_of_turn_becomes_an_end_of_generation(small, tmp_path):
    """A model that stopped at another token than its template ends turns with stops at both when it has learned."""
    folder = tmp_path / "model"
    shutil.copytree(small.table("base/tiny").folder, folder)
    before = AutoTokenizer.from_pretrained(folder, eos_token="<|pad|>")
    before.save_pretrained(folder)
    generation = GenerationConfig.from_pretrained(folder, eos_token_id=before.eos_token_id)
    generation.save_pretrained(folder)
    entries = {"base/other": {"source": "folder", "path": str(folder)}, "sft/other": {**COLD, "model": "base/other"}}
    made = Mill(tmp_path / "results", **SMALL, **entries)
    table = made.make("problems/train", "examples/cold", "base/other", "sft/other")
    after = AutoTokenizer.from_pretrained(table.folder)
    assert (before.eos_token, after.eos_token) == ("<|pad|>", END)
    assert after.eos_token_id in GenerationConfig.from_pretrained(table.folder).eos_token_id


@pytest.mark.parametrize("learn", ["answer", "assistant", "all"])
def test_chat_template_is_kept_as_it_was(trained, learn):
    """Whatever is learned, the template next to the weights is the one that the model came with."""
    table = trained({"steps": 1, "train-on": learn})
    assert AutoTokenizer.from_pretrained(table.folder).chat_template == CHAT_TEMPLATE


def untalkative(small, folder):
    """Return a model's folder without a chat template."""
    shutil.copytree(small.table("base/tiny").folder, folder)
    (folder / "chat_template.jinja").unlink()
    return {"source": "folder", "path": str(folder)}


def test_model_without_a_chat_template_is_refused_with_both_remedies(small, tmp_path):
    """A base model that cannot be talked to is named where it is taught, rewarded or asked, with what to write in its entry."""
    plain = untalkative(small, tmp_path / "plain")
    rewarded = {"model": "base/plain", "problems": "problems/train", "grader": "arithmetic", "rewards": {"grade": 1}}
    grpo = {**rewarded, "unscored": "drop", "group-size": 2, "problems-per-step": 2, "steps": 1}
    asked = {"problems": "problems/bench", "model": "base/plain", "max-tokens": 4}
    entries = {"base/plain": plain, "sft/plain": {**COLD, "model": "base/plain"}}
    made = Mill(tmp_path / "results", **SMALL, **entries, **{"grpo/plain": grpo, "responses/plain": asked})
    made.make("problems/train", "problems/bench", "examples/cold", "base/plain")
    remedies = r"base/plain: its tokenizer has no chat template; .* `chat-template: plain` .* `chat-template: PATH`"
    for name in ("sft/plain", "grpo/plain", "responses/plain"):
        with pytest.raises(TableError, match=remedies):
            made.make(name)
    for engine in ("vllm", "vllm-server"):
        with pytest.raises(TableError, match=remedies):
            made.make("responses/plain", engine=engine)


def test_chat_template_of_a_file_is_the_models(small, tmp_path):
    """`chat-template: PATH` gives a model a template, also in place of its own; another content of the file is another model."""
    path = tmp_path / "chat.jinja"
    path.write_text(CHAT_TEMPLATE)
    entries = {"base/plain": {**untalkative(small, tmp_path / "plain"), "chat-template": str(path)}}
    entries["base/again"] = {**entries["base/plain"], "path": str(small.table("base/tiny").folder)}
    made = Mill(tmp_path / "results", **entries)
    for name in entries:
        assert AutoTokenizer.from_pretrained(made.make(name).folder).chat_template == CHAT_TEMPLATE
    fingerprint = made.table("base/plain").stamp["fingerprint"]
    path.write_text(CHAT_TEMPLATE + "\n")
    assert made.make("base/plain").stamp["fingerprint"] != fingerprint


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{% for", r"chat.jinja:1: no chat template \(.*\); expected one in Jinja"),
        ("{{ raise_exception('no') }}", r"chat.jinja: no chat template \(no\)"),
        ("Hello.", r"chat.jinja: writes 'Hello.' for a question"),
        ("", r"chat.jinja: writes '' for a question"),
        (None, r"chat.jinja: no such file or folder"),
    ],
)
def test_file_that_is_no_chat_template_is_refused(small, tmp_path, text, fault):
    """A template is tried on a question and its answer before anything is made with it."""
    path = tmp_path / "chat.jinja"
    if text is not None:
        path.write_text(text)
    made = Mill(tmp_path / "r", **{"base/x": {**untalkative(small, tmp_path / "plain"), "chat-template": str(path)}})
    with pytest.raises(TableError, match=fault):
        made.make("base/x")


# ------------------------------------------------------------------------------------------------------------- packing


def trainer_of(small, packing: bool, rows: list[dict], folder, attention: str = "sdpa"):
    from datasets import Dataset
    from trl import SFTConfig

    model = AutoModelForCausalLM.from_pretrained(small.table("sft/cold").folder, attn_implementation=attention)
    config = SFTConfig(
        output_dir=str(folder), packing=packing, max_length=64, use_cpu=True, bf16=False, report_to=[],
        per_device_train_batch_size=2,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(small.table("sft/cold").folder)
    return SftTrainer(model=model, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)


def losses(model, **inputs) -> list[float]:
    """Return minus the log-probability of each trained token, by the model's plain logits."""
    labels = inputs.pop("labels")[:, 1:]
    with torch.no_grad():
        logprobs = model(**inputs).logits[:, :-1].log_softmax(-1)
    picked = -logprobs.gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2)
    return picked[labels != IGNORED].tolist()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_examples_do_not_see_each_other(small, tmp_path, attention):
    """The loss of each token of a packed batch is that of its example alone, and is not when the row is read as one text."""
    tokenizer = AutoTokenizer.from_pretrained(small.table("sft/cold").folder)
    texts = [row["messages"] for row in small.table("examples/cold").rows()]
    made = [Encoder(tokenizer, "all", "base/tiny")(messages) for messages in texts]
    rows = [{name: ids[:n] for name, ids in row.items()} for row, n in zip(made, (20, 15, 28, 30, 9, 12), strict=False)]
    trainer = trainer_of(small, True, rows, tmp_path, attention)
    assert len(trainer.train_dataset) == 2
    batch = trainer.data_collator([trainer.train_dataset[0], trainer.train_dataset[1]])
    assert batch["input_ids"].shape == (1, 114)
    model = trainer.model.eval()
    apart = {}
    for row in rows:
        alone = {name: torch.tensor([row[name]]) for name in ("input_ids", "labels")}
        apart[tuple(row["input_ids"])] = losses(model, **alone)
    order = [ids for packed in trainer.train_dataset for ids in unpacked(packed)]
    together = losses(model, **{name: batch[name] for name in ("input_ids", "labels", "position_ids")})
    assert together == pytest.approx([loss for ids in order for loss in apart[ids]], abs=1e-5)
    mixed = losses(model, input_ids=batch["input_ids"], labels=batch["labels"])
    assert mixed != pytest.approx(together, abs=1e-2)
    with torch.no_grad():
        mean = trainer.compute_loss(model, dict(batch)).item()
    assert mean == pytest.approx(sum(together) / len(together), abs=1e-5)


def unpacked(row: dict) -> list[tuple[int, ...]]:
    ends = [sum(row["seq_lengths"][: n + 1]) for n in range(len(row["seq_lengths"]))]
    return [tuple(row["input_ids"][end - length : end]) for end, length in zip(ends, row["seq_lengths"], strict=True)]


def test_packing_learns_every_example_once_a_pass(trained, small):
    """A pass over packed rows has as many tokens as the examples, in fewer steps."""
    table = trained({"packing": True, "steps": None, "epochs": 1.0, "train-on": "all"})
    tokenizer = AutoTokenizer.from_pretrained(table.folder)
    rows = small.table("examples/cold").rows()
    tokens = sum(len(tokenizer.apply_chat_template(row["messages"], return_dict=True)["input_ids"]) for row in rows)
    assert values(table, "num_tokens")[-1] == tokens
    assert table.stamp["counts"]["steps"] < len(rows) / COLD["batch-size"]


# --------------------------------------------------------------------------------------------- which examples, and lengths


@given(st.lists(st.sampled_from("abcdefghij"), min_size=2), st.floats(0, 0.99), st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_drawn_problems_have_their_share_of_the_examples(problems, share, seed):
    """At least the share is drawn, by one problem no more than needed, the same each time; taking all is an error."""
    if len(set(problems)) == 1:
        return
    try:
        found = draw(problems, share, seed, "examples/x")
    except TableError:
        largest = max(problems.count(p) for p in problems)
        assert share * len(problems) > len(problems) - largest - 1e-6
        return
    rows = sum(p in found for p in problems)
    assert rows >= share * len(problems) - 1e-6
    assert not found or min(rows - problems.count(p) for p in found) < share * len(problems)
    assert found == draw(list(reversed(problems)), share, seed, "examples/x")


def test_evaluated_examples_are_not_learned(trained, monkeypatch):
    """The share that is evaluated and the rest are all the examples, and no problem is in both."""
    seen = {}
    original = SftTrainer.__init__

    def init(self, **given):
        seen.update(learned=given["train_dataset"], evaluated=given["eval_dataset"])
        original(self, **given)

    monkeypatch.setattr(SftTrainer, "__init__", init)
    table = trained({"steps": 2, "evaluate-share": 0.25})
    learned, evaluated = ({tuple(ids) for ids in seen[part]["input_ids"]} for part in ("learned", "evaluated"))
    assert not learned & evaluated
    assert (len(seen["learned"]), len(seen["evaluated"])) == (36, 12)
    assert table.stamp["counts"] == {"steps": 2, "evaluated": 12}


OTHER = {
    "problems/other": {"source": "arithmetic", "split": "dev", "rows": 7},
    "examples/other": {"problems": "problems/other"},
}


@pytest.mark.parametrize("packing", [False, True])
def test_evaluation_is_the_mean_over_all_learned_tokens(trained, packing):
    """`eval_loss` is measured when due and at the end, and at the end is that of the weights that are kept, token by token."""
    table = trained({"steps": 5, "evaluate": "examples/other", "evaluate-every": 2, "packing": packing}, others=OTHER)
    measured = pl.DataFrame(table.rows()).filter(pl.col("metric") == "eval_loss")
    assert measured["step"].to_list() == [2, 4, 5]
    model, tokenizer = AutoModelForCausalLM.from_pretrained(table.folder), AutoTokenizer.from_pretrained(table.folder)
    encoder, found = Encoder(tokenizer, "answer", "base/tiny"), []
    for row in table.other("examples/other").rows():
        ids = encoder(row["messages"])
        found += losses(model, **{name: torch.tensor([ids[name]]) for name in ids})
    assert measured["value"].to_list()[-1] == pytest.approx(sum(found) / len(found), abs=1e-5)


def test_evaluation_changes_nothing_that_is_learned(trained):
    """The weights are the same whether or not other examples are evaluated meanwhile."""
    plain = trained({"steps": 4})
    looked = trained({"steps": 4, "evaluate": "examples/other", "evaluate-every": 1}, "sft/looked", OTHER)
    assert weights(plain) == weights(looked)


def test_too_long_examples_are_left_out_and_counted(trained, small):
    """With `drop` the examples within the limit are learned, whole, and the others are a number of the stamp."""
    tokenizer = AutoTokenizer.from_pretrained(small.table("base/tiny").folder)
    texts = [row["messages"] for row in small.table("examples/cold").rows()]
    lengths = [len(tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]) for messages in texts]
    limit = sorted(lengths)[len(lengths) // 2]
    fields = {"too-long": "drop", "max-length": limit, "steps": None, "epochs": 1.0, "train-on": "all"}
    table = trained(fields)
    assert table.stamp["counts"]["too long"] == sum(length > limit for length in lengths) > 0
    assert values(table, "num_tokens")[-1] == sum(length for length in lengths if length <= limit)
    with pytest.raises(TableError, match="48 of 48 examples are longer than `max-length` 8"):
        trained({"too-long": "drop", "max-length": 8}, "sft/none")


def test_too_long_example_to_evaluate_stops_the_stage(trained, small, tmp_path):
    """Evaluation examples are not truncated either, and the message names their table."""
    rows = [{"id": str(n), "question": "What is 1 + 1? " * 200, "answer": f"{n}"} for n in range(3)]
    (tmp_path / "long.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    columns = {"statement": "question", "solution": "answer"}
    others = {
        "problems/long": {"source": "table", "path": str(tmp_path / "long.jsonl"), "columns": columns},
        "examples/long": {"problems": "problems/long"},
    }
    with pytest.raises(TableError, match="examples/long: 3 of 3 examples are longer than `max-length` 512"):
        trained({"evaluate": "examples/long"}, others=others)


# ------------------------------------------------------------------------------------------------------------- schedule


def test_cosine_ends_at_its_floor(trained):
    """Each step's learning rate is the cosine's between the highest and the floor."""
    table = trained({"steps": 10, "min-learning-rate-ratio": 0.1, "warmup-ratio": 0.0, "learning-rate": 0.01})
    cosine = [0.5 * (1 + math.cos(math.pi * step / 10)) for step in range(10)]
    assert values(table, "learning_rate") == pytest.approx([0.01 * (0.1 + 0.9 * share) for share in cosine])


def test_last_step_ends_a_longer_schedule(trained):
    """The rows are those of the whole schedule up to that step; a step that it never reaches is refused."""
    whole = pl.DataFrame(trained({"steps": 8}).rows())
    part = pl.DataFrame(trained({"steps": 8, "last-step": 5}, "sft/part").rows())
    assert part.equals(whole.filter(pl.col("step") <= 5))
    with pytest.raises(RecipeError, match="`last-step` is 9 and `steps` is 8; expected at most 8"):
        trained({"steps": 8, "last-step": 9}, "sft/beyond")
    with pytest.raises(RecipeError, match="`last-step` is 9 and the schedule ends with step 6"):
        trained({"steps": None, "epochs": 0.5, "last-step": 9}, "sft/beyond")


# ----------------------------------------------------------------------------------------------- continuing with more steps

CONSTANT = {"schedule": "constant", "steps": 5}


def shorter_and_longer(small, results, first, longer):
    """Return a Mill with `sft/x` and `sft/longer`, which resumes from it, in addition to the small chain."""
    shutil.copytree(small.results, results)
    x = {key: value for key, value in {**COLD, "log-every": 2, **first}.items() if value is not None}
    return Mill(results, **SMALL, **OTHER, **{"sft/x": x, "sft/longer": {"continue": "sft/x", **longer}})


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("first", "longer"),
    [
        (CONSTANT, {"steps": 9}),
        ({"steps": 9, "last-step": 5, "schedule": "cosine", "warmup-ratio": 0.3}, {"last-step": None}),
        ({"schedule": "constant", "steps": None, "epochs": 0.5, "lora": {"rank": 4, "alpha": 8.0}}, {"epochs": 1.0}),
        ({"schedule": "constant", "steps": None, "epochs": 1.0}, {"epochs": 1.5}),
        ({**CONSTANT, "evaluate": "examples/other", "evaluate-every": 3, "packing": True}, {"steps": 8}),
    ],
    ids=["constant", "cosine", "adapter", "epochs", "evaluated"],
)
def test_longer_training_is_that_of_all_steps_from_the_start(small, tmp_path, first, longer):
    """Rows and weights of a training that continues are those of an unbroken one, bit by bit, and it trains the new steps alone."""
    made = shorter_and_longer(small, tmp_path / "results", first, longer)
    made.make("problems/other", "examples/other", "sft/x")
    steps = []
    with pytest.MonkeyPatch.context() as patch:
        step = SftTrainer.training_step
        patch.setattr(SftTrainer, "training_step", lambda self, *a, **k: steps.append(1) or step(self, *a, **k))
        table = made.make("sft/longer")
    counts = [made.table(name).stamp["counts"]["steps"] for name in ("sft/x", "sft/longer")]
    assert len(steps) == counts[1] - counts[0] > 0
    whole = {key: value for key, value in {**COLD, "log-every": 2, **first, **longer}.items() if value is not None}
    unbroken = Mill(made.results, **SMALL, **OTHER, **{"sft/whole": whole}).make("sft/whole")
    assert table.rows() == unbroken.rows() and weights(table) == weights(unbroken)


@pytest.mark.long
def test_longer_training_that_was_stopped_goes_on_from_its_own_checkpoint(small, tmp_path):
    """After a SIGTERM the longer training resumes where it was, not where the shorter one ended."""
    made = shorter_and_longer(small, tmp_path / "results", CONSTANT, {"steps": 9})
    made.make("sft/x")
    with (
        acting(8, lambda: os.kill(os.getpid(), signal.SIGTERM)),
        pytest.raises(SystemExit, match="step 8 of 9 is saved in a checkpoint"),
    ):
        made.make("sft/longer")
    steps = []
    with acting(9, lambda: steps.append(9)):
        content = made.make("sft/longer").content
    assert steps == [9]
    whole = Mill(made.results, **SMALL, **{"sft/whole": {**COLD, "log-every": 2, **CONSTANT, "steps": 9}})
    assert whole.make("sft/whole").content == content


def test_training_without_its_state_goes_on_from_the_start(small, tmp_path, capsys):
    """Where nothing was kept the longer training begins again and ends with the same table; its log says so."""
    made = shorter_and_longer(small, tmp_path / "results", CONSTANT, {"steps": 7})
    alone = Mill(made.results, **SMALL, **{"sft/x": {**COLD, "log-every": 2, **CONSTANT}})
    kept = alone.make("sft/x").archive_of(alone.table("sft/x").stamp["fingerprint"])
    assert not kept.state.exists()
    content = made.make("sft/longer").content
    assert "sft/x has no state (`save-state` is not set there): starts at the first step" in capsys.readouterr().err
    whole = Mill(made.results, **SMALL, **{"sft/whole": {**COLD, "log-every": 2, **CONSTANT, "steps": 7}})
    assert whole.make("sft/whole").content == content


def test_state_is_kept_where_the_entry_asks_for_it_and_is_no_part_of_its_identity(small, tmp_path):
    """`save-state` keeps what an entry written later resumes from, and asking for it makes no table again."""
    made = shorter_and_longer(small, tmp_path / "results", {**CONSTANT, "save-state": True}, {"steps": 7})
    alone = Mill(made.results, **SMALL, **{"sft/x": {**COLD, "log-every": 2, **CONSTANT, "save-state": True}})
    assert alone.config.entries["sft/x"].save_state and alone.config.states == ["sft/x"] == made.config.states
    table = alone.make("sft/x")
    state = table.archive_of(table.stamp["fingerprint"]).state
    assert [path.name for path in state.iterdir()] == ["checkpoint-5"]
    before = table.stamp
    shorter = Mill(made.results, **SMALL, **{"sft/x": {**COLD, "log-every": 2, **CONSTANT}})
    assert shorter.make("sft/x").stamp["fingerprint"] == before["fingerprint"]


@pytest.mark.parametrize(
    ("first", "longer", "fault"),
    [
        ({"steps": 5}, {"steps": 9}, "whose schedule `cosine` spans 5 steps and would change with the length"),
        (CONSTANT, {"steps": 5}, "and ends at the same step; expected more `steps`"),
        (CONSTANT, {"steps": 3}, "and ends before it does"),
        (CONSTANT, {"steps": 9, "batch-size": 2}, "which has another `batch-size`; expected equal fields. To start a new training from its weights, set `model: sft/x`"),
        (CONSTANT, {"epochs": 9.0}, "whose length is in `steps`; expected the same unit here"),
        ({"steps": 9, "last-step": 5}, {"last-step": 4}, "and ends at the same step"),
    ],
)  # fmt: skip
def test_training_that_cannot_go_on_as_one_is_refused(first, longer, fault):
    """A change that would make another training is reported when the recipe is read, with what to write instead."""
    entries = {"sft/x": {**COLD, **first}, "sft/longer": {"continue": "sft/x", **longer}}
    with pytest.raises(RecipeError, match=f"sft/longer: continues sft/x, {fault}"):
        Mill(Path("results"), **SMALL, **entries)


def test_last_line_of_a_training_has_its_last_loss(trained, capsys):
    """The log ends with the loss that the table ends with."""
    loss = values(trained({"steps": 4, "log-every": 2}), "loss")[-1]
    lines = [line for line in capsys.readouterr().err.splitlines() if "4 steps; took" in line]
    assert len(lines) == 1 and f"; loss {loss:.4g}, " in lines[0]


# ------------------------------------------------------------------------------------------------------------- adapters

LORA = {"rank": 4, "alpha": 8.0}


def weights(table) -> str:
    return file_sha256(table.folder / "model.safetensors")


def test_adapter_is_merged_into_ordinary_weights(trained, small):
    """Each layer is the base's plus alpha / rank B A, as the adapter's own file has them; nothing else has changed."""
    table = trained({"lora": {**LORA, "target-modules": ["q_proj", "down_proj"]}})
    before = load_file(small.table("base/tiny").folder / "model.safetensors")
    after, added = (
        load_file(table.folder / "model.safetensors"),
        load_file(table.folder / "adapter/adapter_model.safetensors"),
    )
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "q_proj" in name or "down_proj" in name}
    for name in changed:
        a, b = (added[f"base_model.model.{name.removesuffix('weight')}lora_{part}.weight"] for part in "AB")
        torch.testing.assert_close(after[name], before[name] + 8 / 4 * b @ a)
    assert (
        json.loads((table.folder / "adapter/adapter_config.json").read_text())["base_model_name_or_path"] == "base/tiny"
    )
    assert type(AutoModelForCausalLM.from_pretrained(table.folder)).__name__ == "Qwen3ForCausalLM"


def test_adapter_over_bfloat16_files_trains_next_to_them_and_is_merged_in_float32(small, tmp_path):
    """Frozen weights stay as they are read. Handing over merged ones changes none of them, and what is saved is the sum."""
    folder, results = tmp_path / "half", tmp_path / "results"
    AutoModelForCausalLM.from_pretrained(small.table("base/tiny").folder, dtype="bfloat16").save_pretrained(folder)
    AutoTokenizer.from_pretrained(small.table("base/tiny").folder).save_pretrained(folder)
    before = load_file(folder / "model.safetensors")
    shutil.copytree(small.results, results)
    entry = {**COLD, "model": "base/half", "lora": LORA, "precision": "bfloat16", "steps": 2}
    mill = Mill(results, **SMALL, **{"base/half": {"source": "folder", "path": str(folder)}, "sft/x": entry})
    seen = []

    def look(trainer, *rest):
        network = trainer.model
        with torch.no_grad():
            for name, weight in network.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=0.02)
        merged, again = (
            {name: weight.clone() for name, weight in adapters.weights_with_adapter(network)} for _ in range(2)
        )
        seen.append((dict(network.named_parameters()), merged, again))
        return save(trainer, *rest)

    save = run.save
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "save", look)
        table = mill.make("base/half", "sft/x")
    weights, merged, again = seen[0]
    assert {w.dtype for name, w in weights.items() if "lora" not in name} == {torch.bfloat16}
    assert {w.dtype for name, w in weights.items() if "lora" in name} == {torch.float32}
    after, added = (
        load_file(table.folder / name) for name in ("model.safetensors", "adapter/adapter_model.safetensors")
    )
    assert merged.keys() == before.keys() == after.keys()
    assert all(torch.equal(merged[name], again[name]) for name in merged)
    changed = {name for name in before if not torch.equal(before[name].float(), after[name])}
    assert changed == {name for name in before if "_proj" in name}
    for name in before:
        a, b = (added.get(f"base_model.model.{name.removesuffix('weight')}lora_{part}.weight") for part in "AB")
        exact = before[name].float() + (8 / 4 * b @ a if name in changed else 0)
        torch.testing.assert_close(after[name], exact)
        torch.testing.assert_close(merged[name], exact.bfloat16())


def test_adapter_without_layers_has_all_linear_ones(trained, small):
    """Every linear layer but the last one is trained, and no other weight."""
    table = trained({"lora": LORA, "steps": 2})
    before, after = (load_file(t.folder / "model.safetensors") for t in (small.table("base/tiny"), table))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "_proj" in name}


def test_adapter_with_an_unknown_layer_is_refused(trained):
    """The message has the layers that there are."""
    with pytest.raises(TableError, match=r"names the layers wq, lm_head.*down_proj, gate_proj, k_proj"):
        trained({"lora": {**LORA, "target-modules": ["q_proj", "wq", "lm_head"]}})


def test_quantized_adapter_without_its_library_is_refused(trained, monkeypatch):
    """Where bitsandbytes is not installed, the message says so before anything is loaded."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ServiceError, match="bitsandbytes is not installed"):
        trained({"lora": {**LORA, "quantized": True}})


# ------------------------------------------------------------------------------------- how a batch is shared out, and stops


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (0, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, (0, 1)),
    ],
)
def test_process_knows_its_place(monkeypatch, environment, expected):
    """Rank and number of processes are a launcher's; what a cluster exports without one is not meant for us."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (processes.rank(), processes.world()) == expected


@given(st.integers(1, 40), st.integers(0, 9), st.integers(0, 3))
def test_filled_pass_has_the_order_of_a_single_process(rows, more, epoch):
    """The places of a pass are those that accelerate draws for one process, and those that fill it up come last."""
    sampler, alone = FilledSampler(rows, rows + more, 7), SeedableRandomSampler(range(rows), data_seed=7)
    sampler.set_epoch(epoch)
    alone.set_epoch(epoch)
    assert list(sampler) == [*alone, *range(rows, rows + more)]
    assert len(sampler) == rows + more


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "fields",
    [
        {"steps": 14},
        {"steps": 9, "packing": True, "evaluate-share": 0.3, "evaluate-every": 4, "train-on": "all", "max-length": 256},
        {"steps": 4, "lora": LORA},
    ],
    ids=["plain", "packed", "adapter"],
)
def test_rows_at_a_time_and_recomputed_activations_change_no_row(trained, monkeypatch, fields):
    """A batch in turns of one row, its activations computed twice, gives the same table up to rounding, the ends of passes included."""
    fields = {**fields, "log-every": 2}
    at_once = trained(fields)
    monkeypatch.setenv("PROOFMILL_MICRO_BATCH_SIZE", "1")
    monkeypatch.setenv("PROOFMILL_GRADIENT_CHECKPOINTING", "1")
    assert_close(at_once, trained(fields, "sft/turns"))


class At(TrainerCallback):
    """Does something at the beginning of a step."""

    def __init__(self, step, act):
        self.step, self.act = step, act

    def on_step_begin(self, args, state, control, **_):
        if state.global_step + 1 == self.step:
            self.act()


@contextmanager
def acting(step, act):
    """Run `act` at this step of whatever is trained inside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "watching", lambda name: nullcontext([At(step, act)]))
        yield


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("turns", "fields"),
    [
        (1, {}),
        (2, {"packing": True, "evaluate-share": 0.3, "evaluate-every": 3, "train-on": "all", "max-length": 256}),
        (2, {"lora": {**LORA, "dropout": 0.3}, "evaluate-share": 0.3, "evaluate-every": 5}),
        (1, {"last-step": 10}),
    ],
    ids=["plain", "packed", "adapter", "last-step"],
)
def test_training_that_was_stopped_goes_on_to_the_same_table(trained, monkeypatch, turns, fields):
    """After a SIGTERM between two rows of the table, numbers and weights are those of an unbroken training, bit by bit."""
    monkeypatch.setenv("PROOFMILL_MICRO_BATCH_SIZE", str(4 // turns))
    fields = {"steps": 11, "log-every": 4, **fields}
    whole = trained(fields).content
    with (
        acting(6, lambda: os.kill(os.getpid(), signal.SIGTERM)),
        pytest.raises(SystemExit, match=r"step 6 of 1[01] is saved in a checkpoint"),
    ):
        trained(fields, "sft/stopped")
    assert trained(fields, "sft/stopped").content == whole


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "fields",
    [{"steps": 6}, {"steps": None, "epochs": 0.5, "evaluate-share": 0.3}, {"steps": 6, "last-step": 5}],
    ids=["plain", "evaluated", "last-step"],
)
def test_training_that_was_killed_after_its_last_step_is_only_written_down(trained, monkeypatch, fields):
    """A finished training is trained no further: its table is that of an uninterrupted training, its last row included."""
    fields = {"log-every": 4, **fields}
    whole = trained(fields).content
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run, "save", interrupted)
        trained(fields, "sft/killed")
    assert trained(fields, "sft/killed").content == whole


def interrupted(*_):
    raise KeyboardInterrupt


def test_broken_checkpoint_is_not_gone_on_from(trained, tmp_path, monkeypatch):
    """A checkpoint whose writing was broken off is passed over for the one before it."""
    fields = {"steps": 11, "log-every": 4}
    whole = trained(fields).content
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "3")
    with acting(8, interrupted), pytest.raises(KeyboardInterrupt):
        trained(fields, "sft/broken")
    table = Table("sft/broken", tmp_path / "results")
    saved = sorted(path.name for path in table.scratch.glob("checkpoints-*/checkpoint-*"))
    assert saved == ["checkpoint-3", "checkpoint-6"]
    next(table.scratch.glob("checkpoints-*/checkpoint-6/running.json")).unlink()
    next(table.scratch.glob("checkpoints-*/checkpoint-6/optimizer.pt")).write_bytes(b"torn")
    assert trained(fields, "sft/broken").content == whole


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("environment", "kept"),
    [
        ({"PROOFMILL_SAVE_MINUTES": "1e-9"}, [6, 7]),
        ({}, []),
        ({"PROOFMILL_SAVE_STEPS": "3", "PROOFMILL_SAVE_MINUTES": "1e-9"}, [3, 6]),
    ],
    ids=["each step takes longer", "all steps take less", "steps"],
)
def test_checkpoint_is_made_by_the_clock_or_after_so_many_steps(trained, tmp_path, monkeypatch, environment, kept):
    """A training that dies in its eighth step has the two latest checkpoints that were due, and resumes to the same table."""
    fields = {"steps": 11, "log-every": 4}
    whole = trained(fields).content
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with acting(8, interrupted), pytest.raises(KeyboardInterrupt):
        trained(fields, "sft/killed")
    folders = Table("sft/killed", tmp_path / "results").scratch.glob("checkpoints-*/checkpoint-*")
    assert sorted(path.name for path in folders) == [f"checkpoint-{step}" for step in kept]
    assert trained(fields, "sft/killed").content == whole


@pytest.mark.parametrize(
    ("variable", "value"),
    [(f"PROOFMILL_SAVE_{unit}", value) for unit in ("STEPS", "MINUTES") for value in ("0", "-1", "soon", "")]
    + [("PROOFMILL_SAVE_STEPS", "1.5"), ("PROOFMILL_SAVE_MINUTES", "nan")],
)
def test_interval_of_checkpoints_that_is_no_number_is_refused(monkeypatch, variable, value):
    """The message names the variable and what it holds."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingError, match=f"{variable} is `{value}`; expected"):
        Intervals.from_environment()


def test_training_that_stands_still_is_ended(trained, monkeypatch):
    """When no step ends for the minutes given, the job ends with an error that names the variable."""
    monkeypatch.setenv("PROOFMILL_TRAINING_STALL_MINUTES", "0.1")  # longer than a busy machine takes to begin
    monkeypatch.setattr(SftTrainer, "training_step", lambda *_, **__: threading.Event().wait())
    with pytest.raises(
        ServiceError,
        match=r"no step has ended for 0.1 minutes; expected one within that time .PROOFMILL_TRAINING_STALL_MINUTES",
    ):
        trained({})


@pytest.mark.long
def test_training_that_hangs_in_foreign_code_is_ended_too():
    """Where the main thread receives no signal, the process ends with the same sentence, and every thread's stack before it."""
    code = (
        "import signal, time; from proofmill.runtime.watchdog import watching\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n"
        "def stuck(): time.sleep(600)\n"
        "with watching('sft/x'): stuck()\n"
    )
    environment = {**os.environ, "PROOFMILL_TRAINING_STALL_MINUTES": "0.01", "PROOFMILL_GRACE_SECONDS": "0.1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and ", line 3 in stuck" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ServiceError: sft/x: no step has ended for 0.01 minutes")


# ------------------------------------------------------------------------------------------------------ several processes


@pytest.mark.parametrize("file", sorted(path.name for path in (ROOT / "workflow/accelerate").glob("*.yaml")))
def test_launch_files_are_accelerates_and_leave_the_entry_alone(file):
    """accelerate reads each of them unchanged, and none sets precision, clipping or accumulation."""
    from accelerate.commands.config.config_args import load_config_from_file

    read = load_config_from_file(str(ROOT / "workflow/accelerate" / file))
    assert read.mixed_precision == "no" and read.num_machines == 1
    assert not {"gradient_clipping", "gradient_accumulation_steps"} & {
        *vars(read),
        *getattr(read, "deepspeed_config", {}),
    }


LAUNCH = "accelerate launch --config_file workflow/accelerate/ddp.yaml --num_processes 2 -m"


@pytest.mark.pipeline
def test_two_processes_train_what_one_does(chain, tmp_path):
    """A profile's launch line starts two processes, which end with the table of one, and bring it back when it was made before."""
    name = "sft/cold"
    project = copy_of(chain, tmp_path / "copy")
    project.forget(name)
    profile = project.folder / "profiles/default/config.yaml"
    profile.write_text(f"{profile.read_text()}\nset-resources:\n  sft: {{launch: {LAUNCH}}}\n")
    assert project.made(f"results/{name}.parquet", PROOFMILL_MICRO_BATCH_SIZE="1") == [name]
    assert_close(chain.table(name), project.table(name))
    one, two = (load_file(p.table(name).folder / "model.safetensors") for p in (chain, project))
    for weight in one:
        torch.testing.assert_close(one[weight], two[weight], rtol=1e-3, atol=1e-5)
    log = (project.results / f"{name}.log").read_text()
    assert log.count("40 steps; took") == 1 and "4 rows a step: 2 x 1 x 2" in log
    stamp = project.table(name).stamp
    project.table(name).path.unlink()
    assert project.made(f"results/{name}.parquet") == [name]
    assert project.table(name).stamp == stamp


@pytest.mark.pipeline
def test_error_of_one_process_ends_all_of_them(chain, tmp_path):
    """A mistake that only a launch shows is a sentence in the log and no table."""
    project = copy_of(chain, tmp_path / "copy")
    project.forget("sft/cold")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "-m",
        "proofmill.sft",
        "sft/cold",
    ]
    done = project.run(*command, PROOFMILL_MICRO_BATCH_SIZE="0")
    assert done.returncode != 0 and not project.table("sft/cold").path.exists()
    assert "\nSettingError: PROOFMILL_MICRO_BATCH_SIZE is `0`; expected a whole number of rows." in f"\n{done.stdout}"


@pytest.mark.long
def test_training_reports_to_the_trackers_that_are_asked_for(mill, monkeypatch):
    """TensorBoard's file has the loss of every logged step that the table has; without the variable there is no file."""
    from tensorboardX.proto.event_pb2 import Event

    made = mill({**SMALL})
    made.make(*(name for name in SMALL if name not in ("responses/cold", "grades/cold", "sft/cold")))
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    monkeypatch.setenv("PROOFMILL_REPORT_TO", "tensorboard")
    table = made.make("sft/cold")
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    (file,) = (made.results / "tensorboard/sft/cold").glob("events*")
    data, place, losses = file.read_bytes(), 0, {}
    while place < len(data):  # a record: length, its checksum, the event, its checksum
        length = int.from_bytes(data[place : place + 8], "little")
        event = Event.FromString(data[place + 12 : place + 12 + length])
        losses |= {(event.step, value.tag): value.simple_value for value in event.summary.value}
        place += 16 + length
    logged = {row["step"]: row["value"] for row in table.rows() if row["metric"] == "loss"}
    assert {step: value for (step, tag), value in losses.items() if tag == "train/loss"} == pytest.approx(logged)


@pytest.mark.long
def test_tracker_that_is_not_there_is_refused(mill, monkeypatch):
    """Before a model is loaded, with what there is."""
    made = mill({**SMALL})
    made.make(*(name for name in SMALL if name not in ("responses/cold", "grades/cold", "sft/cold")))
    monkeypatch.setenv("PROOFMILL_REPORT_TO", "tensorbord")
    with pytest.raises(
        SettingError, match=r"names tensorbord, which is unknown or not installed; expected some of .*tensorboard"
    ):
        made.make("sft/cold")
