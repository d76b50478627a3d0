"""Rollouts of a training: the problems that they attempt, held-out problems, and the weights kept by their grades."""
