"""The configuration: read, checked, expanded, and reduced to the identity of each artifact, which decides its rows."""
