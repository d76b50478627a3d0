"""Tests and estimates that do not depend on tables: decisions while data arrive."""
