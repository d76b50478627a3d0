"""What can be deleted from results without losing anything that a recipe needs: how much it frees, and why.

    kept           copies of tables as other entries made them, which an undone edit would restore
    unfinished     checkpoints, scratch and logs of shards, of stages that are finished or that no recipe has
    unreachable    tables, weights and logs of artifacts that no recipe has
    calls          journals of such artifacts: answers that were paid for. Only where they are asked for by name.

Nothing is looked for in a configuration with a mistake: what it leaves out would seem to be nobody's. What a running stage
holds is left alone, and so is what another configuration of the folder declares (artifacts/configurations.py).
A copy of a table is mostly a hard link: it frees only what nothing else holds.
"""

import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proofmill.artifacts.configurations import Configuration, in_stamp
from proofmill.artifacts.kept import Kept
from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.planning.data import size
from proofmill.recipes.book import Book
from proofmill.schema.kinds import KINDS

SORTS = ("kept", "unfinished", "unreachable", "calls")
SHARD_LOG = re.compile(r"(?P<name>.+)\.\d+-of-\d+\.log")  # workflow/shards.smk


@dataclass(frozen=True)
class Leftover:
    """Files that can go together, and why."""

    sort: str
    artifact: str
    why: str
    paths: tuple[Path, ...]


def leftovers(
    book: Book, results: Path, sorts: tuple[str, ...] = SORTS[:3], others: Sequence[Configuration] = ()
) -> list[Leftover]:
    """Return what can go, by sort and artifact: nothing of an artifact that is being made, nothing that `others` need."""
    found = [*_unfinished(book, results), *_unreachable(book, results), *_calls(book, results)]
    needed = {name for other in others for name in other.artifacts}
    found = [*_kept(book, results, others), *(each for each in found if each.artifact not in needed)]
    busy = {each.artifact for each in found if Table(each.artifact, results).is_being_made}
    return [each for each in found if each.sort in sorts and each.artifact not in busy]


def held(book: Book, results: Path, sorts: tuple[str, ...], others: Sequence[Configuration]) -> dict[str, list[str]]:
    """Return the artifacts of which something stays for other configurations alone, by the title of each."""
    going = {path for each in leftovers(book, results, sorts, others) for path in each.paths}
    stays = {each.artifact for each in leftovers(book, results, sorts) if not going.issuperset(each.paths)}
    return {other.title: sorted(stays & other.artifacts.keys()) for other in others}


def _kept(book: Book, results: Path, others: Sequence[Configuration]) -> Iterator[Leftover]:
    states = States(book, results)
    for name, folder in _folders(results / "kept"):
        wanted = ""
        if name in book.entries:
            if states[name].name != "done":  # one of its copies may be what it will be
                continue
            wanted = Table(name, results).stamp["fingerprint"]
        theirs = {other.artifacts.get(name) for other in others}
        stays = {copy for copy in folder.iterdir() if (stamp := Kept(copy, name).stamp) and in_stamp(stamp) in theirs}
        if copies := [copy for copy in sorted(folder.iterdir()) if copy.name != wanted and copy not in stays]:
            yield Leftover("kept", name, f"{len(copies)} of other entries than today's", tuple(copies))


def _unfinished(book: Book, results: Path) -> Iterator[Leftover]:
    states = States(book, results)
    paths: dict[str, list[Path]] = defaultdict(list)
    for name, folder in _folders(results / "unfinished"):
        if name not in book.entries or any(folder.iterdir()):
            paths[name].append(folder)
    for kind in KINDS:
        for log in sorted((results / kind).glob("*.log")):
            if of_shard := SHARD_LOG.fullmatch(log.name):
                paths[f"{kind}/{of_shard['name']}"].append(log)
    for name, found in paths.items():
        if name not in book.entries:
            yield Leftover("unfinished", name, "no recipe has it", tuple(found))
        elif states[name].name == "done":
            yield Leftover("unfinished", name, "its table is finished", tuple(found))


def _unreachable(book: Book, results: Path) -> Iterator[Leftover]:
    for kind in KINDS:
        files = sorted((results / kind).glob("*.parquet"))
        for path in files:
            table = Table(f"{kind}/{path.stem}", results)
            if table.name not in book.entries:
                beside = (path, path.with_suffix(".log"), table.page, table.folder)
                yield Leftover(
                    "unreachable", table.name, "no recipe has it", tuple(each for each in beside if each.exists())
                )


def _calls(book: Book, results: Path) -> Iterator[Leftover]:
    for name, folder in _folders(results / "calls"):
        if name not in book.entries:
            yield Leftover("calls", name, "no recipe has it; its answers were paid for", (folder,))


def _folders(top: Path) -> Iterator[tuple[str, Path]]:
    """(artifact, folder) below a folder of kinds."""
    for folder in sorted(top.glob("*/*/")):
        if folder.parent.name in KINDS:
            yield f"{folder.parent.name}/{folder.name}", folder


# ------------------------------------------------------------------------------------------------------------ what it frees


def freed(found: list[Leftover]) -> int:
    """Bytes that deleting all of them gives back: a file that has other links keeps its own."""
    links: Counter[tuple[int, int]] = Counter()
    held: dict[tuple[int, int], tuple[int, int]] = {}
    for path in (path for each in found for top in each.paths for path in _files(top)):
        about = path.lstat()
        links[about.st_dev, about.st_ino] += 1
        held[about.st_dev, about.st_ino] = about.st_nlink, about.st_blocks * 512
    return sum(bytes_ for inode, (all_links, bytes_) in held.items() if links[inode] == all_links)


def _files(top: Path) -> Iterator[Path]:
    if top.is_dir() and not top.is_symlink():
        yield from (Path(folder) / name for folder, _, names in os.walk(top) for name in names)
    else:
        yield top


def lines(found: list[Leftover], deleted: bool) -> Iterator[str]:
    """Each leftover with what it frees by itself, then all together."""
    for each in found:
        yield f"{each.sort:<12} {each.artifact}: {each.why}; {size(freed([each]))}"
    total = size(freed(found))
    if not found:
        yield "nothing can go"
    elif deleted:
        yield f"deleted; {total} are free"
    else:
        yield f"{total} can be freed; `proofmill gc --delete` deletes what is listed"


def delete(found: list[Leftover]) -> None:
    """Delete them; what a recipe needs is not among them."""
    for path in (path for each in found for path in each.paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
