"""Register the kinds of artifact, in pipeline order, with their properties.

The record of a kind has all that other modules need to know about it. To add a kind, write an entry class (entries/), its
columns (columns.py), a record here, a module `proofmill.<kind>` with `main(entry, job)`, a rule in workflow/rules and a test.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proofmill.schema.entries.declared import Api, Grader
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.entries.model_entries import Base, Sft
from proofmill.schema.entries.problem_entries import Labels, Overlaps, Problems, Schemes
from proofmill.schema.entries.response_entries import Examples, Grades, Responses
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.entries.selfplay_entry import Selfplay
from proofmill.schema.fields import Entry, Ref

ROLLOUTS = "rollouts.parquet"  # next to the weights of a training by rewards
EVALUATIONS = "evaluations.parquet"  # attempts at held-out problems, next to the rollouts
STEPS = "steps"  # folder with weights of steps before the last one, next to the weights of a training
BUFFER = "buffer.parquet"  # the tasks of self-play, next to its weights


@dataclass(frozen=True)
class Kind:
    """The properties of a kind."""

    entry: type[Entry]  # the entry class
    key: str | None = None  # the column with the unique id of a row
    calls_models: bool = False  # may call a model; unless it trains, its module has `requests(entry, job)` for the plan
    trains: str | None = None  # the name of the training method, if it trains
    weights: bool = False  # has a folder of weights next to its table
    # Further files in the weights folder, with a description of one row.
    extra_files: Mapping[str, str] = field(default_factory=dict)
    reseeded: bool = False  # `repeat` rebuilds it with another `seed`
    registries: tuple[tuple[str, str], ...] = ()  # (field, the registry of its names)
    # The field of the table whose rows are divided among shards (calls/shards.py); None: no shards
    splits: str | None = None
    indirect_parents: tuple[str, ...] = ()  # further tables that it opens, as paths of fields from its entry


KINDS: dict[str, Kind] = {
    "problems": Kind(
        Problems,
        "problem",
        registries=(("keep", "filters"),),
        indirect_parents=("grades.responses", "grades.responses.problems"),
    ),
    "overlaps": Kind(Overlaps, "overlap", calls_models=True),
    "labels": Kind(Labels, "problem", calls_models=True, splits="problems"),
    "schemes": Kind(Schemes, "problem", calls_models=True, registries=(("keep", "scheme-filters"),), splits="problems"),
    "base": Kind(Base, "file", weights=True, reseeded=True),
    "responses": Kind(Responses, "response", calls_models=True, reseeded=True, splits="problems"),
    "grades": Kind(Grades, "response", calls_models=True, splits="responses", indirect_parents=("responses.problems",)),
    "examples": Kind(
        Examples,
        "example",
        reseeded=True,
        registries=(("keep", "example-filters"),),
        indirect_parents=("responses.problems", "grades.responses", "grades.responses.problems"),
    ),
    "sft": Kind(Sft, trains="supervised fine-tuning", weights=True, reseeded=True),
    "grpo": Kind(
        Grpo,
        calls_models=True,
        trains="reinforcement learning (GRPO)",
        weights=True,
        extra_files={
            ROLLOUTS: "a rollout that a `grpo` was trained on",
            EVALUATIONS: "an attempt at a held-out problem of `evaluate`",
        },
        reseeded=True,
        registries=(("rewards", "rewards"),),
    ),
    "selfplay": Kind(
        Selfplay,
        trains="self-play (Absolute Zero)",
        weights=True,
        extra_files={
            ROLLOUTS: "a proposal or a solution that a `selfplay` was trained on",
            EVALUATIONS: "an attempt at a held-out problem of `evaluate`",
            BUFFER: "a task in the buffer of a `selfplay` after its last step",
        },
        reseeded=True,
    ),
    "scores": Kind(
        Scores, registries=(("metrics", "metrics"),), indirect_parents=("grades.responses", "grades.responses.problems")
    ),
}
DECLARED: dict[str, type] = {"api": Api, "grader": Grader}  # not artifacts; entries refer to them
ENTRY_TYPES: dict[str, type] = {**DECLARED, **{name: kind.entry for name, kind in KINDS.items()}}


def list_accepted(ref: Ref) -> list[str]:
    """Return the kinds and words that a reference may name."""
    with_weights = [name for name, kind in KINDS.items() if kind.weights]
    return [name for word in ref.kinds for name in (with_weights if word == "weights" else [word])]


def list_trained() -> tuple[str, ...]:
    """Return the kinds that train weights."""
    return tuple(name for name, kind in KINDS.items() if kind.trains)
