"""The command `adopt`: answers of a renamed artifact, or tables, weights and answers of another results folder."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from proofmill.commands.book import book_of
from proofmill.runtime.progress import say
from proofmill.schema.errors import JournalError, SettingError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of

NAMED = 10  # artifacts in one line


def adopt(options: argparse.Namespace) -> None:
    if options.there is None:
        _rename(options)
    else:
        _take(options)


def _rename(options: argparse.Namespace) -> None:
    """Move the answers of an artifact to its new name."""
    from proofmill.artifacts.tables import Table
    from proofmill.calls import merging

    if options.calls or len(options.names) != 2:
        raise SettingError(
            f"adopt {' '.join(options.names)}: names no folder to take tables from; expected --from RESULTS, or two names alone, "
            "those of an artifact that was renamed."
        )
    old_name, new_name = options.names
    if kind_of(old_name) != kind_of(new_name) or kind_of(new_name) not in KINDS:
        raise SettingError(f"{old_name} and {new_name}: expected two names of one kind, such as grades/a and grades/b.")
    old, new = (Table(name, options.results).calls for name in (old_name, new_name))
    say(new_name, f"has {merging.move(old, new):,} answers now, those of {old_name} among them")


def _take(options: argparse.Namespace) -> None:
    """Take what is finished elsewhere. Exits with 1 where something was refused, or where there was nothing at all."""
    from proofmill.artifacts import adopting
    from proofmill.artifacts.adopting import What

    _require_results(options.there, options.results)
    book = book_of(options)
    names = list(dict.fromkeys(name for target in options.names for name in book.targeted(target)))
    merged = _merge_answers(adopting.in_order(book, names), options) if options.calls else []
    outcomes = []
    for outcome in adopting.adopt(book, names, options.results, options.there):
        outcomes.append(outcome)
        if outcome.what in (What.TAKEN, What.REFUSED) or len(names) == 1:
            print(f"{outcome.name}: {outcome.what}{': ' if outcome.why else ''}{outcome.why}", flush=True)
    print("\n".join(_summary(outcomes, names, options.there)))
    counts = Counter(outcome.what for outcome in outcomes)
    nothing = not any(merged) and counts[What.ABSENT] == len(outcomes)
    if counts[What.REFUSED] or counts[What.WAITS] or not all(merged) or nothing:
        sys.exit(1)


def _merge_answers(names: Sequence[str], options: argparse.Namespace) -> list[bool]:
    """Copy the answers of these artifacts; for each that has some there, whether they were taken."""
    from proofmill.artifacts.tables import Table
    from proofmill.calls import merging

    taken = []
    for name in names:
        here, there = (Table(name, results).calls for results in (options.results, options.there))
        if not merging.has_answers(there):
            continue
        try:
            print(f"{name}: {merging.merge(there, here):,} answers copied that were missing here", flush=True)
            taken.append(True)
        except (JournalError, OSError) as error:
            print(f"{name}: answers refused: {error}", flush=True)
            taken.append(False)
    return taken


def _summary(outcomes: Sequence[Any], names: Sequence[str], there: Path) -> Iterator[str]:
    """What was not taken, in groups, what to do about it, and how many there are of each sort."""
    from proofmill.artifacts.adopting import What

    by_what = {what: [outcome for outcome in outcomes if outcome.what == what] for what in What}
    for what in (What.WAITS, What.ABSENT):
        if by_what[what] and len(names) > 1:
            yield f"{what}: {_listed([outcome.name for outcome in by_what[what]])}"
    first = list(dict.fromkeys(name for outcome in by_what[What.WAITS] for name in outcome.first))
    if missing := [name for name in first if name not in names]:
        yield (
            f"{_listed(missing)} would be made here, and what is made from them too; expected them first. Take them along: "
            f"proofmill adopt {' '.join([*missing, *(outcome.name for outcome in by_what[What.WAITS])])} --from {there}"
        )
    yield ", ".join(f"{len(some):,} {what}" for what, some in by_what.items() if some)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _require_results(there: Path, results: Path) -> None:
    """Raise SettingError for a folder to take tables from that has none, or is the own one."""
    if results.exists() and there.exists() and there.samefile(results):
        raise SettingError(f"--from {there}: is the results folder here; expected another.")
    if not any((there / kind).is_dir() for kind in (*KINDS, "calls", "kept")):
        inside = there / "results"
        hint = f"Name {inside}." if inside.is_dir() else "Name the one that has folders such as problems and grades."
        raise SettingError(f"--from {there}: no tables here; expected a results folder. {hint}")
