"""`proofmill attack`: test a grader with attacks."""

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from proofmill.cli.config_options import add_configfile, read_config
from proofmill.runtime.progress import log
from proofmill.schema.errors import SettingError

if TYPE_CHECKING:
    from proofmill.graders.robustness import AttackResult
    from proofmill.planning.attack_plan import AttackPlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `attack`."""
    parser.add_argument(
        "name",
        metavar="ENTRY",
        help="grpo/<name>, grades/<name> or scores/<name>; or a grader: api/<name> or a program",
    )
    parser.add_argument("--problems", metavar="NAME", help="problems/<name> (default: those of the entry)")
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
    config = read_config(options)
    aim = aim_at(config, options.name, options.problems, options.schemes, options.grader_prompt)
    with plugins.blamed():
        plan = AttackPlan(config, aim, options.results, options.rows)
        log(options.name, plan.summary())
        if plan.costs and not options.yes:
            log(options.name, "made no calls, because they cost money; add --yes to run")
            return
        print("\n".join(_lines(plan, run_attacks(plan))))


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
