"""The reasoning cache: think, summarize the thought, and continue from the summary alone.

From: QED-Nano's evaluation (`reasoning_cache`).

    summary = none
    repeat `iterations` times: thought = solver(problem, summary); summary = summarizer(problem, summary, thought)
    the answer is the solution of the last thought

Differences from the original:
1. If the last thought has no solution, the answer is the latest one that exists.
"""

from proofmill.calls.dialogues import Dialogue
from proofmill.scaffolds.scaffold_run import ScaffoldRun, ScaffoldStep, candidates
from proofmill.text.reasoning import thought_or_all


def reasoning_cache(play: ScaffoldRun, iterations: int) -> Dialogue:
    """Return the ending, after 2 * iterations - 1 sequential calls."""
    thoughts: list[ScaffoldStep] = []
    summary: ScaffoldStep | None = None
    for turn in range(1, iterations + 1):
        known = summary.solution if summary else None
        talk = (*play.system, ("user", play.prompt("./continue-from-summary", summary=known)))
        thought = yield from play.ask("solver", f"thought {turn}", talk, [summary] if summary else [])
        thoughts.append(thought)
        if turn < iterations:
            reasoning = thought.answer.reasoning or thought_or_all(thought.text)
            if reasoning.strip():
                shown = [thought, *([summary] if summary else [])]
                asked = play.prompt("./summarize", summary=known, reasoning=reasoning)
                summary = yield from play.ask("summarizer", f"summary {turn}", asked, shown)
    solved = candidates(thoughts)
    return play.answer(solved[-1]) if solved else play.nothing()
