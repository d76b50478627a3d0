"""Before a run: what it would make, ask, cost and show, the data it needs, and whether what it needs is there."""
