"""The trainer of `grpo`: what is read of a rollout, and what a step's gradient depends on."""

import json
import shutil

import polars as pl
import pytest

from mill import SMALL, Mill

TAUGHT = {**SMALL["sft/cold"], "steps": 120, "batch": 8, "learning-rate": 0.01}
GRPO = {
    "model": "sft/taught", "problems": "problems/train", "grader": "arithmetic", "unscored": "drop", "group": 4,
    "rewards": {"grade": 1, "format": 0.5, "think-format": 0.5, "language": 0.1}, "problems-per-step": 4, "steps": 1,
    "learning-rate": 1e-3, "max-tokens": 64, "log-every": 1,
}  # fmt: skip
# As in TRL's for Qwen3: what stands in the tags is the reasoning, and the rest is the content.
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text"},
        "content": {"close_pattern": r"<\|end\|>\s*", "content": "text"},
    },
}


@pytest.fixture(scope="module")
def taught(small) -> Mill:
    """The small chain with a model that has learned to think in tags, answer and end."""
    made = Mill(small.results, **SMALL, **{"sft/taught": TAUGHT})
    made.make("sft/taught")
    return made


@pytest.mark.parametrize("opens", [False, True], ids=["the model opens", "the template opens"])
def test_rollout_is_all_that_was_written_whatever_the_tokenizer_parses(taught, tmp_path, opens):
    """With and without a `response_template` the same seed gives the same texts, rewards and verdicts, reasoning included."""
    frames = []
    for name in ("plain", "parsed"):
        folder = tmp_path / name
        shutil.copytree(taught.table("sft/taught").folder, folder)
        if name == "parsed":
            path = folder / "tokenizer_config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "response_template": RESPONSE}))
        if opens:
            path = folder / "chat_template.jinja"
            path.write_text(path.read_text().replace("<|assistant|>{% endif %}", "<|assistant|><think>\n{% endif %}"))
        base = f"base/{name}-{opens}".lower()
        training = {**GRPO, "model": base}
        more = {base: {"source": "folder", "path": str(folder)}, "grpo/x": training}
        table = Mill(taught.results, **SMALL, **more).make(base, "grpo/x")
        frames.append(pl.read_parquet(table.folder / "rollouts.parquet").drop("rollout"))
        kept = json.loads((table.folder / "tokenizer_config.json").read_text())
        assert (kept.get("response_template") == RESPONSE) == (name == "parsed")
    plain, parsed = frames
    assert plain.equals(parsed)
    assert plain["text"].str.contains("</think>").any() and plain["reward_think-format"].sum() > 0
