"""The policy loss, and one file for each estimator that `loss` of an entry can name."""
