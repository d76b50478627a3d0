"""The entries of problems and of what models are asked: fields, defaults, and the manual's sentences.

Each class is the entry of one kind (model_entries.py has those with weights, scores_entry.py that of what is measured).
A kind's `revision` is raised when the same entry is to give other rows. Nothing here computes rows, so importing it is
cheap.
"""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field
from pydantic.dataclasses import dataclass

from proofmill.schema.fields import (
    TAKEN,
    Count,
    Entry,
    GraderRef,
    JudgeRef,
    NamedItems,
    ProblemsRef,
    Ref,
    Share,
    Strict,
    doc,
)
from proofmill.schema.named import models_in, split

# What `responses` and `sampling` of `scores` have in common.
DEFAULT_PROMPT = "`solve`, and for an `api/...` `attempt`"
SYSTEM = "The system prompt: a text, or the path of a file that ends in `.md`; none by default."
TOP_K = "How many of the likeliest tokens are drawn from; by default all."
MIN_P = "Tokens below this share of the likeliest token's probability are not drawn; by default all may be."
MAX_TOKENS = "The most tokens of one answer; by default 128, and for an `api/...` its own `max-tokens`."
STOP = "Texts at which an answer ends; they are no part of it."
SCAFFOLD = "The scaffold by name, or a mapping of its `name`, settings, `roles` and `prompts` (docs/scaffolds.md); none by default: one call."


@dataclass(frozen=True, config=Strict)
class Problems(Entry):
    """One row is a problem from a source or another table, kept, or dropped by a filter with the reason."""

    revision: ClassVar[int] = 3
    source: Annotated[str, Ref("problems", named="sources")] = doc("A loader by name, or another `problems/<name>`.")
    path: str | None = doc(
        "The file or folder to read, or the address of public data: `hub:<owner>/<name>@<commit>/<file>`, `https://...` (docs/data.md). `${VARIABLES}` come from the environment and are no part of the identity.",
        None,
    )
    id: str | None = doc("The id on the hub of a dataset that is streamed.", None)
    commit: str | None = doc("The pinned commit of the dataset; required with `id`.", None)
    config: str | None = doc("The dataset's configuration on the hub.", None)
    split: str = doc("The dataset's split on the hub.", "train")
    columns: dict[str, str] = doc(
        "Which of the source's columns to read for ours, `ours: theirs` (sources `hub`, `table`, `graded` and `inspect-logs`).",
        {},
    )
    part: Literal["train", "dev", "test"] = doc(
        "Which of the three disjoint parts to generate (arithmetic only).", "train"
    )
    families: list[str] = doc("Problem families to generate (arithmetic only); an empty list means all.", [])
    sizes: dict[str, list[int]] = doc(
        "The least and the most size by family, `{digits: [6, 7]}` (arithmetic only): the number of powers, digits, products, or steps of a recurrence. Families that are not named have their usual sizes.",
        {},
    )
    where: dict[str, list[str | int]] = doc(
        "Only rows of the source whose columns have one of these values, `{category: [open_qa, general_qa]}`.", {}
    )
    every: Count = doc("Only every n-th row of the source, from the first on.", 1)
    rows: Count | None = doc("At most this many rows are read.", None)
    seed: int = doc("Seed of the generator (arithmetic only).", 0)
    labels: Annotated[str, Ref("labels")] | None = doc(
        "A judge's classification of the source's rows, which filters over labels read.", None
    )
    grades: Annotated[str, Ref("grades")] | None = doc(
        "Graded attempts at the source's rows, from which `pass-rate` is computed.", None
    )
    schemes: Annotated[str, Ref("schemes")] | None = doc(
        "Marking schemes of the source's rows, which `has-scheme` reads.", None
    )
    also: list[ProblemsRef] = doc("Further tables, whose kept rows follow the source's own.", [])
    asks: Literal["proof", "answer", "code", "talk"] | None = doc(
        "What every row asks, whatever the source says: with `code` the answer holds tests, with `talk` no answer is right or wrong.",
        None,
    )
    setup: Literal["leetcode"] | None = doc(
        "What precedes each program: `leetcode` for the imports that LeetCode and LiveCodeBench put there (sources `livecodebench` and `code`).",
        None,
    )
    megabytes: float | None = doc("Memory of each program, 256 by default (the same sources).", None, ge=8, le=4096)
    keep: NamedItems = doc(
        "Filters in the order they are applied; the first that refuses a row is written into its `dropped`.", []
    )
    apart_from: list[ProblemsRef] = doc("Tables whose problems are dropped from this one (decontamination).", [])
    overlap_words: Count = doc("Length in words of a shared run that counts as the same text (`apart-from`).", 13)
    overlap_similarity: Share = doc(
        "Jaccard similarity from which two statements count as the same text (`apart-from`).", 0.7
    )

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        source = self.source if "/" in self.source else self.path
        there = rows_of(source) if source else None
        own = self.rows if there is None else min(-(-there // self.every), self.rows or there)
        for name in self.also:
            own = None if own is None or (further := rows_of(name)) is None else own + further
        firsts = [most for name, most in map(split, self.keep) if name == "first"]
        return min(firsts if own is None else [own, *firsts], default=None)


JUDGE = "judge"
Method = Literal["exact", "ngram", "minhash", "plain-ngram", "number-free", "judge"]  # of overlaps
METHODS: tuple[str, ...] = get_args(Method)


@dataclass(frozen=True, config=Strict)
class Overlaps(Entry):
    """One row is a problem of one table that also stands in another: both rows, the method, and the text they share."""

    revision: ClassVar[int] = 3
    problems: list[ProblemsRef] = doc("Tables whose kept rows are looked up.", min_length=1)
    against: list[ProblemsRef] = doc(
        "Tables in which they are looked up, such as benchmarks; dropped rows count too.", min_length=1
    )
    methods: list[Method] = doc(
        "How rows are compared: `exact` finds the same normal form, `ngram` a shared run that is telling, `minhash` near duplicates, `plain-ngram` any shared run of words (open-r1's rule), `number-free` the same text but for numbers and names, `judge` what `model` calls the same problem.",
        ["exact", "ngram", "minhash"],
    )
    words: Count = doc("Length in words of a shared run.", 13)
    similarity: Share = doc("Jaccard similarity from which two statements are near duplicates.", 0.7)
    model: JudgeRef | None = doc("The judge of the method `judge`.", None)
    prompt: str = doc(
        "The judge's prompt by name; full marks say that two statements are the same problem.", "same-problem"
    )
    requeries: int = doc("How many times the judge is asked again when its verdict cannot be read.", 0, ge=0)
    candidates: Count = doc(
        "How many rows the judge compares with each statement of `against`: the nearest that no other method has found.",
        5,
    )
    candidate_similarity: Share = doc(
        "Cosine of the weighted words of two statements from which the judge is asked about them.", 0.2
    )

    def prompts(self) -> list[str]:
        return [self.prompt] if self.model else []

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        """How many pairs the judge is asked about at most."""
        rows = [rows_of(name) for name in self.against]
        known = [number for number in rows if number is not None]
        return self.candidates * sum(known) if len(known) == len(rows) else None


@dataclass(frozen=True, config=Strict)
class Labels(Entry):
    """One row is a judge's classification of a problem, which filters over labels read."""

    revision: ClassVar[int] = 3
    problems: ProblemsRef = doc("The table whose kept rows are classified.")
    model: JudgeRef = doc("The judge.")
    prompt: str = doc("The prompt by name.", "classify")
    requeries: int = doc("How many times the judge is asked again when its labels cannot be read.", 0, ge=0)

    def prompts(self) -> list[str]:
        return [self.prompt]

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return rows_of(self.problems)


@dataclass(frozen=True, config=Strict)
class Schemes(Entry):
    """One row is a 0-7 marking scheme, kept or dropped with the reason, from a judge or from the problem itself."""

    revision: ClassVar[int] = 4
    problems: ProblemsRef = doc("The table whose kept rows get a scheme.")
    model: JudgeRef | None = doc(
        "The judge that writes the schemes; without one, and without `source`, the problems' own guidelines are taken.",
        None,
    )
    source: Literal["table"] | None = doc("`table`: take the schemes of a published table.", None)
    path: str | None = doc("The table's file or address, as in `problems`.", None)
    columns: dict[Literal["problem", "statement", "scheme"], str] = doc(
        "Which of the table's columns to read for ours, `ours: theirs`: `scheme`, and `problem` (the id) or `statement`, by which a scheme finds its problem.",
        {},
    )
    prompt: str = doc("The prompt by name.", "scheme")
    requeries: int = doc("How many times the judge is asked again when its scheme has no readable form.", 0, ge=0)
    tester: GraderRef | None = doc(
        "The grader that marks known answers by each scheme: the reference, an empty answer, the problem repeated, another problem's proof, and the reference without a key step.",
        None,
    )
    tester_prompt: str | None = doc("The tester's rubric, as `prompt` in `grades`.", None)
    keep: NamedItems = doc(
        "What a scheme must fulfil before it is used, in this order; the first demand that refuses it is written into its `dropped`.",
        ["adds-up"],
    )

    def graders(self) -> list[tuple[str, str | None]]:
        return [(self.tester, self.tester_prompt)] if self.tester else []

    def prompts(self) -> list[str]:
        return [self.prompt] if self.model else []

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return rows_of(self.problems)


@dataclass(frozen=True, config=Strict)
class Responses(Entry):
    """One row is an attempt at a problem, with why it stopped, its tokens and its cost."""

    revision: ClassVar[int] = 7
    problems: ProblemsRef = doc("The table whose kept rows are attempted.")
    model: Annotated[str, Ref("api", "weights", *TAKEN)] = doc(
        "The solver; or `given` for the attempts that came with the problems, `solutions` for the problems' own solutions."
    )
    prompt: str | None = doc(f"The prompt by name, or the path of your own; by default {DEFAULT_PROMPT}.", None)
    system: str | None = doc(SYSTEM, None)
    attempts: Count = doc("How many attempts are made at each problem.", 1)
    temperature: float = doc("Sampling temperature; 0 is greedy.", 1.0, ge=0)
    top_p: float = doc("Share of the probability that nucleus sampling draws from.", 1.0, gt=0, le=1)
    top_k: Count | None = doc(TOP_K, None)
    min_p: float | None = doc(MIN_P, None, gt=0, le=1)
    max_tokens: Count | None = doc(MAX_TOKENS, None)
    stop: list[Annotated[str, Field(min_length=1)]] = doc(STOP, [])
    seed: int = doc("Seed of the sampling.", 0)
    logprobs: bool = doc("Whether the journal keeps the log-probability of each token.", False)
    scaffold: str | dict[str, Any] | None = doc(SCAFFOLD, None)
    rollouts: bool = doc("Take the attempts that `model`, a `grpo`, was trained on, instead of asking it.", False)

    @property
    def taken(self) -> bool:
        """Whether its attempts are there already, and nobody is asked."""
        return self.model in TAKEN or self.rollouts

    def prompts(self) -> list[str]:
        return [] if self.taken or self.prompt is None else [self.prompt]

    def texts(self) -> list[str]:
        return [] if self.taken or self.system is None else [self.system]

    def scaffolds(self) -> dict[str, Any]:
        return {} if self.scaffold is None else {"scaffold": self.scaffold}

    def also_asks(self) -> list[str]:
        return models_in(self.scaffold)

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        if self.rollouts:
            return rows_of(self.model)
        problems = rows_of(self.problems)
        return None if problems is None else problems * self.attempts


@dataclass(frozen=True, config=Strict)
class Grades(Entry):
    """One row is the verdict on a response: a mark out of `out_of`, or none with the reason."""

    revision: ClassVar[int] = 8
    responses: Annotated[str, Ref("responses")] = doc("The attempts to grade.")
    schemes: Annotated[str, Ref("schemes")] | None = doc("The marking schemes that the judge is shown.", None)
    grader: Annotated[str, Ref("api", "grader", "human", named="graders")] = doc(
        "Who marks: a judge `api/<name>` asked alone, a declared `grader/<name>`, a program (listed below), or `human` for marks that people gave."
    )
    path: str | None = doc(
        "For `grader: human`: a file of marks of these attempts, as `proofmill view` writes it; without one, those that came with given attempts.",
        None,
    )
    prompt: str | None = doc(
        "The rubric of a judge that is asked alone, `grade-strict` by default; a `grader/<name>` has its own.", None
    )

    def graders(self) -> list[tuple[str, str | None]]:
        return [] if self.grader == "human" else [(self.grader, self.prompt)]

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return rows_of(self.responses)


@dataclass(frozen=True, config=Strict)
class Examples(Entry):
    """One row is a training example, kept or dropped with the reason: a solution, a response, a conversation, or mixed."""

    revision: ClassVar[int] = 3
    problems: ProblemsRef | None = doc("Take the solutions of these problems.", None)
    responses: Annotated[str, Ref("responses")] | None = doc("Take these attempts as they are.", None)
    grades: Annotated[str, Ref("grades")] | None = doc("Take these graded attempts.", None)
    mix: dict[Annotated[str, Ref("examples")], Share] = doc("Mix other examples, in these shares of the whole.", {})
    join: dict[Annotated[str, Ref("examples")], Share] = doc(
        "Join these shares of other examples' rows, drawn without repetition; 1 takes all rows.", {}
    )
    source: Literal["table", "hub"] | None = doc(
        "Take the conversations of a JSONL, CSV, TSV or Parquet file or a folder of such (`table`), or of a dataset of the `hub`.",
        None,
    )
    path: str | None = doc("The local file or folder of `source: table`, as in `problems`.", None)
    id: str | None = doc("The dataset's id on the hub.", None)
    commit: str | None = doc("The pinned commit of the dataset; required with `id`.", None)
    config: str | None = doc("The dataset's configuration on the hub.", None)
    split: str = doc("The dataset's split on the hub.", "train")
    columns: dict[str, str] = doc(
        "Which of the source's columns hold `messages` (or `conversations`), or `prompt` and `completion`, and `system`, `tools`, `grade`, as `ours: theirs`; by default the columns of these names, but `grade`.",
        {},
    )
    keep: NamedItems = doc(
        "Selectors in the order they are applied; the first that refuses a row is written into its `dropped`.", []
    )
    prompt: str = doc("The solver's prompt by name.", "solve")
    rows: Count | None = doc(
        "How many rows a mixture has, by default as many as the shares allow; of a source, at most this many are read.",
        None,
    )
    seed: int = doc("Seed of the order of the rows of `mix` and `join`.", 0)

    def prompts(self) -> list[str]:
        return [] if self.mix or self.join or self.source else [self.prompt]

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        """Return the rows if nothing is refused."""
        if self.join:
            parts = [(rows_of(name), share) for name, share in self.join.items()]
            return None if any(n is None for n, _ in parts) else round(sum((n or 0) * share for n, share in parts))
        source = self.grades or self.responses or self.problems
        return rows_of(source) if source else None
