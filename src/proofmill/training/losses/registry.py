"""Estimators and objectives of tokens, by the names that `loss` and `objective` of an entry have."""

from proofmill.training.losses import bnpo, cispo, clipped, dapo, dr_grpo, grpo, gspo, reinforce, sequence_sum

ESTIMATORS = {
    "grpo": grpo.ESTIMATOR,
    "dapo": dapo.ESTIMATOR,
    "bnpo": bnpo.ESTIMATOR,
    "dr_grpo": dr_grpo.ESTIMATOR,
    "sequence_sum": sequence_sum.ESTIMATOR,
}
OBJECTIVES = {
    "clipped": clipped.OBJECTIVE,
    "reinforce": reinforce.OBJECTIVE,
    "cispo": cispo.OBJECTIVE,
    "gspo": gspo.OBJECTIVE,
}
