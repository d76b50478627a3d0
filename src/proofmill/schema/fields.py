"""Define the field types of entries: references to other entries, lists of registry items, bounded numbers."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import ConfigDict, Field, with_config
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict


class Ref:
    """Annotates a field as a reference to an entry of one of `kinds`: an edge of the pipeline.

    `weights` means every kind with weights. A field may also have a bare word of `kinds` (`human`), or a name from the registry
    `named` (`graders`, `sources`), instead of an entry.
    """

    def __init__(self, *kinds: str, named: str | None = None):
        self.kinds, self.named = kinds, named


ASKED = ("api", "grader")  # kinds of declared entries that are called, directly or through others
ProblemsRef = Annotated[str, Ref("problems")]
JudgeRef = Annotated[str, Ref("api")]
GraderRef = Annotated[str, Ref(*ASKED, named="graders")]
ModelRef = Annotated[str, Ref("api", "weights")]
WeightsRef = Annotated[str, Ref("weights")]

GRADER_PROMPT = "grade-strict"  # default rubric of a judge
GIVEN_RESPONSES = ("given", "solutions")  # responses that exist already

# Sentences of fields that several kinds have.
FILTERS = "Filters, applied in this order. The first filter that a row fails is recorded in `dropped`."
RUBRIC = f"Rubric of a single judge `api/<name>`. Default: `{GRADER_PROMPT}`. A `grader/<name>` has its own."
TOP_P = "Nucleus sampling: sample from the most likely tokens with this total probability."
TOP_K = "Sample from the k most likely tokens only. By default, from all."
MIN_P = "Exclude tokens below this share of the most likely token's probability. By default, none are excluded."

Strict = ConfigDict(extra="forbid", strict=True)
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Dollars = Annotated[float, Field(ge=0)]
Day = Annotated[date, Field(strict=False)]  # JSON has it as text
# A list such as `keep: [has-statement, {length: [20, 4000]}]`: names, or names with an argument.
NamedItems = list[str | dict[str, Any]]


@with_config(ConfigDict(extra="forbid", strict=True))
class Published(TypedDict):
    """The number of rows that a paper or a card reports for this table, and where."""

    rows: Count
    source: str


PUBLISHED = "Number of kept rows that a paper or a card reports, `{rows: , source: }`. The log and the stamp compare; the fingerprint does not depend on it."

T = TypeVar("T")


class Entry:
    """The base class of entries."""

    revision: ClassVar[int] = 0  # increased when the same entry should give other rows; 0 for entries without a table
    cosmetic: ClassVar[tuple[str, ...]] = ()  # cosmetic fields, which cannot change a row
    # Fields that change how a request is sent but not its content. The fingerprint has these values instead.
    transport: ClassVar[Mapping[str, Any]] = {}

    def faults(self, context: Any) -> Iterator[str]:
        """Yield faults: fields that conflict, and names that do not exist."""
        yield from ()

    def draws_by_name(self) -> bool:
        """Return whether its name decides rows, because the seed of its draws derives from it."""
        return False

    def graders(self) -> list[tuple[str, str | None]]:
        """Return (grader, prompt) of each grader it calls."""
        return []

    def prompt_names(self) -> list[str]:
        """Return the prompts of its calls, without those of its graders."""
        return []

    def texts(self) -> list[str]:
        """Return the texts, or paths of texts, that it sends unchanged."""
        return []

    def scaffolds(self) -> dict[str, Any]:
        """Return its scaffolds, by configuration key."""
        return {}

    def also_asks(self) -> list[str]:
        """Return the models that it calls in addition to those in its fields."""
        return []

    def relies_on(self) -> Mapping[str, Any]:
        """Return what decides rows in addition to fields, prompts and models: versions and constants of this code."""
        return {}

    def estimate_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        """Estimate the rows of its table (the rollouts of a training); None if unknown.

        `rows_of` returns the estimate of another artifact by name.
        """
        return None


def doc(text: str, default: Any = ..., **limits: Any) -> Any:
    """Return a field with its sentence in the manual, its default and its limits."""
    if isinstance(default, list | dict):
        return Field(default_factory=lambda: type(default)(default), description=text, **limits)
    return Field(default, description=text, **limits)


def require(value: T | None) -> T:
    """Return the value of an optional field that the checks of the configuration require in this entry."""
    if value is None:
        raise TypeError("found a field without a value; expected the checks of the configuration to refuse it")
    return value


def info_of(field: dataclasses.Field) -> FieldInfo:
    """Return what `doc` stored for a field: its sentence, default and limits."""
    info = field.default
    if not isinstance(info, FieldInfo):
        raise TypeError(f"{field.name}: the field has no sentence; expected `= doc(...)`.")
    return info


def description_of(cls: Any, key: str) -> str:
    """Return the sentence of a field by its configuration key; empty for an unknown key."""
    docs = {field.name.replace("_", "-"): info_of(field).description or "" for field in dataclasses.fields(cls)}
    return docs.get(key.split(".")[0], "")


def ref_of(hint: Any) -> Ref | None:
    """Return the reference inside a type such as `list[Annotated[str, Ref("x")]] | None`; None if it has none."""
    for argument in getattr(hint, "__metadata__", ()):
        if isinstance(argument, Ref):
            return argument
    return next((ref for part in get_args(hint) if (ref := ref_of(part)) is not None), None)


def defaults_of(cls: Any, *names: str) -> tuple:
    """Return the defaults of some fields of an entry's class."""
    defaults = {field.name: info_of(field).default for field in dataclasses.fields(cls)}
    return tuple(defaults[name] for name in names)
