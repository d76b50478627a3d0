"""One row of `scores` is a measured number with its interval, its n and its share unscored.

Intervals are clustered by problem: attempts at one problem are not independent (Miller 2024, "Adding Error Bars to
Evals", section 3.2); problems are resampled with replacement, each with all its attempts.

How we differ from the usual table of means:
1. Unscored attempts are left out of the mean and reported beside it; too large a share of them stops the stage.
2. If every problem is all right or all wrong, the interval is the exact binomial one (Clopper and Pearson 1934). If all
   problems have one value, a bootstrap would claim certainty; the interval is then Hoeffding's for that many problems.
3. Two models are compared problem by problem, with a permutation test. A difference too small for the run to show is
   not reported as one.
4. Several seeds are several trainings, shown one by one and together. The joint interval takes the problems as
   clusters: it describes the population of these problems, not further seeds.
5. Marks that are low because attempts were cut off, empty, unreadable or without an answer are shown with a sentence
   that says so. Beside every score of final answers stands the share of attempts in which one is found.
6. Graders are measured like models, against human marks of the same attempts.
7. What others report stands on the page with its source (`published`), and is no row of the table.
8. Scaffolds are compared at equal tokens and equal dollars (`at-equal-budget`), and each has its curve (budgets.py).
9. A claim is stated before it is measured, and ends in one sentence: shown, refuted, or not shown (claims.py).
"""

from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.joins import ById
from proofmill.artifacts.joins import attempts as joined
from proofmill.graders.judges import MERGES
from proofmill.measures import averages, budgets, claims, estimates, text_lengths
from proofmill.measures import page as pages
from proofmill.measures.attempts import Attempts, Row, Rows, count, scored, where
from proofmill.measures.comparisons import comparisons
from proofmill.measures.intervals import interval
from proofmill.measures.measures import FOUND, MEASURES, OfCorpus
from proofmill.measures.notices import of_attempts as notices_of
from proofmill.measures.numbers import BLANK, LEVELS, Cell, interval_options, measured_rows
from proofmill.measures.text_lengths import TEXTS
from proofmill.runtime.progress import say
from proofmill.schema.errors import TableError
from proofmill.schema.fields import TAKEN, required
from proofmill.schema.named import split
from proofmill.schema.names import kind_of, sampling_of, seed_of, without_seed
from proofmill.schema.scores_entry import Scores
from proofmill.text import statements
from proofmill.text.seen import hash64


def main(entry: Scores, job: Job) -> None:
    measures = [split(item) for item in entry.measures]
    measured = [
        row for name, _ in measures if MEASURES[name].apply is None for row in shared_problems(entry.problems, job)
    ]
    measured += _of_corpora([name for name, _ in measures if isinstance(MEASURES[name].apply, OfCorpus)], entry, job)
    groups = grouped(entry, job)
    notices: dict[Cell, list[str]] = {}
    for group, attempts in groups.items():
        _gate(job.name, _where(group), attempts, entry)
        notices[group] = list(notices_of(attempts))
        found = [(name, None) for name in FOUND if attempts[0]["reads"] and not entry.human]
        beside = [measure for measure in found if measure not in measures]
        wanted = [*measures[:1], *beside, *measures[1:]]
        of_attempts = [some for some in wanted if not isinstance(MEASURES[some[0]].apply, OfCorpus | None)]
        measured += measured_rows(group, of_attempts, attempts, entry)
    measured += averages.averaged(measured, groups, entry)
    measured += budgets.points(groups, entry)
    compared = [
        *comparisons(groups, measures, entry),
        *averages.differences(groups, measures, entry),
        *budgets.comparisons(groups, entry),
    ]
    for row, p in zip(compared, estimates.holm([row["p"] for row in compared]), strict=True):
        row["p"] = p
    rows = measured + compared
    said = [f"{_where(group)}: {sentence}" for group, sentences in notices.items() for sentence in sentences]
    calls = list(_of_calls(entry, job))
    settled = claims.settled(groups, compared, entry)
    sheet = pages.page(job.name, rows, entry, notices, [claim.sentence for claim in settled], calls)
    stamped = {claim.name: claim.stamped() for claim in settled}
    job.finish(rows, {"numbers": len(rows)}, page=sheet, notices=[*said, *calls], claims=stamped)
    for claim in settled:
        say(job.name, claim.sentence)
    if low := sum(map(bool, notices.values())):
        say(job.name, f"attempts that were cut off, empty or unreadable stand beside {low} of {len(groups)} marks")


def _of_calls(entry: Scores, job: Job) -> Iterator[str]:
    """Yield what is to be noticed about the calls behind the numbers: of the responses, and of those who graded them."""
    for name in dict.fromkeys(
        [*(job.parent(each).stamp["entry"]["responses"] for each in entry.grades), *entry.grades]
    ):
        yield from (f"{name}: {sentence}" for sentence in job.parent(name).stamp.get("calls_noticed") or ())


def _where(group: Cell) -> str:
    return f"{group.model} on {group.problems} ({group.sampling}) by {group.grader}"


# ------------------------------------------------------------------------------------------------------------- attempts


def grouped(entry: Scores, job: Job) -> dict[Cell, Rows]:
    """Graded attempts by cell (model, problems, sampling, grader), with every field that measures read.

    Raises TableError when two grades tables fill one cell, or when graders to merge marked other attempts.
    """
    names: dict[Cell, list[str]] = {}
    for name in entry.grades:
        graded = job.parent(name).stamp["entry"]
        responses = job.parent(graded["responses"]).stamp["entry"]
        group = Cell(without_seed(responses["model"]), responses["problems"], _way(name, responses), _grader(graded))
        same = names.setdefault(group, [])
        same.append(name)
        if without_seed(same[0]) != without_seed(name):
            raise TableError(
                f"{job.name}: {without_seed(same[0])} and {name} both measure {group.model} on {group.problems} "
                f"({group.sampling}) by {group.grader}; expected one. Measure them in two scores entries."
            )
    human = _verdicts(job, [entry.human] if entry.human else [], ("grade", "out_of"))
    selecting = _verdicts(job, entry.selected_by, ("grade", "tokens", "cost"))
    groups: dict[Cell, Rows] = {
        group: attempts
        for group, same in names.items()
        if (attempts := Attempts(row for name in same for row in _known(entry, job, name, human, selecting)))
    }
    return groups if entry.merge == "none" else _merged(groups, entry.merge)


def _verdicts(job: Job, names: Sequence[str], columns: Sequence[str]) -> Mapping[str, Row]:
    """Verdicts of grades tables by response; of two on one response the later table's."""
    tables: list[Any] = [ById(job.parent(name), "response", *columns) for name in reversed(names)]
    return ChainMap(*tables)


def _known(
    entry: Scores, job: Job, grades: str, human: Mapping[str, Row], selecting: Mapping[str, Row]
) -> Iterator[dict]:
    """Rows of a grades table, with every field that measures read."""
    responses = job.parent(grades).stamp["entry"]["responses"]
    sampled = job.parent(responses).stamp["entry"]
    shared = {
        "seed": seed_of(grades),
        "loader": _loader(job, sampled["problems"]),
        "max_tokens": None if sampled["model"] in TAKEN or sampled["rollouts"] else sampled["max_tokens"],
        "reads": job.parent(grades).stamp.get("reads"),
    }
    for row in _attempts(job, grades, responses):
        marked, selected = human.get(row["response"]), selecting.get(row["response"], {})
        yield {
            **row,
            **shared,
            "response": row["response"] if entry.merge != "none" else None,  # no measure asks for it
            "human": (marked["grade"], marked["out_of"]) if marked and scored(marked) else None,
            "selecting": selected.get("grade"),
            "selecting_tokens": selected.get("tokens"),
            "selecting_cost": selected.get("cost"),
        }


OF_GRADE = (
    "problem", "attempt", "grade", "out_of", "reason", "well_formed", "answer", "answer_found", "stop", "opinions",
    "prompt_tokens", "tokens",
)  # fmt: skip


def _attempts(job: Job, grades: str, responses: str) -> Iterator[dict]:
    """Rows of a grades table, with the fields of their responses and problems that measures read."""
    of_response, of_problem = ("writer", "tokens", "reasoning_tokens", "cost"), ("level", "year")
    for response, problem, grade in joined(job.parent, responses, of_response, of_problem, grades, OF_GRADE):
        opinions = (grade or {}).get("opinions") or ()
        yield {
            **(grade or {}),
            "problem": response["problem"],
            # The marks of the first round alone: what the judges of a panel wrote would be most of the memory.
            "opinions": tuple(o["grade"] for o in opinions if o["round"] == "1"),
            "level": problem["level"],
            "year": problem["year"],
            "writer": response["writer"],
            "response_tokens": response["tokens"],
            "reasoning_tokens": response["reasoning_tokens"],
            "response_cost": response["cost"],
        }


def _loader(job: Job, problems: str) -> str | None:
    """The loader that problems come from, through whatever tables; of a table from before that was noted, its source."""
    stamp = job.parent(problems).stamp
    return stamp.get("loader", stamp["entry"]["source"])


def _way(grades: str, responses: Mapping) -> str:
    """The way of sampling: its name under `sampling`, or a name from the entry of the responses."""
    if named := sampling_of(grades):
        return named
    if responses["model"] in TAKEN:
        return "as they are"
    return "greedy" if responses["temperature"] == 0 else f"T={responses['temperature']:g}"


def _grader(graded: Mapping) -> str:
    """The grader's name; for a judge asked alone with the prompt, which tells such graders apart."""
    prompted = kind_of(graded["grader"]) == "api" and graded["prompt"]
    return f"{graded['grader']} ({graded['prompt']})" if prompted else graded["grader"]


def _merged(groups: Mapping[Cell, Rows], how: str) -> dict[Cell, Rows]:
    """Merge several graders of the same attempts into one: the mean, median, least or highest of their marks."""
    merged: dict[Cell, Rows] = {}
    for key in dict.fromkeys(group[:3] for group in groups):
        members = [group for group in groups if group[:3] == key]
        graders = ", ".join(group.grader for group in members)
        merged[Cell(*key, f"{how} of {graders}")] = Attempts(
            _merged_rows([groups[one] for one in members], how, graders)
        )
    return merged


def _merged_rows(members: Sequence[Rows], how: str, graders: str) -> Iterator[dict]:
    """Each attempt of the first of the members, with one mark from all of theirs."""
    places: list[dict[str, int]] = [{row["response"]: place for place, row in enumerate(rows)} for rows in members[1:]]
    scales = {row["out_of"] for rows in members for row in rows}
    if len(scales) > 1 or any(len(rows) != len(members[0]) for rows in members):
        raise _unlike(graders)
    for row in members[0]:
        try:
            same = [row, *(rows[at[row["response"]]] for rows, at in zip(members[1:], places, strict=True))]
        except KeyError:
            raise _unlike(graders) from None
        marks = [one["grade"] for one in same if scored(one)]
        opinions = tuple(one["grade"] for one in same)
        yield {**row, "grade": float(MERGES[how](marks)) if marks else None, "opinions": opinions}


def _unlike(graders: str) -> TableError:
    return TableError(
        f"{graders}: marks on several scales, or of other attempts; expected grades of the same attempts on one scale to `merge`."
    )


def _gate(name: str, place: str, attempts: Rows, entry: Scores) -> None:
    """Raise TableError when too many attempts have no verdict: the others would not represent all attempts."""
    counted = where(attempts, lambda row: row["human"] is not None) if entry.human else attempts
    if not counted:
        raise TableError(
            f"{name}: none of the attempts of {place} has a human mark; expected marks of the same responses in `human`."
        )
    share = (len(counted) - count(counted, scored)) / len(counted)
    if share > entry.max_unscored:
        reasons = Counter(row["reason"] for row in counted if not scored(row))
        shown = ", ".join(f"{n:,} {reason}" for reason, n in reasons.most_common(5))
        raise TableError(
            f"{name}: {share:.1%} of the attempts of {place} have no verdict ({shown}); expected at most {entry.max_unscored:.1%} "
            "(`max-unscored`). For what a server failed at, `proofmill ask-again` the grades; for unreadable verdicts see what the judge "
            "wrote (`verdict`), mend it and ask again, or ask more often (`requeries` of a `grader/<name>`); for `no-scheme` drop "
            "such problems (`has-scheme`); or raise the limit if you accept the gap."
        )


# ------------------------------------------------------------------------------------------------------------- problems


def _of_corpora(names: Sequence[str], entry: Scores, job: Job) -> Iterator[dict]:
    """Measures of the texts of each problems table, over all problems and by number of logic steps."""
    if not names:
        return
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.parent(required(entry.tokenizer)).weights())
    for problems in entry.problems:
        lengths = text_lengths.measured(tokenizer, job.parent(problems).stream("statement", "solution", kept=True))
        parts = {"all": lengths}
        steps = sorted(set(lengths.steps_N.tolist()))
        parts |= {f"{n} steps": lengths.where(lengths.steps_N == n) for n in steps if len(steps) in LEVELS}
        for name in names:
            for part, chosen in parts.items():
                value, n = MEASURES[name].apply.value(chosen), len(chosen.steps_N)
                numbers = {"value": value, "n": n, "problems_n": n, "unscored": 0.0}
                if name.endswith("-mean"):
                    field_N = getattr(chosen, TEXTS[name.removesuffix("-mean")][0])
                    numbers["low"], numbers["high"] = interval(field_N.astype(float), None, *interval_options(entry))
                yield {**BLANK, "problems": problems, "measure": name, "split": part, **numbers}


def shared_problems(names: Sequence[str], job: Job) -> Iterator[dict]:
    """How many kept problems each pair of tables shares, by a digest of the normalised statement; nothing is estimated."""
    kept = {
        name: {hash64(statements.normal(row["statement"])) for row in job.parent(name).stream("statement", kept=True)}
        for name in names
    }
    for one, other in combinations(names, 2):
        shared = float(len(kept[one] & kept[other]))
        size = len(kept[one]) + len(kept[other])
        exact = {"value": shared, "low": shared, "high": shared, "n": size, "problems_n": size, "unscored": 0.0}
        yield {**BLANK, "problems": f"{one} & {other}", "measure": "shared-problems", "split": "all", **exact}


if __name__ == "__main__":
    run(main)
