"""One turn is a thought of the policy that is summed up, and from whose summary the next one goes on (reasoning cache).

From: QED-Nano's reasoning-cache RL. For each problem the policy as it is thinks in turns; each thought, without its answer, is
summed up by a model that is not trained. The summaries are states, the empty one and the last included; some of them are
drawn, and the attempts from a state are a group of their own, marked against the problem itself.

How we differ:
1. The turns themselves are not marked, which would cost a judge's call each; rewards and marks are measured by the turn that
   the trained attempts go on from.
2. A summary that could not be had leaves the one before it; how many did is measured.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proofmill.calls.calls import MANY, Asker
from proofmill.calls.dialogues import Dialogue, Dialogues, one_answer
from proofmill.graders import judges
from proofmill.prompts import templates
from proofmill.runtime import processes
from proofmill.schema.model_entries import Grpo
from proofmill.schema.reasons import Reason
from proofmill.text.reasoning import thought_or_all


class ReasoningCache:
    """The states of problems: `prepared` turns a step's rows into attempts from drawn states.

    Of several processes all think, and the main one, which has the asker, asks for all summaries.
    """

    def __init__(self, entry: Grpo, declared: Mapping[str, Any], askers: Mapping[str, Asker], tokenizer: Any):
        self.entry, self.declared, self.askers, self.tokenizer = entry, declared, askers, tokenizer
        self.unsummarized = 0.0  # share of the last step's thoughts

    def prepared(self, trainer: Any, rows: Sequence[dict], step: int) -> list[dict]:
        """The rows with prompts from their states; `states` groups of each problem come one after another."""
        per_problem = self.entry.group * self.entry.states
        problems = rows[::per_problem]
        summaries = self._summaries(trainer, problems)
        prepared = []
        for place, problem in enumerate(problems):
            rng = random.Random(f"{self.entry.seed} {step} {problem['problem']}")
            for turn in sorted(rng.sample(range(self.entry.turns + 1), self.entry.states)):
                asked = {"prompt": self._talk(problem, summaries[turn][place]), "turn": turn + 1}
                prepared += [{**problem, **asked}] * self.entry.group
        return prepared

    def _summaries(self, trainer: Any, problems: Sequence[Mapping[str, Any]]) -> list[list[str]]:
        """The summary of each problem before each turn, and after the last."""
        states = [[""] * len(problems)]
        missing = 0
        for _ in range(self.entry.turns):
            talks = [self._talk(p, summary) for p, summary in zip(problems, states[-1], strict=True)]
            thoughts = [thought_or_all(text).strip() for text in self._written(trainer, talks)]
            asked = [
                {"statement": p["statement"], "summary": summary or None, "reasoning": thought}
                for p, summary, thought in zip(problems, states[-1], thoughts, strict=True)
            ]
            found = self._shared(asked)
            missing += found.count(None)
            states.append([new if new is not None else old for new, old in zip(found, states[-1], strict=True)])
        self.unsummarized = missing / (self.entry.turns * len(problems))
        return states

    def _talk(self, problem: Mapping[str, Any], summary: str) -> list[dict]:
        text = templates.fill(self.entry.turn_prompt, {"statement": problem["statement"], "summary": summary or None})
        return [{"role": "user", "content": text}]

    def _written(self, trainer: Any, talks: list[list[dict]]) -> list[str]:
        """What the policy as it is writes, once for each talk."""
        prompt_ids, images, fields = trainer._tokenize_prompts(talks)
        completion_ids, _ = trainer._generate_single_turn(prompt_ids, images, fields, num_generations=1)
        return self.tokenizer.batch_decode(completion_ids, skip_special_tokens=True)

    def _shared(self, asked: list[dict]) -> list[str | None]:
        """The summaries of this process's thoughts."""
        from accelerate.utils import broadcast_object_list, gather_object

        everyone = gather_object(asked)
        found: list[Any] = [self._summed_up(everyone) if self.askers else None]
        broadcast_object_list(found)
        start = processes.rank() * len(asked)
        return found[0][start : start + len(asked)]

    def _summed_up(self, asked: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """A summary for each thought; None where there is none to sum up, or no summary came."""
        places = [place for place, row in enumerate(asked) if row["reasoning"]]
        summarizer = self.entry.summarizer

        def dialogues() -> Iterator[tuple[str, Dialogue]]:
            for number, place in enumerate(places, 1):
                question = judges.filled(self.declared[summarizer], self.entry.summary_prompt, asked[place])
                yield f"thought {number}", one_answer(summarizer, question, lambda _: False)

        summaries: list[str | None] = [None] * len(asked)
        answers = Dialogues(self.askers, of=MANY).results(dialogues, quiet=True)
        for place, answer in zip(places, answers, strict=True):
            if answer.reason == Reason.OK and answer.text.strip():
                summaries[place] = templates.without_control_tokens(answer.text.strip())
        return summaries
