"""The licenses of all dependencies: the list in docs/licenses.md, and the parsing and rules of licenses."""

from fnmatch import fnmatch
from importlib import metadata

import pytest
from packaging.utils import canonicalize_name

import licenses
from mill import ROOT

PAGE = (ROOT / "docs/licenses.md").read_text(encoding="utf-8")
ROWS = [licenses.Row(*line[2:-2].split(" | ")) for line in PAGE.split("## Packages")[1].splitlines()[4:]]


def test_licenses_are_listed_for_what_the_locks_pin():
    """docs/licenses.md has exactly the versions that the locks pin; `make lock` rewrites it."""
    pinned = [(package, version, lock) for lock in licenses.LOCKS for package, version in licenses.pins(lock).items()]
    assert sorted(pinned) == sorted(
        (row.package, row.version, lock) for row in ROWS for lock in row.pinned_by.split(", ")
    )
    assert licenses.page(ROWS) == PAGE


def test_licenses_are_all_allowed():
    """Every dependency has a license that envs/licenses.toml allows."""
    assert licenses.faults((row.package, row.license) for row in ROWS) == []


def test_licenses_are_those_of_the_installed_packages():
    """The licenses in docs/licenses.md are those in the metadata of the installed packages."""
    listed = {(row.package, row.version): row.license for row in ROWS}
    for installed in metadata.distributions():
        package = canonicalize_name(installed.metadata["Name"])
        version = installed.version.partition("+")[0]
        if (package, version) in listed:
            assert licenses.license_of(package, installed.metadata.json) == listed[package, version], package


def test_licenses_have_no_rule_without_use():
    """Every statement and every exception matches a package that a lock pins."""
    packages = {row.package for row in ROWS}
    patterns = [
        *licenses.RULES["stated"],
        *(name for each in licenses.RULES["exceptions"] for name in each["packages"]),
    ]
    assert not [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in packages)]


@pytest.mark.parametrize(
    ("metadata", "license"),
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
def test_license_is_read_from_metadata_or_not_known(metadata, license):
    """An expression has priority over text, and text over a single classifier; otherwise the license is unknown."""
    assert licenses.license_of("any", metadata) == license


@pytest.mark.parametrize(
    ("package", "license", "allowed"),
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
def test_license_that_is_not_allowed_or_not_known_is_a_fault(package, license, allowed):
    """All parts of an alternative must be allowed; an exception applies only to its package and its license."""
    found = licenses.faults([(package, license)])
    assert (found == []) == allowed
    assert allowed or found[0].startswith(f"{package}: the license is {license or 'not known'}; expected")
