"""Tasks of inspect_ai with its scorers for final answers, on the problems of proofmill/graders/foreign_graders.py."""

import ast
import importlib
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate


def _samples() -> MemoryDataset:
    """Return the problems."""
    source = (Path(__file__).parents[1] / "src/proofmill/graders/foreign_graders.py").read_text(encoding="utf-8")
    (listed,) = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PROBLEMS"
    ]
    return MemoryDataset([Sample(input=asked, target=answer) for asked, answer in ast.literal_eval(listed)])


@task
def by_math() -> Task:
    """Score by the comparison of mathematical expressions."""
    scorers = importlib.import_module("inspect_ai.scorer")
    return Task(_samples(), solver=generate(), scorer=scorers.math())


@task
def by_match() -> Task:
    """Score by the end of the text."""
    return Task(_samples(), solver=generate(), scorer=match())


@task
def by_includes() -> Task:
    """Score by the answer anywhere in the text."""
    return Task(_samples(), solver=generate(), scorer=includes())
