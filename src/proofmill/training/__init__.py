"""Training of models, and what the trainings share."""
