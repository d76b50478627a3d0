"""Asynchronous `grpo`: sampling, grading and training run concurrently."""
