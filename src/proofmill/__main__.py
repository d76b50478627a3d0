"""The command `proofmill`: plan a run, inspect, check, rename and publish its results. Snakemake runs the stages."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import proofmill
from proofmill.runtime import environment
from proofmill.runtime.progress import say
from proofmill.schema.errors import ProofmillError, SettingError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of
from proofmill.training.advantages import SCALES

EXAMPLES = {
    "plan": "proofmill plan qed-nano --configfile workflow/rehearsal.yaml",
    "adopt": "proofmill adopt grades/old-name grades/new-name",
    "replay": "proofmill replay grpo/nano --rewards '{grade: 1, overlong: {weight: 1, buffer: 64}}'",
    "curves": "proofmill curves sft/cold grpo/nano --measures loss --out curves.svg",
    "publish": "proofmill publish nano --to my-group/nano --dry-run /tmp/nano",
    "manual": "proofmill manual grpo",
    "fetch": "proofmill fetch qed-nano --list",
    "show": "proofmill show nano",
    "init": "proofmill init mine",
    "ask-again": "proofmill ask-again grades/mine --where reason=unparsable",
    "check": "proofmill check sft/cold grades/sampled --deep",
}


class PrintCompletion(argparse.Action):
    """Prints what makes a shell complete the command's words, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: Any = None) -> None:
        import shtab

        print(shtab.complete(parser, values))
        parser.exit()


def main() -> None:
    options = parser().parse_args()
    try:
        environment.read_file()
        options.results = options.results or _results(getattr(options, "configfile", []))
        options.run(options)
        sys.stdout.flush()
    except ProofmillError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("proofmill"):
            raise
        sys.exit(
            f"proofmill {options.command}: {error.name} is not installed; expected what the stages need. Install it: "
            "pip install 'proofmill[pipeline]', or [cpu] or [gpu], which have vLLM too (docs/library.md)."
        )
    except BrokenPipeError:  # whoever read, as `head` does, has seen enough; nothing is left to flush at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


def parser() -> argparse.ArgumentParser:
    """Every command with its options and an example."""
    parser = argparse.ArgumentParser(
        prog="proofmill", description=__doc__, epilog="`proofmill COMMAND --help` has an example of each."
    )
    parser.add_argument("--version", action="version", version=f"proofmill {proofmill.__version__}")
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=["bash", "zsh", "tcsh"],
        help='what your shell\'s start-up file evaluates to complete this command: eval "$(proofmill --print-completion bash)"',
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
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
    drawn.add_argument("names", nargs="+", help="sft/<name>, grpo/<name> or selfplay/<name>")
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
    paged.add_argument("page", nargs="?", help="a kind, `api`, `grader` or `reasons`")
    paged.add_argument(
        "--schema", action="store_true", help="instead of a page: the JSON Schema of configuration files, for editors"
    )
    paged.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
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
    asked.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
    checked = commands.add_parser(
        "check", help="whether the servers that targets ask answer, and whether results are what was written"
    )
    checked.add_argument(
        "targets", nargs="*", help="recipes or <kind>/<name>; everything in results, and no server, without one"
    )
    checked.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
    checked.add_argument("--deep", action="store_true", help="read every byte of tables, weights and kept copies")
    seen = commands.add_parser("show", help="what a target's finished tables say, and where everything lies")
    seen.add_argument("targets", nargs="*", help="a recipe or <kind>/<name>; the first recipe without one")
    seen.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
    begun = commands.add_parser(
        "init", help="write a folder of your own: a recipe, data, a reward, .env; it runs in a minute"
    )
    begun.add_argument("folder", type=Path, help="a new folder")
    runs = {
        seen: show,
        begun: init,
        planned: plan,
        fetched: fetch,
        adopted: adopt,
        replayed: replay,
        drawn: curves,
        published: publish,
        paged: manual,
        asked: ask_again,
        checked: check,
    }
    for command, run in runs.items():
        command.epilog = f"example: {EXAMPLES[command.prog.split()[-1]]}"
        command.set_defaults(run=run)
        command.add_argument("--results", type=Path, help="where tables stand; `results` of config.yaml without it")
    return parser


def _results(configfiles: Sequence[str]) -> Path:
    """The folder of tables that the configuration names, if there is one here."""
    from proofmill.recipes import yaml_files

    files = [*(["config.yaml"] if Path("config.yaml").exists() else []), *configfiles]
    return Path(yaml_files.read(*files).get("results", "results"))


def _book(options: argparse.Namespace) -> Any:
    """The configuration; what has a mistake is left out of it until it is asked for."""
    from proofmill.recipes import yaml_files
    from proofmill.recipes.book import expand

    return expand(yaml_files.read("config.yaml", *options.configfile), drafts=True)


def show(options: argparse.Namespace) -> None:
    from proofmill.inspect.show import shown

    names = options.targets
    if not all(kind_of(name) in KINDS for name in names) or not names:
        book = _book(options)
        names = [name for target in names or [next(iter(book.recipes))] for name in book.targeted(target)]
    print("\n".join(shown(names, options.results)))


def init(options: argparse.Namespace) -> None:
    from proofmill.recipes import starter

    starter.write(options.folder)
    print(
        f"{options.folder}: config.yaml is a recipe of your own; `cd {options.folder}` and `snakemake` runs it in a minute"
    )


def plan(options: argparse.Namespace) -> None:
    from proofmill.inspect.plan import planned

    result = planned(options.target, options.configfile, options.results)
    if options.json:
        print(json.dumps(result.data(), indent=2, ensure_ascii=False))
    else:
        print("\n".join(result.lines()))


def fetch(options: argparse.Namespace) -> None:
    from proofmill.inspect import data

    book = _book(options)
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


def adopt(options: argparse.Namespace) -> None:
    from proofmill.artifacts.tables import Table
    from proofmill.calls import journal

    if kind_of(options.old) != kind_of(options.new) or kind_of(options.new) not in KINDS:
        raise SettingError(
            f"{options.old} and {options.new}: expected two names of one kind, such as grades/a and grades/b."
        )
    old, new = (Table(name, options.results).calls for name in (options.old, options.new))
    say(options.new, f"has {journal.adopt(old, new):,} answers now, those of {options.old} among them")


def ask_again(options: argparse.Namespace) -> None:
    from proofmill.artifacts.tables import Table
    from proofmill.inspect.asking_again import ask_again
    from proofmill.text.suggestions import among

    book = _book(options)
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


def check(options: argparse.Namespace) -> None:
    from proofmill.inspect.check import checked

    book = _book(options) if options.targets and Path("config.yaml").exists() else None
    whole = True
    for fault in checked(options.targets, book, options.results, options.deep):
        whole = False
        print(fault, flush=True)
    if not whole:
        sys.exit(1)
    say("check", "nothing is damaged")


def publish(options: argparse.Namespace) -> None:
    from proofmill.publishing import hub

    book = _book(options)
    chosen = {"only": options.only, "private": options.private, "folder": options.dry_run}
    hub.publish(book, options.recipes, options.to, options.results, **chosen)


if __name__ == "__main__":
    main()
