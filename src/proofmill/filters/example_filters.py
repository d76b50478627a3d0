"""Filters of examples. The first filter that rejects a row is written to its column `dropped`.

A filter receives all remaining rows, in order, and returns for each whether to keep it. A row has the columns of `grades`
(grade and max_points are null without grading) and also `text` and `tokens` (null if the server gave no count). For a
conversation from a file, `text` is the text of all assistant turns, `tokens` its characters, and `messages` all messages.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proofmill.rewards import format_checks
from proofmill.schema.reasons import StopReason
from proofmill.schema.registry_items import Named
from proofmill.text import languages
from proofmill.text.messages import from_row
from proofmill.text.reasoning import thought_or_all
from proofmill.text.seen_texts import Seen

Rows = Sequence[Mapping[str, Any]]


def each(test: Callable[..., bool]) -> Callable[..., list[bool]]:
    """Build a filter from a test of one row."""
    return lambda rows, *argument: [test(row, *argument) for row in rows]


def _first(key: Callable[[Mapping], str], most: int = 1) -> Callable[[Rows], list[bool]]:
    """Build a filter that keeps the first `most` rows of each key."""

    def select(rows: Rows) -> list[bool]:
        seen, times = Seen(), array("I")
        keep = []
        for row in rows:
            if (number := seen.add(key(row))) == len(times):
                times.append(0)
            times[number] += 1
            keep.append(times[number] <= most)
        return keep

    return select


def shortest_per_problem(rows: Rows) -> list[bool]:
    """Keep the shortest row of each problem; of equal ones the first.

    Lengths are tokens if all rows of the problem have a token count, else characters of the text. The two are never
    compared with each other.
    """
    seen, numbers = Seen(), array("Q")  # the index of each row's problem
    best: list[list[Any]] = []  # per problem (length, position) of the shortest: by tokens or None, by characters
    for place, row in enumerate(rows):
        tokens, characters = row["tokens"], (len(row["text"] or ""), place)
        counted = None if tokens is None else (tokens, place)
        numbers.append(number := seen.add(row["problem"]))
        if number == len(best):
            best.append([counted, characters])
        else:
            shortest, fewest = best[number]
            best[number] = [shortest and counted and min(shortest, counted), min(fewest, characters)]
    return [place == (best[number][0] or best[number][1])[1] for place, number in enumerate(numbers)]


def _one_language(row: Mapping, accepted: list) -> bool:
    return any(not languages.mixes_languages(thought_or_all(row["text"]), language) for language in accepted)


def _of_tools(message: Mapping) -> bool:
    return message["role"] == "tool" or bool(from_row(message).get("tool_calls"))


EXAMPLE_FILTERS: dict[str, Named] = {
    "has-text": Named(each(lambda row: bool(row["text"])), "the response has text"),
    "finished": Named(each(lambda row: row["stop_reason"] == StopReason.END), "the response ended, not truncated"),
    "well-formed": Named(each(lambda row: bool(row["well_formed"])), "reasoning is closed and there is one box"),
    "scored": Named(each(lambda row: row["grade"] is not None), "there is a grade"),
    "solved": Named(
        each(lambda row: row["grade"] is not None and row["grade"] == row["max_points"]),
        "the attempt got all points; ungraded ones are dropped",
    ),
    "at-least": Named(
        each(lambda row, least: row["grade"] is not None and row["grade"] >= least),
        "the attempt got at least this grade",
        "number",
    ),
    "distinct": Named(
        _first(lambda row: f"{row['problem']}\0{row['text']}"), "the first row of each text of a problem"
    ),
    "one-per-problem": Named(_first(lambda row: row["problem"]), "the first remaining row of each problem"),
    "at-most-per-problem": Named(
        lambda rows, most: _first(lambda row: row["problem"], int(most))(rows),
        "the first rows of each problem, at most this number",
        "number",
    ),
    # DeepSeek-R1's rejection sampling drops such chains of thought (section 2.3.3; the thresholds are ours).
    "one-language": Named(
        each(_one_language),
        "at least 95 % of the words of the reasoning are in one of these languages, such as `[en]`",
        "texts",
    ),
    "short-paragraphs": Named(
        each(lambda row, most: not format_checks.long_paragraphs(thought_or_all(row["text"]), int(most))),
        "no paragraph of the reasoning has more words than this",
        "count",
    ),
    "no-code": Named(
        each(lambda row: not format_checks.code_blocks(thought_or_all(row["text"]))), "no code block in the reasoning"
    ),
    "no-tools": Named(
        each(lambda row: not row["tools"] and not any(map(_of_tools, row["messages"]))),
        "no tool is offered or called in the conversation",
    ),
    "shortest-per-problem": Named(
        shortest_per_problem,
        "the shortest remaining row of each problem, by tokens, or by characters if a row has no token count",
    ),
}
