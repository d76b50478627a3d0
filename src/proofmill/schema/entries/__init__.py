"""Define the entry of each kind: its fields, defaults, sentences in the manual, and checks."""
