"""Fields of foreign records: a value has the expected type and its original digits, or is rejected."""

import json

import pytest

from proofmill.schema.errors import TableError
from proofmill.sources import record_fields
from proofmill.sources.file_formats import parse_json


def test_field_that_is_missing_names_the_nearest_column():
    """The message suggests the column with the most similar name."""
    with pytest.raises(TableError, match=r"f:1: no column `problem` among Problme, x; expected .* `Problme`\?"):
        record_fields.field("f:1", {"Problme": "", "x": ""}, "problem")


def test_field_of_a_nested_column_is_found_by_its_path():
    """`metadata.path` is a nested field; a column with a dot in its name comes first."""
    assert record_fields.field("f:1", {"metadata": {"path": "p"}}, "metadata.path") == "p"
    assert record_fields.field("f:1", {"metadata.path": "q", "metadata": {"path": "p"}}, "metadata.path") == "q"


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (record_fields.text, 7),
        (record_fields.text, ["x"]),
        (record_fields.text, True),
        (record_fields.word, ["7"]),
        (record_fields.word, True),
        (record_fields.year, "last year"),
        (record_fields.year, 99),
        (record_fields.texts, 7),
        (record_fields.texts, [1]),
    ],
)
def test_field_of_a_wrong_type_is_refused(read, value):
    """A number is not a statement, nor a list of texts, and 99 is not a year."""
    with pytest.raises(TableError, match=r"^f:1: `a` is .+; expected .+\.$"):
        read("f:1", {"a": value}, "a")


def test_field_of_one_text_is_a_list_of_it():
    """A CSV file has `tags: algebra`; a blank cell is an empty list."""
    assert [record_fields.texts("f:1", {"a": value}, "a") for value in ("x", " ", None)] == [["x"], [], []]


def test_field_of_numbers_as_words_is_their_text():
    """An answer 204, 204.0 or "204" is the same answer; null stays null."""
    assert [record_fields.word("f:1", {"a": v}, "a") for v in (204, 204.0, "204", 0.5, None)] == [
        "204",
        "204",
        "204",
        "0.5",
        None,
    ]
    assert [record_fields.year("f:1", {"a": v}, "a") for v in (2024, "2024", 2024.0, "", None)] == [
        2024,
        2024,
        2024,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("0.12345678901234567890123", "0.12345678901234567890123"),
        ("123456789012345678901234.0", "123456789012345678901234"),
        ("123456789012345678901234", "123456789012345678901234"),
        ("-1e23", "-100000000000000000000000"),
        ("0.1", "0.1"),
        ("1.50", "1.5"),
        ("1e-7", "1e-07"),
        ("1e-400", "1e-400"),
        ("-0.0", "0"),
    ],
)
def test_word_of_a_json_number_has_the_digits_that_were_written(written, word):
    """A float conversion neither loses nor adds digits."""
    assert record_fields.word("f:1", parse_json(f'{{"a": {written}}}'), "a") == word


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), "NaN", " nan", "-inf"])
def test_word_that_is_no_number_is_refused(value):
    """A missing number in a column of numbers is not an answer."""
    with pytest.raises(TableError, match=r"^f:1: `a` is .+, which is not a number; expected a number or a text\. "):
        record_fields.word("f:1", {"a": value}, "a")


def test_field_of_a_row_with_a_hundred_thousand_columns_shows_some(tmp_path):
    """A message stays short, whatever the names are."""
    record = {f"\x1b[31m{n}\n": n for n in range(100_000)}
    with pytest.raises(TableError, match=r"no column `statement` among \\x1b\[31m0\\n, .+ and 99,980 more; ") as error:
        record_fields.field("f:1", record, "statement")
    assert len(str(error.value)) < 1_000 and str(error.value).isprintable()


def test_words_of_one_or_several_are_a_list():
    """One answer is a list of one; other values are rejected inside a list, too."""
    values = json.loads('["7", 7, ["7", 0.5, null], null, []]')
    assert [record_fields.words("f:1", {"a": v}, "a") for v in values] == [["7"], ["7"], ["7", "0.5"], [], []]
    with pytest.raises(TableError, match=r"`a` is a object"):
        record_fields.words("f:1", {"a": [{}]}, "a")
