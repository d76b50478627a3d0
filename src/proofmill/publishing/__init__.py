"""Tables and models on the hub, with cards, and without anything private."""
