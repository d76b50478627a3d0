"""Publish tables and models on the hub, with cards and without private texts."""
