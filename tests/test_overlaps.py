"""Overlaps between tables: evidence rows, each told once."""

import json

from proofmill import overlaps

LONG = (
    "Let $a_1, a_2, \\ldots$ be a sequence of frogs jumping between lily pads numbered by primes; determine the least number of "
    "jumps after which every heron has eaten exactly seven frogs."
)
OTHER = "Find the remainder of $12345$ modulo $7$ when a snail carries it over the mountain called Rigi on a Tuesday in May."


def tables(tmp_path, **files):
    entries = {}
    for name, rows in files.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"problem": id, "statement": text}) + "\n" for id, text in rows))
        entries[f"problems/{name}"] = {"source": "table", "path": str(path)}
    return entries


def found(mill, entries, **entry):
    made = mill(entries | {"overlaps/o": entry})
    made.make(*entries, "overlaps/o")
    return made.table("overlaps/o")


def test_evidence_names_both_rows_method_and_span(mill, tmp_path):
    """A verbatim row is exact, one in a longer post shares a run, and each says where and which text."""
    entries = tables(
        tmp_path,
        train=[("a", LONG), ("b", f"My teacher gave us this: {LONG} Any ideas?"), ("c", OTHER)],
        bench=[("x", LONG), ("y", "Prove that there are infinitely many primes.")],
    )
    table = found(mill, entries, problems=["problems/train"], against=["problems/bench"], words=8)
    rows = {(r["problem"], r["method"]): r for r in table.rows()}
    assert set(rows) == {("a", "exact"), ("a", "ngram"), ("a", "minhash"), ("b", "ngram")}
    assert {(r["against"], r["other"], r["problems"]) for r in rows.values()} == {
        ("problems/bench", "x", "problems/train")
    }
    assert "lily pads" in rows["b", "ngram"]["span"] and "teacher" not in rows["b", "ngram"]["span"]
    assert table.stamp["counts"] == {"rows": 3, "exact": 1, "ngram": 2, "minhash": 1}


def test_training_against_test_and_itself(mill, tmp_path):
    """A table looked for in itself tells each pair once, and no row against itself; two tables both ways tell one side."""
    entries = tables(tmp_path, train=[("a", LONG), ("b", LONG), ("c", OTHER)], test=[("t", OTHER)])
    rows = found(mill, entries, problems=["problems/train"], against=["problems/train"], methods=["exact"]).rows()
    assert [(r["problem"], r["other"]) for r in rows] == [("a", "b")]
    both = {"problems": ["problems/train", "problems/test"], "against": ["problems/train", "problems/test"]}
    rows = found(mill, entries, **both, methods=["exact"]).rows()
    assert sorted((r["problem"], r["other"]) for r in rows) == [("a", "b"), ("c", "t")]


def test_dropped_rows_are_not_looked_for_and_are_looked_in(mill, tmp_path, monkeypatch):
    """What was dropped will not be trained on; what a benchmark dropped still stands in the benchmark."""
    monkeypatch.setattr(overlaps, "BATCH", 1)
    entries = tables(tmp_path, train=[("a", LONG), ("short", "Why?")], bench=[("x", LONG), ("y", "Why?")])
    for name in entries:
        entries[name]["keep"] = [{"statement-length": [20, None]}]
    rows = found(mill, entries, problems=["problems/train"], against=["problems/bench"], methods=["exact"]).rows()
    assert [(r["problem"], r["other"]) for r in rows] == [("a", "x")]
    entries["problems/train"]["keep"] = []
    rows = found(mill, entries, problems=["problems/train"], against=["problems/bench"], methods=["exact"]).rows()
    assert {r["other"] for r in rows} >= {"x"}


def test_nothing_in_common_is_an_empty_table(mill, tmp_path):
    """No overlap is a table without rows, not an error."""
    entries = tables(tmp_path, train=[("a", LONG)], bench=[("x", OTHER)])
    table = found(mill, entries, problems=["problems/train"], against=["problems/bench"])
    assert table.rows() == [] and table.stamp["counts"] == {"rows": 1}


def test_every_row_of_a_cluster_has_evidence(mill, tmp_path):
    """Of thirty equal rows none is without a partner, and a pair with a dropped row is told whatever the ids."""
    entries = tables(tmp_path, train=[(f"r{n:02}", LONG) for n in range(30)], pair=[("a", LONG), ("f", LONG)])
    entries["problems/pair"]["keep"] = ["not-duplicate"]
    rows = found(mill, entries, problems=["problems/train"], against=["problems/train"], methods=["exact"]).rows()
    assert len({r["problem"] for r in rows} | {r["other"] for r in rows}) == 30
    rows = found(mill, entries, problems=["problems/pair"], against=["problems/pair"], methods=["exact"]).rows()
    assert [{r["problem"], r["other"]} for r in rows] == [{"a", "f"}]
