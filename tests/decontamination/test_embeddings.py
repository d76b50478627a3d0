"""Vectors of statements: exact cosines in blocks, requests that resist edits, and vectors as text."""

import random

import numpy as np

from proofmill.decontamination import embeddings
from proofmill.decontamination.embeddings import INPUTS, NONE, Cosines, batches, pack, read_text, unpack

RNG = np.random.default_rng(0)


def groups(*sizes):
    """Return statements of several normalized vectors each; none for size 0."""
    vectors = [RNG.normal(size=(size, 5)) for size in sizes]
    return [v / np.linalg.norm(v, axis=1, keepdims=True) if len(v) else NONE for v in vectors]


def test_cosine_is_that_of_the_nearest_windows(monkeypatch):
    """Every pair has the largest cosine of its windows, in any size of block; 0 without a vector, or if negative."""
    statements, rows = groups(1, 3, 0, 2, 1), groups(2, 0, 1, 4, 1, 1, 3)
    expected = [
        [max([0.0, *(float(a @ b) for a in row for b in other)]) if len(row) and len(other) else 0.0 for other in statements]
        for row in rows
    ]  # fmt: skip
    for block in (1, 14, 1 << 24):
        monkeypatch.setattr(embeddings, "BLOCK", block)
        assert np.allclose(list(Cosines(statements).of(rows)), expected, atol=1e-4)


def test_equal_texts_have_cosine_one_after_the_journal():
    """16 bits in the journal lose less than the four decimals of a cosine."""
    kept = unpack(pack(groups(1, 2)))
    assert [len(group) for group in kept] == [1, 2]
    assert [round(max(c), 3) for c in Cosines(kept).of(kept)] == [1.0, 1.0]


def test_no_vectors_give_no_cosines():
    """Without a statement, a row, or any vector nothing is near."""
    assert [c.tolist() for c in Cosines([]).of(groups(1))] == [[]]
    assert list(Cosines(groups(1)).of([])) == []
    assert [c.tolist() for c in Cosines([NONE, NONE]).of([*groups(1), NONE])] == [[0.0, 0.0]] * 2


def test_a_new_row_changes_few_requests():
    """Requests have at most INPUTS texts in order; a text in front of 2,000 others changes fewer than five of them."""
    rng = random.Random(0)
    texts = [f"statement {rng.random()}" for _ in range(2_000)]
    before, after = list(batches(texts)), list(batches(["a new one", *texts]))
    assert [text for batch in before for text in batch] == texts
    assert max(map(len, before)) == INPUTS and 80 < len(before) < 125
    assert sum(batch not in before for batch in after) < 5
    assert list(batches([])) == []


def test_drawings_are_not_read():
    """A drawing is no part of the text, and a statement of nothing else has none."""
    assert read_text("What is $x$? [asy]draw((0,0)--(1,1));[/asy]") == "What is $x$?"
    assert read_text(" [asy]size(3);[/asy]\n") == read_text("") == ""
