"""Find words by which a text reconsiders its own reasoning.

From: DeepSeek-R1 in Nature (2025), Extended Data Fig. 1 (R1's list), and the code of Absolute Zero (its list).
"""

import re

R1 = re.compile(r"\b(?:wait|mistake|however|but|retry|error|verify|wrong|evaluate|check)\b", re.IGNORECASE)
ABSOLUTE_ZERO = re.compile(
    r"\b(?:wait|recheck|retry|rethink|re-?verify|re-?evaluate|check again|verify again|however|alternatively|on second thought)\b",
    re.IGNORECASE,
)


def count(text: str, words: re.Pattern[str] = R1) -> int:
    """Count the words of one of the lists in a text, in any case."""
    return len(words.findall(text))
