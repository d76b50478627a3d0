"""Define the entries of tables about texts: `responses`, `grades` and `examples`."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from proofmill.schema.context import Context
from proofmill.schema.fields import (
    FILTERS,
    GIVEN_RESPONSES,
    MIN_P,
    PUBLISHED,
    RUBRIC,
    TOP_K,
    TOP_P,
    Count,
    Entry,
    GraderRef,
    NamedItems,
    ProblemsRef,
    Published,
    Ref,
    Share,
    Strict,
    description_of,
    doc,
)
from proofmill.schema.names import kind_of
from proofmill.schema.registry_items import models_in

DEFAULT_PROMPT = "`solve`, and for `api/<name>` `solve-any`"
SYSTEM = "System prompt: a text, or the path of an `.md` file. By default, none."
MAX_TOKENS = "Maximum tokens of one response. Default: 128, and for `api/<name>` that model's `max-tokens`. Longer responses are truncated."
STOP = "Texts that end a response. They are not included in it."
SCAFFOLD = "Scaffold: its name, or a mapping of `name`, settings, `roles` and `prompts` (docs/scaffolds.md). By default, none: one call for each response."


@dataclass(frozen=True, config=Strict)
class Responses(Entry):
    """One row is a response to a problem: one attempt, with its stop reason, tokens and cost."""

    revision: ClassVar[int] = 7
    problems: ProblemsRef = doc("Table whose kept rows are attempted.")
    model: Annotated[str, Ref("api", "weights", *GIVEN_RESPONSES)] = doc(
        "Model to sample; or `given` for the attempts that came with the problems, or `solutions` for the problems' solutions."
    )
    prompt: str | None = doc(f"Name or path of the prompt. Default: {DEFAULT_PROMPT}.", None)
    system: str | None = doc(SYSTEM, None)
    attempts: Count = doc("Attempts at each problem; with `until`, at most.", 1)
    temperature: float = doc("Sampling temperature; 0 is greedy.", 1.0, ge=0)
    top_p: float = doc(TOP_P, 1.0, gt=0, le=1)
    top_k: Count | None = doc(TOP_K, None)
    min_p: float | None = doc(MIN_P, None, gt=0, le=1)
    max_tokens: Count | None = doc(MAX_TOKENS, None)
    stop: list[Annotated[str, Field(min_length=1)]] = doc(STOP, [])
    seed: int = doc("Seed of the sampling.", 0)
    logprobs: bool = doc("Store the log-probability of each token in the journal.", False)
    scaffold: str | dict[str, Any] | None = doc(SCAFFOLD, None)
    until: (
        Literal["sign"]
        | dict[Literal["width"], Share]
        | dict[Literal["pass-rate"], Annotated[list[float | None], Field(min_length=2, max_length=2)]]
        | None
    ) = doc(
        "Rule that ends the calls early. `{pass-rate: [low, high]}`: attempts at a problem, until it is known whether the mean grade of all possible attempts, as a share of the points, is strictly between the bounds; `attempts` is then the maximum. `{width: 0.1}`: problems in random order, until the interval of their mean grade is this narrow. `sign`: problems in random order, until it is known which model is better, this one or that of each table of `against`. By default, none.",
        None,
    )
    against: list[Annotated[str, Ref("grades")]] = doc(
        "Grades of other models at the same problems, by the same grader, for `until: sign`.", []
    )
    error: float = doc(
        "Probability, at most, that `until` is wrong: about a problem, about the interval, or about any of the signs.",
        0.05,
        gt=0,
        lt=1,
    )
    grader: GraderRef | None = doc("Grader of the attempts, for `until`.", None)
    grader_prompt: str | None = doc(RUBRIC, None)
    schemes: Annotated[str, Ref("schemes")] | None = doc("Grading schemes that this grader shows its judges.", None)
    rollouts: bool = doc("Use the rollouts that `model`, a `grpo/<name>`, was trained on, instead of sampling.", False)

    @property
    def taken(self) -> bool:
        """Return whether the responses exist already, so that no calls are made."""
        return self.model in GIVEN_RESPONSES or self.rollouts

    def prompt_names(self) -> list[str]:
        return [] if self.taken or self.prompt is None else [self.prompt]

    def texts(self) -> list[str]:
        return [] if self.taken or self.system is None else [self.system]

    def scaffolds(self) -> dict[str, Any]:
        return {} if self.scaffold is None else {"scaffold": self.scaffold}

    def also_asks(self) -> list[str]:
        return models_in(self.scaffold)

    def graders(self) -> list[tuple[str, str | None]]:
        return [(self.grader, self.grader_prompt)] if self.grader else []

    def estimate_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        if self.rollouts:
            return rows_of(self.model)
        problems = rows_of(self.problems)
        return None if problems is None else problems * self.attempts

    def faults(self, context: Context) -> Iterator[str]:
        sources = context.lists["sources"]
        yield from context.asking_faults("prompt", self.prompt)
        yield from context.sampling_faults(self.model, self)
        if self.scaffold is not None and self.taken:
            yield "`scaffold` is set and the responses exist already (`model: given`, `model: solutions` or `rollouts`); expected a model to call. Remove `scaffold`."
        yield from context.grading_faults(self.grader, self.grader_prompt, self.schemes)
        if self.until and (self.taken or self.scaffold is not None):
            yield "`until` is set and no attempts are sampled one by one (`model: given`, `rollouts` or `scaffold`); expected a model. Remove `until`."
        if (self.until is None) != (self.grader is None):
            yield "found one of `until` and `grader`; expected both or none. Name the grader whose grades decide, or remove it."
        yield from self._rule_faults(self.until, context)
        if self.rollouts and kind_of(self.model) != "grpo":
            yield f"`rollouts` is set and `model` is `{self.model}`; expected a grpo/<name>, which keeps its rollouts."
        if self.model == "given" and (source := context.source_of(self.problems)) and not sources[source].attempts:
            yield f"`model: given` and source `{source}` has no attempts; expected one of the sources {', '.join(s for s in sources if sources[s].attempts)}."

    def _rule_faults(self, until: Any, context: Context) -> Iterator[str]:
        """Yield mistakes in a rule, and in the tables that `until: sign` compares with."""
        for low, high in until.values() if isinstance(until, dict) and "pass-rate" in until else ():
            if (low is None and high is None) or not 0 <= (low or 0) < (1 if high is None else high) <= 1:
                yield f"`until.pass-rate` is [{low}, {high}]; expected a lower and a higher share from 0 to 1, or null for one of them."
        if (until == "sign") != bool(self.against):
            yield "found one of `until: sign` and `against`; expected both or none. Name the grades of the models to compare with, or remove it."
        if until == {"width": 0}:
            yield "`until.width` is 0; expected a width above 0 to 1, as a share of the points."
        for name in self.against:
            graded = context.entries.get(name)
            attempted = context.entries.get(getattr(graded, "responses", None))
            if graded and (graded.grader, graded.grader_prompt) != (self.grader, self.grader_prompt):
                yield f"`against` has {name}, graded by {graded.grader}, and `grader` is {self.grader}; expected one grader and one `grader-prompt`."
            if attempted and attempted.problems != self.problems:
                yield f"`against` has {name}, about {attempted.problems}, and `problems` is {self.problems}; expected the same problems."


@dataclass(frozen=True, config=Strict)
class Grades(Entry):
    """One row is the verdict on a response: a grade from 0 to `max_points`, or no grade with the reason."""

    revision: ClassVar[int] = 11
    responses: Annotated[str, Ref("responses")] = doc("Responses to grade.")
    schemes: Annotated[str, Ref("schemes")] | None = doc("Grading schemes to show the judge. By default, none.", None)
    grader: Annotated[str, Ref("api", "grader", "human", named="graders")] = doc(
        "Grader: a single judge `api/<name>`, a declared `grader/<name>`, a program (listed below), or `human` for grades given by people."
    )
    path: str | None = doc(
        "File of human grades for these responses, as `proofmill view` writes it (`grader: human`). By default, the grades that came with the responses.",
        None,
    )
    grader_prompt: str | None = doc(RUBRIC, None)

    def graders(self) -> list[tuple[str, str | None]]:
        return [] if self.grader == "human" else [(self.grader, self.grader_prompt)]

    def estimate_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return rows_of(self.responses)

    def faults(self, context: Context) -> Iterator[str]:
        yield from context.grading_faults(self.grader, self.grader_prompt, self.schemes)
        responses = context.entries.get(self.responses)
        if self.grader == "human" and not self.path and responses is not None and responses.model != "given":
            yield (
                f"`grader: human` and {self.responses} is sampled from a model; expected responses that came with grades (`model: "
                "given`), or the `path` of grades from `proofmill view`."
            )
        if self.path and self.grader != "human":
            yield f"`path` is a file of human grades and `grader` is `{self.grader}`; expected `human`. Set it, or remove `path`."


@dataclass(frozen=True, config=Strict)
class Examples(Entry):
    """One row is a training example from a solution, a response or a conversation, kept, or dropped with the reason."""

    revision: ClassVar[int] = 3
    cosmetic: ClassVar[tuple[str, ...]] = ("published_rows",)
    problems: ProblemsRef | None = doc("Use the solutions of these problems.", None)
    responses: Annotated[str, Ref("responses")] | None = doc("Use these responses, without grades.", None)
    grades: Annotated[str, Ref("grades")] | None = doc("Use these graded responses.", None)
    mix: dict[Annotated[str, Ref("examples")], Share] = doc(
        "Mix other tables of examples, in these shares of the mixture. Shares must add up to 1.", {}
    )
    concatenate: dict[Annotated[str, Ref("examples")], Share] = doc(
        "Concatenate these shares of the rows of other tables, drawn without replacement. 1 takes all rows.", {}
    )
    source: Literal["table", "hub"] | None = doc(
        "Use conversations from a JSONL, CSV, TSV or Parquet file or a folder of them (`table`), or from a dataset on the hub (`hub`).",
        None,
    )
    path: str | None = doc("File or folder, as in `problems` (`source: table`).", None)
    id: str | None = doc("Dataset id on the hub (`source: hub`).", None)
    commit: str | None = doc("Pinned commit of the dataset. Required with `id`.", None)
    subset: str | None = doc("Subset (configuration) of the dataset on the hub.", None)
    split: str = doc("Split of the dataset on the hub.", "train")
    columns: dict[str, str] = doc(
        "Columns of the source, as `our name: source name`: `messages` (or `conversations`), or `prompt` and `completion`; also `system`, `tools`, `grade`. By default, the columns of these names, except `grade`.",
        {},
    )
    keep: NamedItems = doc(FILTERS, [])
    published_rows: Published | None = doc(PUBLISHED, None)
    prompt: str = doc("Name or path of the prompt that asks for the solution.", "solve")
    rows: Count | None = doc(
        "Rows of a `mix` (default: as many as the shares allow), or maximum rows of a `source`.", None
    )
    seed: int = doc("Seed of the rows that `mix` and `concatenate` draw, together with the name of the entry.", 0)

    def draws_by_name(self) -> bool:
        return bool(self.mix or self.concatenate)

    def prompt_names(self) -> list[str]:
        return [] if self.mix or self.concatenate or self.source else [self.prompt]

    def estimate_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        """Return the number of rows if no row is dropped."""
        if self.concatenate:
            parts = [(rows_of(name), share) for name, share in self.concatenate.items()]
            return None if any(n is None for n, _ in parts) else round(sum((n or 0) * share for n, share in parts))
        source = self.grades or self.responses or self.problems or self.path
        return rows_of(source) if source else None

    def faults(self, context: Context) -> Iterator[str]:
        yield from context.asking_faults("prompt", self.prompt)
        sources = [
            key for key in ("problems", "responses", "grades", "mix", "concatenate", "source") if getattr(self, key)
        ]
        if self.mix and abs(sum(self.mix.values()) - 1) > 1e-6:
            yield f"the shares of `mix` add up to {sum(self.mix.values()):g}; expected 1."
        if (self.mix or self.concatenate) and self.keep:
            yield "found `keep` with `mix` or `concatenate`; expected the filters in the tables that are combined. Remove `keep` here."
        if self.rows and not (self.mix or self.source):
            yield "found `rows` without `mix` or `source`; expected none. Use the filter `at-most-per-problem`, or `mix` with share 1."
        if len(sources) != 1:
            yield f"found {' and '.join(sources) or 'no source'}; expected exactly one of problems, responses, grades, mix, concatenate, source."
        yield from self._conversations_faults(context)

    def _conversations_faults(self, context: Context) -> Iterator[str]:
        """Yield mistakes in the source of conversations and its columns."""
        needs = {"table": "path", "hub": "id", None: None}[self.source]
        if needs and not getattr(self, needs):
            yield f"source `{self.source}` needs `{needs}`; expected a value. {description_of(Examples, needs)}"
        read = {"table": ("path", "columns"), "hub": ("id", "commit", "subset", "split", "columns"), None: ()}[
            self.source
        ]
        for key in ("path", "id", "commit", "subset", "columns"):
            if getattr(self, key) and key not in read:
                yield f"`{key}` is set and {f'source `{self.source}` does not read it' if self.source else '`source` is not'}; expected `source: {'table' if key == 'path' else 'hub'}`. Set it, or remove `{key}`."
        if self.id and not self.commit:
            yield "`id` is set and `commit` is not; expected the commit of the hub dataset to read. Set it."
        if unknown := [column for column in self.columns if column not in context.conversation_columns]:
            yield f"`columns` names `{unknown[0]}`; expected some of {context.among(unknown[0], context.conversation_columns)}"
        if len({"prompt", "completion"} & {*self.columns}) == 1:
            yield "`columns` names one of `prompt` and `completion`; expected both. Add the other."
