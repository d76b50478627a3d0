"""Read an answer: its spelling, its numbers and units, its structure, and the formulas in it."""
