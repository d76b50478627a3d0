"""The commands: arguments, and which module runs."""
