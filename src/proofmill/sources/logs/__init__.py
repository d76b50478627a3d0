"""Logs of evaluation programs: attempts with their scores, without a recipe."""
