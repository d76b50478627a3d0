"""Shared pieces of the tests: a place for results, small real entries, and where real data lie."""

import os
from pathlib import Path

import pytest

from project import CHAIN, Project
from proofmill import base as base_kind
from proofmill import (
    examples,
    grades,
    grpo,
    jobs,
    kinds,
    labels,
    overlaps,
    problems,
    recipes,
    responses,
    schemes,
    scores,
    sft,
)

ROOT = Path(__file__).parent.parent
MAINS = {
    "problems": problems.main, "overlaps": overlaps.main, "labels": labels.main, "schemes": schemes.main, "base": base_kind.main,
    "responses": responses.main, "grades": grades.main, "examples": examples.main, "sft": sft.main, "grpo": grpo.main,
    "scores": scores.main,
}  # fmt: skip
REFEREE = {
    "id": "referee-1",
    "program": "referee",
    "price": {"input": 0, "output": 0},
    "temperature": 0,
    "max-tokens": 1024,
}

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real public data; tests that read it are skipped where it is absent."""
    folder = Path(os.environ.get("PROOFMILL_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set PROOFMILL_DATA to the folder described in data/README.md")
    return folder


class Mill:
    """Makes artifacts from a configuration in a folder of its own, in this process and without Snakemake."""

    def __init__(self, results: Path, **entries):
        self.results = results
        self.book = recipes.expand({"test": {"api/referee": REFEREE, **entries}})

    def make(self, *names: str, engine: str = "transformers"):
        """Make artifacts in order; returns the table of the last."""
        for name in names:
            identity = recipes.identity(self.book.entries[name], self.book.declared)
            jobs.make(MAINS[kinds.kind_of(name)], name, identity, self.results, engine=engine)
        return self.table(names[-1])

    def table(self, name: str):
        from proofmill.tables import Table

        return Table(name, self.results)


@pytest.fixture
def mill(tmp_path):
    """`mill(**{"problems/x": {...}})` gives a Mill whose results are thrown away after the test."""
    return lambda entries: Mill(tmp_path / "results", **entries)


SMALL = {
    "problems/train": {"source": "arithmetic", "rows": 48},
    "problems/bench": {"source": "arithmetic", "part": "test", "rows": 12},
    "schemes/train": {"problems": "problems/train", "model": "api/referee"},
    "schemes/bench": {"problems": "problems/bench", "model": "api/referee"},
    "base/tiny": {
        "source": "scratch",
        "problems": "problems/train",
        "hidden": 32,
        "layers": 1,
        "heads": 1,
        "feed-forward": 32,
    },
    "examples/cold": {"problems": "problems/train"},
    "sft/cold": {
        "model": "base/tiny",
        "examples": "examples/cold",
        "steps": 8,
        "batch": 4,
        "learning-rate": 0.003,
        "log-every": 2,
    },
    "responses/cold": {"problems": "problems/bench", "model": "sft/cold", "attempts": 2, "max-tokens": 24},
    "grades/cold": {"responses": "responses/cold", "schemes": "schemes/bench", "grader": "api/referee"},
}


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Mill:
    """A finished small chain of artifacts, from problems to grades, shared by tests that only read it."""
    made = Mill(tmp_path_factory.mktemp("small") / "results", **SMALL)
    made.make(*SMALL)
    return made


@pytest.fixture(scope="session")
def chain(tmp_path_factory) -> Project:
    """A finished project with every kind once, made by Snakemake and shared by tests that only read or copy it."""
    project = Project(tmp_path_factory.mktemp("chain") / "project", CHAIN)
    project.made("chain")
    return project
