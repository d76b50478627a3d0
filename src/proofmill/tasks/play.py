"""A round of self-play: who is asked what, which proposals are tasks, which solutions are right, what each reply earns.

From: Absolute Zero Reasoner (arXiv 2505.03335, algorithm 1) and its code.

How we differ:
1. All prompts of a step are drawn before any of them is answered, and asked at once. There, tasks and roles take turns.
2. Attempts that measure how hard a task is are drawn at the temperature of training.
"""

import ast
import json
import math
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pyarrow import parquet

from proofmill.runtime import durable
from proofmill.sandbox.executor import Executor
from proofmill.schema.reasons import Stop
from proofmill.schema.selfplay_entry import Selfplay
from proofmill.tasks import asking, composites, intrinsic, learnability, proposals, seeding, solutions
from proofmill.tasks.buffer import Buffers
from proofmill.tasks.counters import Counters
from proofmill.tasks.proposals import Normal, Proposal
from proofmill.tasks.tasks import REASONS, Invalid, Task, TaskName
from proofmill.tasks.validity import valid
from proofmill.text.fences import answer, is_formed

COUNTERS = b"proofmill counters"  # in the metadata of a saved buffer
Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Reply:
    """What the policy wrote; its tokens and their log-probabilities are for whoever learns from it."""

    text: str
    stop: Stop = Stop.END
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None


Ask = Callable[[Sequence[Messages]], list[Reply]]


@dataclass(frozen=True)
class Request:
    """What is asked in a role: for a task like `shown`, or for the answer to the only one that is."""

    kind: TaskName
    messages: Messages
    shown: Sequence[Task]
    functions: str = ""  # that a new program must call


@dataclass(frozen=True)
class Turn:
    """A reply to a request, and what it earned.

    `task` is the one that was proposed, or why there is none, or the one that was solved. `marks` are those of the
    attempts at what was proposed, or the solution's own. None stands for what could not be had; a proposal has no
    reward, either, where proposing is not trained.
    """

    role: str
    request: Request
    reply: Reply
    task: Task | Invalid
    formed: bool
    marks: Sequence[float | None]
    reward: float | None
    is_new: bool = False  # what was proposed entered the buffer

    @property
    def kind(self) -> TaskName:
        return self.request.kind

    @property
    def is_unscored(self) -> bool:
        """Whether it was to be marked and could not be."""
        return bool(self.marks) and self.accuracy is None

    @property
    def accuracy(self) -> float | None:
        return learnability.accuracy(self.marks)


class Play:
    """The game of an entry: its buffer of tasks, and rounds of proposing and solving.

    `fits` says whether a prompt is short enough; programs run in the executor, which is open.
    """

    def __init__(self, entry: Selfplay, executor: Executor, fits: Callable[[Messages], bool]):
        self.entry, self.executor, self.fits, self.words = entry, executor, fits, entry.words
        self.scale = learnability.Scale(entry.malformed, entry.nothing)
        self.normal = Normal(one_function=entry.one_function)
        self.schedule = composites.Schedule(**entry.composite) if entry.composite else composites.Schedule()
        self.buffers, self.counters, self.begun = self._empty(), Counters(), False

    def _empty(self) -> Buffers:
        """The buffer of each kind; inductions are about programs of others, so there is one of those."""
        kinds: list[TaskName] = [*self.entry.tasks]
        if not {"deduce", "abduce"} & {*kinds}:
            kinds.append("deduce")
        return Buffers(kinds, self.entry.buffer, self.entry.buffer_keeps)

    # --------------------------------------------------------------------------------------------------- the first tasks

    def begin(self, ask: Ask, rows: Sequence[Mapping[str, Any]] = ()) -> dict[str, int]:
        """Fill the buffer with first tasks, of rows or of the model's own; says how many rows are no task, by reason."""
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

            def written(asked: Sequence[Messages]) -> list[str]:
                return [answer(reply.text) or reply.text for reply in ask(asked)]  # a model need not know tags

            made = seeding.from_model(
                written, kinds, self.executor, self.words, draw,
                entry.seeds, entry.batch, entry.references, entry.inputs, fits=self.fits,
            )  # fmt: skip
            first = [task for tasks in made.tasks.values() for task in tasks]
        for kind in kinds:
            of_kind = [task for task in first if task.kind == kind]
            self._remember((of_kind or [seeding.identity(kind, entry.inputs)])[: entry.seeds])
        self.begun = True
        return refused

    def _remember(self, tasks: Sequence[Task]) -> list[Task]:
        """Put tasks into the buffer; those that are new to it."""
        added = self.buffers.add(tasks)
        for task in added:
            self.counters.add_task(task)
        return added

    def save(self, path: Path) -> None:
        """Write the buffer, and with it what was counted of all tasks that ever entered it."""
        table, new = self.buffers.table(), path.with_name(f".{path.name}.new")
        counted = json.dumps(self.counters.state(), sort_keys=True)
        parquet.write_table(table.replace_schema_metadata({COUNTERS: counted}), new, compression="zstd")
        durable.replace(new, path)

    def restore(self, path: Path) -> None:
        """Take the buffer as it was when it was saved."""
        table = parquet.read_table(path)
        self.buffers, self.begun = self._empty(), True
        self.buffers.add_table(table)
        self.counters = Counters.restored(json.loads(table.schema.metadata[COUNTERS]))

    # ---------------------------------------------------------------------------------------------------------- a round

    def step(self, step: int, ask: Ask) -> list[Turn]:
        """Play the round of a step: the turns of each task in each role, in the order of the entry's tasks."""
        draw = random.Random(f"{self.entry.seed}/{step}")
        proposing: list[Request] = []
        solving: list[Request] = []
        for kind in self.entry.tasks:
            if self.entry.proposer != "absent":
                proposing += [self._to_propose(kind, step, draw) for _ in range(self.entry.batch)]
            solving += self._to_solve(kind, step, draw)
        replies = ask([request.messages for request in (*proposing, *solving)])
        proposed = self._proposed(step, proposing, replies[: len(proposing)], ask)
        turns = [*proposed, *self._solved(solving, replies[len(proposing) :])]
        return [turn for kind in self.entry.tasks for turn in turns if turn.kind == kind]

    def _to_propose(self, kind: TaskName, step: int, draw: random.Random) -> Request:
        """A request for a task, which shows tasks of the buffer; one for an induction is about a program."""

        def asked(shown: Sequence[Task]) -> Messages:
            return asking.to_propose(kind, shown, self.words, functions, inputs=self.entry.inputs)

        functions, count = "", 1 if kind == "induce" else self.entry.references
        chance, number = self.schedule.at(step)
        if chance and kind != "induce" and draw.random() < chance:
            functions = composites.given(self.buffers.tasks[kind], number, draw)
            count = max(count - number, 0) if functions else count
        fits = lambda shown: self.fits(asked(shown))  # noqa: E731
        shown = self.buffers.references(kind, count, draw, self.entry.reference_draw, fits)
        if kind == "induce" and not shown:
            shown = [seeding.identity("deduce")]
        return Request(kind, asked(shown), shown, functions)

    def _to_solve(self, kind: TaskName, step: int, draw: random.Random) -> list[Request]:
        """Requests for the answers to tasks of the buffer."""

        def asked(task: Task) -> Messages:
            return asking.to_solve(task, self.words)

        drawn = self.buffers.to_solve(
            kind, self.entry.batch, step, draw, self.entry.solver_draw, fits=lambda task: self.fits(asked(task))
        )
        drawn = drawn or [seeding.identity(kind, self.entry.inputs)] * self.entry.batch
        return [Request(kind, asked(task), [task]) for task in drawn]

    def _proposed(self, step: int, asked: Sequence[Request], replies: Sequence[Reply], ask: Ask) -> list[Turn]:
        """The turns of the proposer, whose tasks the solver attempts and the buffer takes."""
        read = [self._read(request, reply) for request, reply in zip(asked, replies, strict=True)]
        found = [self._fitting(task) for task in valid(read, self.executor, step)]
        measured = self.entry.proposer == "trained" or self.entry.admits != "all"
        marks = self._attempted(found, ask) if measured else [[] for _ in found]
        return [self._judged(*each) for each in zip(asked, replies, found, marks, strict=True)]

    def _read(self, request: Request, reply: Reply) -> Proposal | Invalid:
        about = request.shown[0].program if request.kind == "induce" else ""
        proposal = proposals.parse(request.kind, reply.text, about, self.entry.inputs, normal=self.normal)
        return composites.composed(proposal, request.functions)

    def _fitting(self, task: Task | Invalid) -> Task | Invalid:
        """A task that a solver can be asked; one whose prompt is too long is none."""
        if isinstance(task, Task) and not self.fits(asking.to_solve(task, self.words)):
            return Invalid("too-long", f"no solver's prompt of {self.entry.prompt_tokens:,} tokens can show it")
        return task

    def _attempted(self, found: Sequence[Task | Invalid], ask: Ask) -> list[list[float | None]]:
        """The marks of the solver's attempts at each valid task; none for what is invalid."""
        tasks = [task for task in found if isinstance(task, Task) for _ in range(self.entry.attempts)]
        replies = ask([asking.to_solve(task, self.words) for task in tasks])
        marks = iter(self._marks(tasks, replies))
        return [list(islice(marks, self.entry.attempts)) if isinstance(task, Task) else [] for task in found]

    def _judged(self, request: Request, reply: Reply, task: Task | Invalid, marks: Sequence[float | None]) -> Turn:
        """The turn of a proposal."""
        formed, accuracy = is_formed(reply.text), learnability.accuracy(marks)
        worth: float | None = None
        if self.entry.learnability == "none":
            worth = 1.0
        elif accuracy is not None:
            worth = learnability.learnability(accuracy, self.entry.learnability)
        terms = list(self._terms(task, request)) if isinstance(task, Task) else []
        reward = None
        if self.entry.proposer == "trained":
            reward = learnability.proposer_reward(task, formed, worth, terms, self.entry.combine, self.scale)
        admitted = self.entry.admits == "all" or (
            accuracy is not None and learnability.admits(accuracy, self.entry.admits)
        )
        is_new = bool(isinstance(task, Task) and admitted and self._remember([task]))
        return Turn("propose", request, reply, task, formed, marks, reward, is_new)

    def _terms(self, task: Task, request: Request) -> Iterator[float]:
        """The intrinsic rewards of a task, each with its weight and bound."""
        for name, how in self.entry.intrinsic.items():
            if (value := self._intrinsic(name, task, request, how.get("hierarchical", False))) is not None:
                yield learnability.term(value, how["weight"], how.get("most", 0.5))

    def _intrinsic(self, name: str, task: Task, request: Request, hierarchical: bool) -> float | None:
        """The value of an intrinsic reward; None where it does not apply."""
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

    def _solved(self, asked: Sequence[Request], replies: Sequence[Reply]) -> Iterator[Turn]:
        """The turns of the solver; what is not in the form that was asked for is not executed, and wrong."""
        formed, tasks = [is_formed(reply.text) for reply in replies], [request.shown[0] for request in asked]
        marks = self._marks(tasks, replies, formed)
        for each in zip(asked, replies, tasks, formed, marks, strict=True):
            request, reply, task, form, mark = each
            yield Turn("solve", request, reply, task, form, [mark], learnability.solver_reward(mark, form, self.scale))

    def _marks(
        self, tasks: Sequence[Task], replies: Sequence[Reply], formed: Sequence[bool] | None = None
    ) -> list[float | None]:
        """The mark of each reply to a task."""
        answers = [
            solutions.parse(task.kind, reply.text) if formed is None or formed[place] else None
            for place, (task, reply) in enumerate(zip(tasks, replies, strict=True))
        ]
        return solutions.grade(tasks, answers, self.executor, self.entry.induced)


# ------------------------------------------------------------------------------------------------------------- measures

# Words of a reply that looks back (the published list).
_REFLECTION = re.compile(
    r"\b(?:wait|recheck|retry|rethink|re-?verify|re-?evaluate|check again|verify again|however|alternatively|on second thought)\b",
    re.IGNORECASE,
)


def measures(turns: Sequence[Turn], play: Play) -> dict[str, float]:
    """The numbers of a round by `<task>/<role>/<measure>`; NaN where there is nothing to take one of."""
    found: dict[str, float] = {}
    for kind, role in dict.fromkeys((turn.kind, turn.role) for turn in turns):
        own = [turn for turn in turns if (turn.kind, turn.role) == (kind, role)]
        named = {**_of_any(own), **(_of_proposals(own) if role == "propose" else _of_solutions(own))}
        found |= {f"{kind}/{role}/{name}": value for name, value in named.items()}
    for kind, tasks in play.buffers.tasks.items():
        found[f"{kind}/propose/buffer"] = len(tasks)
    found["unscored"] = _mean([turn.is_unscored for turn in turns])
    counted = {f"buffer/{name}": float(number) for name, number in play.counters.measures().items()}
    return found | counted


def _of_any(turns: Sequence[Turn]) -> dict[str, float]:
    rewards = [turn.reward for turn in turns if turn.reward is not None]
    reflecting = [turn for turn in turns if _REFLECTION.search(turn.reply.text)]
    return {
        "reward": _mean(rewards),
        "reward-std": statistics.stdev(rewards) if len(rewards) > 1 else math.nan,
        "length": _mean([len(turn.reply.ids) for turn in turns]),
        "length-right": _mean([len(turn.reply.ids) for turn in turns if (turn.reward or 0) > 0]),
        "length-wrong": _mean([len(turn.reply.ids) for turn in turns if (turn.reward or 0) <= 0]),
        "well-formed": _mean([turn.formed for turn in turns]),
        "cut-off": _mean([turn.reply.stop == Stop.LENGTH for turn in turns]),
        "reflecting": len(reflecting) / len(turns),
        "reflecting-right": _mean([(turn.reward or 0) > 0 for turn in reflecting]),
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
    asked = {turn.request.shown[0].id for turn in turns}
    return {
        "accuracy": _mean([turn.accuracy for turn in turns if turn.accuracy is not None]),
        "distinct": len(asked) / len(turns),
    }


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan
