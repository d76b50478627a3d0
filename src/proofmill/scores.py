"""Score models and graders. One row is the value of a metric with its interval, its n and its share unscored.

Intervals are clustered by problem, since attempts at one problem are not independent (Miller 2024, "Adding Error Bars
to Evals", section 3.2). They allow for problems that were not drawn (metrics/uncertainty/intervals.py).

Differences from the usual table of means:
1. Unscored attempts are excluded from the mean and reported next to it. Too large a share of them stops the stage.
2. Two models are compared problem by problem. The interval of a difference inverts the test whose p is next to it
   (metrics/uncertainty/paired.py). A difference too small for the run to show is not reported as one.
3. Several seeds are several trainings. The difference of two models is then tested over other seeds and other problems.
   The interval of one model's score is over other problems only.
4. If attempts are truncated, empty, unparsable or without an answer, the page warns next to the score. Every score of
   final answers comes with the share of attempts in which one was found.
5. Graders are scored like models, against human grades of the same attempts.
6. Results reported by others are on the page with their source (`published`), and are not rows of the table.
7. Scaffolds are compared at equal tokens and equal dollars (`at-equal-budget`), and each has its curve (budgets.py).
8. A claim is stated before the run, and its result is one sentence: shown, refuted, or not shown (claims.py).
"""

from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.joins import ById
from proofmill.artifacts.joins import attempts as joined
from proofmill.estimation.stopping import name_rule
from proofmill.graders.judges import MERGES
from proofmill.metrics import averages, budgets, claims, published, text_lengths
from proofmill.metrics import page as pages
from proofmill.metrics.attempt_table import AttemptTable, Row, Rows, count, is_scored, where
from proofmill.metrics.comparisons import adjust, comparisons
from proofmill.metrics.kernels import OfCorpus, OfTraining
from proofmill.metrics.metrics import FOUND, kernel_of, label
from proofmill.metrics.notices import of_attempts as notices_of
from proofmill.metrics.score_rows import BLANK, LEVELS, Cell, compute_rows, count_confusions, interval_options
from proofmill.metrics.uncertainty import debiased_rows
from proofmill.metrics.uncertainty.intervals import of_mean
from proofmill.rewards.format_checks import FORMS
from proofmill.runtime.progress import log
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import TableError
from proofmill.schema.fields import GIVEN_RESPONSES, require
from proofmill.schema.kinds import list_trained
from proofmill.schema.names import kind_of, parse_seed, sampling_of, without_seed
from proofmill.schema.registry_items import name_of, split
from proofmill.text import statements
from proofmill.text.seen_texts import hash64


def main(entry: Scores, job: Job) -> None:
    metrics = [split(item) for item in entry.metrics]
    measured = [row for name, _ in metrics if kernel_of(name) is None for row in count_shared(entry.problems, job)]
    measured += _of_corpora([some for some in metrics if isinstance(kernel_of(*some), OfCorpus)], entry, job)
    measured += _of_trainings(entry, job)
    groups = group_attempts(entry, job)
    for group, attempts in groups.items():
        _gate(job.name, _where(group), attempts, entry)
    notices = {group: list(notices_of(attempts)) for group, attempts in groups.items()}
    of_attempts, settled = score_groups(groups, entry)
    rows = measured + of_attempts
    warnings = [f"{_where(group)}: {sentence}" for group, sentences in notices.items() for sentence in sentences]
    calls = list(_of_calls(entry, job))
    confusions = {cell: counts for cell, rows_of in groups.items() if (counts := count_confusions(rows_of))}
    sentences, others = [claim.sentence for claim in settled], published.table(entry, rows, groups)
    labels = debiased_rows.notices(groups, metrics, entry)
    scales = dict.fromkeys((cell.grader, row["max_points"]) for cell, some in groups.items() for row in some)
    sheet = pages.page(job.name, rows, entry, notices | labels, sentences, calls, confusions, others, scales)
    stamped = {claim.name: claim.to_stamp() for claim in settled}
    job.finish(rows, {"numbers": len(rows)}, page=sheet, notices=[*warnings, *calls], claims=stamped)
    for claim in settled:
        log(job.name, claim.sentence)
    if low := sum(map(bool, notices.values())):
        log(job.name, f"{low} of {len(groups)} scores have truncated, empty or unparsable attempts; see the score page")


def score_groups(groups: Mapping[Cell, Rows], entry: Scores) -> tuple[list[dict], list[claims.Settled]]:
    """Return the rows of all metrics and comparisons of graded attempts, and the claims with their outcomes."""
    metrics = [split(item) for item in entry.metrics]
    measured: list[dict] = []
    for group, attempts in groups.items():
        answers_found = [(name, None) for name in FOUND if attempts[0]["reads"] and not entry.gold_grades]
        extra = [metric for metric in answers_found if metric not in metrics]
        selected = [*metrics[:1], *extra, *metrics[1:]]
        of_attempts = [some for some in selected if not isinstance(kernel_of(*some), OfCorpus | OfTraining | None)]
        measured += compute_rows(group, of_attempts, attempts, entry)
    measured += averages.average(measured, groups, entry)
    measured += debiased_rows.compute(groups, metrics, entry) if entry.debias else ()
    measured += budgets.points(groups, entry)
    compared = [
        *comparisons(groups, metrics, entry),
        *averages.differences(groups, metrics, entry),
        *budgets.comparisons(groups, entry),
        *(debiased_rows.compare(groups, metrics, entry) if entry.debias else ()),
    ]
    adjust(compared)
    return measured + compared, claims.settle(groups, compared, entry)


# What a rule over problems, and one at each problem, means for the numbers.
EFFECTS = (
    "a rule ended the calls, so intervals and p hold at any number of problems, and other metrics have none",
    "a rule ended the attempts at each problem, so their mean is no estimate of its pass rate and has no interval",
)


def _of_calls(entry: Scores, job: Job) -> Iterator[str]:
    """Yield the notices about the calls for the responses and the grades: what was odd, and what a rule ended."""
    for name in dict.fromkeys(
        [*(job.parent(each).stamp["entry"]["responses"] for each in entry.grades), *entry.grades]
    ):
        stamp = job.parent(name).stamp
        yield from (f"{name}: {sentence}" for sentence in stamp.get("calls_noticed") or ())
        rule = name_rule(stamp["entry"].get("until"))
        yield from (f"{name}: {sentence}; {EFFECTS[rule == 'pass-rate']}" for sentence in stamp.get("ended") or ())


def _where(group: Cell) -> str:
    return f"{group.model} on {group.problems} ({group.sampling}) by {group.grader}"


# ------------------------------------------------------------------------------------------------------------- attempts


def group_attempts(entry: Scores, job: Job) -> dict[Cell, Rows]:
    """Return the graded attempts by cell (model, problems, sampling, grader), with every field that metrics read.

    Raises TableError if two grades tables fill one cell, or if graders to merge graded different attempts.
    """
    names: dict[Cell, list[str]] = {}
    for name in entry.grades:
        graded = job.parent(name).stamp["entry"]
        responses = job.parent(graded["responses"]).stamp["entry"]
        model, problems = without_seed(responses["model"]), without_seed(responses["problems"])
        group = Cell(model, problems, name_sampling(name, responses), name_grader(graded))
        same = names.setdefault(group, [])
        same.append(name)
        if without_seed(same[0]) != without_seed(name):
            raise TableError(
                f"{job.name}: {without_seed(same[0])} and {name} both score {group.model} on {group.problems} "
                f"({group.sampling}) by {group.grader}; expected one. Score them in two `scores` entries."
            )
    labels = [entry.gold_grades] if entry.gold_grades else entry.debias
    human = _verdicts(job, labels, ("grade", "max_points"))
    selecting = _verdicts(job, entry.selected_by, ("grade", "tokens", "cost"))
    groups: dict[Cell, Rows] = {
        group: attempts
        for group, same in names.items()
        if (attempts := AttemptTable(row for name in same for row in _read_known(entry, job, name, human, selecting)))
    }
    return groups if entry.reduce == "none" else _merge(groups, entry.reduce)


def _verdicts(job: Job, names: Sequence[str], columns: Sequence[str]) -> Mapping[str, Row]:
    """Return the verdicts of grades tables by response; a later table overrides an earlier one."""
    tables: list[Any] = [ById(job.parent(name), "response", *columns) for name in reversed(names)]
    return ChainMap(*tables)


def _read_known(
    entry: Scores, job: Job, grades: str, human: Mapping[str, Row], selecting: Mapping[str, Row]
) -> Iterator[dict]:
    """Yield the rows of a grades table, with every field that metrics read."""
    responses = job.parent(grades).stamp["entry"]["responses"]
    sampled = job.parent(responses).stamp["entry"]
    shared = {
        "seed": parse_seed(grades),
        "loader": _loader(job, sampled["problems"]),
        "max_tokens": None if sampled["model"] in GIVEN_RESPONSES or sampled["rollouts"] else sampled["max_tokens"],
        "reads": job.parent(grades).stamp.get("reads"),
        "until": name_rule(sampled["until"]),
    }
    for row in _attempts(job, grades, responses, [form for form in FORMS if f"{form}-rate" in entry.metrics]):
        human_grade, selected = human.get(row["response"]), selecting.get(row["response"], {})
        yield {
            **row,
            **shared,
            "response": row["response"] if entry.reduce != "none" else None,  # no metric reads it
            "human": (human_grade["grade"], human_grade["max_points"])
            if human_grade and is_scored(human_grade)
            else None,
            "selecting": selected.get("grade"),
            "selecting_tokens": selected.get("tokens"),
            "selecting_cost": selected.get("cost"),
        }


OF_GRADE = (
    "problem", "attempt", "grade", "max_points", "reason", "well_formed", "answer", "answer_extraction", "stop_reason", "opinions",
    "prompt_tokens", "tokens",
)  # fmt: skip


def _attempts(job: Job, grades: str, responses: str, forms: Sequence[str] = ()) -> Iterator[dict]:
    """Yield the rows of a grades table, with the fields of their responses and problems that metrics read."""
    of_response = ("writer", "tokens", "reasoning_tokens", "cost", *(("text", "reasoning") if forms else ()))
    of_problem = ("level", "year", "date")
    for response, problem, grade in joined(job.parent, responses, of_response, of_problem, grades, OF_GRADE):
        opinions = (grade or {}).get("opinions") or ()
        text = response.get("text") if response.get("reasoning") is None else None
        yield {
            **(grade or {}),
            "problem": response["problem"],
            # Only the grades of the first round: the texts of a panel would take most of the memory.
            "opinions": tuple(o["grade"] for o in opinions if o["round"] == "1"),
            "level": problem["level"],
            "year": problem["year"],
            "date": problem["date"],
            "writer": response["writer"],
            "response_tokens": response["tokens"],
            "reasoning_tokens": response["reasoning_tokens"],
            "response_cost": response["cost"],
            # A text whose reasoning is separate has no form to measure.
            "forms": None if text is None else tuple(form for form in forms if FORMS[form](text)),
        }


def _loader(job: Job, problems: str) -> str | None:
    """Return the loader that problems come from, through any tables; the source if the stamp names no loader."""
    stamp = job.parent(problems).stamp
    return stamp.get("loader", stamp["entry"]["source"])


def name_sampling(grades: str, responses: Mapping) -> str:
    """Return the name of the sampling setting: its name under `sampling`, or one from the entry of the responses."""
    if named := sampling_of(grades):
        return named
    if responses["model"] in GIVEN_RESPONSES:
        return "as they are"
    return "greedy" if responses["temperature"] == 0 else f"T={responses['temperature']:g}"


def name_grader(graded: Mapping) -> str:
    """Return the grader's name; for a single judge with its prompt, which distinguishes such graders."""
    prompted = kind_of(graded["grader"]) == "api" and graded["grader_prompt"]
    return f"{graded['grader']} ({graded['grader_prompt']})" if prompted else without_seed(graded["grader"])


def _merge(groups: Mapping[Cell, Rows], how: str) -> dict[Cell, Rows]:
    """Merge several graders of the same attempts into one: the mean, median, least or highest of their grades."""
    merged: dict[Cell, Rows] = {}
    for key in dict.fromkeys(group[:3] for group in groups):
        members = [group for group in groups if group[:3] == key]
        graders = ", ".join(group.grader for group in members)
        merged[Cell(*key, f"{how} of {graders}")] = AttemptTable(
            _merge_rows([groups[one] for one in members], how, graders)
        )
    return merged


def _merge_rows(members: Sequence[Rows], how: str, graders: str) -> Iterator[dict]:
    """Yield each attempt of the first member, with one grade merged from all members."""
    places: list[dict[str, int]] = [{row["response"]: place for place, row in enumerate(rows)} for rows in members[1:]]
    scales = {row["max_points"] for rows in members for row in rows}
    if len(scales) > 1 or any(len(rows) != len(members[0]) for rows in members):
        raise _unlike(graders)
    for row in members[0]:
        try:
            same = [row, *(rows[at[row["response"]]] for rows, at in zip(members[1:], places, strict=True))]
        except KeyError:
            raise _unlike(graders) from None
        grades = [one["grade"] for one in same if is_scored(one)]
        opinions = tuple(one["grade"] for one in same)
        yield {**row, "grade": float(MERGES[how](grades)) if grades else None, "opinions": opinions}


def _unlike(graders: str) -> TableError:
    return TableError(
        f"{graders}: grades on several scales, or of different attempts; expected the same attempts on one scale. "
        "Fix `grades`, or remove `reduce`."
    )


def _gate(name: str, place: str, attempts: Rows, entry: Scores) -> None:
    """Raise TableError if too many attempts have no verdict, since the others would not represent all attempts."""
    counted = where(attempts, lambda row: row["human"] is not None) if entry.gold_grades else attempts
    if not counted:
        raise TableError(
            f"{name}: none of the attempts of {place} has a human grade; expected grades of the same responses in `gold-grades`. "
            "Fix `gold-grades`, or remove it."
        )
    share = (len(counted) - count(counted, is_scored)) / len(counted)
    if share > entry.max_unscored:
        reasons = Counter(row["reason"] for row in counted if not is_scored(row))
        shown = ", ".join(f"{n:,} {reason}" for reason, n in reasons.most_common(5))
        raise TableError(
            f"{name}: {share:.1%} of the attempts of {place} have no verdict ({shown}); expected at most {entry.max_unscored:.1%} "
            "(`max-unscored`). For failed calls, run `proofmill invalidate` on the grades. For unparsable verdicts, read the "
            "outputs (`verdict`), fix the prompt and rerun, or raise `parse-retries` of the `grader/<name>`. For `no-scheme`, drop "
            "such problems (`has-scheme`). To accept the gap, raise the limit."
        )


# ------------------------------------------------------------------------------------------------------------- problems


def _of_corpora(metrics: Sequence[tuple[str, Any]], entry: Scores, job: Job) -> Iterator[dict]:
    """Yield the text metrics of each problems table, over all problems and by number of logic steps."""
    if not metrics:
        return
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.parent(require(entry.tokenizer)).weights())
    for problems in entry.problems:
        lengths = text_lengths.count_tokens(tokenizer, job.parent(problems).stream("statement", "solution", kept=True))
        parts = {"all": lengths}
        steps = sorted(set(lengths.steps_N.tolist()))
        parts |= {f"{n} steps": lengths.where(lengths.steps_N == n) for n in steps if len(steps) in LEVELS}
        for name, argument in metrics:
            kernel, metric = kernel_of(name, argument), label(name, argument, 0)
            for part, chosen in parts.items():
                value, n = kernel.value(chosen), len(chosen.steps_N)
                numbers = {"value": value, "n": n, "n_problems": n, "unscored": 0.0}
                if kernel.mean_of:
                    length_N = getattr(chosen, kernel.mean_of).astype(float)
                    numbers["low"], numbers["high"] = of_mean(length_N, None, *interval_options(entry))
                yield {**BLANK, "problems": problems, "metric": metric, "slice": part, **numbers}


def _of_trainings(entry: Scores, job: Job) -> Iterator[dict]:
    """Yield the numbers of the trainings of `models`, and what they save against their baselines in `compare`."""
    trained = [job.parent(model) for model in entry.models if kind_of(model) in list_trained()]
    for name in map(name_of, entry.metrics):
        if isinstance(kernel := kernel_of(name), OfTraining):
            numbers = {table.name: kernel.value(table.stamp, table.folder) for table in trained}
            known = {model: number for model, number in numbers.items() if number is not None}
            shared = {**BLANK, "metric": name, "n": 1, "n_problems": 0, "unscored": 0.0}
            for model, number in known.items():
                yield {**shared, "model": model, "slice": "training", "value": number}
            for model, baseline in (pair for pair in entry.compare if {*pair} <= known.keys()):
                saved = {"value": known[baseline] - known[model], "slice": f"saved against {baseline}"}
                yield {**shared, "model": model, "baseline": baseline, **saved}


def count_shared(names: Sequence[str], job: Job) -> Iterator[dict]:
    """Yield the number of kept problems that each pair of tables shares, by a digest of the normalized statement. Exact."""
    kept = {
        name: {hash64(statements.normal(row["statement"])) for row in job.parent(name).stream("statement", kept=True)}
        for name in names
    }
    for one, other in combinations(names, 2):
        shared = float(len(kept[one] & kept[other]))
        size = len(kept[one]) + len(kept[other])
        exact = {"value": shared, "low": shared, "high": shared, "n": size, "n_problems": size, "unscored": 0.0}
        yield {**BLANK, "problems": f"{one} & {other}", "metric": "shared-problems", "slice": "all", **exact}


if __name__ == "__main__":
    run(main)
