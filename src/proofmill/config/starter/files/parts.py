"""Define a reward. Filters, graders, metrics, sources and prompts work the same way (docs/plugins.md)."""

from proofmill.rewards.rewards import Reward, each


def brief(rollout, tokens):
    """Return 1 up to `tokens` tokens, and less for longer rollouts."""
    return min(1.0, tokens / rollout.tokens)


REWARDS = {"brief": Reward(each(brief), "1 for at most `tokens` tokens, less for longer rollouts", {"tokens": 20})}
