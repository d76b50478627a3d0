"""Read the license of every pinned package from the package index, and check it by licenses.toml.

`python envs/licenses.py` (a part of `make lock`) writes docs/licenses.md, and fails if a license is unknown or not
allowed. tests/envs/test_licenses.py compares the page with the locks, the rules and the installed packages.
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
LOCKS = ("cpu", "gpu", "tools", "site")
PAGE = ROOT / "docs/licenses.md"
RULES = tomllib.loads((ROOT / "envs/licenses.toml").read_text(encoding="utf-8"))
PAGE_TEXT = """# Licenses

The license of every package in the lock files of `envs/`. `make lock` writes this page from the packages' metadata and
the rules of [envs/licenses.toml](../envs/licenses.toml) ([dependencies](dependencies.md#licenses)).

{allowed}

## Exceptions

| packages | license | reason |
|---|---|---|
{exceptions}

## Packages

| package | version | license | locks | source, if not the metadata |
|---|---|---|---|---|
{packages}
"""


class Row(NamedTuple):
    """One pinned version of a package; `license` is an SPDX expression."""

    package: str
    version: str
    license: str
    pinned_by: str
    read: str


def pins(lock: str) -> dict[str, str]:
    """Return the packages of a lock with their versions. A build (`+cpu`) has the license of its version."""
    text = (ROOT / f"envs/{lock}.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([^\s+]+)", text, flags=re.MULTILINE))


def license_of(package: str, metadata: Mapping[str, Any]) -> str | None:
    """Return a package's license from `stated`, else from its metadata (as JSON, PEP 566); None if unknown.

    Several classifiers may be alternatives or hold together, so they do not count.
    """
    if stated := _stated(package):
        return stated["license"]
    text = (metadata.get("license") or "").strip()
    classifiers = [name for name in metadata.get("classifier", []) if name.startswith("License ::")]
    texts = [metadata.get("license_expression") or "", text.partition("\n")[0].strip()]
    texts += classifiers if len(classifiers) == 1 else []
    return next((spdx for words in texts if (spdx := _spdx(words))), None)


def is_allowed(package: str, license: str) -> bool:
    """Return whether the license is allowed: one of its alternatives is, or the package is an exception."""
    alternatives = [option.split(" AND ") for option in license.split(" OR ")]
    return any(set(parts) <= set(RULES["allowed"]) for parts in alternatives) or _is_excepted(package, license)


def faults(licenses: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return a message for each package whose license is unknown or not allowed."""
    expected = "expected one that envs/licenses.toml allows. State it there, add an exception with the reason, or remove the package"
    return [
        f"{package}: the license is {license or 'not known'}; {expected}"
        for package, license in licenses
        if license is None or not is_allowed(package, license)
    ]


def page(rows: Iterable[Row]) -> str:
    """Return the text of docs/licenses.md."""
    exceptions = [(", ".join(each["packages"]), each["license"], each["why"]) for each in RULES["exceptions"]]
    return PAGE_TEXT.format(
        allowed=textwrap.fill(f"Allowed: {', '.join(RULES['allowed'])}.", 120, break_on_hyphens=False),
        exceptions="\n".join(f"| {' | '.join(row)} |" for row in exceptions),
        packages="\n".join(f"| {' | '.join(row)} |" for row in sorted(rows)),
    )


def _stated(package: str) -> dict[str, str] | None:
    return next((stated for pattern, stated in RULES["stated"].items() if fnmatch(package, pattern)), None)


def _is_excepted(package: str, license: str) -> bool:
    exceptions = [each["packages"] for each in RULES["exceptions"] if each["license"] == license]
    return any(fnmatch(package, pattern) for patterns in exceptions for pattern in patterns)


def _spdx(words: str) -> str | None:
    if words in RULES["names"]:
        return RULES["names"][words]
    try:
        return canonicalize_license_expression(words)
    except InvalidLicenseExpression:
        return None


def _metadata(packages: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the metadata of pinned packages. Runs none of their code; from an index with metadata, as PyPI, only these are fetched."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
    names = [f"{package}=={version}" for package, version in packages.items()]
    command += ["--only-binary", ":all:", "--report", "-", *names]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    installs = [package["metadata"] for package in report["install"]]
    return {canonicalize_name(metadata["name"]): metadata for metadata in installs}


def main() -> None:
    """Read the licenses and write the page; exit with all faults."""
    locks = {lock: pins(lock) for lock in LOCKS}
    licenses: dict[tuple[str, str], str | None] = {}
    for pinned in locks.values():
        new = {package: version for package, version in pinned.items() if (package, version) not in licenses}
        metadata = _metadata({package: version for package, version in new.items() if not _stated(package)})
        licenses |= {(package, new[package]): license_of(package, metadata.get(package, {})) for package in new}
    if wrong := faults((package, license) for (package, _), license in licenses.items()):
        sys.exit("\n".join(wrong))
    rows = []
    for (package, version), license in licenses.items():
        pinned_by = ", ".join(lock for lock, pinned in locks.items() if pinned.get(package) == version)
        rows.append(Row(package, version, license or "", pinned_by, (_stated(package) or {"read": ""})["read"]))
    PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
