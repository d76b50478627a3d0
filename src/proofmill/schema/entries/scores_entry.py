"""Define the entry of `scores`: metrics of models on benchmarks."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from proofmill.schema import registry_items
from proofmill.schema.context import Context
from proofmill.schema.entries.response_entries import MAX_TOKENS, MIN_P, SCAFFOLD, STOP, SYSTEM, TOP_K
from proofmill.schema.fields import (
    RUBRIC,
    TOP_P,
    Count,
    Day,
    Entry,
    GraderRef,
    ModelRef,
    NamedItems,
    ProblemsRef,
    Ref,
    Share,
    Strict,
    WeightsRef,
    doc,
)
from proofmill.schema.names import WAY


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))  # strict mode refuses a mapping inside `Scores`
class Sampling:
    """A sampling setting of a benchmark."""

    attempts: Count = doc("Attempts at each problem.", 1)
    temperature: float = doc("Sampling temperature; 0 is greedy.", 1.0, ge=0)
    top_p: float = doc(TOP_P, 1.0, gt=0, le=1)
    top_k: Count | None = doc(TOP_K, None)
    min_p: float | None = doc(MIN_P, None, gt=0, le=1)
    max_tokens: Count | None = doc(MAX_TOKENS, None)
    stop: list[Annotated[str, Field(min_length=1)]] = doc(STOP, [])
    prompt: str | None = doc(
        "Name or path of the prompt. Default: `solve`; for `api/<name>` the one that fits `grader` (`answer`, `prove` or `solve-code`), else `solve-any`.",
        None,
    )
    system: str | None = doc(SYSTEM, None)
    seed: int = doc("Seed of the sampling.", 0)
    scaffold: str | dict[str, Any] | None = doc(SCAFFOLD, None)
    until: Literal["sign"] | dict[Literal["width"], Share] | None = doc(
        "Rule that ends the problems early, as in `responses`, with the grader and the `confidence` of these scores. By default, none.",
        None,
    )
    against: list[str] = doc("Models to compare with, for `until: sign`. They are asked all problems.", [])


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))  # as above
class PublishedSettings:
    """Settings of published results, as far as they are known, to compare with ours."""

    attempts: Count | None = doc("Attempts at each problem.", None)
    temperature: float | None = doc("Sampling temperature.", None)
    top_p: float | None = doc("Nucleus sampling.", None)
    top_k: Count | None = doc("Top-k sampling.", None)
    max_tokens: Count | None = doc("Maximum tokens of one response.", None)
    prompt: str | None = doc("Prompt, by our name if it is ours, else in words.", None)
    grader: str | None = doc("Grader, by our name if it is ours, else in words.", None)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))  # as above
class Published:
    """Published results of a model."""

    source: str = doc("Source: paper, table and page.")
    percent: dict[str, float] = doc("Percent of the points, by the names of benchmarks and of `averages`.", {})
    values: dict[str, float] = doc("Other numbers, such as tokens or seconds, likewise; `metric` names ours.", {})
    ours: str | None = doc("Model of `models` to compare with these numbers.", None)
    metric: str | None = doc("Metric of ours to compare, as the page names it (`avg@3`). Default: the first.", None)
    slice: str = doc("Slice of ours to compare: `all`, `training`, or `2 steps` of a problems table.", "all")
    settings: PublishedSettings = doc(
        "Settings that are known, `{attempts: , temperature: , top-p: , top-k: , max-tokens: , prompt: , grader: }`. The page names those that differ from ours.",
        PublishedSettings(),
    )


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))  # as above
class Claim:
    """A statement about two models that a comparison shows, refutes, or does not show."""

    statement: str = doc("Statement, as a sentence.", min_length=1)
    compare: list[str] = doc("`[model, baseline]`: the statement is that the model scores higher.")
    problems: str = doc("Benchmark of the comparison.")
    sampling: str = doc("Sampling setting of the comparison.")
    metric: str | dict[str, Any] | None = doc("Metric of the comparison, one of `metrics`. Default: the first.", None)


@dataclass(frozen=True, config=Strict)
class Scores(Entry):
    """One row is a metric with its confidence interval, sample size and unscored share.

    `models` x `problems` x `sampling` expand into entries `responses/<model>@<problems>` and `grades/...`.
    """

    revision: ClassVar[int] = 8
    models: list[ModelRef] = doc("Models to evaluate.", [])
    problems: list[ProblemsRef] = doc("Benchmarks. Without `models`, the tables whose texts are measured.", [])
    schemes: list[Annotated[str, Ref("schemes")]] = doc("Grading schemes, one table per benchmark, in order.", [])
    sampling: dict[str, Sampling] = doc("Sampling settings by name, such as `sampled` and `greedy`.", {})
    grader: GraderRef | None = doc("Grader, as in `grades`.", None)
    grader_prompt: str | None = doc(RUBRIC, None)
    grades: list[Annotated[str, Ref("grades")]] = doc("Existing tables of grades to evaluate.", [])
    gold_grades: Annotated[str, Ref("grades")] | None = doc(
        "Gold grades of the same responses, to compare `grades` with: by people, or by a program that is reliable for them.",
        None,
    )
    debias: list[Annotated[str, Ref("grades")]] = doc(
        "Grades of some of the same responses, by people or a better grader, that correct the scores of `grades`: a random draw, or those that `proofmill view` proposes.",
        [],
    )
    selected_by: list[Annotated[str, Ref("grades")]] = doc("Grades by which `best-at-k` selects, one per `grades`.", [])
    reduce: Literal["none", "mean", "median", "min", "max"] = doc("Combine several `grades` into one.", "none")
    tokenizer: WeightsRef | None = doc("Model whose tokenizer counts the tokens of `problems`.", None)
    metrics: NamedItems = doc("Metrics (listed below). With `repeat`, the default is those of the repeated entry.", [])
    compare: list[list[str]] = doc("Pairs `[model, baseline]` to compare problem by problem.", [])
    claims: dict[str, Claim] = doc(
        "Statements by name, `{statement: , compare: [model, baseline], problems: , sampling: , metric: }`. The score page and the stamp say for each: shown, refuted, or not shown at this size.",
        {},
    )
    at_equal_budget: str | None = doc(
        "Sampling setting that all others are compared with at equal tokens and at equal dollars: as a single attempt, as a majority vote, or as the best by `selected-by`.",
        None,
    )
    averages: dict[str, list[str]] = doc(
        "Means over benchmarks or over other averages, by name: `{code: [problems/a, problems/b], total: [code, maths]}`. Each member has the same weight, regardless of its size.",
        {},
    )
    published: dict[str, Published] = doc(
        "Published results by model: `{Qwen2.5-7B: {source: ..., percent: {code: 52.0}}}`. The score page shows them with their source, next to the `averages` or next to ours (`ours`); they are not in the table.",
        {},
    )
    released: dict[str, Day] = doc(
        "Days on which models of `models` were published, `{base/x: 2025-08-05}`. Scores are also split into problems from before that day and since.",
        {},
    )
    success_threshold: Share = doc("Minimum share of the points that counts as a success.", 1.0)
    confidence: float = doc("Confidence level of the intervals.", 0.95, gt=0, lt=1)
    resamples: Count = doc("Resamples of the problems, for intervals.", 2000)
    max_unscored: Share = doc("Maximum share of unscored responses. Above it, the stage stops.", 0.1)
    repeat: Annotated[str, Ref("scores")] | None = doc(
        "Repeat another `scores` entry for each of `seeds`, with everything it needs trained again.", None
    )
    seeds: list[Annotated[int, Field(ge=0)]] = doc("Seeds of `repeat`.", [])
    seed: int = doc("Seed of the resamples and of random sign flips.", 0)

    @property
    def until_rules(self) -> bool:
        """Return whether a rule ends the problems of a sampling setting."""
        return any(sampling.until for sampling in self.sampling.values())

    def scaffolds(self) -> dict[str, Any]:
        ways = self.sampling.items()
        return {
            f"sampling.{way}.scaffold": sampling.scaffold for way, sampling in ways if sampling.scaffold is not None
        }

    def faults(self, context: Context) -> Iterator[str]:
        metrics = context.lists["metrics"]
        yield from context.grading_faults(self.grader, self.grader_prompt, self.schemes)
        for faults in context.score_faults:
            yield from faults(self)
        ours = [reported.ours for reported in self.published.values() if reported.ours]
        for model in ours:
            if model not in context.entries:
                yield f"`published` compares with `{model}`; expected one of {context.among(model, context.entries)}"
        if unknown := [model for model in self.released if model not in self.models]:
            yield f"`released` names `{unknown[0]}`; expected one of {context.among(unknown[0], self.models)}"
        if len(set(self.seeds)) < len(self.seeds):
            yield f"`seeds` is {self.seeds}; expected each seed once."
        for way, sampling in self.sampling.items():
            yield from (f"sampling `{way}`: {fault}" for fault in context.asking_faults("prompt", sampling.prompt))
            if sampling.prompt is not None and (fault := context.prompt_fault(sampling.prompt)):
                yield f"sampling `{way}`: `prompt` {fault}"
            if sampling.system is not None and (fault := context.text_fault(sampling.system)):
                yield f"sampling `{way}`: `system` {fault}"
            if not WAY.match(way):
                yield f"sampling `{way}` is not a valid name; expected letters, digits, `-`, `_` and `.`, without `seed-` at the beginning. Rename it."
            if unknown := [model for model in sampling.against if model not in self.models]:
                yield f"sampling `{way}`: `against` names `{unknown[0]}`, which is not in `models`; expected one of {context.among(unknown[0], self.models)}"
            for model in self.models:
                yield from (f"sampling `{way}`: {fault}" for fault in context.sampling_faults(model, sampling))
        kernels = {m: context.kernel_of(m) for m in map(registry_items.name_of, self.metrics) if m in metrics}
        of_attempts = [m for m, kernel in kernels.items() if not isinstance(kernel, context.kernels.OfCorpus | None)]
        of_texts = [m for m, kernel in kernels.items() if isinstance(kernel, context.kernels.OfCorpus)]
        if of_texts and not (self.problems and self.tokenizer):
            yield f"metric `{of_texts[0]}` measures texts of problems; expected `problems` and `tokenizer`. Set them."
        if of_attempts and not (self.models or self.grades or self.repeat):
            yield f"metric `{of_attempts[0]}` measures responses; expected `models`, `grades` or `repeat`. Set one."
        yield from self._metric_faults(context, kernels)
        if self.repeat and (not self.seeds or self.models or self.grades or self.problems):
            yield "found `repeat` without `seeds`, or with `models`, `grades` or `problems`; expected `repeat` and `seeds` only. Set `seeds`, or remove the others."
        elif getattr(context.entries.get(self.repeat), "until_rules", False):
            yield "`repeat` names scores with `until`, which decides over problems, not over seeds; expected a fixed number of problems. Remove `until`."
        elif not (self.repeat or self.metrics):
            yield "`metrics` is missing; expected a list of metrics. Set it."
        elif not (self.repeat or self.models or self.grades or self.problems):
            yield "found nothing to evaluate; expected `models` and `problems`, `grades`, `problems`, or `repeat`. Set them."
        if self.models and not (self.problems and self.sampling and self.grader):
            yield "found `models` without `problems`, `sampling` or `grader`; expected all four. Set them."
        if self.schemes and len(self.schemes) != len(self.problems):
            yield f"found {len(self.schemes)} `schemes` for {len(self.problems)} benchmarks; expected one for each, in the same order."

    def _metric_faults(self, context: Context, kernels: Mapping[str, Any]) -> Iterator[str]:
        """Yield metrics that lack a field, and comparisons of models that are not evaluated."""
        for name, kernel in kernels.items():
            if isinstance(kernel, context.kernels.OfHuman) and not self.gold_grades:
                yield f"metric `{name}` needs gold grades; expected a grades/<name> as `gold-grades`. Set it."
            for k in [registry_items.split(item)[1] for item in self.metrics if registry_items.name_of(item) == name]:
                short = [way for way, sampling in self.sampling.items() if type(k) is int and sampling.attempts < k]
                if isinstance(kernel, context.kernels.OfProblem) and len(short) == len(self.sampling) > 0:
                    yield f"metric `{name}` needs {k} attempts, and no setting of `sampling` has them; expected `attempts` of at least {k}."
            if getattr(kernel, "needs", "") == "selecting" and not self.selected_by:
                yield f"metric `{name}` needs `selected-by`; expected a table of grades for each of `grades`. Set it."
        gold = getattr(context.entries.get(self.gold_grades), "grader", "human")
        if gold not in ("human", *context.lists["graders"]):
            yield f"`gold-grades` is {self.gold_grades}, whose grader is {gold}; expected grades by `human` or by a program."
        if self.debias and self.gold_grades:
            yield "found `debias` and `gold-grades`; expected one of them. Compare the graders in another `scores` entry."
        if self.debias and self.metrics and not kernels.keys() & {"avg-at-k", "solve-rate"}:
            yield "`debias` corrects mean grades, and none is in `metrics`; expected avg-at-k or solve-rate. Add one."
        if self.gold_grades and self.models:
            yield "found `gold-grades` with `models`; expected `grades` of the same responses. Remove `models`."
        for pair in self.compare:
            if len(pair) != 2:
                yield f"`compare` has {pair}; expected a pair `[model, baseline]`."
            elif self.models and (unmeasured := [model for model in pair if model not in self.models]):
                yield f"`compare` names `{unmeasured[0]}`, which is not in `models`; expected one of {context.among(unmeasured[0], self.models)}"
