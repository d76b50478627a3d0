"""Programs in texts: which block is extracted."""

import pytest

from proofmill.sandbox.extract import code_of


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```", "a\n"),
        ("```py\na\n```", "a\n"),
        ("```Python3 title=x\na\n```", "a\n"),
        ("``` python\na\n```", "a\n"),
        ("````python\n```\na\n````", "```\na\n"),
        ("  ```python\n  a\n  ```", "  a\n"),
        ("```python\r\na\r\n```\r\n", "a\r\n"),
        ("```\na\n```", "a\n"),
        ("```python\na\n```\nor\n```python\nb\n```", "b\n"),
        ("```python\na\n```\nprints\n```\nb\n```", "a\n"),  # a bare block counts only without a declared one
        ("```\na\n```\nand\n```\nb\n```", "a\n".replace("a", "b")),
        ("```python\na\n```\nthen\n```cpp\nb\n```", "a\n"),
        ("```cpp\na\n```", None),
        ("```python\na\n```\nand\n```python\nb", "a\n"),  # not closed
        ("```python\na\n```python\nb\n```", "b\n"),  # the first is not closed
        ("```python\n```", "\n"),
        ("```python a```", None),
        ("print(1)", None),
        ("", None),
    ],
)
def test_code_of_a_text_is_its_last_block_of_python(text, code):
    """Blocks declared as Python take precedence over blocks without a language, and unclosed blocks do not count."""
    assert code_of(text) == code


@pytest.mark.parametrize("text", ["```python\n" * 100_000, f"```{'a' * 200_000}`", f"```{' ' * 200_000}`"])
def test_code_of_a_text_without_a_block_is_none_however_long(text):
    """The time is linear in the length of the text, not quadratic."""
    assert code_of(text) is None
