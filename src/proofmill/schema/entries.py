"""The entries of problems, what is asked about them, and what is measured: fields, defaults, and the manual's sentences.

One class is one kind of artifact (model_entries.py has those with weights). `revision` is raised when the same entry should give
other rows. Nothing here computes rows, so importing it is cheap.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from proofmill.schema.fields import (
    GRADER_REF,
    PROMPT_OF_JUDGE,
    TAKEN,
    Count,
    Entry,
    GraderRef,
    JudgeRef,
    ModelRef,
    NamedItems,
    ProblemsRef,
    Ref,
    Share,
    Strict,
    WeightsRef,
    doc,
)


@dataclass(frozen=True, config=Strict)
class Problems(Entry):
    """A problem a row, kept or dropped with the reason: from a source or another table, through named filters."""

    revision: ClassVar[int] = 1
    source: Annotated[str, Ref("problems", named="sources")] = doc("a loader by name, or another `problems/<name>`")
    path: str | None = doc(
        "a local file or folder; `${VARIABLES}` come from the environment and are not identity", None
    )
    id: str | None = doc("a dataset's hub id", None)
    commit: str | None = doc("the pinned commit of the dataset; required with `id`", None)
    config: str | None = doc("the dataset's configuration on the hub", None)
    split: str = doc("the dataset's split on the hub", "train")
    columns: dict[str, str] = doc("our column: their column, for `hub` and `table`", {})
    part: Literal["train", "dev", "test"] = doc("which of the three disjoint parts (arithmetic only)", "train")
    families: list[str] = doc("problem families (arithmetic only); empty means all", [])
    rows: Count | None = doc("read at most so many", None)
    seed: int = doc("of the generator (arithmetic only)", 0)
    labels: Annotated[str, Ref("labels")] | None = doc("a judge's classification, which filters may ask", None)
    grades: Annotated[str, Ref("grades")] | None = doc("graded attempts, from which filters know the pass rate", None)
    schemes: Annotated[str, Ref("schemes")] | None = doc("marking schemes, which filters may ask", None)
    also: list[ProblemsRef] = doc("further tables, whose kept rows follow the source's own", [])
    asks: Literal["proof", "answer", "code", "talk"] | None = doc(
        "what all rows ask, whatever the source says: `code` has tests as its answer, `talk` has no right answer",
        None,
    )
    keep: NamedItems = doc("filters in the order they are asked; the first that refuses a row names it", [])
    apart_from: list[ProblemsRef] = doc("drop what also stands in these tables (decontamination)", [])
    overlap_words: Count = doc("shared run of this many words that counts as the same text (`apart-from`)", 13)
    overlap_similarity: Share = doc("Jaccard similarity that counts as the same text (`apart-from`)", 0.9)

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return self.rows or (rows_of(self.source) if "/" in self.source else None)


METHODS = ("exact", "ngram", "minhash", "plain-ngram")  # of overlaps


@dataclass(frozen=True, config=Strict)
class Overlaps(Entry):
    """A row of one table that stands in another a row: which two, by which method, and the text they share."""

    revision: ClassVar[int] = 1
    problems: list[ProblemsRef] = doc("whose kept rows are looked for", min_length=1)
    against: list[ProblemsRef] = doc(
        "where they are looked for, such as benchmarks; all rows, dropped ones too", min_length=1
    )
    methods: list[Literal[METHODS]] = doc(
        "`exact`: the same normal form; `ngram`: a shared run that tells something; `minhash`: near duplicates; "
        "`plain-ngram`: open-r1's rule, any shared run of words",
        ["exact", "ngram", "minhash"],
    )
    words: Count = doc("length of a shared run", 13)
    similarity: Share = doc("Jaccard similarity of near duplicates", 0.9)


@dataclass(frozen=True, config=Strict)
class Labels(Entry):
    """A judge's classification of a problem a row: the fields that filters over labels ask for."""

    revision: ClassVar[int] = 1
    problems: ProblemsRef = doc("whose kept rows are classified")
    model: JudgeRef = doc("the judge")
    prompt: str = doc("a prompt by name", "classify")
    requeries: int = doc("how often the judge is asked again when its labels cannot be read", 0, ge=0)

    def prompts(self) -> list[str]:
        return [self.prompt]

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return rows_of(self.problems)


@dataclass(frozen=True, config=Strict)
class Schemes(Entry):
    """A 0-7 marking scheme a row, kept or dropped with the reason: written by a judge, or the guidelines of the problems."""

    revision: ClassVar[int] = 2
    problems: ProblemsRef = doc("whose kept rows get a scheme")
    model: JudgeRef | None = doc("the judge that writes; without one the problems' own guidelines are taken", None)
    prompt: str = doc("a prompt by name", "scheme")
    requeries: int = doc("how often the judge is asked again when its scheme has no readable form", 0, ge=0)
    tester: GraderRef | None = doc(
        "who marks known answers by each scheme: the reference, nothing, the problem said again, another problem's proof, the "
        "reference without a key step",
        None,
    )
    tester_prompt: str | None = doc("the tester's prompt by name, as `prompt` in `grades`", None)
    keep: NamedItems = doc(
        "what a scheme must fulfil to be marked by, asked in order; the first that refuses it names it", ["adds-up"]
    )

    def graders(self) -> list[tuple[str, str | None]]:
        return [(self.tester, self.tester_prompt)] if self.tester else []

    def prompts(self) -> list[str]:
        return [self.prompt] if self.model else []

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return rows_of(self.problems)


@dataclass(frozen=True, config=Strict)
class Responses(Entry):
    """One attempt at a problem a row, with why it stopped, its tokens and its cost."""

    revision: ClassVar[int] = 4
    problems: ProblemsRef = doc("whose kept rows are attempted")
    model: Annotated[str, Ref("api", "weights", *TAKEN)] = doc(
        "the solver; or `given` for the attempts that the problems' source holds, `solutions` for the problems' own solutions"
    )
    prompt: str = doc("a prompt by name", "solve")
    attempts: Count = doc("for each problem", 1)
    temperature: float = doc("0 is greedy", 1.0, ge=0)
    top_p: float = doc("nucleus sampling", 1.0, gt=0, le=1)
    max_tokens: Count = doc("the most tokens of one answer", 128)
    seed: int = doc("of the sampling", 0)
    logprobs: bool = doc("keep the log-probability of each token, in the journal", False)
    rollouts: bool = doc("take the attempts that `model`, a `grpo`, was trained on, and ask nobody", False)

    @property
    def taken(self) -> bool:
        """Whether its attempts are there already, and nobody is asked."""
        return self.model in TAKEN or self.rollouts

    def prompts(self) -> list[str]:
        return [] if self.taken else [self.prompt]

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        if self.rollouts:
            return rows_of(self.model)
        problems = rows_of(self.problems)
        return None if problems is None else problems * self.attempts


@dataclass(frozen=True, config=Strict)
class Grades(Entry):
    """One verdict on a response a row: a mark out of `out_of`, or none with the reason."""

    revision: ClassVar[int] = 2
    responses: Annotated[str, Ref("responses")] = doc("the attempts to grade")
    schemes: Annotated[str, Ref("schemes")] | None = doc("the marking schemes the judge is shown", None)
    grader: Annotated[str, Ref("api", "grader", "human", named="graders")] = doc(
        f"{GRADER_REF}; or `human` for the marks that came with the attempts"
    )
    prompt: str | None = doc(PROMPT_OF_JUDGE, None)

    def graders(self) -> list[tuple[str, str | None]]:
        return [] if self.grader == "human" else [(self.grader, self.prompt)]

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return rows_of(self.responses)


@dataclass(frozen=True, config=Strict)
class Examples(Entry):
    """A training row, kept or dropped with the reason: from problems' own solutions, responses or grades, or a mixture."""

    revision: ClassVar[int] = 2
    problems: ProblemsRef | None = doc("take the problems' own solutions", None)
    responses: Annotated[str, Ref("responses")] | None = doc("take attempts as they are", None)
    grades: Annotated[str, Ref("grades")] | None = doc("take graded attempts", None)
    mix: dict[Annotated[str, Ref("examples")], Share] = doc("take other examples in these shares of the whole", {})
    join: dict[Annotated[str, Ref("examples")], Share] = doc(
        "take these shares of other examples' rows, drawn without repetition; 1 is all of them", {}
    )
    keep: NamedItems = doc("selectors in the order they are asked; the first that refuses a row names it", [])
    prompt: str = doc("the solver's prompt by name", "solve")
    rows: Count | None = doc("how many rows a mixture has; without it, as many as the shares allow", None)
    seed: int = doc("of the order of rows", 0)

    def prompts(self) -> list[str]:
        return [] if self.mix or self.join else [self.prompt]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))  # strict would refuse a mapping inside `Scores`
class Sampling:
    """How a benchmark is sampled."""

    attempts: Count = doc("for each problem", 1)
    temperature: float = doc("0 is greedy", 1.0, ge=0)
    top_p: float = doc("nucleus sampling", 1.0, gt=0, le=1)
    max_tokens: Count = doc("the most tokens of one answer", 128)
    prompt: str = doc("the solver's prompt by name", "solve")
    seed: int = doc("of the sampling", 0)


@dataclass(frozen=True, config=Strict)
class Scores(Entry):
    """One measured number a row, with its interval, its n and its share unscored.

    `models` x `problems` x `sampling` expand into entries `responses/<model>@<problems>` and `grades/...`.
    """

    revision: ClassVar[int] = 2
    models: list[ModelRef] = doc("the models to measure", [])
    problems: list[ProblemsRef] = doc("the benchmarks; without `models`, the tables to measure", [])
    schemes: list[Annotated[str, Ref("schemes")]] = doc("a scheme for each benchmark, in the same order", [])
    sampling: dict[str, Sampling] = doc("named ways to sample, such as `sampled` and `greedy`", {})
    grader: GraderRef | None = doc("as in `grades`", None)
    prompt: str | None = doc(PROMPT_OF_JUDGE, None)
    grades: list[Annotated[str, Ref("grades")]] = doc("graded attempts to measure as they are", [])
    human: Annotated[str, Ref("grades")] | None = doc(
        "human marks of the same attempts, with which `grades` are compared", None
    )
    selected_by: list[Annotated[str, Ref("grades")]] = doc(
        "for each of `grades`, the marks by which `best-at-k` selects", []
    )
    merge: Literal["none", "mean", "median", "min", "max"] = doc(
        "several `grades` of the same attempts as one grader's", "none"
    )
    tokenizer: WeightsRef | None = doc("whose tokens the lengths of `problems` are", None)
    measures: NamedItems = doc("named measures; a `repeat` takes those it repeats", [])
    compare: list[list[str]] = doc("pairs `[model, baseline]` that are compared problem by problem", [])
    success: Share = doc("share of full marks from which an attempt counts as a success", 1.0)
    confidence: float = doc("of the intervals", 0.95, gt=0, lt=1)
    resamples: Count = doc("of the bootstrap over problems", 2000)
    max_unscored: Share = doc("stop when a larger share of the attempts has no verdict", 0.1)
    repeat: Annotated[str, Ref("scores")] | None = doc(
        "measure another scores entry over `seeds`, retraining all it needs", None
    )
    seeds: list[Annotated[int, Field(ge=0)]] = doc("the seeds of `repeat`", [])
    seed: int = doc("of the bootstrap", 0)
