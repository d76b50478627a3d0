"""The embedded problem family: problems, their forum, and the program that plays the judge."""
