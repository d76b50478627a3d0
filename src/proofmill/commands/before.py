"""Commands before a run: a folder of one's own, data, the plan, whether everything answers, the manual."""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from proofmill.commands.book import CONFIGFILE, book_of, is_artifact
from proofmill.runtime.progress import say
from proofmill.schema.errors import SettingError


def add(commands: Any) -> dict[argparse.ArgumentParser, Any]:
    """Each command's parser with the function that runs it."""
    begun = commands.add_parser(
        "init", help="write a folder of your own: a recipe, data, a reward, .env; it runs in a minute"
    )
    begun.add_argument("folder", type=Path, help="a new folder")
    planned = commands.add_parser("plan", help="what a target would make, why, and what it would cost")
    planned.add_argument(
        "target", nargs="?", help="a recipe, <kind>/<name> or a table's path; the first recipe without one"
    )
    planned.add_argument("--configfile", **CONFIGFILE)
    planned.add_argument("--verbose", action="store_true", help="all that is known of each stage, of finished ones too")
    planned.add_argument(
        "--machine",
        metavar="NAME",
        help="whether it fits: 8xH100, 2x8xH200, 4x48GB, cpu; exit code 1 where it does not",
    )
    planned.add_argument(
        "--fill",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="for the hours of --machine: the mean length of texts as a share of the longest allowed; 1 without it",
    )
    planned.add_argument("--json", action="store_true", help="for programs")
    fetched = commands.add_parser(
        "fetch", help="bring the public data and models that a target needs and that are missing"
    )
    fetched.add_argument("targets", nargs="*", help="recipes, <kind>/<name> or tables; the first recipe without one")
    fetched.add_argument(
        "--list", action="store_true", help="only say what is needed, its size and licence, and where it is"
    )
    fetched.add_argument("--configfile", **CONFIGFILE)
    checked = commands.add_parser(
        "check", help="whether the servers that targets ask answer, and whether results are what was written"
    )
    checked.add_argument(
        "targets", nargs="*", help="recipes or <kind>/<name>; everything in results, and no server, without one"
    )
    checked.add_argument("--configfile", **CONFIGFILE)
    checked.add_argument("--deep", action="store_true", help="read every byte of tables, weights and kept copies")
    attacked = commands.add_parser(
        "attack", help="what cheap policies (no answer, guesses, tags of verdicts, ...) earn from a grader"
    )
    attacked.add_argument(
        "name", metavar="ENTRY", help="grpo/<name>, grades/<name>, scores/<name>; or a grader, api/<name> or a program"
    )
    attacked.add_argument("--problems", metavar="NAME", help="problems/<name>; those of the entry without it")
    attacked.add_argument("--schemes", metavar="NAME", help="schemes/<name>; those of the entry without it")
    attacked.add_argument("--prompt", metavar="NAME", help="the rubric of an api/<name> that is asked alone")
    attacked.add_argument(
        "--rows", type=int, default=8, metavar="N", help="how many problems of each table; 8 without it"
    )
    attacked.add_argument(
        "--yes", action="store_true", help="ask, whatever it costs; without it only what costs nothing"
    )
    attacked.add_argument("--configfile", **CONFIGFILE)
    paged = commands.add_parser(
        "manual", help="the page of a kind: fields, columns, and what it can name, your parts too"
    )
    paged.add_argument("page", nargs="?", help="a kind, `api`, `grader` or `reasons`")
    paged.add_argument(
        "--schema", action="store_true", help="instead of a page: the JSON Schema of configuration files, for editors"
    )
    paged.add_argument("--configfile", **CONFIGFILE)
    return {begun: init, planned: plan, fetched: fetch, checked: check, attacked: attack, paged: manual}


def init(options: argparse.Namespace) -> None:
    from proofmill.recipes import starter

    starter.write(options.folder)
    print(
        f"{options.folder}: config.yaml is a recipe of your own; `cd {options.folder}` and `snakemake` runs it in a minute"
    )


def plan(options: argparse.Namespace) -> None:
    from proofmill.planning.plan import planned

    result = planned(options.target, options.configfile, options.results)
    if options.machine:
        return fit(result, options)
    if options.json:
        print(json.dumps(result.data(), indent=2, ensure_ascii=False))
    else:
        verbose = options.verbose or (options.target is not None and is_artifact(options.target))
        print("\n".join(result.lines(verbose, shutil.get_terminal_size((120, 0)).columns)))


def fit(planned: Any, options: argparse.Namespace) -> None:
    """Say whether what would be made fits a machine; exit code 1 where something does not."""
    from proofmill.planning.feasibility import Feasibility
    from proofmill.planning.machines import machine

    if not 0 < options.fill <= 1:
        raise SettingError(f"--fill {options.fill:g}; expected a share above 0 and up to 1.")
    whole = Feasibility(planned, machine(options.machine), options.fill)
    print(json.dumps(whole.data(), indent=2, ensure_ascii=False) if options.json else "\n".join(whole.lines()))
    if not whole.fits:
        sys.exit(1)


def fetch(options: argparse.Namespace) -> None:
    from proofmill.planning import data

    book = book_of(options)
    needed = data.needed(book, data.artifacts(book, options.targets or [next(iter(book.recipes))]))
    if options.list:
        print("\n".join(data.lines(needed)))
    else:
        data.fetch(needed)


def check(options: argparse.Namespace) -> None:
    from proofmill.planning.check import checked

    book = book_of(options) if options.targets and Path("config.yaml").exists() else None
    whole = True
    for fault in checked(options.targets, book, options.results, options.deep):
        whole = False
        print(fault, flush=True)
    if not whole:
        sys.exit(1)
    say("check", "nothing is damaged")


def attack(options: argparse.Namespace) -> None:
    from proofmill.planning import attacks
    from proofmill.recipes import plugins

    if options.rows < 1:
        raise SettingError(f"--rows {options.rows}; expected at least one problem.")
    book = book_of(options)
    aim = attacks.aim_at(book, options.name, options.problems, options.schemes, options.prompt)
    with plugins.blamed():
        assault = attacks.Assault(book, aim, options.results, options.rows)
        say(options.name, assault.plan())
        if assault.costs and not options.yes:
            say(options.name, "nobody was asked: `--yes` asks")
            return
        print("\n".join(attacks.lines(assault, assault.earned())))


def manual(options: argparse.Namespace) -> None:
    from proofmill.recipes import config_schema, yaml_files
    from proofmill.recipes.book import expand
    from proofmill.text.suggestions import among

    expand(yaml_files.read("config.yaml", *options.configfile))  # puts the user's parts beside ours
    if options.schema:
        return print(config_schema.text(), end="")
    from proofmill.recipes import manual as manuals

    pages = {name.removesuffix(".md"): text for name, text in manuals.pages().items()}
    if options.page not in pages:
        raise SettingError(f"manual {options.page}: no such page; expected one of {among(str(options.page), pages)}")
    print(pages[options.page], end="")
