"""Test that messages quote values without control characters, and shortened."""

from proofmill.schema import errors
from proofmill.schema.errors import RecipeError, TableError


def test_error_with_control_characters_shows_them_as_python_writes_them():
    """Escape sequences are escaped; letters and line ends of a message stay."""
    assert str(TableError("a\x1b[31mred\u202e\ud800: ≡é\nb\r")) == r"a\x1b[31mred\u202e\ud800: ≡é" + "\nb\\r"


def test_error_with_an_endless_line_keeps_its_beginning_and_end():
    """A long line keeps its beginning and end; other lines stay unchanged."""
    first, second = str(RecipeError("here: " + "x" * 100_000 + " Fix it.\nthere")).split("\n")
    assert first.startswith("here: xxx") and first.endswith("xxx Fix it.") and len(first) < 2_100
    assert second == "there"


def test_listed_of_many_names_counts_those_it_leaves_out():
    """At most twenty names are listed, shortened and escaped."""
    names = ["a\nb", "c" * 100_000, *map(str, range(100_000))]
    shown = errors.list_names(names)
    assert shown.startswith("a\\nb, " + "c" * 57 + "..., 0, 1, ") and shown.endswith("17 and 99,982 more")
    assert errors.list_names(["a", "b"]) == "a, b"


def test_shown_of_a_long_value_is_cut():
    """A value is quoted with `repr`."""
    assert (errors.shorten("a\n"), errors.shorten([1])) == (r"'a\n'", "[1]")
    assert len(errors.shorten("x" * 1_000_000)) == 60
