"""Curves of trainings and scores: on pages, in the report, and as files of their own."""
