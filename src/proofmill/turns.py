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
from collections.abc import Mapping, Sequence
from typing import Any

from proofmill import devices, formats, judges, kinds, templates
from proofmill.calls import MANY, Asker, Questions


class Turns:
    """The states of problems: `prepared` turns a step's rows into attempts from drawn states.

    Of several processes all think, and the main one, which has the asker, asks for all summaries.
    """

    def __init__(self, entry: kinds.Grpo, api: kinds.Api | None, asker: Asker | None, tokenizer: Any):
        self.entry, self.api, self.asker, self.tokenizer = entry, api, asker, tokenizer
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
            thoughts = [_thought(text) for text in self._written(trainer, talks)]
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
        found: list[Any] = [self._summed_up(everyone) if self.asker else None]
        broadcast_object_list(found)
        start = devices.rank() * len(asked)
        return found[0][start : start + len(asked)]

    def _summed_up(self, asked: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """A summary for each thought; None where there is none to sum up, or no summary came."""
        thought = [place for place, row in enumerate(asked) if row["reasoning"]]
        questions = [
            judges.question(self.api, (("user", templates.fill(self.entry.summary_prompt, asked[place])),))
            for place in thought
        ]
        answers = self.asker(
            Questions(len(questions), lambda: ((f"thought {n}", q) for n, q in enumerate(questions, 1))),
            quiet=True,
            of=MANY,
        )
        found: list[str | None] = [None] * len(asked)
        for place, answer in zip(thought, answers, strict=True):
            if answer.reason == "ok" and answer.text.strip():
                found[place] = templates.without_control_tokens(answer.text.strip())
        return found


def _thought(text: str) -> str:
    """The reasoning without the answer; of a text without tags, all of it."""
    return formats.thought(text) if "think>" in text else text.strip()
