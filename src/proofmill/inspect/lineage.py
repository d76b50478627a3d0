"""The way of one row back to where it came from, through every table: why it is as it is.

    score -> grade -> attempt -> model -> training row -> attempt -> ... -> problem -> label -> forum thread

Tables and their stamps say it all; no configuration is read. Where a row rests on many others (a score on its attempts, a
model on its training rows), the way goes on with one of them and says how many there are. A model is walked once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proofmill.artifacts.tables import Table
from proofmill.inspect import reading
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of

TEXT = 100  # characters of a text
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """A row on the way, with what it says; `row` is None for a table as a whole."""

    artifact: str
    row: str | None
    facts: tuple[str, ...]
    depth: int  # how far from the row that was asked about


def trail(name: str, row: str, results: Path) -> list[Step]:
    """The way of a row back to its sources, depth first. SettingError for a row that is not there."""
    found = reading.rows(Table(name, results), row)
    walk = _Walk(results)
    return list(walk.row(name, found.to_dicts()[0], 0))


def lines(steps: list[Step]) -> Iterator[str]:
    """The way as text, each row below the one that rests on it."""
    for step in steps:
        indent = "  " * step.depth
        yield f"{indent}{step.artifact}{f'  {step.row}' if step.row else ''}"
        yield from (f"{indent}    {fact}" for fact in step.facts)


@dataclass
class _Walk:
    results: Path
    models: set[str] = field(default_factory=set)  # that were walked

    def table(self, name: str) -> Table:
        return Table(name, self.results)

    def find(self, name: str, column: str, value: Any) -> Row | None:
        """The first row with a value in a column; None where the table is gone or has no such row.

        Raises TableError for a damaged table: what is in it is not known.
        """
        if not self.table(name).path.exists():
            return None
        return next(iter(self.table(name).where(column, value, 1)), None)

    def of(self, name: str | None, column: str, value: Any, depth: int) -> Iterator[Step]:
        """The way of the row with that value, or a step that says why it ends."""
        if name is None:
            return
        if (row := self.find(name, column, value)) is not None:
            yield from self.row(name, row, depth)
        else:
            there = self.table(name).path.exists()
            yield Step(name, str(value), ("has no such row" if there else "is not here: its table was deleted",), depth)

    def row(self, name: str, row: Row, depth: int) -> Iterator[Step]:
        kind = kind_of(name)
        key = KINDS[kind].key or reading.NUMBER
        if kind not in WALKED:
            raise SettingError(
                f"{name}: a {kind} has no rows with a way back; expected one of {', '.join(WALKED)}. The way of a model "
                f"begins at a row of its examples, and why it would be made again says `proofmill why {name}`."
            )
        entry = self.table(name).stamp["entry"]
        facts, further = WALKED[kind](self, name, entry, row, depth + 1)
        yield Step(name, str(row[key]), tuple(facts), depth)
        yield from further

    def model(self, name: str, depth: int) -> Iterator[Step]:
        """The way of a model: one row that it learned from, and the model that it began as."""
        if kind_of(name) == "api" or "/" not in name:
            yield Step(name, None, ("a remote model, or a person",), depth)
            return
        if name in self.models or not self.table(name).path.exists():
            yield Step(name, None, ("as above",) if name in self.models else ("is not here",), depth)
            return
        self.models.add(name)
        entry = self.table(name).stamp["entry"]
        examples = entry.get("examples")
        if examples and not self.table(examples).path.exists():
            yield Step(name, None, (f"learned from {examples}, which is not here",), depth)
        elif examples:
            kept = self.table(examples).scan().select("dropped").collect()["dropped"].is_null().arg_true()
            yield Step(name, None, (f"learned from {kept.len():,} rows of {examples}; the first:",), depth)
            yield from self.row(examples, self.table(examples).at(kept[:1].to_list()).to_dicts()[0], depth + 1)
        elif kind_of(name) == "selfplay":
            yield Step(
                name, None, ("learned from tasks that it proposed itself, beside its weights (buffer.parquet)",), depth
            )
        elif (problems := entry.get("problems")) and kind_of(name) != "base":
            yield Step(name, None, (f"was rewarded for attempts at {problems}",), depth)
        else:
            facts = [f"{key}: {entry[key]}" for key in ("source", "id", "path", "commit") if entry.get(key)]
            yield Step(name, None, tuple(facts), depth)
        if "/" in (start := entry.get("model") or entry.get("source") or ""):
            yield from self.model(start, depth + 1)


Found = tuple[list[str], Iterator[Step]]  # what a row says, and the way on


def _score(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Found:
    ends = "" if row["low"] is None else f" [{row['low']:.3g}, {row['high']:.3g}]"
    against = f" against {row['against']}" if row["against"] else ""
    value = "no value" if row["value"] is None else f"{row['value']:.3g}{ends}"
    where = f"of {row['model']} on {row['problems']} ({row['sampling']}) by {row['grader']}"
    where = where if row["model"] else f"of {row['problems']}"
    facts = [
        f"{row['measure']}{against} {where}, {row['split']}: {value}",
        f"rests on {row['n']:,} attempts at {row['problems_n']:,} problems; {row['unscored']:.1%} unscored",
    ]
    return facts, _attempts_of(walk, entry, row, facts, depth)


def _attempts_of(walk: _Walk, entry: Row, score: Row, facts: list[str], depth: int) -> Iterator[Step]:
    """The first attempt of each graded table in the score's cell; the second model's too in a comparison."""
    for grades in entry["grades"]:
        graded = walk.table(grades).stamp["entry"]
        attempted = walk.table(graded["responses"]).stamp["entry"]
        models = {score["model"], score["against"]}
        same_model = attempted["model"].partition("@")[0] in models
        if same_model and score["problems"] in (attempted["problems"], None) and _same_way(grades, score["sampling"]):
            first = walk.table(grades).at([0]).to_dicts()[0]
            yield from walk.row(grades, first, depth)


def _same_way(grades: str, sampling: str | None) -> bool:
    parts = grades.split("@")
    return len(parts) < 3 or parts[2] == sampling


def _grade(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Found:
    mark = f"no mark ({row['reason']})" if row["grade"] is None else f"{row['grade']:g} of {row['out_of']}"
    facts = [f"{mark} by {entry['grader']}"]
    if row["answer"] is not None:
        facts.append(f"final answer: {_brief(row['answer'])}")
    for opinion in row["opinions"] or ():
        if len(row["opinions"]) > 1:
            grade = "no mark" if opinion["grade"] is None else f"{opinion['grade']:g}"
            facts.append(f"{opinion['judge']}, round {opinion['round']}: {grade} ({opinion['reason']})")
    if row["verdict"]:
        facts.append(f"verdict: {_brief(row['verdict'])}")

    def on() -> Iterator[Step]:
        if entry.get("schemes"):
            yield from walk.of(entry["schemes"], "problem", row["problem"], depth)
        yield from walk.of(entry["responses"], "response", row["response"], depth)

    return facts, on()


def _response(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Found:
    facts = [
        f"attempt {row['attempt']} by {row['writer'] or entry['model']}: {row['stop']}, {row['tokens'] or 0:,} tokens"
    ]
    if row["steps"]:
        facts.append(f"a scaffold of {len(row['steps'])} calls; its answer is step {row['answered_by']}")
    facts.append(f"text: {_brief(row['text'])}")

    def on() -> Iterator[Step]:
        yield from walk.of(entry["problems"], "problem", row["problem"], depth)
        yield from walk.model(entry["model"], depth)

    return facts, on()


def _example(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Found:
    facts = [f"{'dropped by ' + row['dropped'] if row['dropped'] else 'kept'}; from {row['origin']}"]
    if row["grade"] is not None:
        facts.append(f"{row['grade']:g} marks")
    origin = row["origin"] if "/" in (row["origin"] or "") and kind_of(row["origin"]) in WALKED else None

    def on() -> Iterator[Step]:
        if row["response"] and origin:
            yield from walk.of(origin, "response", row["response"], depth)
        elif origin:
            yield from walk.of(origin, "problem", row["problem"], depth)

    return facts, on()


def _problem(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Found:
    kept = f"dropped by {row['dropped']}" if row["dropped"] else "kept"
    evidence = f": {_brief(row['evidence'])}" if row["evidence"] else ""
    facts = [f"{kept}{evidence}", f"statement: {_brief(row['statement'])}"]
    if row["matched"]:
        facts.append(f"stands in {row['matched']} too")
    if entry["keep"]:
        facts.append(
            f"passed through {len(entry['keep'])} filters" if not row["dropped"] else f"filters: {entry['keep']}"
        )
    if entry["apart_from"]:
        facts.append(f"held apart from {', '.join(entry['apart_from'])}")

    def on() -> Iterator[Step]:
        if entry.get("labels"):
            yield from walk.of(entry["labels"], "problem", row["problem"], depth)
        sources = [source for source in (entry["source"], *entry["also"]) if "/" in source]
        held = [source for source in sources if walk.find(source, "problem", row["problem"]) is not None]
        if held:
            yield from walk.of(held[0], "problem", row["problem"], depth)

    if "/" not in entry["source"]:
        path = f", {entry['path']}" if entry.get("path") else ""
        facts.append(f"read from {row['origin']} (source: {entry['source']}{path})")
    return facts, on()


def _label(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Found:
    said = [column for column in ("incomplete", "gaps", "wrong", "disagreement", "computational") if row[column]]
    labels = f"{', '.join(said) or 'nothing against it'}; difficulty {row['difficulty']}"
    return [f"{labels if row['reason'] == 'ok' else 'no labels: ' + row['reason']}, by {entry['model']}"], iter(())


def _scheme(walk: _Walk, name: str, entry: Row, row: Row, depth: int) -> Found:
    dropped = f"dropped by {row['dropped']}; " if row["dropped"] else ""
    what = f"{row['points']} points" if row["scheme"] else f"no scheme ({row['reason']})"
    return [f"{dropped}{what}, by {entry.get('model') or entry.get('source')}"], iter(())


def _brief(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= TEXT else f"{flat[:TEXT]}..."


WALKED: dict[str, Callable[[_Walk, str, Row, Row, int], Found]] = {
    "scores": _score,
    "grades": _grade,
    "responses": _response,
    "examples": _example,
    "problems": _problem,
    "labels": _label,
    "schemes": _scheme,
}
