"""One grader marks scripts: by a judge, a jury with further rounds, a cascade, or a program (QED-Nano, grading sections 2 to 4).

What a script still has to be asked is a *course*: a generator that yields what is asked next and returns the verdict. All
courses go on together, a step at a time; what is asked and answered is in the journal, so a course is begun anew for each
step and goes through its old answers again. Nothing but the journal is kept between steps.

From: QED-Nano's evaluation and its verifier in reinforcement learning; MathArena's jury (normaliser, further rounds, minimum).

How we differ:
1. A verdict that cannot be read is asked for again, and if it stays unreadable it is no grade, with the reason. Never 0.
2. A response that is empty, or was cut off while thinking, is 0 with the reason `empty`, and costs no call.
3. The same grader marks benchmarks, marking schemes' self-tests and rewards, so all mean the same by a mark.
4. A cheap grader may hand on what it cannot settle: what it left unscored, disagreed on, or put within a declared band.
"""

import re
import statistics
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from proofmill import answers, arithmetic, engines, judges, kinds, templates
from proofmill.calls import Question, Questions
from proofmill.cases import cases_of
from proofmill.jobs import Job
from proofmill.journal import Answer
from proofmill.sandbox import Ran, Sandbox
from proofmill.scripts import Script
from proofmill.tables import PASSING
from proofmill.templates import Prompt
from proofmill.verdicts import UNREAD, Opinion, Verdict, read
from proofmill.verifier import Check, Verifier

WINDOW = 512  # scripts whose courses are held at a time
STAGE = 1_000  # samples of a judge that each stage of a cascade has to itself
ABSENT = {"scheme": "no-scheme", "reference": "no-reference", "answer": "no-gold"}

Scripts = Callable[[], Iterable[tuple[str, Script]]]  # (response, script), read anew each time


@dataclass(frozen=True)
class Ask:
    """What a course wants to know next: a judge's answer, or with `question` None a program's verdict on the script."""

    judge: str
    script: Script
    question: Question | None = None


Course = Generator[list[Ask], list[Any], Verdict]  # is sent an Answer for each question, a Verdict for each check


class Grader:
    """Marks scripts. A context manager: the journal, the judges' engines and the verifier are open inside it.

    `name` and `prompt` are those of an entry; with `schemes` a script without a scheme is not marked. `askers` may be set
    before, where somebody else has opened the engines of its models: a job has one journal, whoever asks.
    """

    def __init__(self, name: str, prompt: str | None, job: Job, schemes: bool = False):
        self.name, self.prompt, self.job, self.schemes = name, prompt, job, schemes
        self.of = 0  # calls, if more than a step's, of which the share that may fail is taken
        self._stack = ExitStack()
        self.askers: Mapping[str, Any] = {}

    @cached_property
    def graders(self) -> list[kinds.Grader]:
        """The grader, whom it escalates to, and so on."""
        return kinds.graders_of(self.name, self.prompt, self.job.declared)

    @property
    def models(self) -> list[str]:
        """The remote models that may be asked."""
        named = [name for g in self.graders for name in (*g.judges, g.normalizer) if name]
        return [name for name in dict.fromkeys(named) if kinds.kind_of(name) == "api"]

    def __enter__(self) -> "Grader":
        with ExitStack() as opened:
            programs = {name for g in self.graders for name in g.judges}
            if programs & {"final-answer", "rules"}:
                self._verifier = opened.enter_context(Verifier())
            if programs & {"tests", "rules"}:
                self._sandbox = opened.enter_context(Sandbox())
            if self.models and not self.askers:
                self.askers = opened.enter_context(engines.asking_all(self.job, self.models))
            self._stack = opened.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    # ------------------------------------------------------------------------------------------------------- going on

    def __call__(self, scripts: Sequence[Script], quiet: bool = False) -> list[Verdict]:
        """A verdict for each script, in order."""
        return list(self.verdicts(lambda: ((f"script {n}", script) for n, script in enumerate(scripts, 1)), quiet))

    def verdicts(self, scripts: Scripts, quiet: bool = False) -> Iterator[Verdict]:
        """A verdict for each script, in order; judges are asked for all of them before the first is given."""
        step = most = 0
        while self.models and (asked := self.questions(scripts, step)) is not None:
            most = max([most, *map(len, asked.values())])
            for judge, questions in asked.items():
                self.askers[judge](questions, quiet, of=max(most, self.of))
            step += 1
        return (state for _, state in self._replayed(scripts))

    def questions(self, scripts: Scripts, step: int = 0) -> dict[str, Questions] | None:
        """What each judge is asked in a step, when all that was asked in the steps before is in the journal; None at the end."""

        def asked(judge: str) -> Iterator[tuple[str, Question]]:
            for row, state in self._replayed(scripts, step):
                if not isinstance(state, Verdict):
                    yield from ((row, ask.question) for ask in state if ask.judge == judge)

        numbers = dict.fromkeys(self.models, 0)
        going = False
        for _, state in self._replayed(scripts, step):
            if not isinstance(state, Verdict):
                going = True
                for ask in state:
                    if ask.question is not None:
                        numbers[ask.judge] += 1
        if not going:
            return None
        return {judge: Questions(n, lambda judge=judge: asked(judge)) for judge, n in numbers.items() if n}

    def _replayed(self, scripts: Scripts, steps: int | None = None) -> Iterator[tuple[str, Verdict | list[Ask]]]:
        """Each row's verdict, or what it asks after so many steps that are answered; without `steps` its verdict."""
        rows = iter(scripts())
        while window := list(islice(rows, WINDOW)):
            courses = [self._course(self.graders, script) for _, script in window]
            states = [_advance(course, None) for course in courses]
            done = 0
            while steps is None or done < steps:
                waiting = [place for place, state in enumerate(states) if not isinstance(state, Verdict)]
                if not waiting:
                    break
                replies = iter(self._replies([ask for place in waiting for ask in states[place]]))
                for place in waiting:
                    states[place] = _advance(courses[place], list(islice(replies, len(states[place]))))
                done += 1
            yield from ((row, state) for (row, _), state in zip(window, states, strict=True))

    def _replies(self, asks: Sequence[Ask]) -> list[Any]:
        """The journal's answer to each question, and the program's verdict on each check."""
        replies: list[Any] = [None] * len(asks)
        for judge in dict.fromkeys(ask.judge for ask in asks):
            places = [place for place, ask in enumerate(asks) if ask.judge == judge]
            if judge in self.askers:
                asker = self.askers[judge]
                found = map(asker.engine.read, asker.journal.answers([asks[place].question for place in places]))
            else:
                found = self._checked(judge, [asks[place].script for place in places])
            for place, reply in zip(places, found, strict=True):
                replies[place] = reply
        return replies

    # ------------------------------------------------------------------------------------------------------- a course

    def _course(self, graders: Sequence[kinds.Grader], script: Script, stage: str = "") -> Course:
        """What one script is asked, until its verdict."""
        grader, *further = graders
        full = templates.full_marks(grader)
        if script.reason != "ok":  # there is no response to grade: it failed, was refused, or did not fit
            return Verdict(None, full, script.reason)
        if not script.final:
            return Verdict(0.0, full, "empty")
        if grader.judges[0] in kinds.PROGRAMS:
            (verdict,) = yield [Ask(grader.judges[0], script)]
            opinion = Opinion(grader.judges[0], f"{stage}1", verdict.grade, verdict.reason)
            verdict, split = replace(verdict, opinions=(opinion,)), False
        else:
            verdict, split = yield from self._judged(grader, script, stage)
        if further and _stays_open(grader, verdict, split):
            last = yield from self._course(further, script, f"escalated {stage}")
            return _together(verdict, last)
        return verdict

    def _judged(self, grader: kinds.Grader, script: Script, stage: str) -> Generator[list[Ask], list[Any], Any]:
        """The verdict of one or several judges, and whether they disagree at the end."""
        prompt = templates.prompt(grader.prompt or kinds.MARKING_PROMPT)
        full, calls, opinions = max(prompt.scale), [], []
        fields = _fields(grader, prompt, script)
        absent = prompt.absent(fields)
        if absent is None and self.schemes and "scheme" in prompt.takes and not script.scheme:
            absent = "scheme"
        if absent is None and grader.reference and not (script.reference or "").strip():
            absent = "reference"
        if absent:
            return Verdict(None, full, ABSENT.get(absent, f"no-{absent}")), False
        if grader.normalizer:
            text = templates.fill("normalize", fields)
            (answer,) = yield [Ask(grader.normalizer, script, self._question(grader.normalizer, (("user", text),)))]
            calls.append(answer)
            if answer.reason != "ok" or answer.stop != "end" or not answer.text.strip():
                reason = answer.reason if answer.reason != "ok" else "not-normalized"
                opinion = Opinion(grader.normalizer, f"{stage}normalizer", None, reason)
                return replace(Verdict(None, full, reason).paid(calls), opinions=(opinion,)), False
            fields["proof"] = answer.text
        talks: list[judges.Talk | None] = [(("user", prompt.render(fields)),)] * len(grader.judges)
        verdicts: list[Verdict] = [Verdict(None, full, "no-verdict")] * len(talks)
        for round in range(1, grader.rounds + 2):
            found = yield from self._round(grader, prompt, script, talks, stage)
            calls += [answer for said in found.values() for answer in said]
            verdicts = [read(found[n][-1], prompt) if n in found else old for n, old in enumerate(verdicts)]
            opinions += [
                Opinion(grader.judges[n], f"{stage}{round}", v.grade, v.reason, v.text if len(verdicts) > 1 else "")
                for n, v in enumerate(verdicts)
                if n in found
            ]
            failed = next((v.reason for v in verdicts if v.reason in PASSING), None)
            if failed:  # asked again by the next run, which goes on from here: nothing is to rest on its absence
                verdict = Verdict(None, full, failed)
                return replace(verdict.paid(calls), opinions=tuple(opinions)), False
            grades = [v.grade for v in verdicts if v.grade is not None]
            split = bool(grades) and max(grades) - min(grades) > grader.spread
            if len(verdicts) == 1 or (grades and not split):
                break
            said = {n: answers_[-1].text for n, answers_ in found.items() if answers_[-1].reason == "ok"}
            talks = [_reconsidering(talks[n], n, said) if n in said else None for n in range(len(talks))]
        return replace(_merged(grader, verdicts).paid(calls), opinions=tuple(opinions)), split

    def _round(
        self, grader: kinds.Grader, prompt: Prompt, script: Script, talks: Sequence[judges.Talk | None], stage: str
    ) -> Generator[list[Ask], list[Any], dict[int, list[Answer]]]:
        """What each judge with a talk answers in one round, by its place: more than once while it cannot be read."""
        left = [place for place, talk in enumerate(talks) if talk is not None]
        found: dict[int, list[Answer]] = {place: [] for place in left}
        seats = [self._alike(judge) for judge in grader.judges]
        first = STAGE * stage.count("escalated")  # whoever is asked the same once more is asked for another sample
        for turn in range(grader.requeries + 1):
            asks = []
            for place in left:
                sample = first + seats[:place].count(seats[place]) + turn * seats.count(seats[place])
                asks.append(
                    Ask(grader.judges[place], script, self._question(grader.judges[place], talks[place], sample))
                )
            for place, answer in zip(left, (yield asks) if asks else [], strict=True):
                found[place].append(answer)
            left = [place for place in left if read(found[place][-1], prompt).reason in UNREAD]
            if not left:
                break
        return found

    def _alike(self, judge: str) -> tuple:
        """What makes two names one judge: the same model, asked in the same way."""
        api = self.job.declared[judge]
        return api.id, api.temperature, api.max_tokens, judges.options_of(api)

    def _question(self, judge: str, talk: judges.Talk, sample: int = 0) -> Question:
        return judges.question(self.job.declared[judge], talk, sample)

    def _checked(self, program: str, scripts: Sequence[Script]) -> Iterator[Verdict]:
        """A program's verdicts."""
        if program == "rules":
            code = [script.asks == "code" for script in scripts]
            ran = self._run_tests([s for s, runs in zip(scripts, code, strict=True) if runs])
            compared = self._check_answers([s for s, runs in zip(scripts, code, strict=True) if not runs])
            return (next(ran if runs else compared) for runs in code)
        check = {"final-answer": self._check_answers, "tests": self._run_tests, "arithmetic": _check_lines}[program]
        return check(scripts)

    def _run_tests(self, scripts: Sequence[Script]) -> Iterator[Verdict]:
        """The share of the problem's tests that the last block of code passes (open-r1's `code`)."""
        faults = [_fault_of_tests(script.answer) for script in scripts]
        runs = self._sandbox.check([(s.final, s.answer) for s, fault in zip(scripts, faults, strict=True) if not fault])
        for fault in faults:
            yield Verdict(None, 1, "no-gold", fault) if fault else _of_run(next(runs))

    def _check_answers(self, scripts: Sequence[Script]) -> Iterator[Verdict]:
        """Final answers against the right ones (grading section 3.2): 1 or 0 of 1."""
        checks = self._verifier.check([(s.answer, s.final) for s in scripts if s.answer])
        for script in scripts:
            yield _of_answer(next(checks), script) if script.answer else Verdict(None, 1, "no-gold")


def _advance(course: Course, replies: list[Any] | None) -> Verdict | list[Ask]:
    """What a course asks next, or its verdict."""
    try:
        return course.send(replies)
    except StopIteration as stop:
        return stop.value


def _fields(grader: kinds.Grader, prompt: Prompt, script: Script) -> dict[str, str | None]:
    return {
        "statement": script.statement,
        "scheme": script.scheme,
        "reference": script.reference if grader.reference else None,
        "answer": script.answer,
        "proof": answers.shown(script.final) if prompt.reads == "correct" else script.final,
    }


def _reconsidering(talk: judges.Talk, place: int, said: Mapping[int, str]) -> judges.Talk:
    """The conversation of one judge, who is now shown what the others said."""
    others = [text for n, text in said.items() if n != place]
    shown = "\n\n".join(f"Judgement {n}:\n{text}" for n, text in enumerate(others, 1))
    own = templates.without_control_tokens(said[place])
    return (*talk, ("assistant", own), ("user", templates.fill("reconsider", {"others": shown})))


def _merged(grader: kinds.Grader, verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict from those of the last round; below the quorum there is none."""
    given = [v for v in verdicts if v.grade is not None]
    if len(verdicts) == 1:
        return verdicts[0]
    if len(given) < grader.quorum:
        reason = "no-quorum" if given else next(v.reason for v in verdicts if v.grade is None)
        return Verdict(None, verdicts[0].out_of, reason)
    merge = {"min": min, "max": max, "mean": statistics.fmean, "median": statistics.median}[grader.merge]
    grade = float(merge(v.grade for v in given))
    text = next((v.text for v in given if v.grade == grade), "")
    return Verdict(grade, verdicts[0].out_of, "ok", text)


def _stays_open(grader: kinds.Grader, verdict: Verdict, split: bool) -> bool:
    """Whether the verdict is to be had from whom the grader escalates to."""
    if verdict.grade is None:  # what failed and may pass is asked again first
        return "unscored" in grader.escalate_on and verdict.reason not in PASSING
    low, high = grader.escalate_band or (1, 0)
    return ("disagreement" in grader.escalate_on and split) or low <= verdict.grade <= high


def _together(first: Verdict, last: Verdict) -> Verdict:
    """The later verdict, with what both cost and all that was said."""
    cost = None if None in (first.cost, last.cost) else first.cost + last.cost
    tokens, read_ = first.tokens + last.tokens, first.prompt_tokens + last.prompt_tokens
    return replace(last, cost=cost, tokens=tokens, prompt_tokens=read_, opinions=first.opinions + last.opinions)


# ------------------------------------------------------------------------------------------------------------- programs


def _check_lines(scripts: Sequence[Script]) -> Iterator[Verdict]:
    """Proofs of the arithmetic family, line by line."""
    full = kinds.PROGRAMS["arithmetic"]
    for script in scripts:
        if (problem := arithmetic.read(script.statement)) is None:
            yield Verdict(None, full, "no-verdict", "not a problem of the arithmetic family")
        else:
            marking = arithmetic.check(problem, script.final, answer_only=True)
            yield Verdict(float(marking.marks()), full, "ok")


def _of_answer(check: Check, script: Script) -> Verdict:
    """A response without an answer has earned nothing; one that our program cannot read is unscored."""
    grade = {"correct": 1.0, "wrong": 0.0, "no-answer": 0.0}.get(check.status)
    said = check.detail if grade is None else ", ".join(_doubts(script)) if grade == 0 else ""
    return Verdict(grade, 1, "ok" if check.status in ("correct", "wrong") else check.status, said)


def _fault_of_tests(answer: str | None) -> str | None:
    """What is wrong with a problem's tests; no program is to blame for it."""
    if not answer:
        return "the problem has no tests"
    try:
        cases_of(answer)
    except ValueError as error:
        return str(error)
    return None


def _of_run(ran: Ran) -> Verdict:
    """A program that fails its tests has earned nothing; one that our sandbox cannot run is unscored."""
    reason = {"ok": "ok", "failed": "ok", "no-code": "no-answer"}.get(ran.status, ran.status)
    return Verdict(ran.share, 1, reason, ran.detail)


def _doubts(script: Script) -> Iterator[str]:
    """What makes a 0 worth a look (after the warnings of MathArena's parser): it may be ours, and not the writer's."""
    if script.stop == "length":
        yield "doubtful: it was cut off"
    if script.answer and re.search(rf"(?<![\w.]){re.escape(script.answer.strip())}(?![\w.]*\w)", script.final):
        yield "doubtful: the right answer stands elsewhere in the text"
