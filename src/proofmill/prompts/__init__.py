"""Prompts that `prompt:` can name: Markdown files with a header, and the templates that fill them."""
