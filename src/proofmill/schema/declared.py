"""What an entry can refer to and is no artifact: remote models and graders, declared once."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from proofmill.schema.fields import Count, Dollars, Entry, JudgeRef, Ref, Share, Strict, WeightsRef, doc


@with_config(ConfigDict(extra="forbid", strict=True))
class Price(TypedDict):
    """Dollars per million tokens; what is not named costs as much as the class it belongs to."""

    input: Dollars
    output: Dollars
    cached_input: NotRequired[Dollars]  # of the input, what the server had read before
    reasoning: NotRequired[Dollars]  # of the output, what was thought and not said


@with_config(ConfigDict(extra="forbid", strict=True))
class Guess(TypedDict):
    """Tokens of one call."""

    input: Annotated[int, Field(ge=0)]
    output: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, config=Strict)
class Api(Entry):
    """A remote model, or one of ours that plays it (`weights`): what it is called and what it costs.

    Where it is belongs into the environment, or into a file `.env` beside config.yaml: `PROOFMILL_<NAME>_URL`
    and `PROOFMILL_<NAME>_KEY` for `api/<name>`, limits as `PROOFMILL_<NAME>_RPM` and `PROOFMILL_<NAME>_TPM`.
    """

    undeciding: ClassVar[tuple[str, ...]] = ("price_source", "guess", "max_parked")
    transport: ClassVar[Mapping[str, Any]] = {"omit": [], "max_tokens_field": "max_tokens"}
    id: str | None = doc("The model's id as the server knows it; give this or `weights`.", None)
    weights: WeightsRef | None = doc(
        "A model of ours that plays the server: each job opens it with the engine of its profile, and no address is needed.",
        None,
    )
    price: Price | Literal["unknown"] | None = doc(
        "Dollars per million tokens, `{input: , output: , cached-input: , reasoning: }`, where the last two are those of input and output unless they are given; or `unknown`, if the price is not known. By default that of data/prices.csv, which has those of the usual providers by `id`.",
        None,
    )
    price_source: str = doc(
        "Where the price was read, and on which day (YYYY-MM-DD); required with a price above 0.", ""
    )
    program: Literal["referee"] | None = doc(
        "A program of this project that plays the server; each job starts and stops its own.", None
    )
    max_tokens: Count = doc("The most tokens of one answer, and of an attempt whose entry names no other.", 4096)
    temperature: float | None = doc("Sampling temperature when judging; by default the server chooses.", None, ge=0)
    delimiters: list[Annotated[str, Field(min_length=1)]] = doc(
        "Marks that end the reasoning part of an answer, in the order they are tried.", []
    )
    protocol: Literal["chat", "responses"] = doc("The protocol of the server: Chat Completions or Responses.", "chat")
    options: dict[str, Any] = doc(
        "Further fields of each request as the server knows them, such as `{reasoning_effort: low}`; none that an entry or the asking decides.",
        {},
    )
    omit: list[Literal["seed", "temperature", "top_p", "presence_penalty", "frequency_penalty"]] = doc(
        "Fields that requests leave out while they are neutral (a seed, `temperature: 1`); what a server refuses is found out without it.",
        [],
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = doc(
        "What the server calls the limit of tokens (Chat Completions).", "max_tokens"
    )
    max_parked: Share = doc("Share of a stage's calls that may fail; a larger share stops the stage.", 0.1)
    guess: Guess | None = doc(
        "Expected tokens of one call, `{input: , output: }`, for planning before the first answer.", None
    )


@dataclass(frozen=True, config=Strict)
class Grader(Entry):
    """A way of marking: one judge or a jury, by a rubric, with further rounds, and a dearer grader for what stays open."""

    judges: list[Annotated[str, Ref("api", named="graders")]] = doc(
        "Who marks, each alone: remote models (one may be named several times), or one program.", min_length=1
    )
    prompt: str | None = doc("The rubric: a prompt by name that reads a verdict; `grade-strict` by default.", None)
    reference: bool = doc("Show the judges the official solution, where the prompt can.", False)
    self_evaluation: Literal["shown", "cut"] = doc(
        "What becomes of a heading such as `## Self-Evaluation` in an answer, and of the text below it if it has little mathematics: shown to the judges, or cut off.",
        "shown",
    )
    normalizer: JudgeRef | None = doc("A model that first rewrites each proof in a neutral style.", None)
    requeries: int = doc("How many times a judge is asked again when its verdict cannot be read.", 2, ge=0)
    merge: Literal["min", "median", "mean", "max"] = doc("How the marks of a jury's last round become one.", "min")
    quorum: Count = doc("The least number of judges that must have given a mark.", 1)
    spread: float = doc("Marks further apart than this are a disagreement.", 2.0, ge=0)
    rounds: int = doc(
        "The most further rounds while the judges disagree; in each they see what the others wrote.", 0, ge=0
    )
    escalate_to: Annotated[str, Ref("api", "grader")] | None = doc(
        "Who marks instead when `escalate-on` says so.", None
    )
    escalate_on: list[Literal["unscored", "disagreement", "band"]] = doc(
        "When to escalate: no mark, marks further apart than `spread`, or a mark within `escalate-band`.", ["unscored"]
    )
    escalate_band: list[float] = doc("The least and the most mark that is marked again, such as `[2, 5]`.", [])
