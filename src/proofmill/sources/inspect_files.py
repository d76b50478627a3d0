"""Files of inspect_ai's logs, `.eval` (a zip archive) and `.json` (one object): their samples, one at a time.

A sample comes with the `eval` of its log: the task, the model, and how it was run. Of a log that was cut short, the
samples that were finished are read.

From: version 2 of the log format, `EvalLog` in inspect_ai/log/_log.py and the members of the archive in
log/_recorders/eval.py (github.com/UKGovernmentBEIS/inspect_ai, 2026), and logs of release 0.3.285. Members may be
compressed with zstd, which Python reads from 3.14 on, and pyarrow now. Version 3, a sample in many members, is refused:
its released readers refuse it, too.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from lzma import LZMAError
from pathlib import Path
from typing import Any

from proofmill.schema.errors import TableError
from proofmill.sources import fields, formats
from proofmill.sources.files import Readers
from proofmill.sources.formats import Mend, Record

VERSION = 2
RATIO = 5_000  # bytes of all members to one of the archive, of which deflate makes 1,032 at most; more is no log
ZSTD = 93  # how a zip archive names this compression (APPNOTE.TXT, 4.4.5)
BESIDE = ("logs.json", "eval-set.json", "listing.json")  # what inspect_ai writes into a folder of logs and is no log

# What reading a damaged archive ends in; RuntimeError is an encrypted member, or an unknown compression.
DAMAGE = (zipfile.BadZipFile, zlib.error, LZMAError, EOFError, OSError, RuntimeError, ValueError)
_SAMPLE = re.compile(r"samples/.+_epoch_(\d+)\.json", re.DOTALL)
_CHUNKED = re.compile(r"samples/.+_epoch_\d+/sample\.json", re.DOTALL)


def document(path: Path, _: Mend | None = None) -> Iterator[Record]:
    header: dict[str, Any] = {}
    number = 0
    for name, value in formats.members(path, "samples"):
        if name != "samples":
            header[name] = value
        elif value is not None:
            number += 1
            yield f"{path}#samples/{number}", _with_log(f"{path}#samples/{number}", value, _checked(path, header))
    if not number:
        raise _without_samples(path, _checked(path, header))


def archive(path: Path, _: Mend | None = None) -> Iterator[Record]:
    """The samples of a zip archive by their epochs; else in the order in which they were finished."""
    try:
        with zipfile.ZipFile(path) as log:
            inside = log.NameToInfo
            if sum(info.file_size for info in inside.values()) > RATIO * path.stat().st_size:
                raise ValueError(f"it says that it unpacks to more than {RATIO:,} times its size")
            first = next((name for name in ("header.json", "_journal/start.json") if name in inside), None)
            header = _checked(path, _member(path, log, inside[first]) if first else None)
            if any(map(_CHUNKED.fullmatch, inside)):
                raise _other_version(path, VERSION + 1)
            samples = [(int(match[1]), inside[name]) for name in inside if (match := _SAMPLE.fullmatch(name))]
            for _epoch, info in sorted(samples, key=lambda sample: sample[0]):
                where = f"{path}#{info.filename}"
                yield where, _with_log(where, _member(path, log, info), header)
            if not samples:
                raise _without_samples(path, header)
    except DAMAGE as error:
        raise TableError(
            f"{path}: cannot be read as an archive ({error}); expected a whole log of inspect_ai. Copy it again."
        ) from error


def _member(path: Path, log: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """What a member of the archive says, as JSON."""
    where = f"{path}#{info.filename}"
    try:
        content = _zstd(path, info) if info.compress_type == ZSTD else _inflated(log, info)
        return formats.parsed_json(content.decode("utf-8"), logged=True)
    except DAMAGE as error:
        raise TableError(f"{where}: cannot be read ({error}); expected JSON. Copy the log again.") from error


def _inflated(log: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    _check_size(info)
    with log.open(info) as member:
        return member.read(info.file_size + 1)


def _zstd(path: Path, info: zipfile.ZipInfo) -> bytes:
    """The content of a member that zipfile lists and cannot read."""
    import pyarrow as pa  # takes a while, and few logs need it

    _check_size(info)
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        head = file.read(30)  # the local header, whose last four bytes say how long the name and the extra field are
        if head[:4] != b"PK\x03\x04" or info.flag_bits & 1:
            raise ValueError("it is encrypted, or is not where the archive says")
        file.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), io.SEEK_CUR)
        packed = io.BytesIO(file.read(info.compress_size))
    with pa.input_stream(packed, compression="zstd") as stream:
        content = stream.read(info.file_size + 1)
    if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
        raise ValueError("its checksum is another one")
    return content


def _check_size(info: zipfile.ZipInfo) -> None:
    if info.file_size > formats.VALUE_LIMIT:
        raise ValueError(f"{info.file_size:,} bytes, and at most {formats.VALUE_LIMIT:,} are read")


def _checked(path: Path, header: Any) -> Mapping[str, Any]:
    """The `eval` of a log: task and model. TableError for a file that is no log, or of a later version."""
    found = header if isinstance(header, Mapping) else {}
    version, task = found.get("version", 1), found.get("eval")
    if isinstance(version, int) and version > VERSION:
        raise _other_version(path, version)
    if not isinstance(task, Mapping) or not isinstance(task.get("task"), str):
        raise TableError(
            f"{path}: no log of inspect_ai: it names no task; expected a `.eval` or `.json` log. Name another path."
        )
    return task


def _with_log(where: str, sample: Any, task: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(sample, Mapping):
        raise TableError(f"{where}: is a {fields.kind_of(sample)}; expected a sample, an object. Remove it.")
    return {**sample, "eval": task}


def _other_version(path: Path, version: int) -> TableError:
    return TableError(
        f"{path}: is of version {version} of inspect_ai's log format; expected {VERSION} or less. Name the log that it was made "
        "from, or write it with a released inspect_ai."
    )


def _without_samples(path: Path, task: Mapping[str, Any]) -> TableError:
    return TableError(
        f"{path}: no samples of `{task['task']}`; expected at least one. Was it stopped early, or written without samples "
        "(`--no-log-samples`)?"
    )


READERS: Readers = {".eval": archive, ".json": document}
