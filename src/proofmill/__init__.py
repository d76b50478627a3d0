"""From raw olympiad-forum threads to proof-writing models and honest benchmark numbers, as one Snakemake pipeline."""

__version__ = "0.1.0"
