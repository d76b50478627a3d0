"""Define what entries refer to and that has no table: remote models and graders."""

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Any, ClassVar, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from proofmill.schema.context import Context
from proofmill.schema.fields import Count, Dollars, Entry, JudgeRef, Ref, Share, Strict, WeightsRef, doc

# Request fields that a call sets, that an entry has a key for, or that change the form of the reply.
DECIDED = (
    *("model", "messages", "input", "instructions", "prompt", "previous_response_id", "conversation"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "temperature", "seed", "logprobs", "n"),
    *("stream", "stream_options", "background", "store", "include", "response_format"),
)


@with_config(ConfigDict(extra="forbid", strict=True))
class Price(TypedDict):
    """Dollars per million tokens. A missing class costs as much as the class that contains it."""

    input: Dollars
    output: Dollars
    cached_input: NotRequired[Dollars]  # input tokens from the server's cache
    reasoning: NotRequired[Dollars]  # output tokens of the reasoning


@with_config(ConfigDict(extra="forbid", strict=True))
class Guess(TypedDict):
    """Expected tokens of one call."""

    input: Annotated[int, Field(ge=0)]
    output: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, config=Strict)
class Api(Entry):
    """A remote model, or a model artifact that acts as one (`weights`), with its name and its price.

    Set its address in the environment, or in a file `.env` next to config.yaml: `PROOFMILL_<NAME>_URL` and
    `PROOFMILL_<NAME>_KEY` for `api/<name>`. Rate limits are `PROOFMILL_<NAME>_RPM` and `PROOFMILL_<NAME>_TPM`.
    """

    cosmetic: ClassVar[tuple[str, ...]] = (
        "price_source", "expected_tokens", "max_failed", "retired", "replaced_by", "checked",
    )  # fmt: skip
    transport: ClassVar[Mapping[str, Any]] = {"omit": [], "max_tokens_field": "max_tokens"}
    id: str | None = doc("Model id, as the server knows it. Set this or `weights`.", None)
    commit: str | None = doc(
        "Commit on the hub of a server's open weights: recorded, and served by `proofmill serve`. With another commit, all calls are repeated.",
        None,
    )
    weights: WeightsRef | None = doc(
        "A model artifact that acts as the server. Each job loads it with the engine of its profile; no address is needed.",
        None,
    )
    price: Price | Literal["unknown"] | None = doc(
        "Dollars per million tokens: `{input: , output: , cached-input: , reasoning: }`, or `unknown`. `cached-input` defaults to `input`, `reasoning` to `output`. By default, the price of this `id` in data/prices.csv.",
        None,
    )
    price_source: str = doc("Source of the price, with the date (YYYY-MM-DD). Required with a price above 0.", "")
    program: Literal["referee"] | None = doc("A program of this project that acts as the server in each job.", None)
    max_tokens: Count = doc("Maximum tokens of one output; also the default of `max-tokens` for responses.", 4096)
    temperature: float | None = doc("Sampling temperature when grading. By default, the server chooses.", None, ge=0)
    reasoning_end: list[Annotated[str, Field(min_length=1)]] = doc(
        "Strings that end the reasoning, tried in order.", []
    )
    protocol: Literal["chat", "responses", "embeddings"] = doc(
        "Protocol: Chat Completions, Responses, or Embeddings (for `embedding` of `overlaps`).", "chat"
    )
    extra_body: dict[str, Any] = doc(
        "Further fields of each request, as the server names them, e.g. `{reasoning_effort: low}`. Fields that an entry or the protocol sets are refused.",
        {},
    )
    omit: list[Literal["seed", "temperature", "top_p", "presence_penalty", "frequency_penalty"]] = doc(
        "Request fields to leave out while they have a neutral value (any seed, `temperature: 1`). Fields that a server refuses are detected automatically.",
        [],
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = doc(
        "Name of the token limit in requests.", "max_tokens"
    )
    max_failed: Share = doc("Maximum share of failed calls in a stage. Above it, the stage stops.", 0.1)
    expected_tokens: Guess | None = doc("Expected tokens of one call for the plan, `{input: , output: }`.", None)
    retired: date | None = doc(
        "Day on which the provider shut this model down, or will (YYYY-MM-DD). `proofmill plan` and `check` say so.",
        None,
    )
    replaced_by: str = doc("Model id that the provider names instead (`retired`).", "")
    checked: str = doc("Source of `retired`, with the date (YYYY-MM-DD). Required with it.", "")

    def retirement(self, today: date) -> str:
        """Return the sentence about a model that is, or will be, shut down; empty for others."""
        if self.retired is None:
            return ""
        instead = f"; its provider names {self.replaced_by} instead" if self.replaced_by else ""
        when = "was" if self.retired <= today else "will be"
        return f"{self.id} {when} shut down on {self.retired}{instead} ({self.checked})"

    def faults(self, context: Context) -> Iterator[str]:
        if (self.id is None) == (self.weights is None):
            yield "found both `id` and `weights`, or neither; expected the model id on a server, or a model artifact that acts as one."
        if self.weights and self.temperature is None:
            yield "`weights` act as the server and `temperature` is not set; expected one, since no server chooses it. Set it."
        if self.weights and (
            unread := [
                name for name in ("program", "commit", "extra_body", "omit", "reasoning_end") if getattr(self, name)
            ]
        ):
            key = unread[0].replace("_", "-")
            yield f"found `weights` with `{key}`, which applies to remote servers; expected one of them. Remove `{key}`."
        if self.protocol == "embeddings" and (self.weights or self.program):
            yield f"`protocol` is embeddings with `{'weights' if self.weights else 'program'}`; expected the `id` of a remote model. Set it alone."
        if "temperature" in self.omit and self.temperature not in (None, 1):
            yield (
                f"`omit` has `temperature`, and `temperature` is {self.temperature:g}; expected one of them. Remove `temperature` "
                "to let the server choose, or remove it from `omit`."
            )
        if context.price_of(self) is None:
            yield (
                f"`price` is missing, and data/prices.csv has none for `{self.id}`; expected `{{input: , output: }}` in dollars "
                "per million tokens with `price-source`, or `unknown`. Set it."
            )
        paid = isinstance(self.price, dict) and any(self.price.values())
        if paid and not re.search(r"\d{4}-\d{2}-\d{2}", self.price_source):
            yield (
                f"`price-source` is {self.price_source!r}; expected the source and the date of the price, such as "
                "`https://example.org/pricing, 2026-11-20`. Set it."
            )
        if self.retired and not re.search(r"\d{4}-\d{2}-\d{2}", self.checked):
            yield (
                f"`retired` is set and `checked` is {self.checked!r}; expected its source with a date, such as "
                "`https://example.org/deprecations, 2026-11-23`."
            )
        if not self.retired and (self.replaced_by or self.checked):
            yield "`replaced-by` or `checked` is set and `retired` is not; expected the day of the shutdown. Set it."
        if overruled := [name for name in DECIDED if name in self.extra_body]:
            yield (
                f"`extra-body` sets {', '.join(f'`{name}`' for name in overruled)}, which an entry or the protocol sets; expected "
                "other request fields only. Remove them."
            )
        elif self.program == "referee" and (fault := context.referee_fault(self.extra_body)):
            yield f"`extra-body`: {fault}"


@dataclass(frozen=True, config=Strict)
class Grader(Entry):
    """A way to grade: a judge or a jury with a rubric, optional further rounds, and a more expensive grader to escalate to."""

    judges: list[Annotated[str, Ref("api", named="graders")]] = doc(
        "Judges, each of which grades independently: remote models (one may be listed several times), or one program.",
        min_length=1,
    )
    prompt: str | None = doc("Rubric: name or path of a prompt with a verdict. Default: `grade-strict`.", None)
    show_reference: bool = doc("Show the judges the reference solution. The prompt must support it.", False)
    self_evaluation: Literal["shown", "removed"] = doc(
        "Handling of a heading such as `## Self-Evaluation` and the text below it, if that has little mathematics: show it to the judges (`shown`) or remove it (`removed`).",
        "shown",
    )
    normalizer: JudgeRef | None = doc("Model that rewrites each proof in a neutral style before grading.", None)
    parse_retries: int = doc("Retries of a judge whose verdict cannot be parsed.", 2, ge=0)
    reduce: Literal["min", "median", "mean", "max"] = doc("How to combine the grades of a jury's last round.", "min")
    ask: Literal["all", "until-known"] = doc(
        "Judges to ask: `all`, at once; or, one after another, until the others cannot change the verdict (`until-known`).",
        "all",
    )
    quorum: Count = doc("Minimum number of judges that must give a grade. With fewer, the row is unscored.", 1)
    max_spread: float = doc("Largest difference of grades, in points, that still counts as agreement.", 2.0, ge=0)
    rounds: int = doc("Maximum further rounds while judges disagree. Judges then see the other outputs.", 0, ge=0)
    escalate_to: Annotated[str, Ref("api", "grader")] | None = doc(
        "Grader that decides instead, under the conditions of `escalate-on`. By default, none.", None
    )
    escalate_on: list[Literal["unscored", "disagreement", "band"]] = doc(
        "When to escalate: no grade (`unscored`), grades further apart than `max-spread` (`disagreement`), or a grade within `escalate-band` (`band`).",
        ["unscored"],
    )
    escalate_band: list[float] = doc("Lowest and highest grade of `band`, e.g. `[2, 5]`.", [])
    escalated: Literal["replaces", "multiplies"] = doc(
        "What the later grade does to this one, if there is one: it replaces it, or, as a share of the points, multiplies it.",
        "replaces",
    )

    def faults(self, context: Context) -> Iterator[str]:
        programs = [name for name in self.judges if name in context.lists["graders"]]
        if programs and len(self.judges) > 1:
            yield f"`judges` has the program `{programs[0]}` and others; expected the program alone. Set `escalate-to` to the others."
        if programs and (self.prompt or self.rounds or self.normalizer or self.show_reference):
            yield f"`{programs[0]}` is a program and makes no calls; expected no prompt, rounds, normalizer or reference. Remove them."
        if self.rounds and len(self.judges) < 2:
            yield f"`rounds` is {self.rounds} and `judges` has one judge; expected at least two."
        if self.ask == "until-known" and (self.rounds or "disagreement" in self.escalate_on):
            yield "`ask` is `until-known`, and `rounds` or `disagreement` need the grades of all judges; expected `ask: all`."
        if self.quorum > len(self.judges):
            yield f"`quorum` is {self.quorum} of {len(self.judges)} judges; expected at most {len(self.judges)}. Lower it, or add judges."
        band = self.escalate_band
        if bool(band) != ("band" in self.escalate_on) or (band and (len(band) != 2 or band[0] > band[1])):
            yield f"`escalate-band` is {band}; expected `[<lowest>, <highest>]` together with `band` in `escalate-on`."
        if "disagreement" in self.escalate_on and len(self.judges) < 2:
            yield "`escalate-on` has `disagreement` and `judges` has one judge; expected at least two."
        if not programs and context.is_known(self.prompt):
            prompt = context.rubric(self.prompt)
            if prompt.verdict is None:
                yield f"prompt `{prompt.name}` declares no verdict; expected a prompt with `verdict` in its header."
            if self.show_reference and "reference" not in (*prompt.needs, *prompt.optional):
                yield f"`show-reference` is set and prompt `{prompt.name}` has no field `reference`; expected a prompt that shows it. Remove `show-reference` or set another prompt."
            if "reference" in prompt.needs and not self.show_reference:
                yield f"prompt `{prompt.name}` needs the reference solution; expected `show-reference: true`. Set it."
        if self.escalate_to is None and (set(self.escalate_on) != {"unscored"} or self.escalated != "replaces"):
            yield "`escalate-on` or `escalated` is set and `escalate-to` is not; expected the grader to escalate to. Set it."
        prompts_known = context.is_known(self.prompt)
        if prompts_known and band and band[1] > context.max_points(self):
            yield f"`escalate-band` is {band}, and grades go up to {context.max_points(self)}; expected a band within the scale."
        if self.escalate_to in context.entries and prompts_known:
            then = context.then_of(self, context.entries)
            if context.is_known(then.prompt) and context.max_points(self) != context.max_points(then):
                yield (
                    f"grades go up to {context.max_points(self)}, and up to {context.max_points(then)} after `escalate-to`; "
                    "expected one scale. Set prompts with the same scale."
                )
