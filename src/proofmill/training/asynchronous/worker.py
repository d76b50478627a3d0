"""Rollouts ahead of a training: problems are taken up, attempts sampled and judged, and each step gets its groups.

The trainer asks for the groups of a step; all else goes on meanwhile. So many groups are under way that none is older
than `lag` steps when it is learned from: a group is taken up once fewer than `lag` + 1 steps of groups are sampled and
not learned. A step learns from the groups with the oldest weights, of these from those whose marks came first. Nothing
that was sampled and judged is thrown away, and a slow judge holds up nobody before its group is `lag` steps old.
"""

import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.schema.model_entries import Grpo
from proofmill.training.asynchronous.attempts import Attempts
from proofmill.training.asynchronous.sampler import Attempt, Request, Sampler

LOOK = 0.5  # seconds between two looks at whether rollouts are still coming


@dataclass
class Group:
    """The attempts at a problem, which are learned from together; `asked` is the step after which it was taken up."""

    number: int
    problem: dict[str, Any]
    asked: int
    attempts: dict[int, Attempt] = field(default_factory=dict)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)  # what is known of each rollout
    unmarked: int = 0
    ended: float = 0.0  # when the last mark came


class Worker:
    """TRL's `RolloutWorkerProtocol`, but for the queue of single rollouts: the trainer takes whole steps (`step`).

    `described(problem, ids)` is what is known of a rollout, `submission` of that is what a grader marks, and
    `begin(submissions)` has it marked; it gives a future of each verdict.
    """

    def __init__(
        self,
        entry: Grpo,
        problems: Sequence[dict[str, Any]],
        attempts: Attempts,
        sampler: Sampler,
        described: Callable[[dict[str, Any], Sequence[int]], dict[str, Any]],
        submission: Callable[[dict[str, Any]], Submission],
        begin: Callable[[Sequence[Submission]], "list[Future[Verdict]]"],
        after: int,
    ):
        """`problems` have their prompts in tokens, as `tokens`; `after` is the step that the training goes on from."""
        self.entry, self.problems, self.attempts, self.sampler = entry, problems, attempts, sampler
        self.described, self.submission, self.begin, self.after = described, submission, begin, after
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self.policy, self._learning, self._over = after, 0, False
        self._groups: dict[int, Group] = {}  # that no step has taken
        self._fresh = attempts.groups
        self._news = threading.Condition()
        self._sampled: queue.Queue[Attempt | None] = queue.Queue()
        self._thread = ThreadPoolExecutor(1, "rollouts")
        self._listening: Future[None] | None = None
        self._order = lru_cache(2)(self._shuffled)

    # -------------------------------------------------------------------------------------------------- TRL's protocol

    def start(self) -> None:
        """Begin; the first weights have been handed over."""
        self.sampler.start(self._sampled.put)
        self._listening = self._thread.submit(self._listen)
        self._take_up()

    def stop(self) -> None:
        """End. What was sampled is kept, and marked no more."""
        self._over = True
        self.sampler.stop()
        self._sampled.put(None)
        self._thread.shutdown()

    def update_model_version(self, model_version: int) -> None:
        """The weights of the training have been handed over once more; TRL counts the first time as well."""
        self.policy, self._learning = self.after + model_version - 1, 0
        self.sampler.arrived(self.policy)
        if self._listening:
            self._take_up()

    def check_health(self, stale_after_s: float = 0.0) -> None:
        """Raise what has ended the rollouts, if anything has."""
        self.sampler.check()
        if self._listening and self._listening.done():
            self._listening.result()

    # ------------------------------------------------------------------------------------------------ taking up groups

    def _take_up(self) -> None:
        """Ask for as many groups as may be under way."""
        entry = self.entry
        most = min(entry.lag + 1, entry.steps - self.policy) * entry.problems_per_step - self._learning
        requests: list[Request] = []
        with self._news:
            while len(self._groups) < most:
                requests += self._taken_up(next(self._fresh))
        self.sampler.ask(requests)

    def _taken_up(self, number: int) -> list[Request]:
        """A group under way; what it lacks of attempts is asked for, which is all of them unless a run was killed."""
        kept = self.attempts.waiting.get(number, {})
        usable = {place: one for place, one in kept.items() if abs(self.policy - one.policy) <= self.entry.lag}
        asked = min([self.policy, *(attempt.policy for attempt in usable.values())])
        places, order = range(self.entry.group), self._order(number // len(self.problems))
        group = Group(number, self.problems[order[number % len(order)]], asked, unmarked=len(places))
        self._groups[number] = group
        for attempt in usable.values():
            self._sampled.put(attempt)
        missing = [place for place in places if place not in usable]
        return [Request(number, group.problem["tokens"], missing)] if missing else []

    def _shuffled(self, epoch: int) -> list[int]:
        """The order of the problems in an epoch."""
        order = list(range(len(self.problems)))
        random.Random(f"{self.entry.seed} {epoch}").shuffle(order)
        return order

    # --------------------------------------------------------------------------------------------------- in the thread

    def _listen(self) -> None:
        """Keep and mark what is sampled, as it comes."""
        while (attempt := self._sampled.get()) is not None:
            group = self._groups[attempt.group]
            if attempt is not self.attempts.waiting.get(group.number, {}).get(attempt.place):
                self.attempts.add(attempt)
            if self._over:
                continue
            row = self.described(group.problem, attempt.ids_T.tolist())
            group.attempts[attempt.place], group.rows[attempt.place] = attempt, row
            futures = self.begin([self.submission(row)])
            for future in futures:
                future.add_done_callback(partial(self._marked, group))
            if not futures:  # nothing of it is marked
                self._marked(group)

    def _marked(self, group: Group, _: Any = None) -> None:
        with self._news:
            group.unmarked -= 1
            group.ended = time.monotonic()
            self._news.notify_all()

    # --------------------------------------------------------------------------------------------------------- by step

    def step(self) -> list[Group]:
        """The groups of the next step, as soon as they are sampled and marked. Raises what ended the rollouts."""
        with self._news:
            while (groups := self._next_groups()) is None:
                self._news.wait(LOOK)
                self.check_health()
        for group in groups:
            del self._groups[group.number]
        self._learning = len(groups)
        self.attempts.learn(self.policy + 1, [group.number for group in groups])
        return groups

    def _next_groups(self) -> list[Group] | None:
        """Those of the oldest weights, the first that are marked of these; None if they are not yet."""
        count = self.entry.problems_per_step
        groups = sorted(self._groups.values(), key=lambda group: group.asked)
        youngest = groups[count - 1].asked
        due = [group for group in groups if group.asked < youngest]
        others = [group for group in groups if group.asked == youngest and not group.unmarked]
        if any(group.unmarked for group in due) or len(due) + len(others) < count:
            return None
        others.sort(key=lambda group: group.ended)
        return sorted((*due, *others[: count - len(due)]), key=lambda group: group.number)
