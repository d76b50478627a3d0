"""The referee as the critic of a scaffold: it verifies, grades, compares and selects solutions of the family.

It receives the scaffolds' own prompts and replies in the form that each requires; the checker decides. It is a perfect
verifier, so a scaffold with it measures the scaffold's plan and not the quality of verifiers.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proofmill.synthetic import congruences, grading
from proofmill.synthetic.congruences import Congruence
from proofmill.synthetic.grading import MAX_POINTS
from proofmill.text.folding import unescape
from proofmill.text.reasoning import after_thought

SOUND = "**Summary**: the solution is correct."
_SHOWN = re.compile(r"<(solution|proof|report)>\n(.*?)\n</\1>", re.DOTALL)


@dataclass(frozen=True)
class PromptView:
    """A problem and the solutions in a prompt, each with its points."""

    problem: Congruence
    solutions: Sequence[str]

    @property
    def grades(self) -> list[int]:
        """The points, 0 to 7, of each solution."""
        return [grading.check(self.problem, text, answer_only=True).points() for text in self.solutions]


def score(shown: PromptView) -> str:
    """Return 1 for all points, 0.5 for at least half of them, else 0."""
    grades = shown.grades[0]
    return f"\\boxed{{{1 if grades == MAX_POINTS else 0.5 if 2 * grades >= MAX_POINTS else 0}}}"


def grade(shown: PromptView) -> str:
    return f"\\boxed{{{shown.grades[0]}}}"


def select(shown: PromptView) -> str:
    """Return the letter of the best solution, or `equal` if several are best."""
    best = [place for place, grades in enumerate(shown.grades) if grades == max(shown.grades)]
    return f"\\boxed{{{chr(ord('A') + best[0]) if len(best) == 1 else 'equal'}}}"


def compare(shown: PromptView) -> str:
    one, other = shown.grades[:2]
    return f"<verdict>{'tie' if one == other else 1 if one > other else 2}</verdict>"


def keep(shown: PromptView) -> str:
    best = [str(number) for number, grades in enumerate(shown.grades, 1) if grades == max(shown.grades)]
    return f"<keep>[{', '.join(best)}]</keep>"


def report(shown: PromptView) -> str:
    """Return a report that the solution is correct, or its false lines and the number of missing ones."""
    checked = grading.check(shown.problem, shown.solutions[0], answer_only=True)
    if checked.points() == MAX_POINTS:
        return f"{SOUND}\n\n**Detailed Verification**: {checked.valid} lines hold."
    findings = [f"- Critical error: {fault}" for fault in (checked.fault, *checked.false) if fault]
    findings += [f"- Justification gap: {checked.needed - checked.valid} of {checked.needed} steps are not shown."]
    return "\n".join(["**Summary**: the solution has faults.", *findings, "", "**Detailed Verification**: as above."])


# The form that the end of a prompt requires: words that only this form has, and the function that writes it.
FORMS: dict[str, Callable[[PromptView], str]] = {
    "\\boxed{0.5}": score,
    "\\boxed{2}": grade,
    "\\boxed{B}": select,
    "<verdict>": compare,
    "<keep>": keep,
    "**Detailed Verification**": report,
}


def criticize(prompt: str) -> str | None:
    """Return the critic's answer; None without a problem of the family, a solution or a known form in the prompt."""
    shown = _SHOWN.findall(prompt)
    ending = prompt.rpartition("\n</")[2]  # the text after the last block has no quoted text
    if "\\boxed{yes}" in ending:
        return f"\\boxed{{{'yes' if shown and shown[-1][1].startswith(SOUND) else 'no'}}}"
    statement, closed, _ = prompt.partition("<problem>\n")[2].partition("\n</problem>")
    problem = congruences.read(unescape(statement)) if closed else None
    solutions = [after_thought(unescape(text)) for _, text in shown]
    form = next((form for words, form in FORMS.items() if words in ending), None)
    if problem is None or not solutions or form is None:
        return None
    return form(PromptView(problem, solutions))
