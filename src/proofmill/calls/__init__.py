"""Asking models: questions, dialogues of several turns, the journal of answers, the budget, the pace."""
