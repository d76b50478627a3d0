"""What `grader:` can name: judges, juries, cascades and programs that mark a submission."""
