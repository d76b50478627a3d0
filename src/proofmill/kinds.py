"""One class of this module is one kind of artifact: its fields are the schema of an entry, its defaults and its manual.

    RecipeError  a mistake in the configuration: every mistake is collected, and all are shown at once
    references   names of the entries that an entry is made from: the edges of the pipeline
    canonical    an entry as text: equal text means equal rows wanted

`revision` is raised when the same entry should give other rows. Nothing here computes rows, so importing it is cheap.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, NotRequired, get_args, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict


class RecipeError(Exception):
    """A mistake in the configuration. The message reads: where: what was found; expected what. What to do."""


class Ref:
    """Marks a field as a reference to another entry of one of `kinds`: an edge of the pipeline."""

    def __init__(self, *kinds: str):
        self.kinds = kinds


ProblemsRef = Annotated[str, Ref("problems")]
Judge = Annotated[str, Ref("api")]
# Graders that are asked nothing, and what their marks are out of.
PROGRAMS = {"arithmetic": 7, "final-answer": 1, "tests": 1, "rules": 1}
Marker = Annotated[str, Ref("api", "grader", *PROGRAMS)]
MARKER = (
    "a judge `api/<name>` asked alone, a declared `grader/<name>`, or a program: `arithmetic` checks proofs of that family line "
    "by line, `final-answer` compares what is in the box with the answer, `tests` runs the last block of code against the problem's "
    "tests (the share that pass), `rules` is the last two, by what a problem asks"
)
MARKING_PROMPT = "grade-strict"  # of a judge, where none is named
PROMPT_OF_JUDGE = (
    f"the rubric of a judge that is asked alone; `{MARKING_PROMPT}` without one, a `grader/<name>` has its own"
)
Model = Annotated[str, Ref("api", "base", "sft", "grpo")]
TAKEN = ("given", "solutions")  # attempts that nobody is asked for
Weights = Annotated[str, Ref("base", "sft", "grpo")]
Strict = ConfigDict(extra="forbid", strict=True)
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Dollars = Annotated[float, Field(ge=0)]
# A list such as `keep: [has-problem, {length: [20, 4000]}]`: a name, or a name with its argument.
Named = list[str | dict[str, Any]]


def doc(text: str, default: Any = ..., **limits: Any) -> Any:
    """A field with its sentence in the manual; lists and mappings default to empty ones."""
    if isinstance(default, list | dict):
        return Field(default_factory=lambda: type(default)(default), description=text, **limits)
    return Field(default, description=text, **limits)


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
class Api:
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
class Grader:
    """A way of marking: one judge or a jury, by a rubric, with further rounds, and a dearer grader for what stays open."""

    judges: list[Annotated[str, Ref("api", *PROGRAMS)]] = doc(
        "who marks, each alone: remote models, one several times if wished, or one program", min_length=1
    )
    prompt: str | None = doc(f"the rubric: a prompt by name that reads a verdict; `{MARKING_PROMPT}` without one", None)
    reference: bool = doc("show the judges the official solution, where the prompt can", False)
    normalizer: Judge | None = doc("a model that first writes each proof again in a neutral style", None)
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


# Which fields a source reads besides `keep` and its company; `problems` refuses the others.
SOURCES: dict[str, set[str]] = {
    "arithmetic": {"part", "families", "rows", "seed"},
    "arithmetic-threads": {"part", "families", "rows", "seed"},
    "aops-threads": {"path", "rows"},
    "aops": {"path", "id", "commit", "config", "split", "rows"},
    "harp": {"path", "rows"},
    "proofbench": {"path", "id", "commit", "config", "split", "rows"},
    "answerbench": {"path", "id", "commit", "config", "split", "rows"},
    "gsm8k": {"path", "id", "commit", "config", "split", "rows"},
    "math": {"path", "id", "commit", "config", "split", "rows"},
    "aime": {"path", "id", "commit", "config", "split", "rows"},
    "usamo": {"path", "rows"},
    "olympiadbench": {"path", "id", "commit", "config", "split", "rows"},
    "graded": {"path", "id", "commit", "config", "split", "rows"},
    "arithmetic-graded": {"part", "families", "rows", "seed"},
    "hub": {"id", "commit", "config", "split", "columns", "rows"},
    "table": {"path", "columns", "rows"},
}


GIVING = ("graded", "arithmetic-graded")  # sources that hold attempts with human marks besides the problems


@dataclass(frozen=True, config=Strict)
class Problems:
    """A problem a row, kept or dropped with the reason: from a source or another table, through named filters."""

    revision: ClassVar[int] = 1
    source: Annotated[str, Ref("problems", *SOURCES)] = doc("a loader by name, or another `problems/<name>`")
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
    keep: Named = doc("filters in the order they are asked; the first that refuses a row names it", [])
    apart_from: list[ProblemsRef] = doc("drop what also stands in these tables (decontamination)", [])
    overlap_words: Count = doc("shared run of this many words that counts as the same text (`apart-from`)", 13)
    overlap_similarity: Share = doc("Jaccard similarity that counts as the same text (`apart-from`)", 0.9)


METHODS = ("exact", "ngram", "minhash", "plain-ngram")  # of overlaps


@dataclass(frozen=True, config=Strict)
class Overlaps:
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
class Labels:
    """A judge's classification of a problem a row: the fields that filters over labels ask for."""

    revision: ClassVar[int] = 1
    problems: ProblemsRef = doc("whose kept rows are classified")
    model: Judge = doc("the judge")
    prompt: str = doc("a prompt by name", "classify")
    requeries: int = doc("how often the judge is asked again when its labels cannot be read", 0, ge=0)


@dataclass(frozen=True, config=Strict)
class Schemes:
    """A 0-7 marking scheme a row, kept or dropped with the reason: written by a judge, or the guidelines of the problems."""

    revision: ClassVar[int] = 2
    problems: ProblemsRef = doc("whose kept rows get a scheme")
    model: Judge | None = doc("the judge that writes; without one the problems' own guidelines are taken", None)
    prompt: str = doc("a prompt by name", "scheme")
    requeries: int = doc("how often the judge is asked again when its scheme has no readable form", 0, ge=0)
    tester: Marker | None = doc(
        "who marks known answers by each scheme: the reference, nothing, the problem said again, another problem's proof, the "
        "reference without a key step",
        None,
    )
    tester_prompt: str | None = doc("the tester's prompt by name, as `prompt` in `grades`", None)
    keep: Named = doc(
        "what a scheme must fulfil to be marked by, asked in order; the first that refuses it names it", ["adds-up"]
    )


@dataclass(frozen=True, config=Strict)
class Base:
    """A file of a model's weights a row: from the hub, from a folder, or a tiny model made here from random numbers."""

    revision: ClassVar[int] = 2
    source: Literal["scratch", "folder", "hub", "tokenizer"] = doc(
        "where the weights come from; `tokenizer` is a folder without any, to count tokens with"
    )
    path: str | None = doc("the folder; `${VARIABLES}` come from the environment", None)
    id: str | None = doc("the hub id", None)
    commit: str | None = doc("the pinned commit on the hub", None)
    problems: ProblemsRef | None = doc("text from which a scratch model's tokenizer is trained", None)
    vocabulary: int = doc("tokens of a scratch model's byte-level BPE", 350, ge=270)
    hidden: Count = doc("hidden size (scratch)", 64)
    layers: Count = doc("layers (scratch)", 3)
    heads: Count = doc("attention heads of 32 dimensions (scratch)", 2)
    feed_forward: Count = doc("feed-forward size (scratch)", 192)
    initializer_range: float = doc(
        "standard deviation of the first weights; 0.02 learns nothing at this size", 0.08, gt=0
    )
    context: Count = doc("longest sequence (scratch)", 512)
    template: Literal["plain"] | None = doc(
        "a chat template for a model that has none: `plain` is `User: ... Assistant: ...`", None
    )
    seed: int = doc("of the first weights (scratch)", 0)


@dataclass(frozen=True, config=Strict)
class Responses:
    """One attempt at a problem a row, with why it stopped, its tokens and its cost."""

    revision: ClassVar[int] = 4
    problems: ProblemsRef = doc("whose kept rows are attempted")
    model: Annotated[str, Ref("api", "base", "sft", "grpo", *TAKEN)] = doc(
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


@dataclass(frozen=True, config=Strict)
class Grades:
    """One verdict on a response a row: a mark out of `out_of`, or none with the reason."""

    revision: ClassVar[int] = 2
    responses: Annotated[str, Ref("responses")] = doc("the attempts to grade")
    schemes: Annotated[str, Ref("schemes")] | None = doc("the marking schemes the judge is shown", None)
    grader: Annotated[str, Ref("api", "grader", *PROGRAMS, "human")] = doc(
        f"{MARKER}; or `human` for the marks that came with the attempts"
    )
    prompt: str | None = doc(PROMPT_OF_JUDGE, None)


@dataclass(frozen=True, config=Strict)
class Examples:
    """A training row, kept or dropped with the reason: from problems' own solutions, responses or grades, or a mixture."""

    revision: ClassVar[int] = 2
    problems: ProblemsRef | None = doc("take the problems' own solutions", None)
    responses: Annotated[str, Ref("responses")] | None = doc("take attempts as they are", None)
    grades: Annotated[str, Ref("grades")] | None = doc("take graded attempts", None)
    mix: dict[Annotated[str, Ref("examples")], Share] = doc("take other examples in these shares of the whole", {})
    join: dict[Annotated[str, Ref("examples")], Share] = doc(
        "take these shares of other examples' rows, drawn without repetition; 1 is all of them", {}
    )
    keep: Named = doc("selectors in the order they are asked; the first that refuses a row names it", [])
    prompt: str = doc("the solver's prompt by name", "solve")
    rows: Count | None = doc("how many rows a mixture has; without it, as many as the shares allow", None)
    seed: int = doc("of the order of rows", 0)


class Adapter(TypedDict):
    """Low-rank additions to the linear layers that are trained in their place (LoRA; QLoRA over 4-bit weights)."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    rank: Count
    alpha: Annotated[float, Field(gt=0)]
    dropout: NotRequired[Share]  # 0 without it
    layers: NotRequired[list[str]]  # names of the linear layers; all without it
    quantized: NotRequired[bool]  # QLoRA: the weights under it stand in 4 bits while training


Schedule = Literal["cosine", "linear", "constant", "constant_with_warmup"]


@dataclass(frozen=True, config=Strict)
class Sft:
    """A measured training step a row; the weights stand beside the table."""

    revision: ClassVar[int] = 2
    model: Weights = doc("where training starts")
    examples: Annotated[str, Ref("examples")] = doc("whose kept rows are learned")
    steps: Count | None = doc("optimizer steps; give this or `epochs`", None)
    epochs: float | None = doc("passes over the examples; give this or `steps`", None, gt=0)
    last_step: Count | None = doc(
        "stop after this step, although the schedule goes on to the end of `steps` or `epochs`", None
    )
    batch: Count = doc("examples in one step, over all devices; with `packing`, rows", 8)
    learning_rate: float = doc("at its highest", 3e-5, gt=0)
    schedule: Schedule = doc("of the learning rate", "cosine")
    floor: Share = doc("of the highest learning rate, where a cosine ends", 0.0)
    warmup: Share = doc("share of the steps that warm up", 0.03)
    beta2: Share = doc("of AdamW", 0.999)
    weight_decay: float = doc("of AdamW", 0.0, ge=0)
    clip: float = doc("largest norm of the gradient", 1.0, gt=0)
    max_length: Count = doc("tokens; no example is cut", 512)
    too_long: Literal["stop", "drop"] = doc(
        "an example longer than `max-length` stops the stage before training, or is left out and counted", "stop"
    )
    learn: Literal["answer", "assistant", "all"] = doc(
        "the last answer, every turn of the assistant, or the whole conversation", "answer"
    )
    packing: bool = doc("several examples share a row of `max-length` tokens; they do not see each other", False)
    adapter: Adapter | None = doc(
        "train low-rank additions `{rank: , alpha: , dropout: , layers: , quantized: }`, merged into the weights at the end",
        None,
    )
    evaluate: Annotated[str, Ref("examples")] | None = doc("other examples, whose loss is measured", None)
    evaluate_share: Share = doc("share of the examples that is not learned and whose loss is measured", 0.0, lt=1)
    evaluate_every: Count = doc("steps between measurements of the loss on them", 100)
    precision: Literal["float32", "bfloat16"] = doc("of the arithmetic", "float32")
    log_every: Count = doc("steps between rows of the table", 10)
    seed: int = doc("of the order of examples", 0)


class Preference(TypedDict):
    """How much a judge's or a reward model's taste counts, and for what."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    weight: float
    sees: NotRequired[Literal["summary", "all"]]  # what stands after the reasoning, or everything; `all` without it
    from_step: NotRequired[Annotated[int, Field(ge=0)]]  # 0 without it
    asks: NotRequired[list[Literal["proof", "answer", "code", "talk"]]]  # which problems; all without it
    prompt: NotRequired[str]  # of a judge that is asked alone


@dataclass(frozen=True, config=Strict)
class Grpo:
    """A measured training step a row; the weights and the rollouts stand beside the table."""

    revision: ClassVar[int] = 4
    model: Weights = doc("where training starts")
    problems: ProblemsRef = doc("whose kept rows are attempted")
    schemes: Annotated[str, Ref("schemes")] | None = doc("the marking schemes the judge is shown", None)
    grader: Marker = doc("as in `grades`")
    prompt: str | None = doc(PROMPT_OF_JUDGE, None)
    ask: str = doc("the solver's prompt by name", "solve")
    rewards: dict[str, float | dict[str, Any]] = doc(
        "named rewards and their weights, such as `{grade: 1, format: 0.1}`, or with arguments `{overlong: {weight: 1, buffer: 64}}`",
        {},
    )
    preferences: dict[Annotated[str, Ref("api", "grader", "base", "sft")], Preference] = doc(
        "further rewards by taste: a judge, or a model with one score a text, with `{weight: , sees: , from-step: , asks: , prompt: }`",
        {},
    )
    unscored: Literal["drop", "zero"] = doc(
        "an attempt without a verdict: `drop` gives it no gradient and leaves it out of its group's mean"
    )
    group: int = doc("attempts at each problem", 8, ge=2)
    problems_per_step: Count = doc("problems in one step", 16)
    steps: Count = doc("optimizer steps")
    learning_rate: float = doc("at its highest", 1e-6, gt=0)
    schedule: Schedule = doc("of the learning rate", "constant")
    warmup: Share = doc("share of the steps that warm up", 0.0)
    beta2: Share = doc("of AdamW", 0.999)
    weight_decay: float = doc("of AdamW", 0.0, ge=0)
    clip: float = doc("largest norm of the gradient", 1.0, gt=0)
    temperature: float = doc("of the rollouts", 1.0, gt=0)
    top_p: float = doc("nucleus sampling of the rollouts", 1.0, gt=0, le=1)
    max_tokens: Count = doc("the most tokens of one rollout", 128)
    loss: Literal["grpo", "dapo", "bnpo", "dr_grpo", "sequence_sum"] = doc(
        "how tokens are summed: `grpo` mean of each attempt's mean, `dapo` mean over all tokens of a step, `bnpo` of a batch, "
        "`dr_grpo` sum by attempts times `max-tokens`, `sequence_sum` sum by attempts (QED-Nano)",
        "dapo",
    )
    policy: Literal["clipped", "reinforce"] = doc(
        "the clipped ratio of PPO, or log-probabilities weighed by the ratio up to 1 + `epsilon-high`", "clipped"
    )
    scale: Literal["group", "batch", "none"] = doc("what the advantage is divided by the deviation of", "group")
    kl: float = doc("weight of the divergence from the reference, which is where training started", 0.0, ge=0)
    sync_reference: Count | None = doc("steps after which the reference becomes the model as it then is", None)
    entropy: float = doc("weight of the entropy: of its mean over tokens; with `sequence_sum` of its sum", 0.0, ge=0)
    epsilon: float = doc("clip below", 0.2, gt=0)
    epsilon_high: float | None = doc("clip above, if different", None, gt=0)
    iterations: Count = doc("updates for each batch of rollouts", 1)
    batches: Count = doc("steps that share one round of rollouts, each with its own part of them", 1)
    mask_truncated: bool = doc("leave cut-off rollouts out of the loss", False)
    adapter: Adapter | None = doc("train low-rank additions, as in `sft`", None)
    precision: Literal["float32", "bfloat16"] = doc("of the arithmetic", "float32")
    # Reasoning cache (QED-Nano): the policy thinks in turns, and is trained to go on from summaries of its own thoughts.
    summarizer: Judge | None = doc(
        "who sums up each turn of thought; with it the policy is trained on its own turns", None
    )
    turns: Count = doc("turns of thought before the state from which is gone on (`summarizer`)", 3)
    states: Count = doc("states of one problem that are trained on, of its turns and the one after (`summarizer`)", 2)
    turn_prompt: str = doc("the solver's prompt with a summary (`summarizer`)", "go-on")
    summary_prompt: str = doc("the summarizer's prompt (`summarizer`)", "summarize")
    # A second opinion, which is no reward: where the two drift apart, the reward is being gamed.
    hold_out: Marker | None = doc("a second grader, which marks some rollouts and rewards none", None)
    hold_out_prompt: str | None = doc("its rubric, where it is a judge asked alone", None)
    hold_out_every: Count = doc("steps between its samples", 10)
    hold_out_rows: Count = doc("rollouts in a sample", 16)
    hold_out_apart: Share | None = doc(
        "stop when the reward's marks exceed its own by so much more, as a share of full marks, than they did at first",
        None,
    )
    log_every: Count = doc("steps between rows of the table", 5)
    seed: int = doc("of the problems' order and the rollouts", 0)


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
class Scores:
    """One measured number a row, with its interval, its n and its share unscored.

    `models` x `problems` x `sampling` expand into entries `responses/<model>@<problems>` and `grades/...`.
    """

    revision: ClassVar[int] = 2
    models: list[Model] = doc("the models to measure", [])
    problems: list[ProblemsRef] = doc("the benchmarks; without `models`, the tables to measure", [])
    schemes: list[Annotated[str, Ref("schemes")]] = doc("a scheme for each benchmark, in the same order", [])
    sampling: dict[str, Sampling] = doc("named ways to sample, such as `sampled` and `greedy`", {})
    grader: Marker | None = doc("as in `grades`", None)
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
    tokenizer: Annotated[str, Ref("base", "sft", "grpo")] | None = doc(
        "whose tokens the lengths of `problems` are", None
    )
    measures: Named = doc("named measures; a `repeat` takes those it repeats", [])
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


KINDS: dict[str, type] = {
    "problems": Problems,
    "overlaps": Overlaps,
    "labels": Labels,
    "schemes": Schemes,
    "base": Base,
    "responses": Responses,
    "grades": Grades,
    "examples": Examples,
    "sft": Sft,
    "grpo": Grpo,
    "scores": Scores,
}
DECLARED = {"api": Api, "grader": Grader}  # no artifacts: what several entries refer to
ENTRY_TYPES = {**DECLARED, **KINDS}


# --------------------------------------------------------------------------------------------------- entries and edges


def kind_of(name: str) -> str:
    return name.partition("/")[0]


def references(entry: Any) -> list[str]:
    """Names of the entries that this one is made from, `api/...` included, in the order of its fields."""
    found = []
    hints = get_type_hints(type(entry), include_extras=True)
    for f in fields(entry):
        value = getattr(entry, f.name)
        if value is not None and ref_of(hints[f.name]) is not None:
            found.extend([value] if isinstance(value, str) else value)
    return [name for name in dict.fromkeys(found) if "/" in name]


def parents(entry: Any) -> list[str]:
    """Names of the artifacts that this entry reads: edges of the graph (a remote model or a grader is no artifact)."""
    return [name for name in references(entry) if kind_of(name) not in DECLARED]


def relied_on(entry: Any, declared: Mapping[str, Any]) -> dict[str, Any]:
    """The remote models and graders that an entry refers to, at any distance, by name."""
    found, stack = {}, references(entry)
    while stack:
        if (name := stack.pop()) in declared and name not in found:
            found[name] = declared[name]
            stack.extend(references(declared[name]))
    return dict(sorted(found.items()))


def grader_of(name: str, prompt: str | None, declared: Mapping[str, Any]) -> Grader:
    """The declared grader of that name; a judge or a program alone is one too."""
    return declared[name] if kind_of(name) == "grader" else Grader(judges=[name], prompt=prompt)


def graders_of(name: str, prompt: str | None, declared: Mapping[str, Any]) -> list[Grader]:
    """The grader, whom it escalates to, and so on; a judge without a grader of its own marks as the one before it does."""
    found = [grader_of(name, prompt, declared)]
    while found[-1].escalate_to is not None:
        found.append(then_of(found[-1], declared))
    return found


def then_of(grader: Grader, declared: Mapping[str, Any]) -> Grader:
    """Whom a grader escalates to."""
    if kind_of(grader.escalate_to) == "grader":
        return declared[grader.escalate_to]
    return Grader([grader.escalate_to], grader.prompt, grader.reference, requeries=grader.requeries)


# Tables that a kind opens besides its parents, by the fields that lead to them from its entry.
BEHIND = {
    "grades": ("responses.problems",),
    "examples": ("responses.problems", "grades.responses", "grades.responses.problems"),
    "scores": ("grades.responses", "grades.responses.problems"),
}


def reads(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> list[str]:
    """Names of all tables that an artifact reads: its parents, and what stands behind them.

    `entry_of` gives the entry of a name, from config or as the mapping that a table's stamp has.
    """
    names = parents(entry)
    for path in BEHIND.get(kind, ()):
        some = [entry]
        for step in path.split("."):
            values = [value_of(e, step) for e in some]
            found = [n for v in values for n in ([v] if isinstance(v, str) else v or [])]
            some = [entry_of(name) for name in found]
        names += found
    return list(dict.fromkeys([*names, *_given_through(kind, entry, entry_of)]))


def _given_through(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> list[str]:
    """The problems that attempts or human marks came with, back to those that a source was read for; [] if none came."""
    if kind == "responses" and entry.model == "given":
        names = [entry.problems]
    elif kind == "grades" and entry.grader == "human":
        names = [value_of(entry_of(entry.responses), "problems")]
    else:
        return []
    while "/" in (source := value_of(entry_of(names[-1]), "source")):
        names.append(source)
    return names


def origin_of(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> str | None:
    """The problems whose source holds the attempts or human marks that an entry takes."""
    return next(reversed(_given_through(kind, entry, entry_of)), None)


def value_of(entry: Any, name: str) -> Any:
    """A field of an entry, which is an object from config or a mapping from a stamp."""
    return entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name)


def ancestors(entries: Mapping[str, Any], name: str) -> Iterator[str]:
    """The artifacts that `name` is made from, at any distance, each once."""
    seen, stack = set(), parents(entries[name])
    while stack:
        if (parent := stack.pop()) not in seen:
            seen.add(parent)
            yield parent
            stack.extend(parents(entries[parent]))


def ref_of(hint: Any) -> Ref | None:
    """The reference inside a type such as `list[Annotated[str, Ref("x")]] | None`."""
    for argument in getattr(hint, "__metadata__", ()):
        if isinstance(argument, Ref):
            return argument
    return next((ref for part in get_args(hint) if (ref := ref_of(part)) is not None), None)


def canonical(entry: Any) -> str:
    """The entry as JSON with defaults filled and keys sorted: equal text means equal rows wanted."""
    return json.dumps(TypeAdapter(type(entry)).dump_python(entry), sort_keys=True, ensure_ascii=False)
