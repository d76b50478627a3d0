"""Sampling ahead of a training, in another process or on other GPUs."""
