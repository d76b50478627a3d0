"""What `source:` of a `problems` entry can name, and how foreign files are read."""
