"""The kinds of artifact, in the order in which a problem passes through them, and what holds of each.

All that other modules must know of a kind stands in its record. Adding a kind is an entry class, its columns (columns.py), a
record here, a module `proofmill.<kind>` with `main(entry, job)`, a rule in workflow/rules and a test.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proofmill.schema.declared import Api, Grader
from proofmill.schema.entries import Examples, Grades, Labels, Overlaps, Problems, Responses, Schemes
from proofmill.schema.fields import Entry, Ref
from proofmill.schema.model_entries import Base, Grpo, Sft
from proofmill.schema.scores_entry import Scores
from proofmill.schema.selfplay_entry import Selfplay

ROLLOUTS = "rollouts.parquet"  # beside the weights of a training by rewards
BUFFER = "buffer.parquet"  # the tasks of self-play, beside its weights


@dataclass(frozen=True)
class Kind:
    """What holds of a kind."""

    entry: type[Entry]  # the class of its entries
    key: str | None = None  # the column that identifies a row; an id occurs once
    asks: bool = False  # may ask a model; unless it trains, its module has `questions(entry, job)` for the plan
    learns: str | None = None  # it is a training: how, in a few words
    weights: bool = False  # weights stand beside its table
    # Files beside the weights that are no part of the model, and what one row of each is.
    beside: Mapping[str, str] = field(default_factory=dict)
    reseeded: bool = False  # `repeat` makes it again with another `seed`
    lists: tuple[tuple[str, str], ...] = ()  # (field, the list of small named things that it draws on)
    splits: str | None = None  # the field of the table whose rows shards share out (calls/shards.py); None: has none
    behind: tuple[str, ...] = ()  # tables it opens besides its parents, by the fields that lead to them from its entry


KINDS: dict[str, Kind] = {
    "problems": Kind(Problems, "problem", lists=(("keep", "filters"),)),
    "overlaps": Kind(Overlaps, "overlap", asks=True),
    "labels": Kind(Labels, "problem", asks=True, splits="problems"),
    "schemes": Kind(Schemes, "problem", asks=True, lists=(("keep", "demands"),), splits="problems"),
    "base": Kind(Base, "file", weights=True, reseeded=True),
    "responses": Kind(Responses, "response", asks=True, reseeded=True, splits="problems"),
    "grades": Kind(Grades, "response", asks=True, splits="responses", behind=("responses.problems",)),
    "examples": Kind(
        Examples,
        "example",
        reseeded=True,
        lists=(("keep", "selectors"),),
        behind=("responses.problems", "grades.responses", "grades.responses.problems"),
    ),
    "sft": Kind(Sft, learns="supervised fine-tuning", weights=True, reseeded=True),
    "grpo": Kind(
        Grpo,
        asks=True,
        learns="reinforcement learning (GRPO)",
        weights=True,
        beside={ROLLOUTS: "an attempt that a `grpo` was trained on"},
        reseeded=True,
        lists=(("rewards", "rewards"),),
    ),
    "selfplay": Kind(
        Selfplay,
        learns="self-play (Absolute Zero)",
        weights=True,
        beside={
            ROLLOUTS: "a proposal or a solution that a `selfplay` was trained on",
            BUFFER: "a task in the buffer of a `selfplay` after its last step",
        },
        reseeded=True,
    ),
    "scores": Kind(Scores, lists=(("measures", "measures"),), behind=("grades.responses", "grades.responses.problems")),
}
DECLARED: dict[str, type] = {"api": Api, "grader": Grader}  # no artifacts: what several entries refer to
ENTRY_TYPES: dict[str, type] = {**DECLARED, **{name: kind.entry for name, kind in KINDS.items()}}


def accepted(ref: Ref) -> list[str]:
    """The kinds and words that a reference may name."""
    with_weights = [name for name, kind in KINDS.items() if kind.weights]
    return [name for word in ref.kinds for name in (with_weights if word == "weights" else [word])]


def learned() -> tuple[str, ...]:
    """The kinds whose weights are trained here."""
    return tuple(name for name, kind in KINDS.items() if kind.learns)
