"""Tasks of self-play that code execution judges: proposed, checked, kept, solved, rewarded (`tasks` of a self-play)."""
