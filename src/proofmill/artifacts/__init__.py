"""The tables of artifacts, with the jobs that make them, their stamps, fingerprints, kept copies and joins."""
