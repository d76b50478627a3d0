"""Training on rollouts of slightly older weights (`lag` of `grpo`): sampling, judging and learning go on side by side."""
