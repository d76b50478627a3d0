"""One row of `scores` is a measured number with its interval, its n and its share unscored.

Intervals are clustered by problem: attempts at one problem are not independent (Miller 2024, "Adding Error Bars to
Evals", section 3.2); problems are resampled with replacement, each with all its attempts.

How we differ from the usual table of means:
1. Unscored attempts are left out of the mean and reported beside it; too large a share of them stops the stage.
2. Where every problem is all right or all wrong the interval is the exact binomial one (Clopper and Pearson 1934); where all
   have one value, a bootstrap would claim certainty, and the interval is Hoeffding's for that many problems.
3. Two models are compared problem by problem, with a permutation test; a difference that the run could not have shown is
   not called one.
4. Several seeds are several trainings: they are shown one by one and together, and the interval of the latter takes the
   problems as clusters, so it speaks of these problems' population, not of further seeds.
5. Graders are measured like models: against human marks of the same attempts.
"""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from proofmill import corpora, estimates, kinds, reports, statements
from proofmill.jobs import Job, run
from proofmill.measures import (
    MEASURES,
    OfAttempts,
    OfCorpus,
    OfHuman,
    OfPooled,
    OfProblem,
    OfRuns,
    label,
    per_problem,
)
from proofmill.named import split
from proofmill.progress import say
from proofmill.tables import TableError

SEED = re.compile(r"@seed-(\d+)")
LEVELS = range(2, 13)  # so many levels are worth a split of their own; one is no split, and many are hardly levels
RECENT = re.compile(r"(?<![0-9A-Za-z])(?:2024|2025)(?![0-9A-Za-z])")  # QED-Nano's split of ProofBench by year
COMPONENT_RESAMPLES = (
    200  # of the variance components, whose every resample goes through all rows: fewer of a large table
)
COMPONENT_ROWS = 1_000_000  # gone through for one interval

Rows = list[dict[str, Any]]


class Group(NamedTuple):
    """What is measured together: one model on one benchmark, sampled in one way, marked by one grader."""

    model: str
    problems: str
    sampling: str
    grader: str


def main(entry: kinds.Scores, job: Job) -> None:
    measures = [split(item) for item in entry.measures]
    found = [
        row for name, _ in measures if MEASURES[name].apply is None for row in shared_problems(entry.problems, job)
    ]
    found += _of_corpora([name for name, _ in measures if isinstance(MEASURES[name].apply, OfCorpus)], entry, job)
    groups = grouped(entry, job)
    for group, attempts in groups.items():
        where = f"{group.model} on {group.problems} ({group.sampling}) by {group.grader}"
        _gate(job.name, where, attempts, entry)
        for name, argument in measures:
            if not isinstance(MEASURES[name].apply, OfCorpus | None):
                found += _measured_rows(group, name, argument, attempts, entry)
    compared = list(_comparisons(groups, measures, entry))
    for row, p in zip(compared, estimates.holm([row["p"] for row in compared]), strict=True):
        row["p"] = p
    rows = found + compared
    page = reports.page(job.name, rows, entry)
    for line in page.splitlines():
        say(job.name, line)
    job.finish(rows, {"numbers": len(rows)}, page=page)


# ------------------------------------------------------------------------------------------------------------- attempts


def grouped(entry: kinds.Scores, job: Job) -> dict[Group, Rows]:
    """Graded attempts by group, with all that measures look at."""
    human = _marks(job, entry.human) if entry.human else {}
    selecting = {}
    for name in entry.selected_by:
        selecting |= _marks(job, name)
    groups: dict[Group, Rows] = defaultdict(list)
    homes: dict[Group, str] = {}
    for name in entry.grades:
        graded = job.parent(name).stamp["entry"]
        responses = job.parent(graded["responses"]).stamp["entry"]
        model, seed = SEED.sub("", responses["model"]), _seed(name)
        group = Group(model, responses["problems"], _way(name, responses), _grader(graded))
        if homes.setdefault(group, SEED.sub("", name)) != SEED.sub("", name):
            raise TableError(
                f"{job.name}: {homes[group]} and {name} both measure {model} on {group.problems} ({group.sampling}) by "
                f"{group.grader}; expected one. Measure them in two scores entries."
            )
        for row in _attempts(job, name, graded["responses"], responses["problems"]):
            known = {"seed": seed, "human": human.get(row["response"]), "selecting": selecting.get(row["response"])}
            groups[group].append({**row, **known})
    return groups if entry.merge == "none" else _merged(groups, entry.merge)


def _attempts(job: Job, grades: str, responses: str, problems: str) -> Iterator[dict]:
    """Rows of a grades table, joined with their responses and problems."""
    about = {row["problem"]: row for row in job.parent(problems).stream("problem", "level", "year")}
    written = job.parent(responses).stream("response", "writer", "tokens", "reasoning_tokens")
    columns = (
        "response", "problem", "attempt", "grade", "out_of", "reason", "well_formed", "answer", "stop", "opinions",
        "prompt_tokens", "tokens",
    )  # fmt: skip
    for row, wrote in zip(job.parent(grades).stream(*columns), written, strict=True):
        problem = about[row["problem"]]
        yield {
            **row,
            "level": problem["level"],
            "year": problem["year"],
            "writer": wrote["writer"],
            "response_tokens": wrote["tokens"],
            "reasoning_tokens": wrote["reasoning_tokens"],
        }


def _marks(job: Job, name: str) -> dict[str, tuple[float, int] | float]:
    """Marks by response: those of people as (mark, full marks)."""
    human = job.parent(name).stamp["entry"]["grader"] == "human"
    rows = job.parent(name).stream("response", "grade", "out_of")
    marks = (
        (r["response"], (r["grade"], r["out_of"]) if human else r["grade"]) for r in rows if r["grade"] is not None
    )
    return dict(marks)


def _seed(grades: str) -> int:
    """Of `repeat`: the name of grades has it also where their model has none, a remote one."""
    found = SEED.search(grades)
    return int(found[1]) if found else 0


def _way(grades: str, responses: Mapping) -> str:
    """How it was sampled: the name under `sampling`, or what the responses say."""
    if grades.count("@") > 1:
        return grades.split("@")[2]
    if responses["model"] in kinds.TAKEN:
        return "as they are"
    return "greedy" if responses["temperature"] == 0 else f"T={responses['temperature']:g}"


def _grader(graded: Mapping) -> str:
    """Who marked, with the prompt where that is what tells graders apart."""
    prompted = kinds.kind_of(graded["grader"]) == "api" and graded["prompt"]
    return f"{graded['grader']} ({graded['prompt']})" if prompted else graded["grader"]


def _merged(groups: Mapping[Group, Rows], how: str) -> dict[Group, Rows]:
    """Several graders of the same attempts as one: the mean, median, least or highest of the marks that were given."""
    merge = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}[how]
    found: dict[Group, Rows] = {}
    for key in dict.fromkeys(group[:3] for group in groups):
        members = [group for group in groups if group[:3] == key]
        by_response: dict[str, Rows] = defaultdict(list)
        for group in members:
            for row in groups[group]:
                by_response[row["response"]].append(row)
        if len({row["out_of"] for group in members for row in groups[group]}) > 1 or any(
            len(same) < len(members) for same in by_response.values()
        ):
            raise TableError(
                f"{', '.join(group.grader for group in members)}: marks on several scales, or of other attempts; expected grades "
                "of the same attempts on one scale to `merge`."
            )
        rows = []
        for same in by_response.values():
            marks = [row["grade"] for row in same if row["grade"] is not None]
            opinions = [{"round": "1", "grade": row["grade"]} for row in same]
            rows.append({**same[0], "grade": float(merge(marks)) if marks else None, "opinions": opinions})
        found[Group(*key, f"{how} of {', '.join(group.grader for group in members)}")] = rows
    return found


def _splits(attempts: Rows, given: bool) -> Iterator[tuple[str, Rows]]:
    """All attempts, and those of each seed, level, writer, and of IMO-ProofBench's and ProofBench's published splits."""
    yield "all", attempts
    keys = [("seed", "seed "), ("level", "")] + [("writer", "by ")] * given
    for key, prefix in keys:
        parts = sorted({row[key] for row in attempts if row[key] is not None})
        if len(parts) in LEVELS:
            for part in parts:
                yield f"{prefix}{part}", [row for row in attempts if row[key] == part]
    basic = [row for row in attempts if "Basic" in row["problem"]]
    recent = [row for row in attempts if RECENT.search(f"{row['problem']} {row['year']}")]
    for chosen, name, rest in ((basic, "Basic", "Advanced"), (recent if not basic else [], "2024/2025", "Others")):
        if chosen and len(chosen) < len(attempts):
            inside = {row["problem"] for row in chosen}
            yield name, chosen
            yield rest, [row for row in attempts if row["problem"] not in inside]


def _gate(name: str, where: str, attempts: Rows, entry: kinds.Scores) -> None:
    """Too many attempts without a verdict stop the stage: what is left would speak of other attempts than those made."""
    counted = [row for row in attempts if row["human"] is not None] if entry.human else attempts
    if not counted:
        raise TableError(
            f"{name}: none of the attempts of {where} has a human mark; expected marks of the same responses in `human`."
        )
    unscored = [row for row in counted if row["grade"] is None]
    share = len(unscored) / len(counted)
    if share > entry.max_unscored:
        reasons: dict[str, int] = defaultdict(int)
        for row in unscored:
            reasons[row["reason"]] += 1
        shown = ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items(), key=lambda item: -item[1])[:5])
        raise TableError(
            f"{name}: {share:.1%} of the attempts of {where} have no verdict ({shown}); expected at most {entry.max_unscored:.1%} "
            "(`max-unscored`). For what a server failed at, make the grades again (--forcerun); for unreadable verdicts see what "
            "the judge wrote (`verdict`) and ask more often (`requeries` of a `grader/<name>`); for `no-scheme` drop such problems "
            "(`has-scheme`); or raise the limit if you accept the gap."
        )


# ------------------------------------------------------------------------------------------------------------- measures


def _measured_rows(group: Group, name: str, argument: Any, attempts: Rows, entry: kinds.Scores) -> Iterator[dict]:
    kernel = MEASURES[name].apply
    given = group.model in kinds.TAKEN
    shown = label(name, argument, max(row["attempt"] for row in attempts) + 1)
    for part, chosen in _splits(attempts, given):
        if part != "all" and isinstance(kernel, OfRuns) and name not in ("run-mean", "tokens-per-run"):
            continue
        if isinstance(kernel, OfHuman):
            numbers = _against_human(kernel, argument, chosen, entry)
        elif isinstance(kernel, OfRuns):
            numbers = _of_runs(kernel, name, chosen, entry)
        else:
            numbers = measured(kernel, chosen, entry, argument)
        against = entry.human if isinstance(kernel, OfHuman) else None
        yield {**_NOTHING, **group._asdict(), "against": against, "measure": shown, "split": part, **numbers}


_NOTHING = dict.fromkeys(("model", "against", "problems", "sampling", "grader", "value", "low", "high", "p"))


def measured(kernel: Any, attempts: Rows, entry: kinds.Scores, argument: Any = None) -> dict[str, Any]:
    """value, low, high, n, problems_n and unscored of one measure over attempts."""
    if isinstance(kernel, OfPooled):
        return _pooled(kernel, attempts, entry, argument)
    by_problem = per_problem(kernel, argument, entry.success, attempts)
    means_P = np.array(list(by_problem.values()))
    if isinstance(kernel, OfAttempts):
        counts = [row for row in attempts if kernel.value(row) is not None]
    else:
        counts = [row for row in attempts if row["grade"] is not None and row["problem"] in by_problem]
    scale = max((row["out_of"] for row in attempts), default=None) if kernel.scale == "marks" else kernel.scale
    low, high = interval(means_P, scale, *_how(entry))
    return {
        "value": float(means_P.mean()) if len(means_P) else None,
        "low": low,
        "high": high,
        "n": len(counts),
        "problems_n": len(means_P),
        "unscored": _unscored(kernel, attempts, counts),
    }


def _how(entry: kinds.Scores) -> tuple[float, int, int]:
    return entry.confidence, entry.resamples, entry.seed


def _unscored(kernel: Any, attempts: Rows, counts: Rows) -> float:
    left_out = attempts if isinstance(kernel, OfAttempts) else [row for row in attempts if row["grade"] is None]
    missing = len(attempts) - len(counts) if isinstance(kernel, OfAttempts) else len(left_out)
    return missing / len(attempts) if attempts else 0.0


def _pooled(kernel: OfPooled, attempts: Rows, entry: kinds.Scores, argument: Any) -> dict[str, Any]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in attempts:
        if (value := kernel.value(row, argument)) is not None:
            sums[row["problem"]][0] += value
            sums[row["problem"]][1] += 1
    sums_PD = np.array(list(sums.values())).reshape(-1, 2)
    return _ratio(
        sums_PD, lambda totals_RD: totals_RD[:, 0] / totals_RD[:, 1], attempts, int(sums_PD[:, 1].sum()), entry
    )


def _ratio(
    sums_PD: np.ndarray, value: Any, attempts: Rows, n: int, entry: kinds.Scores, scale: float | None = None
) -> dict[str, Any]:
    """A value of totals over problems, with its bootstrap interval; where all are alike, the exact one at an end of the scale."""
    total = float(value(sums_PD.sum(axis=0, keepdims=True))[0]) if len(sums_PD) else math.nan
    low = high = None
    if len(sums_PD) and total == total:
        low, high = estimates.bootstrap(sums_PD, value, entry.confidence, entry.resamples, entry.seed)
        if low == high:
            all_one, none = scale is not None and total == scale, scale is not None and total == 0
            low, high = interval(np.full(len(sums_PD), total), scale, *_how(entry)) if all_one or none else (None, None)
    return {
        "value": None if total != total else total,
        "low": low,
        "high": high,
        "n": n,
        "problems_n": len(sums_PD),
        "unscored": 1 - n / len(attempts) if attempts else 0.0,
    }


def _of_runs(kernel: OfRuns, name: str, attempts: Rows, entry: kinds.Scores) -> dict[str, Any]:
    scored = [row for row in attempts if row["grade"] is not None]
    problems = {row["problem"] for row in attempts}
    low = high = None
    if name.startswith("variance-") and (kernel.value(attempts) is not None):
        low, high = _component_interval(kernel, attempts, entry)
    return {
        "value": kernel.value(attempts),
        "low": low,
        "high": high,
        "n": len(scored),
        "problems_n": len(problems),
        "unscored": 1 - len(scored) / len(attempts),
    }


def _component_interval(kernel: OfRuns, attempts: Rows, entry: kinds.Scores) -> tuple[float | None, float | None]:
    """By drawing problems again: one drawn twice is two problems."""
    by_problem: dict[str, Rows] = defaultdict(list)
    for row in attempts:
        by_problem[row["problem"]].append(row)
    pieces, rng, found = list(by_problem.values()), np.random.default_rng(entry.seed), []
    for _ in range(min(COMPONENT_RESAMPLES, max(20, COMPONENT_ROWS // len(attempts)))):
        drawn = [
            {**row, "problem": place}
            for place, piece in enumerate(rng.integers(len(pieces), size=len(pieces)))
            for row in pieces[piece]
        ]
        if (value := kernel.value(drawn)) is not None:
            found.append(value)
    tail = (1 - entry.confidence) / 2
    return tuple(map(float, np.quantile(found, [tail, 1 - tail]))) if found else (None, None)


def _against_human(kernel: OfHuman, argument: Any, attempts: Rows, entry: kinds.Scores) -> dict[str, Any]:
    """How a grader agrees with human marks of the same attempts, over those that both have marked."""
    marked = [row for row in attempts if row["human"] is not None]
    both = [row for row in marked if row["grade"] is not None]
    out_of = {row["human"][1] for row in both}
    if kernel.marks and any(row["human"][1] != row["out_of"] for row in both):
        raise TableError(
            f"{entry.human}: human marks are out of {', '.join(map(str, sorted(out_of)))}, the grader's out of "
            f"{both[0]['out_of']}; expected one scale. Measure decisions instead: balanced-accuracy, cohen-kappa."
        )
    agreement = kernel.agreement
    if not kernel.marks:
        scales = [max((row["out_of"] for row in both), default=1), max(out_of, default=1)]
        if len(out_of) > 1 or argument > max(scales) or (scales[0] != scales[1] and 1 not in scales):
            raise TableError(
                f"{entry.human}: human marks are out of {', '.join(map(str, sorted(out_of)))}, the grader's out of {scales[0]}, and a "
                f"decision is made from {argument:g}; expected one scale, or right and wrong (out of 1) on one side, and a "
                "threshold within it."
            )
        agreement = agreement(*(1 if scale == 1 else argument for scale in scales))
    by_problem: dict[str, Rows] = defaultdict(list)
    for row in both:
        by_problem[row["problem"]].append(row)
    vectors = []
    for rows in by_problem.values():
        sums = agreement.sums(np.array([r["grade"] for r in rows]), np.array([r["human"][0] for r in rows]))
        if sums is not None:
            vectors.append(sums)
    scale = both[0]["out_of"] if kernel.scale == "marks" and both else kernel.scale
    return _ratio(np.array(vectors), agreement.value, marked, len(both), entry, scale)


def interval(
    means_P: np.ndarray, scale: float | None, confidence: float, resamples: int, seed: int
) -> tuple[float | None, float | None]:
    """Of a mean over problems: exact where each is 0 or the scale, else the bootstrap; without spread a bound that needs none."""
    if len(means_P) == 0:
        return None, None
    if scale is not None and np.all((means_P == 0) | (means_P == scale)):
        low, high = estimates.clopper_pearson(int((means_P == scale).sum()), len(means_P), confidence)
        return scale * low, scale * high
    if np.all(means_P == means_P[0]):
        return _without_spread(float(means_P[0]), len(means_P), scale, 1 - confidence)
    sums_PD = np.column_stack([means_P, np.ones(len(means_P))])
    return estimates.bootstrap(
        sums_PD, lambda totals_RD: totals_RD[:, 0] / totals_RD[:, 1], confidence, resamples, seed
    )


def _without_spread(mean: float, n: int, scale: float | None, alpha: float) -> tuple[float | None, float | None]:
    """Hoeffding's inequality (1963, theorem 2); nothing without a scale."""
    if scale is None:
        return None, None
    margin = scale * math.sqrt(math.log(2 / alpha) / (2 * n))
    return max(0.0, mean - margin), min(scale, mean + margin)


# ---------------------------------------------------------------------------------------------------------- comparisons


def _comparisons(groups: Mapping[Group, Rows], measures: Sequence, entry: kinds.Scores) -> Iterator[dict]:
    """Differences of two models by problem, for each pair of `compare`, benchmark, sampling and measure of problems."""
    for model, baseline in entry.compare:
        measured_ = sorted({group.model for group in groups})
        if missing := [name for name in (model, baseline) if name not in measured_]:
            raise TableError(
                f"`compare` names {missing[0]}, which is not measured; expected some of {', '.join(measured_)}."
            )
        pairs = [(g, g._replace(model=baseline)) for g in groups if g.model == model]
        for group, other in pairs:
            if other not in groups:
                continue
            for name, argument in measures:
                kernel = MEASURES[name].apply
                if isinstance(kernel, OfAttempts | OfProblem):
                    yield _difference(group, other, groups, name, argument, entry)


def _difference(
    group: Group, other: Group, groups: Mapping[Group, Rows], name: str, argument: Any, entry: kinds.Scores
) -> dict[str, Any]:
    kernel = MEASURES[name].apply
    ours, theirs = (per_problem(kernel, argument, entry.success, groups[g]) for g in (group, other))
    shared = [problem for problem in ours if problem in theirs]
    differences_P = np.array([ours[problem] - theirs[problem] for problem in shared])
    sums_PD = np.column_stack([differences_P, np.ones(len(shared))])
    both = groups[group] + groups[other]
    counts = [row for row in both if row["problem"] in set(shared) and row["grade"] is not None]
    numbers = _ratio(sums_PD, lambda totals_RD: totals_RD[:, 0] / totals_RD[:, 1], both, len(counts), entry)
    p = estimates.paired_permutation(differences_P, entry.seed) if len(shared) else 1.0
    attempts = max(row["attempt"] for row in groups[group]) + 1
    return {
        **_NOTHING,
        **group._asdict(),
        "against": other.model,
        "measure": label(name, argument, attempts),
        "split": "all",
        **numbers,
        "p": p,
    }


# ------------------------------------------------------------------------------------------------------------- problems


def _of_corpora(names: Sequence[str], entry: kinds.Scores, job: Job) -> Iterator[dict]:
    """Numbers of the texts of each table of problems, over all of them and by logic steps."""
    if not names:
        return
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.parent(entry.tokenizer).weights())
    for problems in entry.problems:
        lengths = corpora.measured(tokenizer, job.parent(problems).rows("statement", "solution"))
        parts = {"all": lengths}
        steps = sorted(set(lengths.steps_N.tolist()))
        parts |= {f"{n} steps": lengths.where(lengths.steps_N == n) for n in steps if len(steps) in LEVELS}
        for name in names:
            for part, chosen in parts.items():
                value, n = MEASURES[name].apply.value(chosen), len(chosen.steps_N)
                numbers = {"value": value, "n": n, "problems_n": n, "unscored": 0.0}
                if name.endswith("-mean"):
                    field_N = getattr(chosen, corpora.TEXTS[name.removesuffix("-mean")][0])
                    numbers["low"], numbers["high"] = interval(field_N.astype(float), None, *_how(entry))
                yield {**_NOTHING, "problems": problems, "measure": name, "split": part, **numbers}


def shared_problems(names: Sequence[str], job: Job) -> Iterator[dict]:
    """For each two tables, how many kept problems they share by normalised statement: an exact count."""
    kept = {name: {statements.normal(row["statement"]) for row in job.parent(name).rows("statement")} for name in names}
    for one, other in combinations(names, 2):
        shared = float(len(kept[one] & kept[other]))
        size = len(kept[one]) + len(kept[other])
        exact = {"value": shared, "low": shared, "high": shared, "n": size, "problems_n": size, "unscored": 0.0}
        yield {**_NOTHING, "problems": f"{one} & {other}", "measure": "shared-problems", "split": "all", **exact}


if __name__ == "__main__":
    run(main)
