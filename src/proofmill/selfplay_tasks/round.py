"""Play a round of self-play: draw requests, validate proposals, grade solutions and compute rewards.

From: Absolute Zero Reasoner (arXiv 2505.03335, algorithm 1) and its code.

Differences from the original:
1. All prompts of a step are drawn first and sent together. There, tasks and roles take turns.
2. Attempts that measure the difficulty of a task are sampled at the temperature of training.
"""

import ast
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pyarrow import parquet

from proofmill.runtime import durable
from proofmill.sandbox.executor import Executor
from proofmill.schema.entries.selfplay_entry import Selfplay
from proofmill.schema.reasons import StopReason
from proofmill.selfplay_tasks import composites, intrinsic, learnability, proposals, requests, seeding, solutions
from proofmill.selfplay_tasks.buffer import Buffers
from proofmill.selfplay_tasks.counters import Counters
from proofmill.selfplay_tasks.proposals import Normal, Proposal
from proofmill.selfplay_tasks.tasks import REASONS, Invalid, Task, TaskName
from proofmill.selfplay_tasks.validity import valid
from proofmill.text import reflection
from proofmill.text.fences import answer, is_formed

COUNTERS = b"proofmill counters"  # key in the metadata of a saved buffer
Messages = list[dict[str, str]]


@dataclass(frozen=True)
class PolicyReply:
    """A reply of the policy, with the tokens and log-probabilities that training needs."""

    text: str
    stop_reason: StopReason = StopReason.END
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None


Ask = Callable[[Sequence[Messages]], list[PolicyReply]]


@dataclass(frozen=True)
class TaskRequest:
    """A request to the proposer, which shows reference tasks, or to the solver, which shows the task to solve."""

    kind: TaskName
    messages: Messages
    shown: Sequence[Task]
    functions: str = ""  # source of the functions that a new program must call


@dataclass(frozen=True)
class Turn:
    """A reply to a request, with its grades and its reward.

    `task` is the proposed task, the reason why it is invalid, or the task to solve. `grades` are those of the
    attempts at the proposed task, or the grade of the solution. None is a missing grade or reward; proposals have no
    reward if the proposer is not trained.
    """

    role: str
    request: TaskRequest
    reply: PolicyReply
    task: Task | Invalid
    formed: bool
    grades: Sequence[float | None]
    reward: float | None
    is_new: bool = False  # the proposed task entered the buffer

    @property
    def kind(self) -> TaskName:
        """The kind of the task."""
        return self.request.kind

    @property
    def is_unscored(self) -> bool:
        """True if grades were expected and all are missing."""
        return bool(self.grades) and self.accuracy is None

    @property
    def accuracy(self) -> float | None:
        """The mean of the known grades; None without any."""
        return learnability.accuracy(self.grades)


class SelfplayRound:
    """The self-play of an entry: its buffers of tasks, and rounds of proposing and solving.

    `fits` returns whether a prompt is short enough. The executor, which runs the programs, must be open.
    """

    def __init__(self, entry: Selfplay, executor: Executor, fits: Callable[[Messages], bool]):
        self.entry, self.executor, self.fits, self.words = entry, executor, fits, entry.words
        self.scale = learnability.Scale(entry.malformed_reward, entry.wrong_reward)
        self.normal = Normal(entry.entry_function, one_function=entry.one_function)
        self.schedule = (
            composites.CompositeSchedule(**entry.composite) if entry.composite else composites.CompositeSchedule()
        )
        self.buffers, self.counters, self.begun = self._empty(), Counters(), False

    def _empty(self) -> Buffers:
        """Build an empty buffer for each kind. Inductions use programs of `deduce` or `abduce`, so one must exist."""
        kinds: list[TaskName] = [*self.entry.tasks]
        if not {"deduce", "abduce"} & {*kinds}:
            kinds.append("deduce")
        return Buffers(kinds, self.entry.buffer_size, self.entry.buffer_keeps)

    # --------------------------------------------------------------------------------------------------- seed tasks

    def begin(self, ask: Ask, rows: Sequence[Mapping[str, Any]] = ()) -> dict[str, int]:
        """Fill the buffers with seed tasks, from rows or the model. Return the number of invalid rows by reason."""
        entry, kinds = self.entry, list(self.buffers.tasks)
        refused: dict[str, int] = {}
        if rows:
            first: list[Task] = []
            for task in seeding.from_rows(rows, kinds, self.executor):
                if isinstance(task, Invalid):
                    refused[task.reason] = refused.get(task.reason, 0) + 1
                else:
                    first.append(task)
        else:
            draw = random.Random(f"{entry.seed}/first")

            def ask_texts(requests: Sequence[Messages]) -> list[str]:
                return [answer(reply.text) or reply.text for reply in ask(requests)]  # an untrained model omits tags

            sizes = seeding.SeedSizes(entry.max_seed_tasks, entry.batch_size, entry.references, entry.inputs)
            form = replace(self.normal, drop=seeding.SEED_FORM.drop)
            seeds = seeding.from_model(ask_texts, kinds, self.executor, self.words, draw, sizes, self.fits, form)
            first = [task for tasks in seeds.tasks.values() for task in tasks]
        for kind in kinds:
            of_kind = [task for task in first if task.kind == kind]
            self._remember((of_kind or [seeding.identity(kind, entry.inputs)])[: entry.max_seed_tasks])
        self.begun = True
        return refused

    def _remember(self, tasks: Sequence[Task]) -> list[Task]:
        """Add tasks to the buffers, and count them. Return the new ones."""
        added = self.buffers.add(tasks)
        for task in added:
            self.counters.add_task(task)
        return added

    def save(self, path: Path) -> None:
        """Write the buffers, and the counts of all tasks that ever entered them."""
        table, new = self.buffers.table(), path.with_name(f".{path.name}.new")
        counted = json.dumps(self.counters.state(), sort_keys=True)
        parquet.write_table(table.replace_schema_metadata({COUNTERS: counted}), new, compression="zstd")
        durable.replace(new, path)

    def restore(self, path: Path) -> None:
        """Read the buffers and counts from a saved file."""
        table = parquet.read_table(path)
        self.buffers, self.begun = self._empty(), True
        self.buffers.add_table(table)
        self.counters = Counters.from_state(json.loads(table.schema.metadata[COUNTERS]))

    # ---------------------------------------------------------------------------------------------------------- a round

    def step(self, step: int, ask: Ask) -> list[Turn]:
        """Play the round of a step. Return the turns of each task in each role, in the order of the entry's tasks."""
        draw = random.Random(f"{self.entry.seed}/{step}")
        proposing: list[TaskRequest] = []
        solving: list[TaskRequest] = []
        for kind in self.entry.tasks:
            if self.entry.proposer != "absent":
                proposing += [self._to_propose(kind, step, draw) for _ in range(self.entry.batch_size)]
            solving += self._to_solve(kind, step, draw)
        replies = ask([request.messages for request in (*proposing, *solving)])
        proposed = self._proposal_turns(step, proposing, replies[: len(proposing)], ask)
        turns = [*proposed, *self._solution_turns(solving, replies[len(proposing) :])]
        return [turn for kind in self.entry.tasks for turn in turns if turn.kind == kind]

    def _to_propose(self, kind: TaskName, step: int, draw: random.Random) -> TaskRequest:
        """Draw a request for a task, with references from the buffer; for an induction, with one program."""

        def messages(shown: Sequence[Task]) -> Messages:
            return requests.to_propose(kind, shown, self.words, functions, inputs=self.entry.inputs)

        functions, count = "", 1 if kind == "induce" else self.entry.references
        chance, number = self.schedule.at(step)
        if chance and kind != "induce" and draw.random() < chance:
            functions = composites.draw_functions(self.buffers.tasks[kind], number, draw)
            count = max(count - number, 0) if functions else count
        fits = lambda shown: self.fits(messages(shown))  # noqa: E731
        shown = self.buffers.references(kind, count, draw, self.entry.reference_sampling, fits)
        if kind == "induce" and not shown:
            shown = [seeding.identity("deduce")]
        return TaskRequest(kind, messages(shown), shown, functions)

    def _to_solve(self, kind: TaskName, step: int, draw: random.Random) -> list[TaskRequest]:
        """Draw requests for the answers to tasks of the buffer."""

        def messages(task: Task) -> Messages:
            return requests.to_solve(task, self.words)

        drawn = self.buffers.to_solve(
            kind,
            self.entry.batch_size,
            step,
            draw,
            self.entry.solver_sampling,
            fits=lambda task: self.fits(messages(task)),
        )
        drawn = drawn or [seeding.identity(kind, self.entry.inputs)] * self.entry.batch_size
        return [TaskRequest(kind, messages(task), [task]) for task in drawn]

    def _proposal_turns(
        self, step: int, requests: Sequence[TaskRequest], replies: Sequence[PolicyReply], ask: Ask
    ) -> list[Turn]:
        """Validate the proposer's replies, let the solver attempt the tasks, and add them to the buffers."""
        parsed = [self._parse(request, reply) for request, reply in zip(requests, replies, strict=True)]
        tasks = [self._check_prompt(task) for task in valid(parsed, self.executor, step)]
        grades = self._attempt(tasks, ask) if self.entry.needs_accuracy else [[] for _ in tasks]
        return [self._proposal_turn(*each) for each in zip(requests, replies, tasks, grades, strict=True)]

    def _parse(self, request: TaskRequest, reply: PolicyReply) -> Proposal | Invalid:
        about = request.shown[0].program if request.kind == "induce" else ""
        proposal = proposals.parse(request.kind, reply.text, about, self.entry.inputs, normal=self.normal)
        return composites.compose(proposal, request.functions)

    def _check_prompt(self, task: Task | Invalid) -> Task | Invalid:
        """Return the task, or Invalid if its prompt is too long for the solver."""
        if isinstance(task, Task) and not self.fits(requests.to_solve(task, self.words)):
            return Invalid("too-long", f"no solver's prompt of {self.entry.max_prompt_tokens:,} tokens can show it")
        return task

    def _attempt(self, tasks: Sequence[Task | Invalid], ask: Ask) -> list[list[float | None]]:
        """Sample and grade the solver's attempts at each valid task. Return their grades; empty for invalid tasks."""
        repeated = [task for task in tasks if isinstance(task, Task) for _ in range(self.entry.attempts)]
        replies = ask([requests.to_solve(task, self.words) for task in repeated])
        grades = iter(self._grade(repeated, replies))
        return [list(islice(grades, self.entry.attempts)) if isinstance(task, Task) else [] for task in tasks]

    def _proposal_turn(
        self, request: TaskRequest, reply: PolicyReply, task: Task | Invalid, grades: Sequence[float | None]
    ) -> Turn:
        """Build the turn of a proposal: compute its reward, and add its task to the buffer if admitted."""
        formed, accuracy = is_formed(reply.text), learnability.accuracy(grades)
        worth: float | None = None
        if self.entry.learnability == "none":
            worth = 1.0
        elif accuracy is not None:
            worth = learnability.learnability(accuracy, self.entry.learnability)
        terms = list(self._terms(task, request)) if isinstance(task, Task) else []
        reward = None
        if self.entry.proposer == "trained":
            reward = learnability.proposer_reward(task, formed, worth, terms, self.entry.combine, self.scale)
        admitted = self.entry.buffer_admits == "all" or (
            accuracy is not None and learnability.admits(accuracy, self.entry.buffer_admits)
        )
        is_new = bool(isinstance(task, Task) and admitted and self._remember([task]))
        return Turn("propose", request, reply, task, formed, grades, reward, is_new)

    def _terms(self, task: Task, request: TaskRequest) -> Iterator[float]:
        """Yield the intrinsic rewards of a task, weighted and bounded."""
        for name, options in self.entry.intrinsic_rewards.items():
            if (value := self._intrinsic(name, task, request, options.get("hierarchical", False))) is not None:
                yield learnability.term(value, options["weight"], options.get("max", 0.5))

    def _intrinsic(self, name: str, task: Task, request: TaskRequest, hierarchical: bool) -> float | None:
        """Compute the value of an intrinsic reward; None if it does not apply to the task."""
        if name == "complexity":
            return intrinsic.complexity(task.own)
        if name == "halstead":
            return intrinsic.halstead(task.own)
        if name == "edit-distance":
            return intrinsic.edit_distance(task.own, [shown.own for shown in request.shown])
        if name == "answer-diversity":
            places = {
                "deduce": ("output", task.output),
                "abduce": ("input", task.input),
                "error": ("error", task.output),
            }
            return self.counters.surprise(*places[task.kind], hierarchical) if task.kind in places else None
        literals = {"input-diversity": task.inputs, "output-diversity": task.outputs}[name]
        place = name.partition("-")[0]
        return self.counters.mean_surprise(place, literals, hierarchical) if task.kind == "induce" else None

    def _solution_turns(self, requests: Sequence[TaskRequest], replies: Sequence[PolicyReply]) -> Iterator[Turn]:
        """Yield the turns of the solver. Replies without the required form are wrong and not executed."""
        tasks = [request.shown[0] for request in requests]
        formed = [solutions.has_form(task.kind, reply.text) for task, reply in zip(tasks, replies, strict=True)]
        grades = self._grade(tasks, replies, formed)
        for each in zip(requests, replies, tasks, formed, grades, strict=True):
            request, reply, task, form, points = each
            yield Turn(
                "solve", request, reply, task, form, [points], learnability.solver_reward(points, form, self.scale)
            )

    def _grade(
        self, tasks: Sequence[Task], replies: Sequence[PolicyReply], formed: Sequence[bool] | None = None
    ) -> list[float | None]:
        """Grade each reply to a task."""
        answers = [
            solutions.parse(task.kind, reply.text) if formed is None or formed[place] else None
            for place, (task, reply) in enumerate(zip(tasks, replies, strict=True))
        ]
        return solutions.grade(tasks, answers, self.executor, self.entry.induction_reward)


# ------------------------------------------------------------------------------------------------------------- metrics


def metrics(turns: Sequence[Turn], play: SelfplayRound) -> dict[str, float]:
    """Compute the metrics of a round, named `<task>/<role>/<metric>`; NaN for the mean of an empty set."""
    numbers: dict[str, float] = {}
    for kind, role in dict.fromkeys((turn.kind, turn.role) for turn in turns):
        own = [turn for turn in turns if (turn.kind, turn.role) == (kind, role)]
        named = {**_of_any(own), **(_of_proposals(own) if role == "propose" else _of_solutions(own))}
        numbers |= {f"{kind}/{role}/{name}": value for name, value in named.items()}
    for kind, tasks in play.buffers.tasks.items():
        numbers[f"{kind}/propose/buffer"] = len(tasks)
    numbers["unscored"] = _mean([turn.is_unscored for turn in turns])
    counts = {f"buffer/{name}": float(number) for name, number in play.counters.metrics().items()}
    return numbers | counts


def _of_any(turns: Sequence[Turn]) -> dict[str, float]:
    rewards = [turn.reward for turn in turns if turn.reward is not None]
    reflecting = [turn for turn in turns if reflection.count(turn.reply.text, reflection.ABSOLUTE_ZERO)]
    lengths = [(len(turn.reply.ids), turn.reward > 0) for turn in turns if turn.reward is not None]
    return {
        "reward": _mean(rewards),
        "reward-std": statistics.stdev(rewards) if len(rewards) > 1 else math.nan,
        "length": _mean([len(turn.reply.ids) for turn in turns]),
        "length-right": _mean([length for length, right in lengths if right]),
        "length-wrong": _mean([length for length, right in lengths if not right]),
        "well-formed": _mean([turn.formed for turn in turns]),
        "truncated": _mean([turn.reply.stop_reason == StopReason.LENGTH for turn in turns]),
        "reflecting": len(reflecting) / len(turns),
        "reflecting-right": _mean([turn.reward > 0 for turn in reflecting if turn.reward is not None]),
        "unscored": _mean([turn.is_unscored for turn in turns]),
    }


def _of_proposals(turns: Sequence[Turn]) -> dict[str, float]:
    tasks = [turn.task for turn in turns if isinstance(turn.task, Task)]
    reasons = Counter(turn.task.reason for turn in turns if isinstance(turn.task, Invalid))
    known = [turn.accuracy for turn in turns if turn.accuracy is not None]
    trees = [ast.parse(task.own) for task in tasks]
    return {
        "valid": len(tasks) / len(turns),
        **{f"invalid/{reason}": reasons[reason] / len(turns) for reason in REASONS},
        "new": _mean([turn.is_new for turn in turns]),
        "distinct": len({task.id for task in tasks}) / len(tasks) if tasks else math.nan,
        "accuracy": _mean(known),
        "solved-always": _mean([accuracy == 1 for accuracy in known]),
        "solved-never": _mean([accuracy == 0 for accuracy in known]),
        "lines": _mean([len(task.own.splitlines()) for task in tasks]),
        "complexity": _mean([intrinsic.cognitive_complexity(tree) for tree in trees]),
        "cyclomatic": _mean([intrinsic.cyclomatic_complexity(tree) for tree in trees]),
    }


def _of_solutions(turns: Sequence[Turn]) -> dict[str, float]:
    tasks = {turn.request.shown[0].id for turn in turns}
    return {
        "accuracy": _mean([turn.accuracy for turn in turns if turn.accuracy is not None]),
        "distinct": len(tasks) / len(turns),
    }


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan
