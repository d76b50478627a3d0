"""Fenced blocks and the tags around reasoning and answer."""

import pytest

from proofmill.text.fences import answer, find_fenced, is_formed

REPLY = """Here:
```python
def f(a):
    return "``"
```
```input
1, [2]
```
and bare
```
x = 1
```
```Python
y
```
```input
never closed
"""


def test_blocks_are_found_by_language_in_order():
    """Closed blocks of the languages asked for are returned, in any case; an unclosed block is not."""
    assert find_fenced(REPLY, "python", "") == ['def f(a):\n    return "``"', "x = 1", "y"]
    assert find_fenced(REPLY, "input") == ["1, [2]"]
    assert find_fenced(REPLY, "output") == []


def test_empty_block_is_an_empty_text():
    """An empty block counts as a block."""
    assert find_fenced("```input\n```", "input") == [""]


@pytest.mark.parametrize(
    ("reply", "formed"),
    [
        ("<think>a</think>\n<answer>b</answer>", True),
        ("<think>\na\nb\n</think> <answer>\nb\n</answer>\n", True),
        ("<think></think><answer></answer>", True),
        ("<think>a</think>", False),
        ("a</think>\n<answer>b</answer>", False),
        ("<think>a</think>\nso\n<answer>b</answer>", False),
        ("<think>a</think>\n<answer>b</answer> done", False),
        ("<think>a</think>\n<answer>b</answer><answer>c</answer>", False),
        ("<answer>b</answer><think>a</think>", False),
    ],
)
def test_form_of_a_reply(reply, formed):
    """Reasoning and answer in tags, once each, in this order, with only space around them."""
    assert is_formed(reply) is formed


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("<think>a</think><answer> b\n</answer>", "b"),
        ("<answer>a</answer> no: <answer>b</answer> c", "b"),
        ("<answer>cut off", ""),
        ("b</answer>", ""),
        ("b", ""),
    ],
)
def test_answer_is_between_the_last_tags(reply, found):
    """The last opening tag counts, and without the closing one there is no answer."""
    assert answer(reply) == found
