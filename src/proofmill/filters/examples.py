"""Selectors refuse candidates for training; the first that refuses a row is written into its `dropped`.

A selector sees all rows that are left, in order, and says which of them stay. A row has the columns of `grades` (grade
and out_of are null where there was no grading) and `text`, `tokens` (null where the server gave no count). Of a conversation from a file, `text` is what the
assistant says in all of its turns, `tokens` its characters, and `messages` the whole.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proofmill.schema.named import Named
from proofmill.schema.reasons import Stop
from proofmill.text import formats, languages
from proofmill.text.messages import from_row
from proofmill.text.reasoning import thought_or_all
from proofmill.text.seen import Seen

Rows = Sequence[Mapping[str, Any]]


def each(test: Callable[..., bool]) -> Callable[..., list[bool]]:
    """A selector that looks at one row at a time."""
    return lambda rows, *argument: [test(row, *argument) for row in rows]


def _first(key: Callable[[Mapping], str], most: int = 1) -> Callable[[Rows], list[bool]]:
    """A selector that keeps the first `most` rows of each key."""

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
    """Keep the shortest row of each problem, the first of several.

    Lengths are tokens if all rows of the problem have a count of them, else characters of the text: the two are never
    compared with each other.
    """
    seen, numbers = Seen(), array("Q")  # the number of each row's problem
    best: list[list[Any]] = []  # of each problem (length, place) of the shortest: by tokens or None, by characters
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


SELECTORS: dict[str, Named] = {
    "has-text": Named(each(lambda row: bool(row["text"])), "something was written"),
    "finished": Named(each(lambda row: row["stop"] == Stop.END), "the attempt ended by itself"),
    "well-formed": Named(each(lambda row: bool(row["well_formed"])), "closed reasoning and one box"),
    "scored": Named(each(lambda row: row["grade"] is not None), "there is a verdict"),
    "full-marks": Named(
        each(lambda row: row["grade"] is not None and row["grade"] == row["out_of"]),
        "the attempt got full marks; one without a verdict did not",
    ),
    "at-least": Named(
        each(lambda row, least: row["grade"] is not None and row["grade"] >= least),
        "the attempt got at least this many marks",
        "number",
    ),
    "distinct": Named(_first(lambda row: f"{row['problem']}\0{row['text']}"), "the same text once for each problem"),
    "one-per-problem": Named(_first(lambda row: row["problem"]), "the first remaining row of each problem"),
    "at-most-per-problem": Named(
        lambda rows, most: _first(lambda row: row["problem"], int(most))(rows),
        "the first rows of each problem, up to this number",
        "number",
    ),
    # What DeepSeek-R1's rejection sampling refuses in a chain of thought (section 2.3.3; thresholds are ours).
    "one-language": Named(
        each(_one_language), "95 % of the words of the reasoning are in one of these languages, such as `[en]`", "texts"
    ),
    "short-paragraphs": Named(
        each(lambda row, most: not formats.long_paragraphs(thought_or_all(row["text"]), int(most))),
        "no paragraph of the reasoning has more words",
        "count",
    ),
    "no-code": Named(
        each(lambda row: not formats.code_blocks(thought_or_all(row["text"]))), "no block of code in the reasoning"
    ),
    "no-tools": Named(
        each(lambda row: not row["tools"] and not any(map(_of_tools, row["messages"]))),
        "no function is offered or called in the conversation",
    ),
    "shortest-per-problem": Named(
        shortest_per_problem,
        "the shortest remaining row of each problem, by tokens, or by characters if one of them has no count of tokens",
    ),
}
