"""Words by which a text reconsiders its reasoning: the lists of R1 and of Absolute Zero."""

from proofmill.text import reflection

LISTS = (reflection.R1, reflection.ABSOLUTE_ZERO)
TEXT = "Wait, 3+4=7. However, let me re-check: WAIT. I awaited a checkmark; the butter is wrong."


def test_reflective_words_are_counted_in_any_case_and_whole():
    """Two "wait", "however", "check" after a hyphen and "wrong" are five; parts of longer words do not count."""
    assert reflection.count(TEXT) == 5
    assert reflection.count("") == reflection.count("awaiting unchecked butter") == 0


def test_each_list_has_its_own_words():
    """Absolute Zero counts "recheck" and "on second thought", R1 "mistake" and "but"."""
    assert [reflection.count("Recheck on second thought.", words) for words in LISTS] == [0, 2]
    assert [reflection.count("But a mistake.", words) for words in LISTS] == [2, 0]
