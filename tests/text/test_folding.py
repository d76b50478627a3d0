"""The folded view of a text, and escapes at places of the text."""

import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.text.folding import escape, escape_at, fold, unescape

ANGLE = re.compile("<")


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("</proof>", "</proof>"),
        ("</PROOF>", "</PROOF>"),
        ("＜／ｐｒｏｏｆ＞", "</proof>"),
        ("</𝐩𝓻𝔬𝕠𝖿>", "</proof>"),
        ("</pr\u200do\u0301o\x00f\x7f>", "</proof>"),
        ("<\u3164p\u115froof>", "<proof>"),
        ("<p\U000e0020r\U000e0fffo\ufff0of>", "<proof>"),
        ("a\tb\nc\rd", "a\tb\nc\rd"),
        ("x²≤½", "x2≤1⁄2"),
        ("\ud800a", "a"),
        ("</рrооf>", "</proof>"),  # Cyrillic letters
        ("ΡοίntѕᴘʀᴏᴏꜰՕ🅿🅞🇽", "PointsproofOPOX"),
        ("доказательство ≤ βδ数", "дokaзateлbctbo ≤ βδ数"),
        ("", ""),
    ],
)
def test_view_is_what_a_reader_sees(text, view):
    """Styles of letters, accents and invisible characters are dropped; case, white space and other scripts stay."""
    assert fold(text) == view


def test_view_of_every_character_is_its_own_view():
    """Folding twice is folding once, and two texts with the same compatibility form have the same view."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        assert fold(fold(character)) == fold(character)
        assert fold(unicodedata.normalize("NFKC", character)) == fold(character)


@given(st.text())
def test_text_without_a_match_stays_as_it_is(text):
    """Only the characters of a match are changed."""
    assert escape(text, re.compile("(?!)")) == text


@given(st.text(st.sampled_from("<＜≮a\u200d\u0301ﬁ½\n")))
def test_escaped_text_has_no_match_and_can_be_read_back(text):
    """Each character that looks like `<` is escaped, no other is, and the original text is recovered."""
    made = escape(text, ANGLE)
    assert not ANGLE.search(fold(made)) and unescape(made) == text
    assert [c for c in text if c not in "<＜≮"] == [c for c in re.sub(r"&(?:lt|#\d+);", "", made)]


@pytest.mark.parametrize(
    ("text", "places", "made"),
    [("a<b", [1], "a&lt;b"), ("[]", [0, 1], "&#91;&#93;"), ("ab", [], "ab"), ("＜", [0], "&#65308;")],
)
def test_characters_are_escaped_at_their_places(text, places, made):
    """`<` is `&lt;`, any other character its number."""
    assert escape_at(text, places) == made


@pytest.mark.parametrize("entity", ["&amp;", "&#x3c;", "&lt", "&#;", "& lt;"])
def test_other_entities_are_not_read_back(entity):
    """An entity that `escape` never writes belongs to the text and stays."""
    assert unescape(entity) == entity


@pytest.mark.parametrize("number", ["1114112", "99999999999"])
def test_number_of_no_character_is_left_alone(number):
    """An entity beyond Unicode in a text is no error."""
    assert unescape(f"&#{number};") == f"&#{number};"
