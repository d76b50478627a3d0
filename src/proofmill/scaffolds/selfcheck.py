"""Generate, improve once, and verify until enough consecutive verifications find nothing.

From: Huang and Yang, Gemini 2.5 Pro Capable of Winning Gold at IMO 2025 (arXiv 2507.15855), as in QED-Nano's evaluation.

    solution = solver(problem), which it then reviews itself
    repeat at most `iterations` times: verify; `required-passes` in a row without a finding -> answer
        a finding: correct the solution; `max-failures` in a row -> stop

Differences from the original:
1. A verdict is parsed from a box, not from the letters "yes" anywhere in a text. A verification without a parsable
   verdict does not pass.
2. If no solution passed often enough, the answer is the one that passed most often (`or-best`). In the original it is
   the latest one, which was never verified.
"""

import re

from proofmill.answers import extraction
from proofmill.calls.dialogues import Dialogue
from proofmill.graders.verdicts import read_plain_word
from proofmill.prompts import escapes
from proofmill.scaffolds.components import verify
from proofmill.scaffolds.scaffold_run import ScaffoldRun, ScaffoldStep

_DETAILED = re.compile(r"^[\s#*_]*(?:\d+\.?\s*)?detailed solution\b[^\n]*$", re.IGNORECASE | re.MULTILINE)
_LOG = re.compile(r"^[\s#*_]*(?:\d+\.?\s*)?detailed verification\b[^\n]*$", re.IGNORECASE | re.MULTILINE)


def selfcheck(
    play: ScaffoldRun, required_passes: int, max_failures: int, iterations: int, fall_back_to_best: bool
) -> Dialogue:
    """Return the ending, after at most 2 + 3 * iterations sequential calls; a pass takes at least 2 + 2 * required_passes."""
    rigor = ("system", play.prompt("rigor"))
    opening = (*play.system, rigor, ("user", play.statement))
    draft = yield from play.ask("solver", "solve", opening)
    if not draft.solution:
        return play.nothing()
    review = (*opening, _read_verdict(draft), ("user", play.prompt("review")))
    solution: ScaffoldStep = yield from play.ask("improver", "review", review, [draft])
    solution = solution if solution.solution else draft
    passed = failed = 0
    best, most = solution, 0
    for turn in range(1, iterations + 1):
        report = yield from verify(play, f"verify {turn}", solution, proof_in(solution.solution))
        verdict = yield from play.ask(
            "verifier", f"verdict {turn}", play.prompt("is-accepted", report=report.solution), [report]
        )
        if passes_in(verdict.solution):
            passed, failed = passed + 1, 0
            if passed >= most:
                best, most = solution, passed
            if passed >= required_passes:
                return play.answer(solution)
            continue
        passed, failed = 0, failed + 1
        if failed >= max_failures:
            break
        findings = _LOG.split(report.solution, maxsplit=1)[0].strip() or report.solution
        talk = (*opening, _read_verdict(solution), ("user", play.prompt("correct", report=findings)))
        corrected = yield from play.ask("improver", f"correct {turn}", talk, [solution, report])
        solution = corrected if corrected.solution else solution
    return play.answer(best) if fall_back_to_best else play.nothing()


def _read_verdict(step: ScaffoldStep) -> tuple[str, str]:
    return "assistant", escapes.without_control_tokens(step.solution)


def proof_in(text: str) -> str:
    """Return the text after the heading Detailed Solution; all of it without one."""
    parts = _DETAILED.split(text, maxsplit=1)
    return parts[-1].strip() or text


def passes_in(text: str) -> bool:
    """Return whether the last box says yes."""
    boxes = extraction.find_boxes(text)
    return bool(boxes) and read_plain_word(boxes[-1]) == "yes"
