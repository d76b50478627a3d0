"""Untrusted programs, run against tests in worker processes."""
