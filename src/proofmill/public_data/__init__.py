"""Find public data and paths: addresses, the registry of known files, downloads, local copies."""
