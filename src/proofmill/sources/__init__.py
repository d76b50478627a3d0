"""The sources that `source:` of a `problems` entry can name, and readers of foreign files."""
