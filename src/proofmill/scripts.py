"""One script is what a grader marks: the problem, what it is marked by, and what was written, of which the final part counts.

How we differ from QED-Nano's evaluation:
1. A heading "Self-Evaluation" with a hyphen ends the solution too, and "Evaluation of the integral" does not.
2. A text that was cut off while thinking has an empty final part, with or without delimiters declared.
"""

import re
from dataclasses import dataclass

from proofmill import arithmetic

# A heading "Self-Evaluation" or "Final Evaluation", whatever follows on its line, or one that is nothing but "Evaluation"; a
# heading is marked by # or stands alone in bold.
_HYPHEN = r"[\s*_\-\u2010-\u2015]*"
SELF_EVALUATION = re.compile(
    rf"^[ \t]*(?:#+[\s*_]*|\*\*[ \t]*)(?:(?:(?:Self|Final){_HYPHEN}){{1,2}}Evaluation\b[^\n]*|Evaluation[ *_]*(?::[^\n]*)?)\r?$",
    re.MULTILINE | re.IGNORECASE,
)


@dataclass(frozen=True)
class Script:
    """What is marked: the problem, its scheme and what was written.

    `reason` is why there is nothing to mark (refused, provider, ...), `ok` where there is; `answer` the right final answer,
    `reference` the official solution, `asks` what the problem wants, `mark` and `out_of` what a human gave.
    """

    statement: str
    answer: str | None
    scheme: str | None
    text: str
    reasoning: str | None = None
    stop: str = "end"
    reason: str = "ok"
    reference: str | None = None
    asks: str = "proof"
    mark: float | None = None
    out_of: int | None = None

    @property
    def final(self) -> str:
        """The part that is graded: after the reasoning, without the writer's own evaluation of it."""
        if self.reasoning is not None:
            text = self.text
        elif "</think>" in self.text:
            text = arithmetic.split_proof(self.text)
        else:
            text = "" if "<think>" in self.text else self.text  # cut off while thinking
        return SELF_EVALUATION.split(text)[0].strip()

    @property
    def well_formed(self) -> bool:
        """It ended by itself, its reasoning is closed, and its answer has exactly one box."""
        thought = self.reasoning is not None or (self.text.startswith("<think>") and self.text.count("</think>") == 1)
        return self.stop == "end" and thought and self.final.count("\\boxed{") == 1
