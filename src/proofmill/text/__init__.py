"""Parse texts: statements, final answers, reasoning, formats, languages."""
