"""Plan attacks on a grader: the grader, the problems, the attack texts, and the calls and dollars that grading them costs.

    proofmill attack grpo/nano                                       the grader, problems and schemes of an entry
    proofmill attack final-answer --problems problems/bench          a grader by its name

Outputs are in the journal of the entry or grader under attack. A second run repeats no call, and neither does a `grpo`
entry that sets `max-attack`.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from proofmill.artifacts.jobs import Job, with_weights
from proofmill.artifacts.joins import schemes_of
from proofmill.artifacts.tables import Table
from proofmill.calls import budget, prices, records
from proofmill.config.config import Config
from proofmill.graders import robustness
from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.program_graders import PROGRAMS
from proofmill.planning._expected_costs import Range, certain, costs_of, predict, read_outputs
from proofmill.prompts import templates
from proofmill.schema import references
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.entries.response_entries import Grades
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import SettingError
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import StopReason
from proofmill.text.suggestions import among


@dataclass(frozen=True)
class Aim:
    """A grader with its prompt, and the tables of problems, each with its schemes, on which it is attacked."""

    name: str  # of the entry or the grader
    grader: str
    prompt: str | None
    tables: tuple[tuple[str, str | None], ...]


def aim_at(
    config: Config, name: str, problems: str | None = None, schemes: str | None = None, prompt: str | None = None
) -> Aim:
    """Return the aim for an entry or grader; `problems`, `schemes` and `prompt` replace those of the entry.

    Raises SettingError if the name has no grader, RecipeError for an entry with a mistake.
    """
    if "/" in name and kind_of(name) in ("grpo", "grades", "scores"):
        entry = config.entries[config.list_target(name)[0]]
        graders = entry.graders() if not isinstance(entry, Scores) else [(entry.grader, entry.grader_prompt)]
        grader, own_prompt = graders[0] if graders else (None, None)
        tables = _tables(config, entry)
        if grader is None or not (tables or problems):
            raise SettingError(f"attack {name}: has no grader; expected an entry with a grader and problems.")
    else:
        known = [*PROGRAMS, *config.declared]
        if name not in known:
            raise SettingError(
                f"attack {name}: is not a grader or an entry of grpo, grades or scores; expected one of {among(name, known)}"
            )
        grader, own_prompt, tables = name, None, ()
        if problems is None:
            raise SettingError(f"attack {name}: has no problems; expected a table of problems. Set --problems.")
    prompt = prompt or own_prompt
    if prompt and kind_of(grader) != "api":
        raise SettingError(
            f"attack {name}: found --grader-prompt {prompt}; expected none, since {grader} has its own prompt or needs none. "
            "Remove it."
        )
    if not templates.is_known(prompt):
        raise SettingError(
            f"attack {name}: no prompt `{prompt}`; expected one of {among(str(prompt), templates.names())}"
        )
    if problems:
        tables = ((problems, schemes),)
    elif schemes:
        tables = tuple((table, schemes) for table, _ in tables)
    for table in (table for pair in tables for table in pair if table):
        config.list_target(table)
    return Aim(name, grader, prompt, tables)


def _tables(config: Config, entry: Grpo | Grades | Scores) -> tuple[tuple[str, str | None], ...]:
    """Return the tables of problems of an entry, each with its schemes."""
    if isinstance(entry, Scores):
        schemes = [*entry.schemes, *[None] * len(entry.problems)]
        return tuple(zip(entry.problems, schemes, strict=False)) if entry.grader else ()
    problems = config.entries[entry.responses].problems if isinstance(entry, Grades) else entry.problems
    return ((problems, entry.schemes),)


@dataclass
class AttackPlan:
    """All attack texts for a grader, on `rows` problems of each table, and the calls that are needed to grade them."""

    config: Config
    aim: Aim
    results: Path
    rows: int = robustness.PROBLEMS

    @cached_property
    def job(self) -> Job:
        """A job with the journal of the entry or grader."""
        table = Table(self.aim.name, self.results)
        tables = [name for pair in self.aim.tables for name in pair if name]
        models = SubmissionGrader(self.aim.grader, self.aim.prompt, self.config.declared).models
        weights = [parent for model in models for parent in references.parents(self.config.declared[model])]
        parents = dict.fromkeys([*tables, *weights])
        declared = with_weights(self.config.declared, table, parents)
        return Job(table, declared, "", {"parents": parents}, budget=self.config.budget)

    @cached_property
    def submission_grader(self) -> SubmissionGrader:
        """The grader under attack."""
        schemes = any(schemes for _, schemes in self.aim.tables)
        return SubmissionGrader(self.aim.grader, self.aim.prompt, self.job.declared, schemes)

    @cached_property
    def attempts(self) -> list[robustness.AttackText]:
        """The texts of all attacks. Raises TableError if a table does not exist."""
        targets = []
        for problems, schemes in self.aim.tables:
            by_problem = schemes_of(self.job.parent, schemes) if schemes else None
            rows = self.job.parent(problems).rows(*robustness.COLUMNS)
            targets += robustness.targets(rows, by_problem, self.aim.grader, self.rows)
        if not targets:
            raise SettingError(
                f"attack {self.aim.name}: no problem of {', '.join(table for table, _ in self.aim.tables)} has what the grader "
                "needs; expected an answer, tests or a scheme. Set --problems to another table."
            )
        return robustness.attempts(targets)

    # ------------------------------------------------------------------------------------------------------------- cost

    @cached_property
    def missing(self) -> dict[str, list[Any]]:
        """The first requests to each model that have no output in the journal, without duplicates."""
        stops = dict(records.frame(self.job.table.calls, "stop_reason").select("key", "stop_reason").iter_rows())
        return {
            model: list({q.key: q for q in requests if stops.get(q.key, StopReason.ERROR) == StopReason.ERROR}.values())
            for model, requests in self.submission_grader.requests(robustness.submissions(self.attempts)).items()
        }

    @property
    def calls(self) -> int:
        """The minimum number of calls. Retries, rounds and escalation add to it."""
        return sum(map(len, self.missing.values()))

    @property
    def most(self) -> float | None:
        """The maximum dollars for these calls; None if a price is unknown."""
        sums = []
        for model, requests in self.missing.items():
            price = prices.price_of(self.job.declared[model], model)
            if isinstance(price, str) and requests:
                return None
            sums.append(sum(budget.most(price, request.size, request.max_tokens) for request in requests))
        return sum(sums)

    @property
    def expected(self) -> Range:
        """The expected dollars for these calls, predicted from outputs in the journal, else from the models' `expected-tokens`."""
        total = certain(0.0)
        answers = read_outputs(self.job.table.calls)
        for model, requests in self.missing.items():
            api = self.job.declared[model]
            price = prices.price_of(api, model)
            if not requests or isinstance(price, str):
                total += Range(None) if requests else certain(0.0)
            elif not any(price.values()):
                continue
            elif answers.height > 1:
                total += predict(costs_of(answers.select(pl.all()), price), len(requests))
            elif api.expected_tokens:
                one = budget.price(price, api.expected_tokens["input"], 0, api.expected_tokens["output"], 0)
                total += Range(None) if one is None else certain(one * len(requests))
            else:
                total += Range(None)
        return total

    @property
    def costs(self) -> bool:
        """Return whether a call would be made that is not known to be free."""
        return bool(self.calls) and self.most != 0

    def summary(self) -> str:
        """Describe the attack plan and its cost in one line."""
        problems = len({attempt.target.problem for attempt in self.attempts})
        texts = (
            f"{len(self.attempts):,} texts of {len({a.attack for a in self.attempts})} attacks on {problems} problems"
        )
        if not self.submission_grader.models:
            return f"{texts}; no calls needed"
        if not self.calls:
            return f"{texts}; no calls needed, all outputs are in {self.job.table.calls}"
        most = self.most
        cost = "at an unknown price"
        if most is not None:
            cost = f"for {self.expected.format('${:,.2f}')}, at most ${most:,.2f}" if most else "for free"
        retries = any(
            g.parse_retries or g.rounds or g.escalate_to or g.normalizer for g in self.submission_grader.graders
        )
        return f"{texts}; {self.calls:,} calls to {', '.join(self.missing)} {cost}{', plus retries' * retries}"
