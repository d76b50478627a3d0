"""Compact sets of texts: numbered like the keys of a dictionary, in memory that does not depend on their length."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from proofmill.text.seen_texts import Seen, Texts, Values

some_texts = st.lists(st.text(max_size=3), max_size=200)


@given(some_texts)
def test_seen_numbers_texts_as_a_dictionary_does(texts):
    """A text has the number of its first occurrence among the distinct ones, and none before."""
    seen, numbers = Seen(), {}
    for text in texts:
        assert seen.find(text) == numbers.get(text)
        assert seen.is_new(text) == (text not in numbers)
        numbers.setdefault(text, len(numbers))
        assert seen.add(text) == numbers[text]
    assert len(seen) == len(numbers)


def test_seen_finds_again_what_came_before_it_grew():
    """Of 5,000 texts, four times the size of its first table, each has its number, and others have none."""
    seen = Seen()
    assert [seen.add(f"text {n}") for n in range(5_000)] == list(range(5_000))
    assert [seen.find(f"text {n}") for n in range(5_000)] == list(range(5_000))
    assert seen.find("text 5000") is None


@given(some_texts)
def test_texts_give_back_what_was_appended(texts):
    """Each text is returned by its number, whatever its letters."""
    kept = Texts()
    for text in texts:
        kept.append(text)
    assert [kept[number] for number in range(len(kept))] == texts


def test_texts_have_half_characters_back():
    """Half a surrogate pair, which no file holds but a program may, is kept unchanged."""
    kept, seen = Texts(), Seen()
    kept.append("\ud800")
    assert kept[0] == "\ud800" and seen.is_new("\ud800") and not seen.is_new("\ud800")


def test_values_are_found_by_their_texts():
    """The first value of a text counts; a text without one has none."""
    values = Values([("a", 0.5), ("b", 0.25), ("a", 1.0)])
    assert [values.get(text) for text in "abc"] == [0.5, 0.25, None]


def test_seen_takes_few_bytes_for_a_long_text():
    """20,000 texts of a thousand characters take less than 40 bytes each, where their letters alone are 20 MB."""
    seen = Seen()
    tracemalloc.start()
    for n in range(20_000):
        seen.add(f"{n:01000d}")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * 20_000
