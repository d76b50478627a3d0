"""The types of fields in entries: references to other entries, lists of named things, bounded numbers."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import ConfigDict, Field
from pydantic.fields import FieldInfo


class Ref:
    """Marks a field as a reference to another entry of one of `kinds`: an edge of the pipeline.

    `weights` among them stands for every kind with weights beside its table. A word of `kinds` alone (`human`), or a name of the
    list `named` (`graders`, `sources`), may stand in the place of an entry.
    """

    def __init__(self, *kinds: str, named: str | None = None):
        self.kinds, self.named = kinds, named


ASKED = ("api", "grader")  # declared things that are asked, directly or through others
ProblemsRef = Annotated[str, Ref("problems")]
JudgeRef = Annotated[str, Ref("api")]
GraderRef = Annotated[str, Ref(*ASKED, named="graders")]
ModelRef = Annotated[str, Ref("api", "weights")]
WeightsRef = Annotated[str, Ref("weights")]

MARKING_PROMPT = "grade-strict"  # of a judge, where none is named
TAKEN = ("given", "solutions")  # attempts that nobody is asked for
GRADER_REF = (
    "a judge `api/<name>` asked alone, a declared `grader/<name>`, or a program: `arithmetic` checks proofs of that family line "
    "by line, `final-answer` compares what is in the box with the answer (`final-answer-flexible`: or else the last value), `tests` runs the last block of code against the problem's "
    "tests (the share that pass), `rules` is the last two, by what a problem asks"
)
PROMPT_OF_JUDGE = (
    f"the rubric of a judge that is asked alone; `{MARKING_PROMPT}` without one, a `grader/<name>` has its own"
)

Strict = ConfigDict(extra="forbid", strict=True)
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Dollars = Annotated[float, Field(ge=0)]
# A list such as `keep: [has-problem, {length: [20, 4000]}]`: a name, or a name with its argument.
NamedItems = list[str | dict[str, Any]]

T = TypeVar("T")


class Entry:
    """What every entry can be asked besides its fields."""

    revision: ClassVar[int] = 0  # raised when the same entry is to give other rows; what is declared has no rows
    undeciding: ClassVar[tuple[str, ...]] = ()  # fields for readers, plans and stopping: no row depends on them
    # Fields that change how a server is asked, and not what: the identity has these values in their place.
    transport: ClassVar[Mapping[str, Any]] = {}

    def graders(self) -> list[tuple[str, str | None]]:
        """(grader, prompt) of everyone who marks for it."""
        return []

    def prompts(self) -> list[str]:
        """The prompts it asks with, besides those of its graders."""
        return []

    def texts(self) -> list[str]:
        """The texts, or paths of texts, that it sends as they stand."""
        return []

    def scaffolds(self) -> dict[str, Any]:
        """What it says of scaffolds, by the key that says it."""
        return {}

    def also_asks(self) -> list[str]:
        """The models that it asks besides those of its fields."""
        return []

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        """About how many rows its table will have (of a training: how many attempts); None where that is not known.

        `rows_of` gives the same of other artifacts by name.
        """
        return None


def doc(text: str, default: Any = ..., **limits: Any) -> Any:
    """A field with its sentence in the manual; lists and mappings default to empty ones."""
    if isinstance(default, list | dict):
        return Field(default_factory=lambda: type(default)(default), description=text, **limits)
    return Field(default, description=text, **limits)


def required(value: T | None) -> T:
    """The value of a field that may be empty, but not in this entry: the checks of recipes have asked for it."""
    if value is None:
        raise TypeError("a field without a value is read; expected the checks of recipes to ask for one")
    return value


def info_of(field: dataclasses.Field) -> FieldInfo:
    """What `doc` says of an entry's field: its sentence, its default, its limits."""
    info = field.default
    if not isinstance(info, FieldInfo):
        raise TypeError(f"{field.name}: the field has no sentence; expected `= doc(...)`.")
    return info


def description_of(cls: Any, key: str) -> str:
    """The sentence of a field by its key in the configuration, as in the manual; empty for an unknown key."""
    docs = {field.name.replace("_", "-"): info_of(field).description or "" for field in dataclasses.fields(cls)}
    return docs.get(key.split(".")[0], "")


def ref_of(hint: Any) -> Ref | None:
    """The reference inside a type such as `list[Annotated[str, Ref("x")]] | None`."""
    for argument in getattr(hint, "__metadata__", ()):
        if isinstance(argument, Ref):
            return argument
    return next((ref for part in get_args(hint) if (ref := ref_of(part)) is not None), None)
