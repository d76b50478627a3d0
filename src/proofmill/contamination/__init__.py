"""Which texts stand in one another: exact, shared runs, near duplicates."""
