"""The tables of artifacts: jobs that make them, stamps, fingerprints, kept copies, joins."""
