"""Scaffolds: procedures that spend several calls on one problem before they give an answer."""
