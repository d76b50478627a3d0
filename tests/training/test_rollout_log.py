"""The rollout log of a training: rollouts as they are made, each complete or absent."""

import numpy as np
import polars as pl
import pytest

from proofmill.base import train_tokenizer
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.rewards.rewards import Rollout
from proofmill.schema.columns import ROLLOUT_COLUMNS
from proofmill.training import rollout_log
from proofmill.training.rollout_log import RolloutLog, decode, entries
from proofmill.training.rollout_rewards import Rewarded

nan = float("nan")
SCRIPT = Submission("s", None, None, "text \u2028 \u0085 of several kinds of line")


def rows(step: int, reward: float):
    """Return one step with one rollout."""
    rewarded = Rewarded([Rollout(SCRIPT, Verdict(1.0, 7, "ok"), 3)], np.array([[reward]]), np.array([[True]]))
    asked = [
        {"problem": "p", "prompt": "s", "question_tokens": 2, "token_ids": [7, 0], "logprobs": [-0.1234567, None, nan]}
    ]
    counted = rewarded.mask_uncounted("drop")
    return entries("grpo/x", step, asked, rewarded, ["grade"], 1, counted, [0.0], [None], ["trained"])


def test_rollout_log_drops_what_came_after_its_checkpoint(tmp_path):
    """A run that resumes from step 2 writes step 3 once, whatever an earlier run wrote, torn lines included."""
    path = tmp_path / "rollouts.jsonl"
    kept_rollouts = RolloutLog(path, rollout_log.columns(["grade"]), after=0)
    for step in (1, 2, 3):
        kept_rollouts.add(rows(step, 1 / 7))
    with open(path, "a") as file:
        file.write('{"step": 3, "torn')
    kept_rollouts = RolloutLog(path, rollout_log.columns(["grade"]), after=2)
    kept_rollouts.add(rows(3, float("nan")))
    kept_rollouts.write(tmp_path / "r.parquet")
    frame = pl.read_parquet(tmp_path / "r.parquet")
    assert (frame["step"].to_list(), frame["reward_grade"].to_list()) == ([1, 2, 3], [1 / 7, 1 / 7, None])
    assert frame["token_ids"].to_list() == [[7, 0]] * 3
    assert frame["logprobs"].to_list() == [[pytest.approx(-0.12346, abs=1e-4), None, None]] * 3
    assert frame.columns == [*ROLLOUT_COLUMNS, "reward_grade"]
    assert frame["text"].to_list() == [SCRIPT.text] * 3 and frame["rollout"].n_unique() == 3


def test_special_tokens_within_a_rollout_are_part_of_its_text():
    """The token that ends it and padding are not; a role's token in the middle is, so that graders see what was learned."""
    tokenizer = train_tokenizer(["3*3=9≡2."], 300)
    ends = {tokenizer.eos_token_id, tokenizer.pad_token_id}
    ids = tokenizer("3*3=9<|user|>≡2.")["input_ids"]
    made = [[*ids, tokenizer.eos_token_id, tokenizer.pad_token_id], ids, [tokenizer.eos_token_id]]
    assert decode(tokenizer, made, ends) == ["3*3=9<|user|>≡2.", "3*3=9<|user|>≡2.", ""]
