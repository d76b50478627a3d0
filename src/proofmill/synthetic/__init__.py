"""The embedded problem family: problems, their forum, and the program that acts as the judge."""
