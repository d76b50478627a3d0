"""The policy loss, passes that read prompts once, and one file for each estimator that `loss` of an entry can name."""
