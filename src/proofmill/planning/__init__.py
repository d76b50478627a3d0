"""Plan a run: steps, costs, hardware, data, and whether what it needs is available."""
