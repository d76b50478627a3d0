"""What an entry can refer to and is no artifact: remote models and graders, declared once."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from proofmill.schema.fields import MARKING_PROMPT, Count, Dollars, Entry, JudgeRef, Ref, Share, Strict, doc


class Price(TypedDict):
    """Dollars per million tokens; what is not named costs as much as the class it belongs to."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    input: Dollars
    output: Dollars
    cached_input: NotRequired[Dollars]  # of the input, what the server had read before
    reasoning: NotRequired[Dollars]  # of the output, what was thought and not said


class Guess(TypedDict):
    """Tokens of one call."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    input: Annotated[int, Field(ge=0)]
    output: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, config=Strict)
class Api(Entry):
    """A remote model: what it is called and what it costs. Its address, key and rate limits are in the environment."""

    id: str = doc("the model's id as the server knows it")
    price: Price | Literal["unknown"] = doc(
        "dollars per million tokens, `{input: , output: , cached-input: , reasoning: }` (the last two as input and output "
        "where they are not named), or `unknown`, which must be said aloud"
    )
    price_source: str = doc("where the price was read, and on which day (YYYY-MM-DD); needed with a price above 0", "")
    program: Literal["referee"] | None = doc("a program of this project that a job starts and stops for itself", None)
    max_tokens: Count = doc("the most tokens one answer may have", 4096)
    temperature: float | None = doc("sampling temperature when judging; none leaves it to the server", None, ge=0)
    delimiters: list[str] = doc("marks that end the reasoning part of an answer, in the order tried", [])
    protocol: Literal["chat", "responses"] = doc("Chat Completions, or Responses", "chat")
    options: dict[str, Any] = doc(
        "further fields of each request as the server knows them, such as `{reasoning_effort: low}`", {}
    )
    omit: list[Literal["seed", "temperature", "top_p"]] = doc("fields that its server refuses", [])
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = doc(
        "what its server calls it (chat)", "max_tokens"
    )
    max_parked: Share = doc("share of a stage's calls that may fail; more of them stop the stage", 0.1)
    guess: Guess | None = doc(
        "tokens of one call, `{input: , output: }`, to plan with before the first is answered", None
    )


@dataclass(frozen=True, config=Strict)
class Grader(Entry):
    """A way of marking: one judge or a jury, by a rubric, with further rounds, and a dearer grader for what stays open."""

    judges: list[Annotated[str, Ref("api", named="graders")]] = doc(
        "who marks, each alone: remote models, one several times if wished, or one program", min_length=1
    )
    prompt: str | None = doc(f"the rubric: a prompt by name that reads a verdict; `{MARKING_PROMPT}` without one", None)
    reference: bool = doc("show the judges the official solution, where the prompt can", False)
    normalizer: JudgeRef | None = doc("a model that first writes each proof again in a neutral style", None)
    requeries: int = doc("how often a judge is asked again when its verdict cannot be read", 2, ge=0)
    merge: Literal["min", "median", "mean", "max"] = doc("the mark of a jury, from its last round", "min")
    quorum: Count = doc("so many judges must have given a mark", 1)
    spread: float = doc("marks further apart than this are a disagreement", 2.0, ge=0)
    rounds: int = doc(
        "further rounds at most, as long as the judges disagree: each sees what the others wrote", 0, ge=0
    )
    escalate_to: Annotated[str, Ref("api", "grader")] | None = doc(
        "who marks instead, where `escalate-on` says so", None
    )
    escalate_on: list[Literal["unscored", "disagreement", "band"]] = doc(
        "when: no mark, marks further apart than `spread`, or a mark within `escalate-band`", ["unscored"]
    )
    escalate_band: list[float] = doc("least and most mark that is marked again, such as `[2, 5]`", [])
