"""The licence of every package that a lock pins, asked of the package index and judged by licences.toml.

`python envs/licences.py` (a part of `make lock`) writes docs/licences.md, and fails where a licence is unknown or not
allowed; tests/envs/test_licences.py holds the page against the locks, the rules and what is installed.
"""

import json
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKS = ("cpu", "gpu", "tools")
PAGE = ROOT / "docs/licences.md"
RULES = tomllib.loads((ROOT / "envs/licences.toml").read_text(encoding="utf-8"))
PAGE_TEXT = """# Licences

Of every package that a lock in `envs/` pins. `make lock` writes this page from the packages' own metadata, by the rules
of [envs/licences.toml](../envs/licences.toml); see [dependencies.md](dependencies.md#licences).

{allowed}

## Exceptions

| packages | licence | why |
|---|---|---|
{exceptions}

## Packages

| package | version | licence | pinned by | read in, where not in the metadata |
|---|---|---|---|---|
{packages}
"""


class Row(NamedTuple):
    """One pinned version of a package; `licence` is an SPDX expression."""

    package: str
    version: str
    licence: str
    pinned_by: str
    read: str


def pins(lock: str) -> dict[str, str]:
    """Package and version of each line `package==version`. A build (`+cpu`) has the licence of its version."""
    text = (ROOT / f"envs/{lock}.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([^\s+]+)", text, flags=re.MULTILINE))


def licence_of(package: str, metadata: Mapping[str, Any]) -> str | None:
    """What is stated of a package, else what its metadata say (as JSON, PEP 566); None where they do not say it.

    Several classifiers are not said to be alternatives or to hold together, so they say nothing.
    """
    if stated := _stated(package):
        return stated["licence"]
    text = (metadata.get("license") or "").strip()
    classifiers = [name for name in metadata.get("classifier", []) if name.startswith("License ::")]
    said = [metadata.get("license_expression") or "", text.partition("\n")[0].strip()]
    said += classifiers if len(classifiers) == 1 else []
    return next((spdx for words in said if (spdx := _spdx(words))), None)


def may_be(package: str, licence: str) -> bool:
    """Whether a package may have this licence: one of its alternatives is allowed, or the package is an exception."""
    alternatives = [option.split(" AND ") for option in licence.split(" OR ")]
    return any(set(parts) <= set(RULES["allowed"]) for parts in alternatives) or _is_excepted(package, licence)


def faults(licences: Iterable[tuple[str, str | None]]) -> list[str]:
    """A message for each package whose licence is unknown or may not be."""
    expected = "expected one that envs/licences.toml allows. State it there, except it with the reason, or do without"
    return [
        f"{package}: the licence is {licence or 'not known'}; {expected}"
        for package, licence in licences
        if licence is None or not may_be(package, licence)
    ]


def page(rows: Iterable[Row]) -> str:
    """The text of docs/licences.md."""
    exceptions = [(", ".join(each["packages"]), each["licence"], each["why"]) for each in RULES["exceptions"]]
    return PAGE_TEXT.format(
        allowed=textwrap.fill(f"Allowed: {', '.join(RULES['allowed'])}.", 120, break_on_hyphens=False),
        exceptions="\n".join(f"| {' | '.join(row)} |" for row in exceptions),
        packages="\n".join(f"| {' | '.join(row)} |" for row in sorted(rows)),
    )


def _stated(package: str) -> dict[str, str] | None:
    return next((stated for pattern, stated in RULES["stated"].items() if fnmatch(package, pattern)), None)


def _is_excepted(package: str, licence: str) -> bool:
    exceptions = [each["packages"] for each in RULES["exceptions"] if each["licence"] == licence]
    return any(fnmatch(package, pattern) for patterns in exceptions for pattern in patterns)


def _spdx(words: str) -> str | None:
    if words in RULES["names"]:
        return RULES["names"][words]
    try:
        return canonicalize_license_expression(words)
    except InvalidLicenseExpression:
        return None


def _asked(packages: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Metadata of pinned packages. None of their code is run, and an index with metadata, as PyPI, is asked for no more."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
    names = [f"{package}=={version}" for package, version in packages.items()]
    command += ["--only-binary", ":all:", "--report", "-", *names]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    found = [package["metadata"] for package in answer["install"]]
    return {canonicalize_name(metadata["name"]): metadata for metadata in found}


def main() -> None:
    """Ask, write the page, and stop with all faults."""
    locks = {lock: pins(lock) for lock in LOCKS}
    licences: dict[tuple[str, str], str | None] = {}
    for pinned in locks.values():
        new = {package: version for package, version in pinned.items() if (package, version) not in licences}
        metadata = _asked({package: version for package, version in new.items() if not _stated(package)})
        licences |= {(package, new[package]): licence_of(package, metadata.get(package, {})) for package in new}
    if wrong := faults((package, licence) for (package, _), licence in licences.items()):
        sys.exit("\n".join(wrong))
    rows = []
    for (package, version), licence in licences.items():
        pinned_by = ", ".join(lock for lock, pinned in locks.items() if pinned.get(package) == version)
        rows.append(Row(package, version, licence or "", pinned_by, (_stated(package) or {"read": ""})["read"]))
    PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
