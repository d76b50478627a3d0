"""Filters of DeepSeek-R1's rejection sampling: one language, short paragraphs, no code, only in the reasoning."""

import pytest

from proofmill.filters.example_filters import EXAMPLE_FILTERS

ENGLISH = "We factor the number and look at the remainders, which shows the claim."
MIXED = "We factor the number 因为余数是零所以 and look at the rest."


def kept(name: str, text: str, argument) -> bool:
    return EXAMPLE_FILTERS[name].apply([{"text": text}], *([] if argument is None else [argument]))[0]


@pytest.mark.parametrize(
    ("name", "argument", "thought", "stays"),
    [
        ("one-language", ["en"], ENGLISH, True),
        ("one-language", ["en"], MIXED, False),
        ("one-language", ["en", "zh"], "因为余数是零所以成立", True),
        ("one-language", ["en"], "$a^2 + b^2$ $= c^2$", True),
        ("short-paragraphs", 20, ENGLISH, True),
        ("short-paragraphs", 20, f"{ENGLISH} {ENGLISH}", False),
        ("short-paragraphs", 20, f"{ENGLISH}\n\n{ENGLISH}", True),
        ("no-code", None, "We compute.", True),
        ("no-code", None, "We compute.\n```python\nprint(1)\n```\n", False),
    ],
)
def test_selector_reads_the_reasoning_and_not_the_answer(name, argument, thought, stays):
    """A text that is rejected in the reasoning is accepted in the answer; a text without tags is all reasoning."""
    fine = "We are done."
    forbidden = f"{MIXED}\n```python\nprint(1)\n```\n{ENGLISH} {ENGLISH}"
    assert kept(name, f"<think>\n{thought}\n</think>\n{fine}", argument) is stays
    assert kept(name, thought, argument) is stays
    if stays:
        assert kept(name, f"<think>\n{thought}\n</think>\n{forbidden}", argument)


CALL = {"role": "tool", "content": "4", "extra": None}


@pytest.mark.parametrize(
    ("tools", "messages", "kept"),
    [(None, [], True), ("[{}]", [], False), (None, [CALL], False), ("[{}]", [CALL], False)],
)
def test_no_tools_drops_offered_and_called_tools(tools, messages, kept):
    """Tools that are offered and tools that are called each drop a conversation."""
    assert list(EXAMPLE_FILTERS["no-tools"].apply([{"tools": tools, "messages": messages}])) == [kept]
