"""The tests' own parts: seconds and budgets of files, and the samples of tests with many cases."""

import csv
import os
import subprocess
import sys

import pytest

import budgets
from mill import ROOT

FILE = """
import time
import pytest

@pytest.fixture(scope="session")
def shared():
    time.sleep(0.5)

@pytest.mark.sampled(10, "[7")
@pytest.mark.parametrize("case", range(50))
def test_many(case):
    pass

def test_slow(shared):
    time.sleep(0.2)

@pytest.mark.long
def test_long():
    pass
"""


@pytest.fixture
def tests(tmp_path):
    """Return `tests(options)`, which runs pytest on FILE with the plugins of the tests and returns its output."""
    (tmp_path / "test_file.py").write_text(FILE, encoding="utf-8")
    path = os.pathsep.join([str(ROOT / "tests/fixtures"), os.environ.get("PYTHONPATH", "")])

    def run(*options: str, room: str = "3") -> subprocess.CompletedProcess:
        plugins = [word for name in ("xdist", "budgets", "sampled", "no:cacheprovider") for word in ("-p", name)]
        command = [sys.executable, "-m", "pytest", *plugins, *options]
        alone = {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take seconds to load
        environment = {**os.environ, **alone, "PROOFMILL_TEST_ROOM": room}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def test_sample_is_a_tenth_and_what_is_named(tests):
    """Five of fifty cases, and the one that is named; `long` has the others, so that no case is lost."""
    assert "7 passed, 45 deselected" in (said := tests("-m", "not long", "-v").stdout), said
    assert "test_many[7] PASSED" in said
    assert "45 passed, 7 deselected" in tests("-m", "long").stdout


def test_file_over_its_budget_fails_the_run(tests, tmp_path):
    """Its time is that of all workers, without the fixtures of the session; the seconds are written."""
    done = tests("-n", "2", "--seconds", "seconds.csv", room="0.005")
    assert done.returncode == 1 and "52 passed" in done.stdout
    assert "test_file.py: its tests took 0 s; expected at most 0.005 x 30 s" in done.stdout
    with open(tmp_path / "seconds.csv", encoding="utf-8") as file:
        spent = {(row["file"], row["part"]): float(row["seconds"]) for row in csv.DictReader(file)}
    assert 0.2 <= spent["test_file.py", "seconds"] < 0.5 <= spent[budgets.SHARED, "seconds"]
    assert tests("-k", "slow", room="0").returncode == 0


def test_every_file_with_a_budget_is_there():
    """The table names no file that was moved, and has the default."""
    assert [file for file in budgets.read(budgets.TABLE) if file != "*" and not (ROOT / file).is_file()] == []
    assert "*" in budgets.read(budgets.TABLE)
