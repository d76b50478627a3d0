"""Rewards that a `grpo` can name."""
