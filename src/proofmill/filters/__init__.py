"""What `keep:` can name: filters of problems, demands on marking schemes, selectors of examples."""
