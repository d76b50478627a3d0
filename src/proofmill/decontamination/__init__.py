"""Find statements that repeat others: exact copies, shared runs of tokens, near duplicates."""
