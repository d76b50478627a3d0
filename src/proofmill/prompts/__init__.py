"""What `prompt:` can name: Markdown files with a header, and how they are filled."""
