"""The filters that `keep:` can name: of problems, of grading schemes, and of examples."""
