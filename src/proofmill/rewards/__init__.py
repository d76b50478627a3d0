"""What `rewards:` of a `grpo` entry can name."""
