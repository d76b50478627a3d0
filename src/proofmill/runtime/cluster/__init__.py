"""Clusters: queries to SLURM, the resources of a site's jobs, and the start of a training's processes."""
