"""The command `proofmill`: plan a run, inspect, check, rename and publish its results. Snakemake runs the stages."""

import argparse
import json
import sys
from pathlib import Path

from proofmill.artifacts.tables import Table
from proofmill.calls import journal
from proofmill.runtime.progress import say
from proofmill.schema.errors import ProofmillError, SettingError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of
from proofmill.training.advantages import SCALES


def main() -> None:
    parser = argparse.ArgumentParser(prog="proofmill", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    planned = commands.add_parser("plan", help="what a target would make, why, and what it would cost")
    planned.add_argument(
        "target", nargs="?", help="a recipe, <kind>/<name> or a table's path; the first recipe without one"
    )
    planned.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
    planned.add_argument("--json", action="store_true", help="for programs")
    fetched = commands.add_parser(
        "fetch", help="bring the public data and models that a target needs and that are missing"
    )
    fetched.add_argument("targets", nargs="*", help="recipes, <kind>/<name> or tables; the first recipe without one")
    fetched.add_argument(
        "--list", action="store_true", help="only say what is needed, its size and licence, and where it is"
    )
    fetched.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
    adopted = commands.add_parser("adopt", help="move the answers of an artifact that was renamed to its new name")
    adopted.add_argument("old", help="<kind>/<name> as it was")
    adopted.add_argument("new", help="<kind>/<name> as it is")
    replayed = commands.add_parser(
        "replay", help="what a finished run's rollouts would have earned under other rewards"
    )
    replayed.add_argument("name", help="grpo/<name>, whose rollouts stand in results")
    replayed.add_argument(
        "--rewards", help="these and no others, as in an entry: `{grade: 1, overlong: {weight: 1, buffer: 64}}`"
    )
    replayed.add_argument("--grades", help="grades/<name> of the rollouts, by another scheme or judge")
    replayed.add_argument("--scale", choices=SCALES, help="what advantages are divided by the deviation of")
    replayed.add_argument("--unscored", choices=["drop", "zero"], help="what an attempt without a verdict counts")
    replayed.add_argument(
        "--out", type=Path, help="a new Parquet file for the rollouts with their new rewards and advantages"
    )
    drawn = commands.add_parser("curves", help="draw what was measured while training, several trainings side by side")
    drawn.add_argument("names", nargs="+", help="sft/<name> or grpo/<name>")
    drawn.add_argument("--measures", nargs="+", default=[], help="these, one panel each; the usual ones without it")
    drawn.add_argument(
        "--smooth", type=float, default=0.9, help="how much of the past a point holds; 0 smooths nothing"
    )
    drawn.add_argument("--out", type=Path, default=Path("curves.svg"), help="the picture")
    published = commands.add_parser("publish", help="push the tables and models of a finished recipe to the hub")
    published.add_argument(
        "recipes", nargs="+", metavar="recipe", help="a finished recipe, or several that go together"
    )
    published.add_argument("--to", required=True, help="NAMESPACE/PREFIX of the repositories")
    published.add_argument("--only", nargs="+", default=[], help="these artifacts of the recipe, <kind>/<name>")
    published.add_argument("--private", action="store_true", help="of repositories that are not there yet")
    published.add_argument("--dry-run", type=Path, metavar="FOLDER", help="write the files there and send nothing")
    published.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
    paged = commands.add_parser(
        "manual", help="the page of a kind: fields, columns, and what it can name, your parts too"
    )
    paged.add_argument("page", help="a kind, `api`, `grader` or `reasons`")
    paged.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
    checked = commands.add_parser("check", help="whether results are what was written, and what to do with what is not")
    checked.add_argument("names", nargs="*", help="<kind>/<name>; everything in results without one")
    checked.add_argument("--deep", action="store_true", help="read every byte of tables, weights and kept copies")
    runs = {
        planned: plan,
        fetched: fetch,
        adopted: adopt,
        replayed: replay,
        drawn: curves,
        published: publish,
        paged: manual,
        checked: check,
    }
    for command, run in runs.items():
        command.set_defaults(run=run)
        command.add_argument("--results", type=Path, default=Path("results"), help="where tables stand")
    options = parser.parse_args()
    try:
        options.run(options)
    except ProofmillError as error:
        sys.exit(f"{type(error).__name__}: {error}")


def plan(options: argparse.Namespace) -> None:
    from proofmill.inspect.plan import planned

    result = planned(options.target, options.configfile, options.results)
    if options.json:
        print(json.dumps(result.data(), indent=2, ensure_ascii=False))
    else:
        print("\n".join(result.lines()))


def fetch(options: argparse.Namespace) -> None:
    from proofmill.inspect import data
    from proofmill.recipes import yaml_files
    from proofmill.recipes.book import expand

    book = expand(yaml_files.read("config.yaml", *options.configfile))
    needed = data.needed(book, data.artifacts(book, options.targets or [next(iter(book.recipes))]))
    if options.list:
        print("\n".join(data.lines(needed)))
    else:
        data.fetch(needed)


def replay(options: argparse.Namespace) -> None:
    from proofmill.inspect import replay as replays

    if options.out:
        replays.require_absent(options.out)
    result = replays.replayed(
        options.name, options.results, options.rewards, options.grades, options.scale, options.unscored
    )
    print("\n".join(result.lines()))
    if options.out:
        result.write(options.out)
        say(options.name, f"rollouts with new rewards and advantages are in {options.out}")


def curves(options: argparse.Namespace) -> None:
    from proofmill.inspect import curves as drawing

    if not 0 <= options.smooth < 1:
        raise SettingError(f"--smooth {options.smooth:g}; expected 0 (nothing is smoothed) to less than 1.")
    drawing.draw(drawing.read(options.names, options.results, options.measures), options.out, options.smooth)
    say("curves", f"are in {options.out}")


def manual(options: argparse.Namespace) -> None:
    from proofmill.recipes import manual as manuals
    from proofmill.recipes import yaml_files
    from proofmill.recipes.book import expand
    from proofmill.text.suggestions import among

    expand(yaml_files.read("config.yaml", *options.configfile))  # puts the user's parts beside ours
    pages = {name.removesuffix(".md"): text for name, text in manuals.pages().items()}
    if options.page not in pages:
        raise SettingError(f"manual {options.page}: no such page; expected one of {among(options.page, pages)}")
    print(pages[options.page], end="")


def adopt(options: argparse.Namespace) -> None:
    if kind_of(options.old) != kind_of(options.new) or kind_of(options.new) not in KINDS:
        raise SettingError(
            f"{options.old} and {options.new}: expected two names of one kind, such as grades/a and grades/b."
        )
    old, new = (Table(name, options.results).calls for name in (options.old, options.new))
    say(options.new, f"has {journal.adopt(old, new):,} answers now, those of {options.old} among them")


def check(options: argparse.Namespace) -> None:
    from proofmill.inspect.check import damaged

    whole = True
    for error in damaged(options.names, options.results, options.deep):
        whole = False
        print(error, flush=True)
    if not whole:
        sys.exit(1)
    say("check", "nothing is damaged")


def publish(options: argparse.Namespace) -> None:
    from proofmill.publishing import hub
    from proofmill.recipes import yaml_files
    from proofmill.recipes.book import expand

    book = expand(yaml_files.read("config.yaml", *options.configfile))
    chosen = {"only": options.only, "private": options.private, "folder": options.dry_run}
    hub.publish(book, options.recipes, options.to, options.results, **chosen)


if __name__ == "__main__":
    main()
