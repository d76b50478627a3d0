"""The tables of artifacts and the jobs that make them: stamps, fingerprints, graph, archive and joins."""
