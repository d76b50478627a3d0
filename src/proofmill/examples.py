"""One row of `examples` is a conversation to learn, kept or dropped with the name of the selector that refused it.

Cold start takes the problems' own solutions, rejection sampling takes full-mark attempts, and distillation takes a
stronger model's attempts. Conversations of others are read from their files (sources/conversations.py). Such tables can
be mixed, by shares of the whole (`mix`) or of each source (`join`, as open-r1's `dataset_mixture` with its weights).

How we differ:
1. The shares of a mixture count rows. A source that is too small is repeated in whole passes: all of its rows come once
   before any row comes again.
2. Selectors see the rows in the order of the table, so `one-per-problem` means the same on every machine.
3. A text that writes control tokens of chat templates is one turn: they are escaped in what is learned, as in the prompt.
   A conversation of a file stays as it is; the tokens of the model at hand are escaped when it is learned (sft.py).
"""

import json
import random
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import TypeVar

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.joins import attempts
from proofmill.filters.examples import SELECTORS
from proofmill.prompts import escapes, templates
from proofmill.runtime.paths import local_path
from proofmill.runtime.spilled import Chosen, Spilled
from proofmill.schema.columns import COLUMNS
from proofmill.schema.entries import Examples
from proofmill.schema.errors import TableError
from proofmill.schema.fields import NamedItems, required
from proofmill.schema.ids import digest
from proofmill.schema.named import split
from proofmill.schema.reasons import Reason, Stop
from proofmill.sources import conversations, files
from proofmill.text import messages
from proofmill.text.reasoning import after_one_thought, with_thought
from proofmill.text.seen import Seen

T = TypeVar("T")


def main(entry: Examples, job: Job) -> None:
    source = _mixture if entry.mix else _joined if entry.join else _conversations if entry.source else _candidates
    rows = Spilled(source(entry, job))
    dropped = refusals(rows, entry.keep)
    found = Counter(name for name in dropped if name is not None)
    kept = len(rows) - found.total()
    if not kept:
        refused = ", ".join(f"{count:,} {name}" for name, count in found.items())
        cause = (
            f"See its shares: {entry.join}" if entry.join else f"See its selectors: {entry.keep} (refused: {refused})"
        )
        raise TableError(f"{job.name}: none of {len(rows):,} rows is kept; expected at least one. {cause}.")
    written = ({**row, "dropped": name} for row, name in zip(rows, dropped, strict=True))
    job.finish(({key: row[key] for key in COLUMNS["examples"]} for row in written), {"kept": kept, **found})


def refusals(rows: Sequence[dict], keep: NamedItems) -> list[str | None]:
    """What each row is dropped by: what it came with, or the first selector in order that refuses it.

    A selector sees the rows that the earlier ones kept.
    """
    dropped = [row["dropped"] for row in rows]
    for item in keep:
        name, argument = split(item)
        places = array("Q", (place for place, refused in enumerate(dropped) if refused is None))
        verdicts = SELECTORS[name].apply(Chosen(rows, places), *([] if argument is None else [argument]))
        for place, selected in zip(places, verdicts, strict=True):
            if not selected:
                dropped[place] = name
    return dropped


def _candidates(entry: Examples, job: Job) -> Iterator[dict]:
    source = entry.problems or entry.responses or entry.grades
    for row in _solutions(entry.problems, job) if entry.problems else _attempts(entry, job):
        prompt = templates.fill(entry.prompt, {"statement": row["statement"]})
        yield {
            **row,
            "example": digest(source, row["problem"], row["response"], row["text"]),
            "tokens": row.get("tokens", len(row["text"])),
            "messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": _learned(row)}],
            "tools": None,
            "origin": source,
            "dropped": None if row.get("reason", Reason.OK) == Reason.OK else "answered",
        }


def _solutions(problems: str, job: Job) -> Iterator[dict]:
    """The problems that have a solution, as attempts that nobody marked."""
    unmarked = {"response": None, "grade": None, "out_of": None, "stop": Stop.END, "well_formed": None}
    for row in job.parent(problems).stream("problem", "statement", "solution", kept=True):
        if row["solution"]:
            yield {**row, "text": row["solution"], **unmarked}


def _learned(row: dict) -> str | None:
    """The text without control tokens.

    Tags of reasoning are an attempt's own, and a solution's where they enclose one thought at its beginning.
    """
    if not row["text"]:
        return row["text"]
    own_reasoning = row["response"] is not None or after_one_thought(row["text"]) != ""
    return escapes.without_control_tokens(row["text"], reasoning=own_reasoning)


def _attempts(entry: Examples, job: Job) -> Iterator[dict]:
    """Responses with their problems' statements, and with their grades if the entry names any."""
    responses = entry.responses or job.parent(required(entry.grades)).stamp["entry"]["responses"]
    ungraded = {"grade": None, "out_of": None, "well_formed": None}
    columns = ("text", "reasoning", "stop", "reason", "tokens")
    for response, problem, grade in attempts(job.parent, responses, columns, ("statement",), entry.grades):
        text = with_thought(response["text"], response["reasoning"])
        yield {**ungraded, **(grade or {}), **response, "text": text, "statement": problem["statement"]}


def _conversations(entry: Examples, job: Job) -> Iterator[dict]:
    """The conversations of a file, folder or dataset of others; what the assistant says is the text that selectors see."""
    folder = f"{local_path(entry.path).parent}/" if entry.path else ""
    ids, times = Seen(), array("I")  # by number of an id, how often it came
    for where, record in islice(files.records(entry), entry.rows):
        found = conversations.read(where, record, entry.columns)
        said = [message["content"] or "" for message in found.messages if message["role"] == "assistant"]
        asked = list(takewhile(lambda message: message["role"] != "assistant", found.messages))
        tools = json.dumps(found.tools, ensure_ascii=False, default=str) if found.tools else None
        id = digest(found.messages, tools)
        if (number := ids.add(id)) == len(times):
            times.append(0)
        times[number] += 1
        yield {
            "example": id if times[number] == 1 else f"{id}-{times[number]}",
            "problem": digest(asked),
            "response": None,
            "messages": [messages.to_row(message) for message in found.messages],
            "tools": tools,
            "grade": found.grade,
            "out_of": None,
            "origin": where.removeprefix(folder),
            "dropped": found.fault,
            "text": "\n\n".join(said),
            "tokens": sum(map(len, said)),
            "stop": Stop.END,
            "well_formed": None,
        }


def _mixture(entry: Examples, job: Job) -> Iterator[dict]:
    rng = random.Random(entry.seed)
    tables = {name: Spilled(job.parent(name).stream(kept=True)) for name in entry.mix}
    total = entry.rows or int(1e-9 + min(len(tables[name]) / share for name, share in entry.mix.items() if share))
    drawn = [
        (name, place, pass_number)
        for name, count in apportioned(entry.mix, total).items()
        for place, pass_number in _cycled(range(len(tables[name])), count, rng)
    ]
    rng.shuffle(drawn)
    for name, place, pass_number in drawn:
        row = tables[name][place]
        yield {**row, "example": digest(name, row["example"], pass_number)}


def _joined(entry: Examples, job: Job) -> Iterator[dict]:
    rng = random.Random(entry.seed)
    tables = {name: Spilled(job.parent(name).stream(kept=True)) for name in entry.join}
    drawn = [
        (name, place) for name, share in entry.join.items() for place in sampled(range(len(tables[name])), share, rng)
    ]
    rng.shuffle(drawn)
    for name, place in drawn:
        row = tables[name][place]
        yield {**row, "example": digest(name, row["example"])}


def sampled(rows: Sequence[T], share: float, rng: random.Random) -> list[T]:
    """This share of the rows, rounded down, drawn without repetition; 0.29 of 100 is 29, not 28 (from 28.999)."""
    return rng.sample(rows, int(share * len(rows) + 1e-9))


def apportioned(shares: dict[str, float], total: int) -> dict[str, int]:
    """Whole numbers that add up to `total`, each as near to its share as the others allow (largest remainders)."""
    exact = {name: share * total for name, share in shares.items()}
    counts = {name: int(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: counts[name] - exact[name])
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


def _cycled(rows: Sequence[T], count: int, rng: random.Random) -> Iterator[tuple[T, int]]:
    """`count` rows in shuffled passes, each with the number of its pass (from 1); every pass goes through all rows."""
    for index in range(count):
        if index % len(rows) == 0:
            rows = rng.sample(rows, len(rows))
        yield rows[index % len(rows)], index // len(rows) + 1


if __name__ == "__main__":
    run(main)
