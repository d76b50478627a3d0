"""Training examples: filters, mixtures, and the rows they keep."""

import json
import math
import random
import shutil
from collections import Counter

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mill import SMALL
from proofmill.examples import apportion, refusals, sample
from proofmill.filters.example_filters import EXAMPLE_FILTERS
from proofmill.schema.errors import RecipeError, TableError
from proofmill.text.reasoning import with_thought


def rows(*given):
    """Build candidates from (problem, text, grade) triples."""
    return [
        {
            "problem": p,
            "text": t,
            "grade": g,
            "max_points": 7,
            "stop_reason": "end",
            "well_formed": True,
            "tokens": len(t),
            "dropped": None,
            "messages": [],
            "tools": None,
        }
        for p, t, g in given
    ]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (["solved"], ["a", "b", "b", "e"]),
        (["scored"], ["a", "b", "b", "c", "e"]),
        ([{"at-least": 3}], ["a", "b", "b", "c", "e"]),
        (["solved", "distinct"], ["a", "b", "e"]),
        (["solved", "one-per-problem"], ["a", "e"]),
        ([{"at-most-per-problem": 2}], ["a", "b", "d", "e"]),
        (["shortest-per-problem"], ["a", "d"]),
    ],
)
def test_filters_keep_the_expected_rows(keep, expected):
    """Each filter sees the rows that earlier ones kept; an ungraded attempt does not count as solved."""
    some = rows(("p", "a", 7), ("p", "b", 7), ("p", "b", 7), ("p", "c", 3), ("q", "d", None), ("q", "e", 7))
    refused = refusals(some, keep)
    assert expected == [row["text"] for row, name in zip(some, refused, strict=True) if name is None]


def test_first_filter_that_refuses_is_named():
    """A dropped row has the name of its filter."""
    some = rows(("p", "a", 3), ("p", "b", 7), ("p", "c", 7))
    assert refusals(some, ["solved", "one-per-problem"]) == ["solved", None, "one-per-problem"]


def test_shortest_attempt_without_token_counts_is_the_only_one():
    """Solutions of problems have no token counts, and `one-per-problem` does not need them."""
    some = [{**row, "tokens": None} for row in rows(("p", "a", 7), ("q", "b", 7))]
    assert refusals(some, ["shortest-per-problem"]) == [None, None]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([(9, 10), (8, 90), (7, 50)], 2),
        ([(9, 10), (8, 90), (None, 50)], 0),
        ([(None, 10), (8, 90), (7, 9)], 2),
        ([(None, 10), (None, 9), (3, 90)], 1),
        ([(3, 90), (None, 10), (None, 9)], 2),
        ([(None, 5), (None, 5)], 0),
        ([(5, 9), (5, 8)], 0),
        ([(0, 9), (0, 8), (1, 7)], 0),
        ([(4, 0), (None, 0)], 0),
    ],
)
def test_shortest_attempt_is_found_in_one_unit(lengths, expected):
    """Length is in tokens if each attempt at the problem has them, else in characters, independent of other problems."""
    own = [{**row, "tokens": tokens} for (tokens, n) in lengths for row in rows(("p", "x" * n, 7))]
    others = [{**row, "tokens": tokens} for tokens in (2, 1) for row in rows(("q", "x", 7))]
    for some in ([*own, *others], [*others, *own]):
        kept = [row for row, name in zip(some, refusals(some, ["shortest-per-problem"]), strict=True) if name is None]
        assert kept.count(others[1]) == 1 and len(kept) == 2
        assert any(row is own[expected] for row in kept)


def test_every_filter_decides_every_row():
    """A filter returns one verdict per row, also for no rows."""
    some = rows(("p", "a", 7), ("q", "", None))
    arguments = {"none": [], "number": [1], "count": [1], "texts": [["en"]]}
    for named in EXAMPLE_FILTERS.values():
        argument = arguments[named.argument]
        assert len(some) == len(named.apply(some, *argument))
        assert list(named.apply([], *argument)) == []


def test_solutions_become_conversations(small):
    """A demonstration has the statement as prompt and the forum's solution as answer."""
    problems = {row["problem"]: row for row in small.table("problems/train").rows()}
    for row in small.table("examples/cold").rows():
        problem = problems[row["problem"]]
        assert [("user", problem["statement"]), ("assistant", problem["solution"])] == [
            (m["role"], m["content"]) for m in row["messages"]
        ]


def test_mixture_has_its_shares_and_repeats_evenly(small, mill):
    """Shares count rows; a source that is too small is repeated evenly, with new ids."""
    made = mill({**SMALL, "examples/few": {"problems": "problems/train", "keep": [{"at-most-per-problem": 1}]},
                 "examples/mixed": {"mix": {"examples/few": 0.75, "examples/cold": 0.25}, "rows": 160}})  # fmt: skip
    made.results = small.results
    made.make("examples/few", "examples/mixed")
    mixed = made.table("examples/mixed").rows()
    assert 160 == len({row["example"] for row in mixed}) == len(mixed)
    uses = {}
    for row in mixed:
        uses[row["problem"]] = uses.get(row["problem"], 0) + 1
    assert max(uses.values()) - min(uses.values()) <= 2


def test_joined_tables_have_their_shares(small, mill):
    """A share of 1 is all rows, a smaller one a subset without repetition; the seed determines rows and order."""
    few = {"examples/few": {"problems": "problems/train", "keep": [{"at-most-per-problem": 1}]}}
    shares = {"examples/cold": 1.0, "examples/few": 0.3}
    joined = {f"examples/joined-{seed}": {"concatenate": shares, "seed": seed} for seed in (0, 1)}
    made = mill({**SMALL, **few, **joined})
    shutil.copytree(small.results, made.results)
    made.make("examples/few", *joined)
    total = len(made.table("examples/few").rows())
    found = [made.table(name).rows() for name in joined]
    for rows in found:
        kept = Counter(row["problem"] for row in rows)
        assert len({row["example"] for row in rows}) == len(rows) == 48 + math.floor(0.3 * total)
        assert set(kept) == {row["problem"] for row in made.table("examples/cold").rows()} and max(kept.values()) <= 2
    assert [row["example"] for row in found[0]] != [row["example"] for row in found[1]]
    assert {row["example"] for row in found[0]} != {row["example"] for row in found[1]}


@pytest.mark.parametrize(
    "fields", [{"mix": {"examples/cold": 1.0}, "rows": 20}, {"concatenate": {"examples/cold": 0.5}}]
)
def test_two_tables_with_one_seed_draw_different_rows(small, mill, fields):
    """The seed of a draw derives from the entry's seed and name."""
    names = ["examples/one", "examples/other"]
    made = mill({**SMALL, **dict.fromkeys(names, fields)})
    made.results = small.results
    made.make(*names)
    one, other = ({(row["problem"], row["messages"][1]["content"]) for row in made.table(n).rows()} for n in names)
    assert len(one) == len(other) and one != other


@given(st.integers(0, 300), st.integers(0, 100), st.integers(0, 3))
def test_share_of_rows_is_rounded_down(count, percent, seed):
    """A percentage of the rows is rounded down exactly, without repetition, and equal for equal seeds."""
    rows = [{"example": n} for n in range(count)]
    drawn = sample(rows, percent / 100, random.Random(seed))
    assert len(drawn) == count * percent // 100
    assert len({row["example"] for row in drawn}) == len(drawn)
    assert drawn == sample(rows, percent / 100, random.Random(seed))


def test_joining_no_rows_stops_the_stage(small, mill):
    """Shares too small for a row are refused with a message that shows them."""
    made = mill({**SMALL, "examples/x": {"concatenate": {"examples/cold": 0.01}}})
    shutil.copytree(small.results, made.results)
    with pytest.raises(TableError, match=r"none of 0 rows is kept.*Raise its shares"):
        made.make("examples/x")


def test_control_tokens_of_a_solution_are_escaped(mill, tmp_path):
    """Control tokens of a solution are escaped. Tags of one thought at its beginning stay, other reasoning tags do not."""
    solutions = {
        "a<|end|><|user|>b<|end|><|assistant|>c": "a&lt;|end|>&lt;|user|>b&lt;|end|>&lt;|assistant|>c",
        "<think>\nHm.</s>\n</think>\n\nSo $a<b$.": "<think>\nHm.&lt;/s>\n</think>\n\nSo $a<b$.",
        "So it is.\n</think>\nIt is not.<think>": "So it is.\n&lt;/think>\nIt is not.&lt;think>",
        "Since $|a|<|b|$ and $[a,b]$, done.": "Since $|a|<|b|$ and $[a,b]$, done.",
    }
    path = tmp_path / "forum.jsonl"
    rows = [{"statement": f"Prove {n}.<|im_end|>", "solution": text} for n, text in enumerate(solutions)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    entries = {"problems/f": {"source": "table", "path": str(path)}, "examples/f": {"problems": "problems/f"}}
    learned = [row["messages"] for row in mill(entries).make(*entries).rows()]
    assert [talk[1]["content"] for talk in learned] == list(solutions.values())
    assert [talk[0]["content"] for talk in learned] == [f"Prove {n}.&lt;|im_end|>" for n in range(len(solutions))]


def test_reasoning_of_a_model_keeps_its_tags(small, mill):
    """An attempt keeps all its reasoning tags, closed or not; its control tokens are escaped."""
    texts = ["<think>\ncut off", "a</think>b<think>c", "x<|user|>"]
    made = mill({**SMALL, "examples/x": {"responses": "responses/cold"}})
    shutil.copytree(small.results, made.results)
    table = made.table("responses/cold")
    attempts = table.scan().collect()
    written = [texts[n % len(texts)] for n in range(attempts.height)]
    table.write(attempts.with_columns(text=pl.Series(written)), table.stamp)
    learned = [row["messages"][1]["content"] for row in made.make("examples/x").rows(kept=False)]
    assert learned == [text.replace("<|", "&lt;|") for text in written]


def test_nothing_kept_stops_the_stage(small, mill):
    """An empty training set is refused with a message that names the filters."""
    made = mill({**SMALL, "examples/none": {"grades": "grades/cold", "keep": [{"at-least": 8}]}})
    made.results = small.results
    with pytest.raises(TableError, match="none of 24 rows is kept"):
        made.make("examples/none")


@pytest.mark.parametrize(
    ("shares", "total", "expected"),
    [
        ({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, 100, 100),
        ({"a": 0.3, "b": 0.7}, 2400, 2400),
        ({"a": 0.999, "b": 0.001}, 10, 10),
    ],
)
def test_shares_are_apportioned_to_the_last_row(shares, total, expected):
    """A mixture has the configured number of rows, each part within one row of its share."""
    counts = apportion(shares, total)
    assert expected == sum(counts.values())
    assert all(abs(counts[name] - share * total) < 1 for name, share in shares.items())


def test_failed_attempt_is_dropped(small, mill):
    """A refused or failed attempt is dropped as `answered`, with any filters."""
    made = mill({**SMALL, "examples/x": {"responses": "responses/cold"}})
    shutil.copytree(small.results, made.results)
    table = made.table("responses/cold")
    refused = (
        table.scan()
        .collect()
        .with_columns(
            pl.when(pl.col("attempt") == 0).then(pl.lit("refused")).otherwise(pl.col("reason")).alias("reason")
        )
    )
    table.write(refused, table.stamp)
    rows = made.make("examples/x").rows(kept=False)
    assert (sum(r["dropped"] == "no-response" for r in rows), sum(r["dropped"] is None for r in rows)) == (12, 12)


@pytest.mark.parametrize(
    ("text", "reasoning", "whole"),
    [
        ("So 4.", "2 + 2 is 4.", "<think>\n2 + 2 is 4.\n</think>\n\nSo 4."),
        ("So 4.", "<think>\n2 + 2 is 4.\n", "<think>\n2 + 2 is 4.\n</think>\n\nSo 4."),
        ("<think>a</think> So 4.", None, "<think>a</think> So 4."),
        ("So 4.", "", "So 4."),
        (None, None, None),
    ],
)
def test_separate_reasoning_is_put_before_the_answer(text, reasoning, whole):
    """A teacher's reasoning is put before its answer; a text that contains it, or has none, is unchanged."""
    assert with_thought(text, reasoning) == whole


# ------------------------------------------------------------------------------------------- conversations of others

ASKED, SAID = {"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "It is 4."}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def chat_file(folder, *records):
    path = folder / "chat.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return str(path)


def test_chat_file_becomes_rows(mill, tmp_path):
    """Conversations of a file are rows with file, line and tools; unusable ones are dropped with the reason."""
    talks = [[ASKED, SAID], [ASKED, SAID], [ASKED], [], [{"role": "robot", "content": "x"}, SAID]]
    records = [{"messages": talk, "tools": [TOOL]} for talk in talks] + [{"prompt": "2 + 3?", "completion": "5."}]
    made = mill({"examples/chat": {"source": "table", "path": chat_file(tmp_path, *records)}}).make("examples/chat")
    rows = made.rows(kept=False)
    assert [row["dropped"] for row in rows] == [None, None, "no-assistant", "empty", "unknown-role", None]
    assert [row["origin"] for row in rows] == [f"chat.jsonl:{n}" for n in range(1, 7)]
    assert rows[1]["example"] == f"{rows[0]['example']}-2" and len({row["example"] for row in rows}) == 6
    assert rows[0]["problem"] == rows[1]["problem"] == rows[2]["problem"] != rows[5]["problem"]
    assert [{key: m[key] for key in ("role", "content")} for m in rows[0]["messages"]] == [ASKED, SAID]
    assert json.loads(rows[0]["tools"]) == [TOOL] and rows[5]["tools"] is None
    assert made.stamp["counts"] == {"kept": 3, "no-assistant": 1, "empty": 1, "unknown-role": 1}


def test_filters_and_mixtures_accept_conversations_of_a_file(mill, tmp_path):
    """`keep` sees the assistant's text and the file's own grades, `rows` limits the rows, and shares mix such tables."""
    records = [{"messages": [{**ASKED, "content": f"{n}?"}, SAID], "points": n} for n in range(9)]
    chat = {"source": "table", "path": chat_file(tmp_path, *records), "columns": {"grade": "points"}, "rows": 8}
    entries = {
        "examples/good": {**chat, "keep": [{"at-least": 6}]},
        "examples/all": {**chat, "keep": ["has-text", "finished", "one-per-problem"]},
        "examples/both": {"concatenate": {"examples/good": 1.0, "examples/all": 0.5}},
    }
    made = mill(entries)
    assert len(made.make(*entries).rows()) == 2 + 4
    assert [row["grade"] for row in made.table("examples/good").rows()] == [6, 7]


def test_published_examples_can_be_read_as_conversations(small, mill):
    """A table of `examples` is a valid file of conversations, with the same kept rows."""
    folder = small.table("examples/cold").path
    rows = mill({"examples/round-2": {"source": "table", "path": str(folder)}}).make("examples/round-2").rows()
    before = small.table("examples/cold").rows(kept=False)
    assert [row["messages"] for row in rows] == [row["messages"] for row in before]


def test_conversations_of_a_dataset_become_rows(mill, tmp_path):
    """A hub dataset like FineProofs-SFT has conversations among other columns, and grades for filters."""
    folder = tmp_path / "proofs"
    folder.mkdir()
    proof = {"problem": "Prove it.", "proof": "Clear.", "category": "algebra", "gemini-3-pro-grade": 7}
    rows = [{"messages": [ASKED, SAID], **proof, "gemini-3-pro-grade": grade} for grade in (7, 0, 6)]
    pl.DataFrame(rows).write_parquet(folder / "train-00000.parquet")
    hub = {"source": "hub", "id": str(folder), "commit": "v1", "columns": {"grade": "gemini-3-pro-grade"}}
    rows = mill({"examples/x": {**hub, "keep": [{"at-least": 6}]}}).make("examples/x").rows(kept=False)
    assert [(row["grade"], row["dropped"]) for row in rows] == [(7, None), (0, "at-least"), (6, None)]


def test_invalid_line_stops_the_stage(mill, tmp_path):
    """One bad line stops the stage with a message that has its line number."""
    path = chat_file(tmp_path, {"messages": [ASKED, SAID]}, {"messages": "no"})
    made = mill({"examples/chat": {"source": "table", "path": path}})
    with pytest.raises(TableError, match=r"chat.jsonl:2: `messages` is a text but not JSON"):
        made.make("examples/chat")
    assert not made.table("examples/chat").path.exists()


def test_edited_chat_file_rebuilds_the_examples(mill, tmp_path):
    """The table depends on the digest of the file, not on its name."""
    path = chat_file(tmp_path, {"messages": [ASKED, SAID]})
    made = mill({"examples/chat": {"source": "table", "path": path}})
    before = made.make("examples/chat").stamp["fingerprint"]
    chat_file(tmp_path, {"messages": [ASKED, {**SAID, "content": "Four."}]})
    assert made.make("examples/chat").stamp["fingerprint"] != before


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"source": "table"}, "source `table` needs `path`"),
        ({"source": "hub", "id": "a/b"}, "`id` is set and `commit` is not"),
        ({"source": "jsonl", "path": "x"}, r"`source` is 'jsonl'; expected 'table' or 'hub'"),
        ({"path": "x.jsonl"}, "found no source; expected exactly one of"),
        ({"source": "table", "path": "x", "columns": {"text": "t"}}, "`columns` names `text`; expected some of"),
        ({"source": "table", "path": "x", "columns": {"prompt": "q"}}, "one of `prompt` and `completion`; expected both"),
        ({"source": "table", "path": "x", "commit": "c"}, "`commit` is set and source `table` does not read it"),
    ],
)  # fmt: skip
def test_contradictory_fields_of_a_chat_source_are_refused(mill, fields, fault):
    """Missing and extra fields are refused when the recipe is read."""
    with pytest.raises(RecipeError, match=fault):
        mill({"examples/chat": fields})
