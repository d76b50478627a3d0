"""Rollout sampling that runs ahead of a training, in another process or on other GPUs."""
