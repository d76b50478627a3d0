"""Read, check and expand the configuration, and compute the identity (fingerprint) of each artifact."""
