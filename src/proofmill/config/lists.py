"""Collect the registries of names that a recipe can use, by the words of `schema.kinds` and `schema.fields`."""

from collections.abc import MutableMapping
from typing import Any

from proofmill.filters.example_filters import EXAMPLE_FILTERS
from proofmill.filters.problem_filters import FILTERS
from proofmill.filters.scheme_filters import SCHEME_FILTERS
from proofmill.graders.attacks import ATTACKS
from proofmill.graders.program_graders import PROGRAMS
from proofmill.metrics.metrics import METRICS
from proofmill.rewards.rewards import REWARDS
from proofmill.scaffolds.scaffolds import SCAFFOLDS
from proofmill.sources.loaders import SOURCES

LISTS: dict[str, MutableMapping[str, Any]] = {
    "sources": SOURCES,
    "filters": FILTERS,
    "scheme-filters": SCHEME_FILTERS,
    "example-filters": EXAMPLE_FILTERS,
    "graders": PROGRAMS,
    "attacks": ATTACKS,
    "rewards": REWARDS,
    "metrics": METRICS,
    "scaffolds": SCAFFOLDS,
}
