"""The reasoning cache: think, sum the thought up, and think again from the summary alone.

From: QED-Nano's evaluation (`reasoning_cache`).

    summary = none
    repeat `iterations` times: thought = solver(problem, summary); summary = summarizer(problem, summary, thought)
    the answer is the solution of the last thought

How we differ:
1. If the last thought ended without a solution, the latest one that has a solution answers.
"""

from proofmill.calls.dialogues import Dialogue
from proofmill.scaffolds.play import Play, Step, candidates
from proofmill.text.reasoning import thought_or_all


def reasoning_cache(play: Play, iterations: int) -> Dialogue:
    """Return the ending; 2 * iterations - 1 calls, one after another."""
    thoughts: list[Step] = []
    summary: Step | None = None
    for turn in range(1, iterations + 1):
        known = summary.solution if summary else None
        told = (*play.system, ("user", play.prompt("./go-on", summary=known)))
        thought = yield from play.ask("solver", f"thought {turn}", told, [summary] if summary else [])
        thoughts.append(thought)
        if turn < iterations:
            said = thought.answer.reasoning or thought_or_all(thought.text)
            if said.strip():
                shown = [thought, *([summary] if summary else [])]
                asked = play.prompt("./summarize", summary=known, reasoning=said)
                summary = yield from play.ask("summarizer", f"summary {turn}", asked, shown)
    solved = candidates(thoughts)
    return play.answer(solved[-1]) if solved else play.nothing()
