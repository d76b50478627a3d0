"""Grade submissions by a judge, a jury, a program, or a cascade of these. Grading a submission is a dialogue.

    judge     outputs of one judge in a round, retried while they cannot be parsed        judges.Sitting.judge
    jury      rounds of one or several judges, and their merged verdict                   judges.jury
    program   a verdict without a model                                                   programs.PROGRAMS
    cascade   the verdict of the first grader, or of the next one if that remains undecided      here

Differences from the originals:
1. A response without an answer costs no call. It gets 0, with the reason `empty`, if it is truncated or the model wrote
   nothing. If the model stopped on its own and all text is in the reasoning, it is unscored: the parser of reasoning
   may be at fault.
2. The same graders grade benchmarks, self-tests of grading schemes and rewards, so a grade means the same everywhere.
3. A grader may escalate what it cannot settle: unscored submissions, disagreement, or grades within a declared band.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

from proofmill.calls.dialogues import Ask, Begin, Dialogue, first_requests
from proofmill.calls.model_requests import Requests
from proofmill.graders.escalation import graders_of, max_points
from proofmill.graders.judges import Ruling, Sitting, jury, together_with
from proofmill.graders.program_graders import PROGRAMS
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Opinion, Verdict
from proofmill.schema.entries.declared import Grader
from proofmill.schema.errors import RecipeError
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import TRANSIENT, Reason

if TYPE_CHECKING:  # they need polars; a grader of programs, or one that others ask for, does not
    from proofmill.calls.calls import Asker
    from proofmill.calls.stream import Stream

Submissions = Callable[[], Iterable[tuple[str, Submission]]]  # (response, submission), read from the start at each call


def cascade(
    graders: Sequence[Grader],
    submission: Submission,
    declared: Mapping[str, Any],
    schemes: bool = False,
    stage: str = "",
    judgement: str | None = None,
) -> Dialogue:
    """Return the verdict of the first grader, or of those after it if it remains undecided.

    `judgement` is the text of the grader before the first one, if any.
    """
    first, *further = graders
    full = max_points(first)
    if submission.reason != Reason.OK:  # no response to grade: the call failed, was refused, or did not fit
        return Verdict(None, full, Reason(submission.reason))
    if not submission.final:
        return Verdict(None, full, Reason.REASONING_ONLY) if submission.unanswered else Verdict(0.0, full, Reason.EMPTY)
    if first.judges[0] in PROGRAMS:
        ruling = yield from program(first.judges[0], submission, stage)
    else:
        ruling = yield from jury(Sitting(first, submission, declared, schemes, stage, judgement))
    if further and stays_open(first, ruling):
        last = yield from cascade(
            further, submission, declared, schemes, f"escalated {stage}", ruling.verdict.text or None
        )
        if (grade := ruling.verdict.grade) is not None and last.grade is not None and first.escalated == "multiplies":
            last = replace(last, grade=grade * last.grade / full)
        return together_with(ruling.verdict, last)
    return ruling.verdict


def program(name: str, submission: Submission, stage: str = "") -> Dialogue:
    """Return the ruling of a program, which is never split."""
    (verdict,) = yield [Ask(name, submission)]
    return Ruling(replace(verdict, opinions=(Opinion(name, f"{stage}1", verdict.grade, verdict.reason),)))


def stays_open(grader: Grader, ruling: Ruling) -> bool:
    """Return whether the grader that this one escalates to must give the verdict."""
    verdict = ruling.verdict
    if verdict.grade is None:  # a transient failure is retried before it escalates
        return "unscored" in grader.escalate_on and verdict.reason not in TRANSIENT
    low, high = grader.escalate_band or (1, 0)
    return ("disagreement" in grader.escalate_on and ruling.split) or low <= verdict.grade <= high


class SubmissionGrader:
    """A grader of submissions. A context manager: its programs are open inside it.

    `name` and `prompt` are those of an entry; `declared` holds the models and graders that it may use. With `schemes`,
    a submission without a scheme is not graded. `askers` are the open engines of its `models`; `of` is as in
    `runner.results`. With a `stream` of them, submissions are graded as they arrive.
    """

    def __init__(
        self,
        name: str,
        prompt: str | None,
        declared: Mapping[str, Any],
        schemes: bool = False,
        askers: "Mapping[str, Asker] | None" = None,
        of: int = 0,
    ):
        self.name, self.prompt, self.declared, self.schemes = name, prompt, declared, schemes
        self.askers, self.of = askers or {}, of
        self.stream: Stream | None = None
        self._begun: dict[Submission, Future[Verdict]] = {}
        self._one_at_a_time = Lock()  # a training starts rollouts in one thread and receives others in another
        self._stack = ExitStack()
        self._checks: dict[str, Any] = {}

    @cached_property
    def graders(self) -> list[Grader]:
        """The grader, the one it escalates to, and so on."""
        return graders_of(self.name, self.prompt, self.declared)

    @property
    def models(self) -> list[str]:
        """Names of the remote models that it may call."""
        named = [name for g in self.graders for name in (*g.judges, g.normalizer) if name]
        return [name for name in dict.fromkeys(named) if kind_of(name) == "api"]

    def __enter__(self) -> "SubmissionGrader":
        with ExitStack() as opened:
            for name in dict.fromkeys(name for g in self.graders for name in g.judges if name in PROGRAMS):
                self._checks[name] = _on_its_scale(name, opened.enter_context(PROGRAMS[name].open()))
            self._stack = opened.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def __call__(self, submissions: Sequence[Submission], quiet: bool = False) -> list[Verdict]:
        """Return a verdict for each submission, in order."""
        if self.stream is None and not self._begun:
            return list(self.verdicts(_number(submissions), quiet))
        verdicts = [future.result() for future in self.begin(submissions)]
        with self._one_at_a_time:
            for submission in submissions:
                self._begun.pop(submission, None)
        return verdicts

    def begin(self, submissions: Sequence[Submission]) -> "list[Future[Verdict]]":
        """Begin to grade submissions and return their futures, which are done already without a `stream`.

        A later call of the grader with such a submission waits for this future instead of grading twice.
        """
        with self._one_at_a_time:
            new = [submission for submission in dict.fromkeys(submissions) if submission not in self._begun]
            if self.stream:
                for submission in new:
                    self._begun[submission] = self.stream.begin("a rollout", self.dialogue(submission), self._checks)
            else:
                for submission, verdict in zip(new, self.verdicts(_number(new), quiet=True), strict=True):
                    self._begun[submission] = Future()
                    self._begun[submission].set_result(verdict)
            return [self._begun[submission] for submission in submissions]

    @property
    def programs(self) -> Mapping[str, Any]:
        """The open programs, for `runner.results` with dialogues of `dialogue`."""
        return self._checks

    def dialogue(self, submission: Submission) -> Dialogue:
        """Return the dialogue that grades a submission."""
        return cascade(self.graders, submission, self.declared, self.schemes)

    def verdicts(self, submissions: Submissions, quiet: bool = False) -> Iterator[Verdict]:
        """Yield a verdict for each submission, in order. The first comes after the judges have replied about all."""
        from proofmill.calls import runner

        return runner.results(self._begin(submissions), self.askers, "submissions", self._checks, self.of, quiet)

    def requests(self, submissions: Submissions) -> dict[str, Requests]:
        """Return the first requests to each judge."""
        return first_requests(self._begin(submissions))

    def _begin(self, submissions: Submissions) -> Begin:
        return lambda: ((row, self.dialogue(submission)) for row, submission in submissions())


def _number(submissions: Sequence[Submission]) -> Submissions:
    return lambda: ((f"submission {number}", submission) for number, submission in enumerate(submissions, 1))


def _on_its_scale(name: str, check: Callable) -> Callable[[Sequence[Submission]], Iterator[Verdict]]:
    """Return `check` with the program's max points in each verdict. Raises RecipeError for a grade off that scale."""
    full = PROGRAMS[name].max_points

    def check_scale(submissions: Sequence[Submission]) -> Iterator[Verdict]:
        for verdict in check(submissions):
            if verdict.grade is not None and not 0 <= verdict.grade <= full:
                raise RecipeError(
                    f"grader `{name}` returned {verdict.grade:g}; expected 0 to {full} points, or None. Fix the grader."
                )
            yield replace(verdict, max_points=full)

    return check_scale
