"""How models are trained: the trainers, their losses and advantages, rollouts, checkpoints, memory."""
