"""Uncertainty of numbers over problems: intervals, and tests of differences."""
