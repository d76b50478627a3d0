"""Estimators by the name that `loss` of an entry has."""

from proofmill.training.losses import bnpo, dapo, dr_grpo, grpo, sequence_sum

ESTIMATORS = {
    "grpo": grpo.ESTIMATOR,
    "dapo": dapo.ESTIMATOR,
    "bnpo": bnpo.ESTIMATOR,
    "dr_grpo": dr_grpo.ESTIMATOR,
    "sequence_sum": sequence_sum.ESTIMATOR,
}
