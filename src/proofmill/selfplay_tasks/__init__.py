"""Tasks that a policy proposes and solves in self-play, graded by executing code (`tasks` of a self-play entry)."""
