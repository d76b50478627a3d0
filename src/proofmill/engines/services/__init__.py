"""Services: models served once for many jobs, which find them, start them, and balance calls over replicas."""
