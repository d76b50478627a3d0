"""A reward of your own; filters, graders, measures, sources and prompts go the same way (docs/your-parts.md)."""

from proofmill.rewards.rewards import Reward, each


def brief(rollout, tokens):
    """1 up to `tokens` tokens, falling beyond."""
    return min(1.0, tokens / rollout.tokens)


REWARDS = {"brief": Reward(each(brief), "1 up to `tokens` tokens, falling beyond", {"tokens": 20})}
