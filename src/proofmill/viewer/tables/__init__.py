"""The parts of pages about rows: queries with limits, histograms, joined texts, comparisons of two models."""
