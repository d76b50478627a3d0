"""Final answers as mathematics: parse them (forms, reading) and compare them (formulas, equality)."""
