"""Graders that `grader:` can name: judges, juries, cascades and programs that grade a submission."""
