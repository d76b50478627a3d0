"""Build conversations for supervised training. One row is a conversation, kept or dropped with the filter that refused it.

Cold start takes the problems' own solutions, rejection sampling takes solved attempts, and distillation takes a
stronger model's attempts. Conversations of others are read from their files (sources/conversations.py). Such tables can
be mixed, by shares of the result (`mix`) or of each source (`concatenate`, as open-r1's `dataset_mixture` with its weights).

Differences from the originals:
1. The shares of a mixture count rows. A source that is too small is repeated in full epochs: all of its rows occur once
   before any row repeats.
2. Filters see the rows in the order of the table, so `one-per-problem` selects the same rows on every machine.
3. Control tokens of chat templates in a text are escaped, as in the prompt, so that a text is always one turn.
   A conversation from a file is stored unchanged; the tokens of the trained model are escaped in training (sft.py).
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
from proofmill.filters.example_filters import EXAMPLE_FILTERS
from proofmill.prompts import escapes, templates
from proofmill.public_data.locations import local_path
from proofmill.runtime.temporary_rows import RowSelection, Spilled
from proofmill.schema.columns import COLUMNS
from proofmill.schema.entries.response_entries import Examples
from proofmill.schema.errors import TableError
from proofmill.schema.fields import NamedItems, require
from proofmill.schema.ids import digest
from proofmill.schema.reasons import Reason, StopReason
from proofmill.schema.registry_items import split
from proofmill.sources import conversations, files
from proofmill.text import messages
from proofmill.text.reasoning import after_one_thought, with_thought
from proofmill.text.seen_texts import Seen

T = TypeVar("T")


def main(entry: Examples, job: Job) -> None:
    source = (
        _mixture
        if entry.mix
        else _concatenate
        if entry.concatenate
        else _conversations
        if entry.source
        else _candidates
    )
    rows = Spilled(source(entry, job))
    dropped = refusals(rows, entry.keep)
    refused = Counter(name for name in dropped if name is not None)
    kept = len(rows) - refused.total()
    if not kept:
        counts = ", ".join(f"{count:,} {name}" for name, count in refused.items())
        cause = (
            f"Raise its shares: {entry.concatenate}"
            if entry.concatenate
            else f"Loosen its filters: {entry.keep} (dropped: {counts})"
        )
        raise TableError(f"{job.name}: none of {len(rows):,} rows is kept; expected at least one. {cause}.")
    written = ({**row, "dropped": name} for row, name in zip(rows, dropped, strict=True))
    job.finish(({key: row[key] for key in COLUMNS["examples"]} for row in written), {"kept": kept, **refused})


def refusals(rows: Sequence[dict], keep: NamedItems) -> list[str | None]:
    """Return the reason why each row is dropped: its own, or the first filter that refuses it; None if it is kept.

    A filter sees only the rows that the earlier filters kept.
    """
    dropped = [row["dropped"] for row in rows]
    for item in keep:
        name, argument = split(item)
        places = array("Q", (place for place, refused in enumerate(dropped) if refused is None))
        verdicts = EXAMPLE_FILTERS[name].apply(RowSelection(rows, places), *([] if argument is None else [argument]))
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
            "messages": [
                {"role": "user", "content": prompt},
                {"role": "assistant", "content": _strip_control_tokens(row)},
            ],
            "tools": None,
            "origin": source,
            "dropped": None if row.get("reason", Reason.OK) == Reason.OK else "no-response",
        }


def _solutions(problems: str, job: Job) -> Iterator[dict]:
    """Yield the problems that have a solution, as ungraded attempts."""
    ungraded = {"response": None, "grade": None, "max_points": None, "stop_reason": StopReason.END, "well_formed": None}
    for row in job.parent(problems).stream("problem", "statement", "solution", kept=True):
        if row["solution"]:
            yield {**row, "text": row["solution"], **ungraded}


def _strip_control_tokens(row: dict) -> str | None:
    """Return the text without control tokens.

    Reasoning tags stay in an attempt, and in a solution if they enclose one thought at its beginning.
    """
    if not row["text"]:
        return row["text"]
    own_reasoning = row["response"] is not None or after_one_thought(row["text"]) != ""
    return escapes.without_control_tokens(row["text"], reasoning=own_reasoning)


def _attempts(entry: Examples, job: Job) -> Iterator[dict]:
    """Yield responses with their problems' statements, and with their grades if the entry names any."""
    responses = entry.responses or job.parent(require(entry.grades)).stamp["entry"]["responses"]
    ungraded = {"grade": None, "max_points": None, "well_formed": None}
    columns = ("text", "reasoning", "stop_reason", "reason", "tokens")
    for response, problem, grade in attempts(job.parent, responses, columns, ("statement",), entry.grades):
        text = with_thought(response["text"], response["reasoning"])
        yield {**ungraded, **(grade or {}), **response, "text": text, "statement": problem["statement"]}


def _conversations(entry: Examples, job: Job) -> Iterator[dict]:
    """Yield the conversations of a file, folder or dataset. Filters see the assistant's messages as the text."""
    folder = f"{local_path(entry.path).parent}/" if entry.path else ""
    ids, times = Seen(), array("I")  # by number of an id, its occurrences
    for where, record in islice(files.records(entry), entry.rows):
        conversation = conversations.read(where, record, entry.columns)
        turns = conversation.messages
        replies = [message["content"] or "" for message in turns if message["role"] == "assistant"]
        asked = list(takewhile(lambda message: message["role"] != "assistant", turns))
        tools = json.dumps(conversation.tools, ensure_ascii=False, default=str) if conversation.tools else None
        id = digest(turns, tools)
        if (number := ids.add(id)) == len(times):
            times.append(0)
        times[number] += 1
        yield {
            "example": id if times[number] == 1 else f"{id}-{times[number]}",
            "problem": digest(asked),
            "response": None,
            "messages": [messages.to_row(message) for message in turns],
            "tools": tools,
            "grade": conversation.grade,
            "max_points": None,
            "origin": where.removeprefix(folder),
            "dropped": conversation.fault,
            "text": "\n\n".join(replies),
            "tokens": sum(map(len, replies)),
            "stop_reason": StopReason.END,
            "well_formed": None,
        }


def _mixture(entry: Examples, job: Job) -> Iterator[dict]:
    rng = _rng(entry, job)
    tables = {name: Spilled(job.parent(name).stream(kept=True)) for name in entry.mix}
    total = entry.rows or int(1e-9 + min(len(tables[name]) / share for name, share in entry.mix.items() if share))
    drawn = [
        (name, place, epoch)
        for name, count in apportion(entry.mix, total).items()
        for place, epoch in _cycle(range(len(tables[name])), count, rng)
    ]
    rng.shuffle(drawn)
    for name, place, epoch in drawn:
        row = tables[name][place]
        yield {**row, "example": digest(name, row["example"], epoch)}


def _concatenate(entry: Examples, job: Job) -> Iterator[dict]:
    rng = _rng(entry, job)
    tables = {name: Spilled(job.parent(name).stream(kept=True)) for name in entry.concatenate}
    drawn = [
        (name, place)
        for name, share in entry.concatenate.items()
        for place in sample(range(len(tables[name])), share, rng)
    ]
    rng.shuffle(drawn)
    for name, place in drawn:
        row = tables[name][place]
        yield {**row, "example": digest(name, row["example"])}


def _rng(entry: Examples, job: Job) -> random.Random:
    """Return the generator of the table's draws. By its name, two tables with one seed draw different rows."""
    return random.Random(f"{job.table.name} {entry.seed}")


def sample(rows: Sequence[T], share: float, rng: random.Random) -> list[T]:
    """Draw this share of the rows, rounded down, without repetition; 0.29 of 100 is 29, not 28 (from 28.999)."""
    return rng.sample(rows, int(share * len(rows) + 1e-9))


def apportion(shares: dict[str, float], total: int) -> dict[str, int]:
    """Return integers that add up to `total`, each as near to its share as possible (largest remainders)."""
    exact = {name: share * total for name, share in shares.items()}
    counts = {name: int(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: counts[name] - exact[name])
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


def _cycle(rows: Sequence[T], count: int, rng: random.Random) -> Iterator[tuple[T, int]]:
    """Yield `count` rows in shuffled epochs over all rows, each with the number of its epoch (from 1)."""
    for index in range(count):
        if index % len(rows) == 0:
            rows = rng.sample(rows, len(rows))
        yield rows[index % len(rows)], index // len(rows) + 1


if __name__ == "__main__":
    run(main)
