"""The configuration: read, checked, expanded, and turned into what decides the rows of each artifact."""
