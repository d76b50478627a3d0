"""Maintain results: check, delete and invalidate them."""
