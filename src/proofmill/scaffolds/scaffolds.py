"""Scaffolds by name, for `scaffold` of `responses` and of `sampling`, with settings, roles and prompts.

    scaffold: rsa
    scaffold: {name: deepseek-math, pool: 8, roles: {verifier: api/judge}, prompts: {prove: mine.md}}
    scaffold: {name: rsa, roles: {solver: {name: reasoning-cache, iterations: 2}}}

By default the model of the entry plays every role. A role may name another model, or a scaffold, which then gets the
prompt of the role as its problem.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proofmill.calls.dialogues import Dialogue
from proofmill.prompts import templates
from proofmill.scaffolds import planner as planning
from proofmill.scaffolds.deepseek_math import deepseek_math
from proofmill.scaffolds.graph import graph
from proofmill.scaffolds.nomos import nomos
from proofmill.scaffolds.reasoning_cache import reasoning_cache
from proofmill.scaffolds.rsa import rsa
from proofmill.scaffolds.scaffold_run import Nested, Player, ScaffoldRun, prompt_name
from proofmill.scaffolds.selfcheck import selfcheck
from proofmill.text.suggestions import among

KEYS = ("name", "roles", "prompts")  # of a scaffold in the configuration, in addition to its settings
SOLVER = "solver"


@dataclass(frozen=True)
class Calls:
    """The least and the most calls of each role in one play, and the most sequential calls."""

    least: Mapping[str, int]
    most: Mapping[str, int]
    depth: int


@dataclass(frozen=True)
class Scaffold:
    """A scaffold: `run` takes a play and the settings by name, and returns the ending; `calls` takes the settings."""

    run: Callable[..., Dialogue]
    doc: str
    settings: Mapping[str, int | bool]  # name: default; a default of 0 may be 0, other numbers are at least 1
    roles: tuple[str, ...]  # in addition to the solver
    prompts: tuple[str, ...]
    calls: Callable[..., Calls]


def _rounds(number: int) -> int:
    """Return the number of rounds of pairs until one of `number` is left."""
    return math.ceil(math.log2(max(number, 1)))


def _fix(most: Mapping[str, int], depth: int) -> Calls:
    return Calls(most, most, depth)


def _rsa(population: int, rounds: int, aggregation_size: int, pairwise: bool) -> Calls:
    select = population - 1 if pairwise else min(1, population - 1)
    chosen = _rounds(population) if pairwise else select
    return _fix({SOLVER: population, "merger": population * rounds, "selector": select}, 1 + rounds + chosen)


def _deepseek_math(pool: int, verifications: int, reviews_shown: int, iterations: int) -> Calls:
    verified = pool * verifications
    most = {SOLVER: pool, "verifier": verified * (1 + iterations), "improver": pool * iterations}
    return Calls({SOLVER: pool, "verifier": verified, "improver": 0}, most, 2 + 2 * iterations)


def _nomos(solutions: int, finalists: int, min_perfect: int) -> Calls:
    left = min(finalists, solutions)
    most = {SOLVER: solutions, "verifier": solutions, "selector": left}
    return Calls({**most, "selector": 1}, most, 3 + _rounds(left))


def _reasoning_cache(iterations: int) -> Calls:
    return _fix({SOLVER: iterations, "summarizer": iterations - 1}, 2 * iterations - 1)


def _selfcheck(required_passes: int, max_failures: int, iterations: int, fall_back_to_best: bool) -> Calls:
    # A pass takes two calls and a failure three. The least is reached by passes alone, or by failures alone.
    shortest = min(2 * required_passes, 3 * max_failures - 1, 2 * iterations)
    most = {SOLVER: 1, "verifier": 2 * iterations, "improver": 1 + iterations}
    return Calls({SOLVER: 1, "verifier": shortest, "improver": 1}, most, 2 + 3 * iterations)


def _graph(approaches: int, unguided: int, solutions: int, verifications: int, merge: bool) -> Calls:
    branches, several = approaches + unguided, int(solutions > 1)
    lines = branches * solutions
    most = {
        "planner": int(approaches > 0),
        SOLVER: lines,
        "verifier": lines * verifications,
        "improver": lines * verifications,
        "merger": branches * several * merge,
        "selector": branches * several * (not merge) + int(branches > 1),
    }
    return _fix(most, int(approaches > 0) + 1 + 2 * verifications + several + int(branches > 1))


def _planner(max_calls: int, solutions: int, approaches: int) -> Calls:
    turns = 2 * max_calls + 2 * planning.TURNS - 1
    return Calls({"planner": 1}, {"planner": turns, SOLVER: max_calls}, turns + max_calls)


_VERIFIED = ("verify", "improve")
SCAFFOLDS: dict[str, Scaffold] = {
    "reasoning-cache": Scaffold(
        reasoning_cache,
        "Think, summarize the thought, and continue from the summary alone.",
        {"iterations": 3},
        ("summarizer",),
        ("./continue-from-summary", "./summarize"),
        _reasoning_cache,
    ),
    "rsa": Scaffold(
        rsa,
        "Recursive self-aggregation: a population of solutions. Each round merges groups of the previous one.",
        {"population": 8, "rounds": 3, "aggregation-size": 3, "pairwise": True},
        ("merger", "selector"),
        ("solve", "merge", "select"),
        _rsa,
    ),
    "deepseek-math": Scaffold(
        deepseek_math,
        "Generate, verify and refine in a growing pool of proofs (DeepSeek-Math-V2).",
        {"pool": 4, "verifications": 4, "reviews-shown": 2, "iterations": 2},
        ("verifier", "improver"),
        ("prove", "evaluate", "refine"),
        _deepseek_math,
    ),
    "nomos": Scaffold(
        nomos,
        "Score many solutions, keep the group that is considered correct, and let it play a tournament.",
        {"solutions": 16, "finalists": 12, "min-perfect": 8},
        ("verifier", "selector"),
        ("score", "consolidate", "compare"),
        _nomos,
    ),
    "selfcheck": Scaffold(
        selfcheck,
        "Improve once, then verify and correct until enough consecutive verifications find nothing (Huang and Yang).",
        {"required-passes": 5, "max-failures": 10, "iterations": 30, "fall-back-to-best": True},
        ("verifier", "improver"),
        ("rigor", "review", "verify", "is-accepted", "correct"),
        _selfcheck,
    ),
    "graph": Scaffold(
        graph,
        "Branches that solve, verify and improve; each is merged, and one of them chosen.",
        {"approaches": 0, "unguided": 4, "solutions": 2, "verifications": 1, "merge": True},
        ("planner", "verifier", "improver", "merger", "selector"),
        ("approaches", "solve", "solve-with-approach", *_VERIFIED, "merge", "select"),
        _graph,
    ),
    "planner": Scaffold(
        planning.planner,
        "A planner that decides, call by call, which tool works on the problem next.",
        {"max-calls": 15, "solutions": 4, "approaches": 4},
        ("planner", "verifier", "improver", "merger", "selector"),
        ("plan", "approaches", "solve", "solve-with-approach", *_VERIFIED, "merge", "select"),
        _planner,
    ),
}


@dataclass(frozen=True)
class ScaffoldChoice:
    """A scaffold of an entry: its settings with defaults filled in, its roles, and replaced prompts."""

    name: str
    settings: Mapping[str, int | bool]
    roles: Mapping[str, "str | ScaffoldChoice"]
    prompts: Mapping[str, str] = field(default_factory=dict)

    @property
    def scaffold(self) -> Scaffold:
        """The scaffold of this name."""
        return SCAFFOLDS[self.name]

    @property
    def arguments(self) -> dict[str, int | bool]:
        """The settings as keyword arguments."""
        return {name.replace("-", "_"): value for name, value in self.settings.items()}

    def run(self, play: ScaffoldRun) -> Dialogue:
        """Run the scaffold and return its ending."""
        return self.scaffold.run(play, **self.arguments)

    def players(self, model: str, player: Callable[[str], Player]) -> dict[str, Player | Nested]:
        """Return the player of each role. `player` builds one from a model; `model` is that of the entry."""
        playing: dict[str, Player | Nested] = {}
        for role in (SOLVER, *self.scaffold.roles):
            who = self.roles.get(role, model)
            if isinstance(who, str):
                playing[role] = player(who)
            else:
                playing[role] = Nested(who.run, who.players(model, player), who.prompts)
        return playing

    def all(self) -> Iterator["ScaffoldChoice"]:
        """Yield this scaffold and those in its roles, at any depth."""
        yield self
        for who in self.roles.values():
            if isinstance(who, ScaffoldChoice):
                yield from who.all()

    def prompt_names(self) -> list[str]:
        """Return the names of all prompts, at any depth."""
        return [one.prompts.get(part, prompt_name(part)) for one in self.all() for part in one.scaffold.prompts]

    def models(self, model: str) -> list[str]:
        """Return the models that play, at any depth; `model` is that of the entry."""
        return list(self.calls(model)[1])

    def calls(self, model: str) -> tuple[Counter, Counter, int]:
        """Return the least and the most calls of each model in one play, and the most sequential calls."""
        counts = self.scaffold.calls(**self.arguments)
        least: Counter[str] = Counter()
        most: Counter[str] = Counter()
        deepest = 1
        for role, number in counts.most.items():
            who = self.roles.get(role, model)
            some, many, depth = ({who: 1}, {who: 1}, 1) if isinstance(who, str) else who.calls(model)
            deepest = max(deepest, depth if number else 1)
            least.update({name: n * counts.least.get(role, 0) for name, n in some.items()})
            most.update({name: n * number for name, n in many.items()})
        return least, Counter({name: n for name, n in most.items() if n}), counts.depth * deepest


# -------------------------------------------------------------------------------------------------- the configuration


def chosen(config: str | Mapping[str, Any] | None) -> ScaffoldChoice:
    """Return the scaffold that an entry names. Raises ValueError with the first fault, as the end of a sentence."""
    given: dict[str, Any] = dict(config) if isinstance(config, Mapping) else {"name": config}
    name = given.get("name")
    if name not in SCAFFOLDS:
        raise ValueError(f"names `{name}`; expected one of {among(str(name), SCAFFOLDS)}")
    scaffold = SCAFFOLDS[name]
    if unknown := set(map(str, given)) - {*KEYS, *scaffold.settings}:
        key = min(unknown)
        raise ValueError(
            f"`{name}` has the unknown setting `{key}`; expected some of {among(key, [*scaffold.settings, 'roles', 'prompts'])}"
        )
    settings = {
        key: _setting(name, key, given.get(key, default), default) for key, default in scaffold.settings.items()
    }
    parts = tuple(part.removeprefix("./") for part in scaffold.prompts)
    roles, prompts = (_mapping(name, key, given.get(key)) for key in ("roles", "prompts"))
    for key, known, words in (("roles", roles, (SOLVER, *scaffold.roles)), ("prompts", prompts, parts)):
        if unknown := set(known) - set(words):
            raise ValueError(
                f"`{name}` has `{key}` for `{min(unknown)}`; expected some of {among(min(unknown), words)}"
            )
    for part, prompt in prompts.items():
        if fault := templates.fault(prompt):
            raise ValueError(f"`{name}`: the prompt `{part}` {fault}")
    own = {full: prompts[part] for full, part in zip(scaffold.prompts, parts, strict=True) if part in prompts}
    return ScaffoldChoice(name, settings, {role: _who(name, role, who) for role, who in roles.items()}, own)


def fault(config: str | Mapping[str, Any] | None) -> str | None:
    """Return the first fault of a scaffold in the configuration; None if it is valid."""
    try:
        chosen(config)
    except ValueError as error:
        return str(error)
    return None


def _who(name: str, role: str, who: Any) -> "str | ScaffoldChoice":
    if isinstance(who, Mapping):
        return chosen(who)
    if isinstance(who, str):
        return chosen(who) if who in SCAFFOLDS else who
    raise ValueError(f"`{name}`: the role `{role}` is {who!r}; expected a model, or a scaffold with its `name`.")


def _mapping(name: str, key: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"`{name}` has `{key}: {value!r}`; expected a mapping.")
    return value


def _setting(name: str, key: str, value: Any, default: int | bool) -> int | bool:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"`{name}` has `{key}: {value!r}`; expected true or false.")
    elif type(value) is not int or value < min(default, 1):
        raise ValueError(f"`{name}` has `{key}: {value!r}`; expected a whole number of at least {min(default, 1)}.")
    return value
