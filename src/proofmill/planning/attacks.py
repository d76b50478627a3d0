"""What attacks earn from a grader: which grader on which problems, what asking it costs, and the answers.

    proofmill attack grpo/nano                                       the grader, problems and schemes of an entry
    proofmill attack final-answer --problems problems/bench          a grader by its name

Calls stand in a journal of the entry or grader that is attacked, so that a second run asks nobody, and a `grpo` that
demands it (`max-attack`) finds them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from proofmill.artifacts.jobs import Job, with_weights
from proofmill.artifacts.joins import schemes_of
from proofmill.artifacts.tables import Table
from proofmill.calls import budget, prices, records
from proofmill.engines.opening import asking_for
from proofmill.graders import robustness
from proofmill.graders.graders import Marker
from proofmill.graders.programs import PROGRAMS
from proofmill.planning._expected_costs import Range, answered, certain, costs_of, predicted
from proofmill.prompts import templates
from proofmill.recipes.book import Book
from proofmill.schema import references
from proofmill.schema.entries import Grades
from proofmill.schema.errors import SettingError
from proofmill.schema.model_entries import Grpo
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import Stop
from proofmill.schema.scores_entry import Scores
from proofmill.text.suggestions import among


@dataclass(frozen=True)
class Aim:
    """A grader with its prompt, and the tables of problems, each with its schemes, on which it is attacked."""

    name: str  # of the entry or the grader
    grader: str
    prompt: str | None
    tables: tuple[tuple[str, str | None], ...]


def aim_at(
    book: Book, name: str, problems: str | None = None, schemes: str | None = None, prompt: str | None = None
) -> Aim:
    """What is attacked by a name, with other problems, schemes or another prompt than its entry's where they are given.

    Raises SettingError for a name of no grader, RecipeError for an entry with a mistake.
    """
    if "/" in name and kind_of(name) in ("grpo", "grades", "scores"):
        entry = book.entries[book.targeted(name)[0]]
        graders = entry.graders() if not isinstance(entry, Scores) else [(entry.grader, entry.prompt)]
        grader, own = graders[0] if graders else (None, None)
        tables = _tables(book, entry)
        if grader is None or not (tables or problems):
            raise SettingError(f"attack {name}: it has no grader that could be asked; expected an entry that marks.")
    else:
        known = [*PROGRAMS, *book.declared]
        if name not in known:
            raise SettingError(
                f"attack {name}: no grader, and no grpo, grades or scores entry; expected one of {among(name, known)}"
            )
        grader, own, tables = name, None, ()
        if problems is None:
            raise SettingError(
                f"attack {name}: expected problems on which it is attacked. Add --problems problems/<name>."
            )
    prompt = prompt or own
    if prompt and kind_of(grader) != "api":
        raise SettingError(f"attack {name}: --prompt {prompt}, and {grader} has its own or none; expected none.")
    if not templates.is_known(prompt):
        raise SettingError(
            f"attack {name}: no prompt `{prompt}`; expected one of {among(str(prompt), templates.names())}"
        )
    if problems:
        tables = ((problems, schemes),)
    elif schemes:
        tables = tuple((table, schemes) for table, _ in tables)
    for table in (table for pair in tables for table in pair if table):
        book.targeted(table)
    return Aim(name, grader, prompt, tables)


def _tables(book: Book, entry: Grpo | Grades | Scores) -> tuple[tuple[str, str | None], ...]:
    """The problems of an entry, each table with its schemes."""
    if isinstance(entry, Scores):
        schemes = [*entry.schemes, *[None] * len(entry.problems)]
        return tuple(zip(entry.problems, schemes, strict=False)) if entry.grader else ()
    problems = book.entries[entry.responses].problems if isinstance(entry, Grades) else entry.problems
    return ((problems, entry.schemes),)


@dataclass
class Assault:
    """All attacks on a grader, before and after it is asked: `rows` problems of each table."""

    book: Book
    aim: Aim
    results: Path
    rows: int = robustness.PROBLEMS

    @cached_property
    def job(self) -> Job:
        """Stands for the stage that asks: its journal is that of the entry or grader."""
        table = Table(self.aim.name, self.results)
        tables = [name for pair in self.aim.tables for name in pair if name]
        models = Marker(self.aim.grader, self.aim.prompt, self.book.declared).models
        weights = [parent for model in models for parent in references.parents(self.book.declared[model])]
        parents = dict.fromkeys([*tables, *weights])
        declared = with_weights(self.book.declared, table, parents)
        return Job(table, declared, "", {"parents": parents}, budget=self.book.budget)

    @cached_property
    def marker(self) -> Marker:
        schemes = any(schemes for _, schemes in self.aim.tables)
        return Marker(self.aim.grader, self.aim.prompt, self.job.declared, schemes)

    @cached_property
    def attempts(self) -> list[robustness.Attempt]:
        """What all policies write. Raises TableError for a table that is not made."""
        targets = []
        for problems, schemes in self.aim.tables:
            by_problem = schemes_of(self.job.parent, schemes) if schemes else None
            rows = self.job.parent(problems).rows(*robustness.COLUMNS)
            targets += robustness.targets(rows, by_problem, self.aim.grader, self.rows)
        if not targets:
            raise SettingError(
                f"attack {self.aim.name}: no problem of {', '.join(table for table, _ in self.aim.tables)} has what the grader "
                "needs (an answer, tests, a scheme); expected one. Name others by --problems."
            )
        return robustness.attempts(targets)

    # ------------------------------------------------------------------------------------------------ what it will cost

    @cached_property
    def missing(self) -> dict[str, list[Any]]:
        """The first questions to each model that its journal has no answer to, each once."""
        stops = dict(records.frame(self.job.table.calls, "stop").select("key", "stop").iter_rows())
        return {
            model: list({q.key: q for q in questions if stops.get(q.key, Stop.ERROR) == Stop.ERROR}.values())
            for model, questions in self.marker.questions(robustness.submissions(self.attempts)).items()
        }

    @property
    def calls(self) -> int:
        """How many calls are to be made at least: a judge may be asked again, in rounds, or a dearer one after it."""
        return sum(map(len, self.missing.values()))

    @property
    def most(self) -> float | None:
        """The most dollars that these calls can cost; None where a price is unknown."""
        sums = []
        for model, questions in self.missing.items():
            price = prices.price_of(self.job.declared[model])
            if isinstance(price, str) and questions:
                return None
            sums.append(sum(budget.most(price, question.size, question.max_tokens) for question in questions))
        return sum(sums)

    @property
    def expected(self) -> Range:
        """The dollars that these calls will cost, by the answers that stand in the journal, or by the models' guesses."""
        total = certain(0.0)
        answers = answered(self.job.table.calls)
        for model, questions in self.missing.items():
            api = self.job.declared[model]
            price = prices.price_of(api)
            if not questions or isinstance(price, str):
                total += Range(None) if questions else certain(0.0)
            elif not any(price.values()):
                continue
            elif answers.height > 1:
                total += predicted(costs_of(answers.select(pl.all()), price), len(questions))
            elif api.guess:
                one = budget.price(price, api.guess["input"], 0, api.guess["output"], 0)
                total += Range(None) if one is None else certain(one * len(questions))
            else:
                total += Range(None)
        return total

    def plan(self) -> str:
        """What is attacked, by how many attempts, and what asking costs."""
        problems = len({attempt.target.problem for attempt in self.attempts})
        what = f"{len(self.attempts):,} attempts of {len({a.policy for a in self.attempts})} policies at {problems} problems"
        if not self.marker.models:
            return f"{what}; nobody is asked"
        if not self.calls:
            return f"{what}; all answers stand in {self.job.table.calls}, nobody is asked"
        most = self.most
        bound = "at an unknown price"
        if most is not None:
            bound = f"for {self.expected.shown('${:,.2f}')}, at most ${most:,.2f}" if most else "for nothing"
        further = any(g.requeries or g.rounds or g.escalate_to or g.normalizer for g in self.marker.graders)
        return f"{what}; {self.calls:,} calls of {', '.join(self.missing)} {bound}{', and more where it is asked again' * further}"

    @property
    def costs(self) -> bool:
        """Whether something is to be asked that is not known to be free."""
        return bool(self.calls) and self.most != 0

    # ------------------------------------------------------------------------------------------------------- what it earns

    def earned(self) -> list[robustness.Earned]:
        """Ask, and what each policy earned."""
        with asking_for(self.job, self.marker):
            verdicts = self.marker.verdicts(robustness.submissions(self.attempts))
            return robustness.earned(self.attempts, verdicts)


def lines(assault: Assault, results: Sequence[robustness.Earned]) -> Iterator[str]:
    """What was attacked, and the table."""
    tables = ", ".join(f"{problems}{f' by {schemes}' if schemes else ''}" for problems, schemes in assault.aim.tables)
    prompt = f" with {assault.aim.prompt}" if assault.aim.prompt else ""
    yield f"{assault.aim.grader}{prompt} on {tables}"
    yield from robustness.lines(results)
