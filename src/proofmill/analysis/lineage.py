"""Trace one row back to its sources, through all tables.

    score -> grade -> attempt -> model -> training row -> attempt -> ... -> problem -> label -> forum thread

Reads tables and their stamps, not the configuration. If a row depends on many others (a score on its attempts, a model on
its training rows), the trace follows one of them and states their number. Each model is traced once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proofmill.analysis import show_artifact
from proofmill.artifacts.tables import Table
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of

TEXT = 100  # characters of a text
Row = Mapping[str, Any]


@dataclass(frozen=True)
class LineageStep:
    """A row of the trace with its facts; `row` is None for a complete table."""

    artifact: str
    row: str | None
    facts: tuple[str, ...]
    depth: int  # distance from the traced row


def trail(name: str, row: str, results: Path) -> list[LineageStep]:
    """Return the trace of a row, depth first. Raises SettingError if the row does not exist."""
    rows = show_artifact.rows(Table(name, results), row)
    walk = _Walk(results)
    return list(walk.row(name, rows.to_dicts()[0], 0))


def lines(steps: list[LineageStep]) -> Iterator[str]:
    """Yield the trace as text, each row below the one that depends on it."""
    for step in steps:
        indent = "  " * step.depth
        yield f"{indent}{step.artifact}{f'  {step.row}' if step.row else ''}"
        yield from (f"{indent}    {fact}" for fact in step.facts)


@dataclass
class _Walk:
    """The traversal of tables, with the models that it has traced."""

    results: Path
    models: set[str] = field(default_factory=set)

    def table(self, name: str) -> Table:
        """Return a table."""
        return Table(name, self.results)

    def find(self, name: str, column: str, value: Any) -> Row | None:
        """Return the first row with a value in a column; None if the table or row does not exist.

        Raises TableError for a damaged table.
        """
        if not self.table(name).path.exists():
            return None
        return next(iter(self.table(name).where(column, value, 1)), None)

    def of(self, name: str | None, column: str, value: Any, depth: int) -> Iterator[LineageStep]:
        """Yield the trace of the row with that value, or a step that says why the trace ends."""
        if name is None:
            return
        if (row := self.find(name, column, value)) is not None:
            yield from self.row(name, row, depth)
        else:
            exists = self.table(name).path.exists()
            yield LineageStep(name, str(value), ("has no such row" if exists else "its table was deleted",), depth)

    def row(self, name: str, row: Row, depth: int) -> Iterator[LineageStep]:
        """Yield the trace of a row."""
        kind = kind_of(name)
        key = KINDS[kind].key or show_artifact.NUMBER
        if kind not in WALKED:
            raise SettingError(
                f"{name}: rows of {kind} cannot be traced; expected one of {', '.join(WALKED)}. Trace a row of its examples "
                f"instead; `proofmill why {name}` explains a rebuild."
            )
        entry = self.table(name).stamp["entry"]
        facts, further = WALKED[kind](self, name, entry, row, depth + 1)
        yield LineageStep(name, str(row[key]), tuple(facts), depth)
        yield from further

    def model(self, name: str, depth: int) -> Iterator[LineageStep]:
        """Yield the trace of a model: one row that it was trained on, and the model that it was trained from."""
        if kind_of(name) == "api" or "/" not in name:
            yield LineageStep(name, None, ("a remote model, or a human",), depth)
            return
        if name in self.models or not self.table(name).path.exists():
            yield LineageStep(name, None, ("as above",) if name in self.models else ("does not exist",), depth)
            return
        self.models.add(name)
        entry = self.table(name).stamp["entry"]
        examples = entry.get("examples")
        if examples and not self.table(examples).path.exists():
            yield LineageStep(name, None, (f"trained on {examples}, which does not exist",), depth)
        elif examples:
            kept = self.table(examples).scan().select("dropped").collect()["dropped"].is_null().arg_true()
            yield LineageStep(name, None, (f"trained on {kept.len():,} rows of {examples}; the first:",), depth)
            yield from self.row(examples, self.table(examples).at(kept[:1].to_list()).to_dicts()[0], depth + 1)
        elif kind_of(name) == "selfplay":
            yield LineageStep(
                name, None, ("trained on its own tasks; they are next to its weights (buffer.parquet)",), depth
            )
        elif (problems := entry.get("problems")) and kind_of(name) != "base":
            yield LineageStep(name, None, (f"trained on rollouts for {problems}",), depth)
        else:
            facts = [f"{key}: {entry[key]}" for key in ("source", "id", "path", "commit") if entry.get(key)]
            yield LineageStep(name, None, tuple(facts), depth)
        if "/" in (start := entry.get("model") or entry.get("source") or ""):
            yield from self.model(start, depth + 1)


Traced = tuple[list[str], Iterator[LineageStep]]  # the facts of a row, and the rest of its trace


def _score(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Traced:
    ends = "" if row["low"] is None else f" [{row['low']:.3g}, {row['high']:.3g}]"
    against = f" against {row['baseline']}" if row["baseline"] else ""
    value = "no value" if row["value"] is None else f"{row['value']:.3g}{ends}"
    where = f"of {row['model']} on {row['problems']} ({row['sampling']}) by {row['grader']}"
    where = where if row["model"] else f"of {row['problems']}"
    facts = [
        f"{row['metric']}{against} {where}, {row['slice']}: {value}",
        f"based on {row['n']:,} attempts at {row['n_problems']:,} problems; {row['unscored']:.1%} unscored",
    ]
    return facts, _attempts_of(walk, entry, row, facts, depth)


def _attempts_of(walk: _Walk, entry: Row, score: Row, facts: list[str], depth: int) -> Iterator[LineageStep]:
    """Yield the trace of the first attempt in each table of grades of the score's cell, and of its baseline."""
    for grades in entry["grades"]:
        graded = walk.table(grades).stamp["entry"]
        attempted = walk.table(graded["responses"]).stamp["entry"]
        models = {score["model"], score["baseline"]}
        same_model = attempted["model"].partition("@")[0] in models
        if (
            same_model
            and score["problems"] in (attempted["problems"], None)
            and _same_sampling(grades, score["sampling"])
        ):
            first = walk.table(grades).at([0]).to_dicts()[0]
            yield from walk.row(grades, first, depth)


def _same_sampling(grades: str, sampling: str | None) -> bool:
    """Return whether a table of grades has this sampling setting, or none in its name."""
    parts = grades.split("@")
    return len(parts) < 3 or parts[2] == sampling


def _grade(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Traced:
    grade = f"no grade ({row['reason']})" if row["grade"] is None else f"{row['grade']:g} of {row['max_points']}"
    facts = [f"{grade} by {entry['grader']}"]
    if row["answer"] is not None:
        facts.append(f"final answer: {_brief(row['answer'])}")
    for opinion in row["opinions"] or ():
        if len(row["opinions"]) > 1:
            one = "no grade" if opinion["grade"] is None else f"{opinion['grade']:g}"
            facts.append(f"{opinion['judge']}, round {opinion['round']}: {one} ({opinion['reason']})")
    if row["verdict"]:
        facts.append(f"verdict: {_brief(row['verdict'])}")

    def rest() -> Iterator[LineageStep]:
        if entry.get("schemes"):
            yield from walk.of(entry["schemes"], "problem", row["problem"], depth)
        yield from walk.of(entry["responses"], "response", row["response"], depth)

    return facts, rest()


def _response(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Traced:
    facts = [
        f"attempt {row['attempt']} by {row['writer'] or entry['model']}: {row['stop_reason']}, {row['tokens'] or 0:,} tokens"
    ]
    if row["steps"]:
        facts.append(f"a scaffold of {len(row['steps'])} calls; its response is step {row['answer_step']}")
    facts.append(f"text: {_brief(row['text'])}")

    def rest() -> Iterator[LineageStep]:
        yield from walk.of(entry["problems"], "problem", row["problem"], depth)
        yield from walk.model(entry["model"], depth)

    return facts, rest()


def _example(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Traced:
    facts = [f"{'dropped by ' + row['dropped'] if row['dropped'] else 'kept'}; from {row['origin']}"]
    if row["grade"] is not None:
        facts.append(f"{row['grade']:g} points")
    origin = row["origin"] if "/" in (row["origin"] or "") and kind_of(row["origin"]) in WALKED else None

    def rest() -> Iterator[LineageStep]:
        if row["response"] and origin:
            yield from walk.of(origin, "response", row["response"], depth)
        elif origin:
            yield from walk.of(origin, "problem", row["problem"], depth)

    return facts, rest()


def _problem(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Traced:
    kept = f"dropped by {row['dropped']}" if row["dropped"] else "kept"
    evidence = f": {_brief(row['evidence'])}" if row["evidence"] else ""
    facts = [f"{kept}{evidence}", f"statement: {_brief(row['statement'])}"]
    if row["matched"]:
        facts.append(f"also in {row['matched']}")
    if entry["keep"]:
        facts.append(
            f"passed through {len(entry['keep'])} filters" if not row["dropped"] else f"filters: {entry['keep']}"
        )
    if entry["decontaminate"]:
        facts.append(f"decontaminated from {', '.join(entry['decontaminate'])}")

    def rest() -> Iterator[LineageStep]:
        if entry.get("labels"):
            yield from walk.of(entry["labels"], "problem", row["problem"], depth)
        sources = [source for source in (entry["source"], *entry["also"]) if "/" in source]
        held = [source for source in sources if walk.find(source, "problem", row["problem"]) is not None]
        if held:
            yield from walk.of(held[0], "problem", row["problem"], depth)

    if "/" not in entry["source"]:
        path = f", {entry['path']}" if entry.get("path") else ""
        facts.append(f"read from {row['origin']} (source: {entry['source']}{path})")
    return facts, rest()


def _label(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Traced:
    faults = [column for column in ("incomplete", "gaps", "wrong", "disagreement", "computational") if row[column]]
    labels = f"{', '.join(faults) or 'no faults'}; difficulty {row['difficulty']}"
    return [f"{labels if row['reason'] == 'ok' else 'no labels: ' + row['reason']}, by {entry['model']}"], iter(())


def _scheme(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Traced:
    dropped = f"dropped by {row['dropped']}; " if row["dropped"] else ""
    what = f"{row['points']} points" if row["scheme"] else f"no scheme ({row['reason']})"
    return [f"{dropped}{what}, by {entry.get('model') or entry.get('source')}"], iter(())


def _brief(text: str) -> str:
    """Return the beginning of a text, on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= TEXT else f"{flat[:TEXT]}..."


WALKED: dict[str, Callable[[_Walk, str, Row, Row, int], Traced]] = {
    "scores": _score,
    "grades": _grade,
    "responses": _response,
    "examples": _example,
    "problems": _problem,
    "labels": _label,
    "schemes": _scheme,
}
