"""Find files in the results folder that no recipe needs: how much deleting them frees, and why they can go.

    archive        archived tables of other entries, which restore a table if an edit is undone
    unfinished     checkpoints, scratch files and shard logs of stages that are finished or in no recipe
    unreachable    tables, weights and logs of artifacts in no recipe
    calls          journals of such artifacts: paid model outputs. Only on request.

A configuration with a mistake is refused, because the entries that it leaves out would look unused. Files of a running
stage stay, and so do those that another configuration of the folder declares (artifacts/configurations.py). Most
archived tables are hard links to files in use. Deleting such a link frees no space.
"""

import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proofmill.artifacts.archive import ArchivedTable
from proofmill.artifacts.configurations import Configuration, in_stamp
from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.config.config import Config
from proofmill.schema.kinds import KINDS
from proofmill.text.byte_sizes import format_bytes

SORTS = ("archive", "unfinished", "unreachable", "calls")
SHARD_LOG = re.compile(r"(?P<name>.+)\.\d+-of-\d+\.log")  # workflow/shards.smk


@dataclass(frozen=True)
class UnusedFiles:
    """Files that can be deleted together, and why."""

    sort: str
    artifact: str
    why: str
    paths: tuple[Path, ...]


def find_unused(
    config: Config, results: Path, sorts: tuple[str, ...] = SORTS[:3], others: Sequence[Configuration] = ()
) -> list[UnusedFiles]:
    """Return what can go, by sort and artifact, except files of running stages and files that `others` need."""
    unused = [*_find_unfinished(config, results), *_unreachable(config, results), *_calls(config, results)]
    needed = {name for other in others for name in other.artifacts}
    unused = [*_find_archived(config, results, others), *(each for each in unused if each.artifact not in needed)]
    busy = {each.artifact for each in unused if Table(each.artifact, results).is_being_made}
    return [each for each in unused if each.sort in sorts and each.artifact not in busy]


def list_held_by_others(
    config: Config, results: Path, sorts: tuple[str, ...], others: Sequence[Configuration]
) -> dict[str, list[str]]:
    """Return, by title of each other configuration, the artifacts with files that stay only because it needs them."""
    going = {path for each in find_unused(config, results, sorts, others) for path in each.paths}
    held = {each.artifact for each in find_unused(config, results, sorts) if not going.issuperset(each.paths)}
    return {other.title: sorted(held & other.artifacts.keys()) for other in others}


def _find_archived(config: Config, results: Path, others: Sequence[Configuration]) -> Iterator[UnusedFiles]:
    """Yield archived tables that neither today's entry nor one of `others` would restore."""
    states = States(config, results)
    for name, folder in _artifact_folders(results / "archive"):
        current = ""
        if name in config.entries:
            if states[name].name != "done":  # the next build may restore one of its archived tables
                continue
            current = Table(name, results).stamp["fingerprint"]
        theirs = {other.artifacts.get(name) for other in others}
        needed = {
            copy
            for copy in folder.iterdir()
            if (stamp := ArchivedTable(copy, name).stamp) and in_stamp(stamp) in theirs
        }
        if copies := [copy for copy in sorted(folder.iterdir()) if copy.name != current and copy not in needed]:
            yield UnusedFiles("archive", name, f"{len(copies)} of earlier versions of the entry", tuple(copies))


def _find_unfinished(config: Config, results: Path) -> Iterator[UnusedFiles]:
    """Yield scratch folders and shard logs of artifacts that are finished or in no recipe."""
    states = States(config, results)
    paths: dict[str, list[Path]] = defaultdict(list)
    for name, folder in _artifact_folders(results / "unfinished"):
        if name not in config.entries or any(folder.iterdir()):
            paths[name].append(folder)
    for kind in KINDS:
        for log in sorted((results / kind).glob("*.log")):
            if of_shard := SHARD_LOG.fullmatch(log.name):
                paths[f"{kind}/{of_shard['name']}"].append(log)
    for name, files in paths.items():
        if name not in config.entries:
            yield UnusedFiles("unfinished", name, "in no recipe", tuple(files))
        elif states[name].name == "done":
            yield UnusedFiles("unfinished", name, "its table is finished", tuple(files))


def _unreachable(config: Config, results: Path) -> Iterator[UnusedFiles]:
    """Yield tables, logs, pages and weights of artifacts in no recipe."""
    for kind in KINDS:
        for path in sorted((results / kind).glob("*.parquet")):
            table = Table(f"{kind}/{path.stem}", results)
            if table.name not in config.entries:
                files = (path, path.with_suffix(".log"), table.page, table.folder)
                yield UnusedFiles(
                    "unreachable", table.name, "in no recipe", tuple(each for each in files if each.exists())
                )


def _calls(config: Config, results: Path) -> Iterator[UnusedFiles]:
    """Yield journals of artifacts in no recipe."""
    for name, folder in _artifact_folders(results / "calls"):
        if name not in config.entries:
            yield UnusedFiles("calls", name, "in no recipe; its outputs were paid for", (folder,))


def _artifact_folders(top: Path) -> Iterator[tuple[str, Path]]:
    """Yield (artifact, folder) for each <kind>/<name> below a folder."""
    for folder in sorted(top.glob("*/*/")):
        if folder.parent.name in KINDS:
            yield f"{folder.parent.name}/{folder.name}", folder


# ---------------------------------------------------------------------------------------------------- report and delete


def count_freed_bytes(unused: list[UnusedFiles]) -> int:
    """Return the bytes that deleting all of them frees. A file with a hard link elsewhere frees none."""
    links: Counter[tuple[int, int]] = Counter()
    inodes: dict[tuple[int, int], tuple[int, int]] = {}
    for path in (path for each in unused for top in each.paths for path in _files(top)):
        status = path.lstat()
        links[status.st_dev, status.st_ino] += 1
        inodes[status.st_dev, status.st_ino] = status.st_nlink, status.st_blocks * 512
    return sum(size for inode, (all_links, size) in inodes.items() if links[inode] == all_links)


def _files(top: Path) -> Iterator[Path]:
    """Yield the files below a folder; of a file or link, itself."""
    if top.is_dir() and not top.is_symlink():
        yield from (Path(folder) / name for folder, _, names in os.walk(top) for name in names)
    else:
        yield top


def report(unused: list[UnusedFiles], deleted: bool, held: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return what can go, with the bytes that this frees, and the artifacts that other configurations hold."""
    files = [{**asdict(each), "bytes": count_freed_bytes([each])} for each in unused]
    kept = {title: names for title, names in held.items() if names}
    return {"files": files, "bytes": count_freed_bytes(unused), "deleted": deleted, "kept": kept}


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the report as text: a line for each, the total, and what is kept."""
    for each in found["files"]:
        yield f"{each['sort']:<12} {each['artifact']}: {each['why']}; {format_bytes(each['bytes'])}"
    total = format_bytes(found["bytes"])
    if not found["files"]:
        yield "no unused files"
    elif found["deleted"]:
        yield f"deleted; freed {total}"
    else:
        yield f"{total} can be freed; `proofmill gc --delete` deletes the files above"
    for title, names in found["kept"].items():
        yield f"kept for `{title}`: {', '.join(names)}; `proofmill gc --forget '{title}'` releases them"


def delete(unused: list[UnusedFiles]) -> None:
    """Delete the files."""
    for path in (path for each in unused for path in each.paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
