"""Calls to models: requests, dialogues of several turns, the journal of outputs, the budget, the pace."""
