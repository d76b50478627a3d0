"""`proofmill attack`: test a grader with attacks."""

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from proofmill.cli.config_options import add_configfile, read_config
from proofmill.runtime.progress import log
from proofmill.schema.errors import SettingError
from proofmill.schema.ids import digest

if TYPE_CHECKING:
    from proofmill.config.config import Config
    from proofmill.graders.robustness import AttackResult
    from proofmill.planning.attack_plan import AttackPlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `attack`."""
    parser.add_argument(
        "name",
        metavar="ENTRY",
        nargs="?",
        help="grpo/<name>, grades/<name> or scores/<name>; or a grader: api/<name> or a program",
    )
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--reward", metavar="MODULE:FUNCTION", help="instead: a reward function as trainers call it")
    other.add_argument("--task", metavar="TASK", help="instead: a task of inspect_ai, package/task or FILE.py@task")
    other.add_argument("--endpoint", metavar="URL", help="instead: a judge behind the OpenAI protocol, with --model")
    parser.add_argument("--model", metavar="ID", help="model id of --endpoint; its key is in PROOFMILL_ENDPOINT_KEY")
    parser.add_argument("--python", metavar="PATH", help="interpreter of --reward (default: this one)")
    parser.add_argument("--texts", action="store_true", help="call --reward with texts instead of conversations")
    parser.add_argument(
        "--problems",
        metavar="NAME",
        help="problems/<name>, or a file for --reward (default: those of the entry, or eight of ours)",
    )
    parser.add_argument("--schemes", metavar="NAME", help="schemes/<name> (default: those of the entry)")
    parser.add_argument("--grader-prompt", metavar="NAME", help="the rubric for a grader api/<name>")
    parser.add_argument("--rows", type=int, default=8, metavar="N", help="problems per table (default: 8)")
    parser.add_argument("--yes", action="store_true", help="run although calls cost money (default: run only if free)")
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Print the attacks and their cost, then run them and print what they earned."""
    from proofmill.config import plugins
    from proofmill.planning.attack_plan import AttackPlan, aim_at

    if options.rows < 1:
        raise SettingError(f"--rows {options.rows}; expected at least one problem.")
    if sum(map(bool, (options.name, options.reward, options.task, options.endpoint))) != 1:
        raise SettingError("attack: expected an entry or grader, or one of --reward, --task and --endpoint. Name one.")
    if options.reward or options.task:
        print("\n".join(_foreign_lines(options)))
        return
    config = read_config(options)
    if options.endpoint:
        config = _declare_endpoint(config, options)
    aim = aim_at(config, options.name, options.problems, options.schemes, options.grader_prompt)
    if options.endpoint:  # each address has a journal of its own, since models behind two may have one id
        aim = replace(aim, name=f"{aim.name}-{digest(options.endpoint.rstrip('/'))}")
    with plugins.blamed():
        plan = AttackPlan(config, aim, options.results, options.rows)
        log(options.name, plan.summary())
        if plan.costs and not options.yes:
            log(options.name, "made no calls, because they cost money; add --yes to run")
            return
        print("\n".join(_lines(plan, run_attacks(plan))))


def _foreign_lines(options: argparse.Namespace) -> Iterator[str]:
    """Yield what attacks earn from a grader of others."""
    from proofmill.graders import foreign_graders, robustness

    if options.reward:
        problems = Path(options.problems) if options.problems else None
        results = foreign_graders.attack_reward(
            options.reward, options.python, problems, options.rows, not options.texts
        )
    else:
        path, _, name = options.task.rpartition("@")
        results = foreign_graders.attack_task(name, Path(path) if path else None, options.rows)
    yield options.reward or options.task
    yield from robustness.lines(results)


def _declare_endpoint(config: "Config", options: argparse.Namespace) -> "Config":
    """Return the configuration with the judge at --endpoint as `api/endpoint`, and make it the grader."""
    from proofmill.schema.entries.declared import Api

    if not options.model:
        raise SettingError("--endpoint: expected --model with the id that the server knows. Set it.")
    os.environ["PROOFMILL_ENDPOINT_URL"] = options.endpoint
    options.name = "api/endpoint"
    return replace(config, declared={**config.declared, options.name: Api(id=options.model, price="unknown")})


def run_attacks(plan: "AttackPlan") -> list["AttackResult"]:
    """Grade the attack texts, and return what each attack earned. Outputs go to the plan's journal."""
    from proofmill.engines.open_engine import asking_for
    from proofmill.graders import robustness

    with asking_for(plan.job, plan.submission_grader):
        verdicts = plan.submission_grader.verdicts(robustness.submissions(plan.attempts))
        return robustness.sum_points(plan.attempts, verdicts)


def _lines(plan: "AttackPlan", results: Sequence["AttackResult"]) -> Iterator[str]:
    """Yield the grader and tables, then what each attack earned."""
    from proofmill.graders import robustness

    tables = ", ".join(f"{problems}{f' by {schemes}' if schemes else ''}" for problems, schemes in plan.aim.tables)
    prompt = f" with {plan.aim.prompt}" if plan.aim.prompt else ""
    yield f"{plan.aim.grader}{prompt} on {tables}"
    yield from robustness.lines(results)
