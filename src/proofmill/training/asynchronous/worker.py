"""Rollouts ahead of a training: start problems, sample and grade their rollouts, and give each step its groups.

The trainer requests the groups of a rollout batch, which a block of `mini-batches` times `iterations` steps trains on;
everything else continues meanwhile. A group is started only if its block begins within `max-staleness` steps, so no rollout
is older when it is first trained on. A block trains on the groups with the oldest weights, and among these on those that were
graded first. No graded rollout is discarded, and a slow judge delays the training only when its group is `max-staleness` steps old.
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
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.training.asynchronous.rollout_queue import RolloutQueue
from proofmill.training.asynchronous.sampler import RolloutRequest, SampledRollout, Sampler
from proofmill.training.rollouts.retirement import Retirement

LOOK = 0.5  # seconds between two looks at whether rollouts are still coming


@dataclass
class PendingGroup:
    """The rollouts of a problem, which are trained on together; `asked` is the step after which they were requested."""

    number: int
    problem: dict[str, Any]
    asked: int
    attempts: dict[int, SampledRollout] = field(default_factory=dict)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)  # what is known of each rollout
    ungraded: int = 0
    ended: float = 0.0  # time of the last grade


class Worker:
    """TRL's `RolloutWorkerProtocol`, except for the queue of single rollouts: the trainer takes full steps (`step`).

    `described(problem, ids)` returns a rollout's row, `submission(row)` its submission for a grader, and
    `begin(submissions)` starts grading and returns a future of each verdict.
    """

    def __init__(
        self,
        entry: Grpo,
        retirement: Retirement,
        attempts: RolloutQueue,
        sampler: Sampler,
        described: Callable[[dict[str, Any], Sequence[int]], dict[str, Any]],
        submission: Callable[[dict[str, Any]], Submission],
        begin: Callable[[Sequence[Submission]], "list[Future[Verdict]]"],
        after: int,
    ):
        """Take the problems of `retirement` with their prompts in `tokens`, and the step `after` which the training resumes."""
        self.entry, self.retirement, self.attempts, self.sampler = entry, retirement, attempts, sampler
        self.problems = retirement.problems
        self.described, self.submission, self.begin, self.after = described, submission, begin, after
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self.policy, self._over = after, False
        self._taken = after // entry.block  # rollout batches
        self._groups: dict[int, PendingGroup] = {}  # that no step has taken
        self._evaluated: dict[int, SampledRollout] = {}  # attempts at held-out problems, by negative group
        self._fresh = attempts.groups
        self._news = threading.Condition()
        self._sampled: queue.Queue[SampledRollout | None] = queue.Queue()
        self._thread = ThreadPoolExecutor(1, "rollouts")
        self._listening: Future[None] | None = None
        self._order = lru_cache(2)(self._shuffle)

    # -------------------------------------------------------------------------------------------------- TRL's protocol

    def start(self) -> None:
        """Start, once the sampler has the first weights."""
        self.sampler.start(self._sampled.put)
        self._listening = self._thread.submit(self._listen)
        self._take_up()

    def stop(self) -> None:
        """Stop. Sampled rollouts are kept, but no longer graded."""
        self._over = True
        self.sampler.stop()
        self._sampled.put(None)
        self._thread.shutdown()

    def update_model_version(self, model_version: int) -> None:
        """Record that the sampler has new weights; TRL counts the first weights as well."""
        self.policy = self.after + model_version - 1
        self.sampler.report_weights(self.policy)
        if self._listening:
            self._take_up()

    def check_health(self, stale_after_s: float = 0.0) -> None:
        """Raise the error that ended sampling or grading, if any."""
        self.sampler.check()
        if self._listening and self._listening.done():
            self._listening.result()

    # ------------------------------------------------------------------------------------------------ taking up groups

    def _take_up(self) -> None:
        """Request the groups of all blocks that begin within `max-staleness` steps."""
        entry = self.entry
        batches = min((self.policy + entry.max_staleness) // entry.block + 1, entry.rounds)
        most = (batches - self._taken) * entry.mini_batches * entry.problems_per_step
        requests: list[RolloutRequest] = []
        with self._news:
            while len(self._groups) < most:
                requests += self._start_group(next(self._fresh))
        self.sampler.ask(requests)

    def _start_group(self, number: int) -> list[RolloutRequest]:
        """Start a group and request its missing rollouts, which are all of them unless a run was killed."""
        kept = self.attempts.waiting.get(number, {})
        usable = {
            place: one for place, one in kept.items() if abs(self.policy - one.policy_step) <= self.entry.max_staleness
        }
        asked = min([self.policy, *(attempt.policy_step for attempt in usable.values())])
        places = range(self.entry.group_size)
        group = PendingGroup(number, {**self.problems[self._choose(number)]}, asked, ungraded=len(places))
        self._groups[number] = group
        for attempt in usable.values():
            self._sampled.put(attempt)
        missing = [place for place in places if place not in usable]
        return [RolloutRequest(number, group.problem["tokens"], missing)] if missing else []

    def _choose(self, number: int) -> int:
        """Return the index of a group's problem; where problems retire, a group that is started again has the same."""
        order = self._order(number // len(self.problems))
        place = order[number % len(order)]
        if not self.entry.retires:
            return place
        if number not in self.attempts.problems:
            name, others = self.problems[place]["problem"], [one.problem["problem"] for one in self._groups.values()]
            self.attempts.assign(number, self.retirement.exchange([name], self.policy + 1, others).get(name, place))
        return self.attempts.problems[number]

    def _shuffle(self, epoch: int) -> list[int]:
        """Return the order of the problems in an epoch."""
        order = list(range(len(self.problems)))
        random.Random(f"{self.entry.seed} {epoch}").shuffle(order)
        return order

    def evaluate(self, prompts: Sequence[Sequence[int]], temperature: float) -> list[list[int]]:
        """Return the tokens that the weights at hand sample after each prompt; there are no new weights until then."""
        self._evaluated = {}
        requests = (RolloutRequest(-1 - n, prompt, [self.policy], temperature) for n, prompt in enumerate(prompts))
        self.sampler.ask([*requests])
        with self._news:
            while len(self._evaluated) < len(prompts):
                self._news.wait(LOOK)
                self.check_health()
        return [self._evaluated[-1 - n].ids_T.tolist() for n in range(len(prompts))]

    # --------------------------------------------------------------------------------------------------- in the thread

    def _listen(self) -> None:
        """Keep and grade rollouts as they arrive."""
        while (attempt := self._sampled.get()) is not None:
            if attempt.group < 0:
                with self._news:
                    self._evaluated[attempt.group] = attempt
                    self._news.notify_all()
                continue
            group = self._groups[attempt.group]
            if attempt is not self.attempts.waiting.get(group.number, {}).get(attempt.place):
                self.attempts.add(attempt)
            if self._over:
                continue
            row = {**self.described(group.problem, attempt.ids_T.tolist()), "logprobs": attempt.logprobs_T.tolist()}
            group.attempts[attempt.place], group.rows[attempt.place] = attempt, row
            futures = self.begin([self.submission(row)])
            for future in futures:
                future.add_done_callback(partial(self._grade, group))
            if not futures:  # none of it is graded
                self._grade(group)

    def _grade(self, group: PendingGroup, _: Any = None) -> None:
        with self._news:
            group.ungraded -= 1
            group.ended = time.monotonic()
            self._news.notify_all()

    # --------------------------------------------------------------------------------------------------------- by step

    def step(self) -> list[PendingGroup]:
        """Return the groups of the next block, once they are graded. Raises the error that ended sampling or grading."""
        with self._news:
            while (groups := self._next_groups()) is None:
                self._news.wait(LOOK)
                self.check_health()
        for group in groups:
            del self._groups[group.number]
        self._taken += 1
        self.attempts.learn(self.policy + 1, [group.number for group in groups])
        return groups

    def _next_groups(self) -> list[PendingGroup] | None:
        """Return the graded groups of the oldest weights, first graded first; None if too few are graded."""
        count = self.entry.mini_batches * self.entry.problems_per_step
        groups = sorted(self._groups.values(), key=lambda group: group.asked)
        youngest = groups[count - 1].asked
        due = [group for group in groups if group.asked < youngest]
        others = [group for group in groups if group.asked == youngest and not group.ungraded]
        if any(group.ungraded for group in due) or len(due) + len(others) < count:
            return None
        others.sort(key=lambda group: group.ended)
        return sorted((*due, *others[: count - len(due)]), key=lambda group: group.number)
