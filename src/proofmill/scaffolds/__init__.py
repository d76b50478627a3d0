"""Scaffolds: ways of spending more calls on one problem before an answer is given."""
