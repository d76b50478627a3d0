"""The commands of `proofmill`: what each is called with, and which module does it. Each imports what it runs when it runs."""
