"""Reasoning cache: the policy thinks in turns, each thought is summarized, and the next turn continues from there.

From: QED-Nano's reasoning-cache RL. For each problem the current policy thinks in turns, and a model that is not
trained summarizes each thought, without its answer. The summaries are states, the empty one and the last included. Some
states are drawn; the attempts from one state form a group of their own, graded against the problem itself.

Differences from the original:
1. The turns themselves are not graded, which would cost one judge call each. Grades are logged by the turn that the
   trained attempts continue from.
2. If a summary fails, the previous one stays; the share of such thoughts is logged (`unsummarized`).
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from proofmill.calls import runner
from proofmill.calls.calls import MANY, Asker
from proofmill.calls.dialogues import Dialogue, one_answer
from proofmill.calls.model_requests import build_prompt_request
from proofmill.calls.stream import Stream
from proofmill.prompts import escapes, templates
from proofmill.prompts.escapes import ControlTokens
from proofmill.runtime import processes
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.fields import require
from proofmill.schema.reasons import Reason
from proofmill.text.reasoning import thought_or_all
from proofmill.training import rollout_log


class ReasoningCache:
    """The states of problems: `prepare` turns a step's rows into attempts from drawn states.

    Every process generates the thoughts of its own problems; the main process, which alone has `askers`, requests all
    summaries.
    """

    def __init__(
        self,
        entry: Grpo,
        declared: Mapping[str, Any],
        askers: Mapping[str, Asker],
        tokenizer: Any,
        stream: Stream | None = None,
    ):
        """Take the `stream` that sends the requests, if there is one."""
        self.entry, self.declared, self.askers, self.tokenizer = entry, declared, askers, tokenizer
        self.stream = stream
        self.tokens = ControlTokens(tokenizer)
        self.unsummarized = 0.0  # share of thoughts in the last step

    def prepare(self, trainer: Any, rows: Sequence[dict], step: int) -> list[dict]:
        """Return the rows with prompts from drawn states; the `states` groups of a problem are consecutive."""
        per_problem = self.entry.group_size * self.entry.summaries
        problems = rows[::per_problem]
        summaries = self._summaries(trainer, problems)
        prepared = []
        for index, problem in enumerate(problems):
            rng = random.Random(f"{self.entry.seed} {step} {problem['problem']}")
            for turn in sorted(rng.sample(range(self.entry.turns + 1), self.entry.summaries)):
                fields = {"prompt": self._conversation(problem, summaries[turn][index]), "turn": turn + 1}
                prepared += [{**problem, **fields}] * self.entry.group_size
        return prepared

    def _summaries(self, trainer: Any, problems: Sequence[Mapping[str, Any]]) -> list[list[str]]:
        """Return the summary of each problem before each turn and after the last one, by turn."""
        states = [[""] * len(problems)]
        missing = 0
        for _ in range(self.entry.turns):
            conversations = [self._conversation(p, summary) for p, summary in zip(problems, states[-1], strict=True)]
            asked = [
                {"statement": p["statement"], "summary": summary or None}
                for p, summary in zip(problems, states[-1], strict=True)
            ]
            thoughts = self._sample(trainer, conversations, asked)
            requests = [{**of, "reasoning": thought} for of, thought in zip(asked, thoughts, strict=True)]
            summaries = self._summaries_here(requests)
            missing += summaries.count(None)
            states.append([new if new is not None else old for new, old in zip(summaries, states[-1], strict=True)])
        self.unsummarized = missing / (self.entry.turns * len(problems))
        return states

    def _conversation(self, problem: Mapping[str, Any], summary: str) -> list[dict]:
        text = templates.fill(self.entry.turn_prompt, {"statement": problem["statement"], "summary": summary or None})
        return self.tokens.escape([{"role": "user", "content": text}])

    def _sample(self, trainer: Any, conversations: list[list[dict]], asked: list[dict]) -> list[str]:
        """Sample one thought per conversation from the current policy, and request each summary as soon as it ends."""
        ends = {*trainer.eos_token_ids, self.tokenizer.pad_token_id}

        def thought(ids: Sequence[int]) -> str:
            return thought_or_all(rollout_log.decode(self.tokenizer, [ids], ends)[0]).strip()

        def begin(request: dict, ids: Sequence[int]) -> None:
            if self.stream and (text := thought(ids)):
                self.stream.begin("a thought", self._dialogue({**request, "reasoning": text}))

        prompt_ids, images, fields = trainer._tokenize_prompts(conversations)
        trainer.awaited = [partial(begin, request) for request in asked] if self.stream else ()
        completion_ids, _ = trainer._generate_single_turn(prompt_ids, images, fields, num_generations=1)
        return [thought(ids) for ids in completion_ids]

    def _summaries_here(self, requests: list[dict]) -> list[str | None]:
        """Return the summaries of this process's thoughts."""
        from accelerate.utils import broadcast_object_list, gather_object

        all_requests = gather_object(requests)
        shared: list[Any] = [self._summarize(all_requests) if self.askers else None]
        broadcast_object_list(shared)
        start = processes.rank() * len(requests)
        return shared[0][start : start + len(requests)]

    def _summarize(self, requests: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """Return a summary for each thought; None if the thought is empty or the summary failed."""
        indices = [index for index, row in enumerate(requests) if row["reasoning"]]

        def dialogues() -> Iterator[tuple[str, Dialogue]]:
            for number, index in enumerate(indices, 1):
                yield f"thought {number}", self._dialogue(requests[index])

        summaries: list[str | None] = [None] * len(requests)
        if self.stream:
            answers = iter(self.stream.results(dialogues))
        else:
            answers = runner.results(dialogues, self.askers, "thoughts", of=MANY, quiet=True)
        for index, answer in zip(indices, answers, strict=True):
            if answer.reason == Reason.OK and answer.text.strip():
                summaries[index] = escapes.without_control_tokens(answer.text.strip())
        return summaries

    def _dialogue(self, request: Mapping[str, Any]) -> Dialogue:
        """Return the dialogue that requests a summary."""
        summarizer = require(self.entry.summarizer)
        summary = build_prompt_request(self.declared[summarizer], self.entry.summary_prompt, request)
        return one_answer(summarizer, summary, lambda _: False)
