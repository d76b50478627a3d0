"""Read the samples of inspect_ai's log files one at a time: `.eval` (a zip archive) and `.json` (one object).

A sample has the `eval` of its log (the task, the model and the settings) and the complete header as `log`. Of an
interrupted log, the finished samples are read.

From: version 2 of the log format, `EvalLog` in inspect_ai/log/_log.py and the members of the archive in
log/_recorders/eval.py (github.com/UKGovernmentBEIS/inspect_ai, 2026), and logs of release 0.3.285. Members may be
compressed with zstd, which zipfile supports from Python 3.14; pyarrow reads them. Version 3, with a sample in many members,
is rejected, as by the released readers.
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
from proofmill.sources import file_formats, record_fields
from proofmill.sources.file_formats import FixCells, Record
from proofmill.sources.files import Readers

VERSION = 2
RATIO = 5_000  # bytes of all members per byte of the archive; deflate reaches at most 1,032
ZSTD = 93  # the id of this compression in zip archives (APPNOTE.TXT, 4.4.5)
OTHER_FILES = ("logs.json", "eval-set.json", "listing.json")  # files of inspect_ai in a log folder that are not logs

# Errors of damaged archives; RuntimeError is an encrypted member or an unknown compression.
DAMAGE = (zipfile.BadZipFile, zlib.error, LZMAError, EOFError, OSError, RuntimeError, ValueError)
_SAMPLE = re.compile(r"samples/.+_epoch_(\d+)\.json", re.DOTALL)
_CHUNKED = re.compile(r"samples/.+_epoch_\d+/sample\.json", re.DOTALL)


def document(path: Path, _: FixCells | None = None) -> Iterator[Record]:
    """Yield the samples of a `.json` log."""
    header: dict[str, Any] = {}
    number = 0
    for name, value in file_formats.members(path, "samples"):
        if name != "samples":
            header[name] = value
        elif value is not None:
            number += 1
            yield f"{path}#samples/{number}", _add_log(f"{path}#samples/{number}", value, _check_header(path, header))
    if not number:
        raise _without_samples(path, _check_header(path, header))


def archive(path: Path, _: FixCells | None = None) -> Iterator[Record]:
    """Yield the samples of a `.eval` log by epoch, then in order of completion."""
    try:
        with zipfile.ZipFile(path) as log:
            inside = log.NameToInfo
            if sum(info.file_size for info in inside.values()) > RATIO * path.stat().st_size:
                raise ValueError(f"it unpacks to more than {RATIO:,} times its size")
            first = next((name for name in ("header.json", "_journal/start.json") if name in inside), None)
            header = _check_header(path, _read_member(path, log, inside[first]) if first else None)
            if any(map(_CHUNKED.fullmatch, inside)):
                raise _other_version(path, VERSION + 1)
            samples = [(int(match[1]), inside[name]) for name in inside if (match := _SAMPLE.fullmatch(name))]
            for _epoch, info in sorted(samples, key=lambda sample: sample[0]):
                where = f"{path}#{info.filename}"
                yield where, _add_log(where, _read_member(path, log, info), header)
            if not samples:
                raise _without_samples(path, header)
    except DAMAGE as error:
        raise TableError(
            f"{path}: cannot be read as an archive ({error}); expected a complete log of inspect_ai. Copy it again."
        ) from error


def _read_member(path: Path, log: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """Read a member of the archive as JSON."""
    where = f"{path}#{info.filename}"
    try:
        content = _unpack_zstd(path, info) if info.compress_type == ZSTD else _inflate(log, info)
        return file_formats.parse_json(content.decode("utf-8"), logged=True)
    except DAMAGE as error:
        raise TableError(f"{where}: cannot be read ({error}); expected JSON. Copy the log again.") from error


def _inflate(log: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    _check_size(info)
    with log.open(info) as member:
        return member.read(info.file_size + 1)


def _unpack_zstd(path: Path, info: zipfile.ZipInfo) -> bytes:
    """Return the content of a member with zstd compression, which zipfile cannot read."""
    import pyarrow as pa  # a slow import, needed by few logs

    _check_size(info)
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        head = file.read(30)  # the local header, which ends with the lengths of the name and the extra field
        if head[:4] != b"PK\x03\x04" or info.flag_bits & 1:
            raise ValueError("it is encrypted, or its offset is wrong")
        file.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), io.SEEK_CUR)
        packed = io.BytesIO(file.read(info.compress_size))
    with pa.input_stream(packed, compression="zstd") as stream:
        content = stream.read(info.file_size + 1)
    if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
        raise ValueError("wrong checksum")
    return content


def _check_size(info: zipfile.ZipInfo) -> None:
    if info.file_size > file_formats.VALUE_LIMIT:
        raise ValueError(f"{info.file_size:,} bytes; the limit is {file_formats.VALUE_LIMIT:,}")


def _check_header(path: Path, header: Any) -> Mapping[str, Any]:
    """Return the header of a log. Raises TableError for a file that is not a log, or of a later version."""
    members = header if isinstance(header, Mapping) else {}
    version, task = members.get("version", 1), members.get("eval")
    if isinstance(version, int) and version > VERSION:
        raise _other_version(path, version)
    if not isinstance(task, Mapping) or not isinstance(task.get("task"), str):
        raise TableError(
            f"{path}: has no task, so it is not a log of inspect_ai; expected a `.eval` or `.json` log. Set another path."
        )
    return members


def _add_log(where: str, sample: Any, header: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(sample, Mapping):
        raise TableError(f"{where}: is a {record_fields.kind_of(sample)}; expected a sample, an object. Remove it.")
    return {**sample, "eval": header["eval"], "log": header}


def _other_version(path: Path, version: int) -> TableError:
    return TableError(
        f"{path}: has version {version} of inspect_ai's log format; expected at most {VERSION}. Use the original log, or "
        "convert it with a released inspect_ai."
    )


def _without_samples(path: Path, header: Mapping[str, Any]) -> TableError:
    return TableError(
        f"{path}: no samples of `{header['eval']['task']}`; expected at least one. It may be interrupted, or written with "
        "`--no-log-samples`."
    )


READERS: Readers = {".eval": archive, ".json": document}
