"""Commands that change what is kept: answers of renamed artifacts, answers that are asked again, space, publications."""

import argparse
from pathlib import Path
from typing import Any

from proofmill.commands.book import CONFIGFILE, book_of
from proofmill.runtime.progress import say
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of


def add(commands: Any) -> dict[argparse.ArgumentParser, Any]:
    """Each command's parser with the function that runs it."""
    renamed = commands.add_parser("rename", help="move the answers of an artifact to its new name")
    renamed.add_argument("old", help="<kind>/<name> as it was")
    renamed.add_argument("new", help="<kind>/<name> as it is now")
    asked = commands.add_parser(
        "ask-again",
        help="set answers of a stage aside, as when its judge was mended, so that the next run asks them anew",
    )
    asked.add_argument("name", help="<kind>/<name>, whose journal stands in results")
    asked.add_argument(
        "--where",
        nargs="+",
        default=[],
        metavar="COLUMN=VALUE",
        help="these rows; those unscored or dropped without it",
    )
    asked.add_argument("--all", action="store_true", help="all rows")
    asked.add_argument("--configfile", **CONFIGFILE)
    cleared = commands.add_parser(
        "gc", help="what can be deleted from results without losing what a recipe needs, and what that frees"
    )
    cleared.add_argument("--delete", action="store_true", help="delete it")
    cleared.add_argument(
        "--calls", action="store_true", help="journals of artifacts that no recipe has, too: answers that were paid for"
    )
    cleared.add_argument(
        "--forget",
        metavar="CONFIGURATION",
        help="delete nothing; forget what this other configuration declares, so that it can go",
    )
    cleared.add_argument("--configfile", **CONFIGFILE)
    published = commands.add_parser("publish", help="push the tables and models of a finished recipe to the hub")
    published.add_argument(
        "recipes", nargs="+", metavar="recipe", help="a finished recipe, or several that go together"
    )
    published.add_argument("--to", required=True, help="NAMESPACE/PREFIX of the repositories")
    published.add_argument("--only", nargs="+", default=[], help="these artifacts of the recipe, <kind>/<name>")
    published.add_argument("--private", action="store_true", help="of repositories that are not there yet")
    published.add_argument("--dry-run", type=Path, metavar="FOLDER", help="write the files there and send nothing")
    published.add_argument("--configfile", **CONFIGFILE)
    return {renamed: rename, asked: ask_again, cleared: gc, published: publish}


def rename(options: argparse.Namespace) -> None:
    """Move the answers of an artifact to its new name. Raises SettingError for names of two kinds."""
    from proofmill.artifacts.tables import Table
    from proofmill.calls import merging

    if kind_of(options.old) != kind_of(options.new) or kind_of(options.new) not in KINDS:
        raise SettingError(
            f"{options.old} and {options.new}: expected two names of one kind, such as grades/a and grades/b."
        )
    old, new = (Table(name, options.results).calls for name in (options.old, options.new))
    say(options.new, f"has {merging.move(old, new):,} answers now, those of {options.old} among them")


def ask_again(options: argparse.Namespace) -> None:
    from proofmill.artifacts.tables import Table
    from proofmill.inspect.asking_again import ask_again
    from proofmill.text.suggestions import among

    book = book_of(options)
    (name,) = book.targeted(options.name) if options.name not in book.recipes else [options.name]
    asking = [n for n in book.entries if KINDS[kind_of(n)].asks]
    if name not in asking:
        raise SettingError(f"{name}: no recipe declares it, or it asks nobody; expected one of {among(name, asking)}")
    table = Table(name, options.results)
    done = ask_again(book, table, options.where, options.all)
    if not done:
        say(
            name,
            "nothing was set aside: no row is unsettled, or none is as --where says. Name others by --where, or --all",
        )
        return
    rows = "all rows" if done.rows is None else f"{done.rows:,} rows"
    say(name, f"{rows} are asked again by: snakemake {name}")
    say(
        name,
        f"{done.answers:,} old answers stay in {table.calls}, and what they cost in the sum that the budget limits",
    )


def gc(options: argparse.Namespace) -> None:
    from proofmill.artifacts import configurations
    from proofmill.inspect import leftovers

    if options.forget:
        configurations.forget(options.results, options.forget)
        return
    sorts = leftovers.SORTS if options.calls else leftovers.SORTS[:-1]
    book = book_of(options, drafts=False)
    others = list(configurations.others(options.results, ["config.yaml", *options.configfile]))
    found = leftovers.leftovers(book, options.results, sorts, others)
    lines = list(leftovers.lines(found, options.delete))  # the sizes, before they are gone
    for title, names in leftovers.held(book, options.results, sorts, others).items():
        if names:
            lines.append(f"stays for `{title}`: {', '.join(names)}; `proofmill gc --forget '{title}'` gives them up")
    if options.delete:
        leftovers.delete(found)
    print("\n".join(lines))


def publish(options: argparse.Namespace) -> None:
    from proofmill.publishing import hub

    book = book_of(options)
    chosen = {"only": options.only, "private": options.private, "folder": options.dry_run}
    hub.publish(book, options.recipes, options.to, options.results, **chosen)
