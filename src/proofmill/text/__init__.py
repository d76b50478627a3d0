"""Reading texts: statements, final answers, reasoning, formats, languages."""
