"""The metrics that `metrics:` of a `scores` entry can name, their estimates, and the score page."""
