"""`gspo`: the clipped ratio of rollouts instead of tokens (GSPO, arXiv 2507.18071, equations 5 to 7).

A rollout's ratio is the geometric mean of those of its tokens. With `loss: grpo` this is the paper's loss.
"""

from proofmill.training.losses.clipped import clip
from proofmill.training.losses.estimator import TokenObjective

OBJECTIVE = TokenObjective(clip, by_rollout=True)
