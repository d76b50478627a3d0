"""The ground: what texts say; statements, answers, reasoning, formats, languages."""
