"""The viewer: web pages over local results. Read-only, except for the grades that people enter."""
