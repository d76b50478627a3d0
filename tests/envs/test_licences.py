"""The licences of all dependencies: what docs/licences.md lists, and how a licence is read and judged."""

from fnmatch import fnmatch
from importlib import metadata

import pytest
from packaging.utils import canonicalize_name

import licences
from mill import ROOT

PAGE = (ROOT / "docs/licences.md").read_text(encoding="utf-8")
ROWS = [licences.Row(*line[2:-2].split(" | ")) for line in PAGE.split("## Packages")[1].splitlines()[4:]]


def test_licences_are_listed_for_what_the_locks_pin():
    """docs/licences.md has each version that a lock pins and no other; `make lock` rewrites it."""
    pinned = [(package, version, lock) for lock in licences.LOCKS for package, version in licences.pins(lock).items()]
    assert sorted(pinned) == sorted(
        (row.package, row.version, lock) for row in ROWS for lock in row.pinned_by.split(", ")
    )
    assert licences.page(ROWS) == PAGE


def test_licences_are_all_allowed():
    """No dependency has a licence that envs/licences.toml does not allow it."""
    assert licences.faults((row.package, row.licence) for row in ROWS) == []


def test_licences_are_those_of_the_installed_packages():
    """What docs/licences.md says of a version is what that version, where it is installed, says of itself."""
    listed = {(row.package, row.version): row.licence for row in ROWS}
    for installed in metadata.distributions():
        package = canonicalize_name(installed.metadata["Name"])
        version = installed.version.partition("+")[0]
        if (package, version) in listed:
            assert licences.licence_of(package, installed.metadata.json) == listed[package, version], package


def test_licences_have_no_rule_without_use():
    """Every statement and every exception is about a package that a lock pins."""
    packages = {row.package for row in ROWS}
    patterns = [
        *licences.RULES["stated"],
        *(name for each in licences.RULES["exceptions"] for name in each["packages"]),
    ]
    assert not [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in packages)]


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ({"license_expression": "Apache-2.0 AND MIT", "license": "BSD"}, "Apache-2.0 AND MIT"),
        ({"license": "apache-2.0"}, "Apache-2.0"),
        ({"license": "MIT License\n\nCopyright (c) 2026"}, "MIT"),
        ({"license": "Copyright (c) 2026", "classifier": ["License :: OSI Approved :: MIT License"]}, "MIT"),
        ({"license": "see LICENSE", "classifier": ["Topic :: Software Development"]}, None),
        ({"classifier": [f"License :: OSI Approved :: {name}" for name in ("MIT License", "BSD License")]}, None),
        ({}, None),
    ],
)
def test_licence_is_read_from_metadata_or_not_known(metadata, licence):
    """An expression goes before words, words before one classifier; what is not understood is no licence."""
    assert licences.licence_of("any", metadata) == licence


@pytest.mark.parametrize(
    ("package", "licence", "allowed"),
    [
        ("any", "MIT", True),
        ("any", "MIT AND Apache-2.0 WITH LLVM-exception", True),
        ("any", "GPL-3.0-only OR MIT", True),
        ("any", "GPL-3.0-only AND MIT", False),
        ("any", "GPL-3.0-only OR MIT AND AGPL-3.0-only", False),
        ("any", "GPL-3.0-only AND (MIT OR ISC)", False),
        ("any", "LGPL-2.1-only", False),
        ("pycountry", "LGPL-2.1-only", True),
        ("pycountry", "GPL-3.0-only", False),
        ("any", None, False),
    ],
)
def test_licence_that_is_not_allowed_or_not_known_is_a_fault(package, licence, allowed):
    """An alternative must be allowed in all its parts; an exception holds for its package and its licence only."""
    found = licences.faults([(package, licence)])
    assert (found == []) == allowed
    assert allowed or found[0].startswith(f"{package}: the licence is {licence or 'not known'}; expected")
