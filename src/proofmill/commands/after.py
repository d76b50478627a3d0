"""Commands after a run: what came out, where it is from, what differs, what was learned."""

import argparse
from pathlib import Path
from typing import Any

from proofmill.commands.book import CONFIGFILE, book_of, is_artifact
from proofmill.runtime.progress import say
from proofmill.schema.errors import SettingError
from proofmill.training.advantages import SCALES


def add(commands: Any) -> dict[argparse.ArgumentParser, Any]:
    """Each command's parser with the function that runs it."""
    seen = commands.add_parser("show", help="what finished tables say: pages, an artifact's facts, its rows")
    seen.add_argument("targets", nargs="*", help="a recipe or <kind>/<name>; the first recipe without one")
    seen.add_argument("--row", metavar="ID", help="of one artifact: the row with this id, or whose id begins so, whole")
    seen.add_argument(
        "--where", metavar="EXPR", help="rows of which this is true, in SQL: \"grade < 3 AND reason = 'ok'\""
    )
    seen.add_argument("--columns", nargs="+", default=[], help="these columns of the rows")
    seen.add_argument("--rows", type=int, metavar="N", help="how many rows at most; 10 with --where or --columns")
    seen.add_argument("--json", action="store_true", help="for programs")
    seen.add_argument("--configfile", **CONFIGFILE)
    viewed = commands.add_parser(
        "view", help="a web page on this machine: recipes, tables, problems, marks of your own"
    )
    viewed.add_argument("--port", type=int, default=0, help="of the loopback; any free one without it")
    viewed.add_argument("--configfile", **CONFIGFILE)
    reported = commands.add_parser(
        "report", help="one HTML file about a recipe: marks, data, trainings, samples, settings"
    )
    reported.add_argument("recipe", nargs="?", help="the first one without it")
    reported.add_argument("--out", type=Path, help="the file; <recipe>.html without it")
    reported.add_argument("--configfile", **CONFIGFILE)
    traced = commands.add_parser(
        "why", help="why an artifact would be made again, or where one of its rows comes from, back to its source"
    )
    traced.add_argument("name", help="<kind>/<name>")
    traced.add_argument("--row", metavar="ID", help="the id of a row, or its beginning; of scores its number")
    traced.add_argument("--configfile", **CONFIGFILE)
    compared = commands.add_parser(
        "diff", help="what differs between two artifacts, or between one in two folders of results"
    )
    compared.add_argument("one", help="<kind>/<name>")
    compared.add_argument("other", nargs="?", help="<kind>/<name>; the same name in the folder of --with without one")
    compared.add_argument("--with", dest="beside", type=Path, metavar="RESULTS", help="where the other one stands")
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
    drawn.add_argument(
        "names", nargs="+", help="sft/<name>, grpo/<name> or selfplay/<name>; or scores/<name>: marks by spending"
    )
    drawn.add_argument("--measures", nargs="+", default=[], help="these, one panel each; the usual ones without it")
    drawn.add_argument(
        "--smooth", type=float, default=0.9, help="how much of the past a point holds; 0 smooths nothing"
    )
    drawn.add_argument("--out", type=Path, default=Path("curves.svg"), help="the picture")
    return {seen: show, viewed: view, reported: report, traced: why, compared: diff, replayed: replay, drawn: curves}


def show(options: argparse.Namespace) -> None:
    names = options.targets
    asked = options.row or options.where or options.columns or options.rows is not None or options.json
    if len(names) == 1 and is_artifact(names[0]):
        return _show_one(options)
    if asked:
        raise SettingError(f"show {' '.join(names)}: rows are of one artifact; expected one <kind>/<name>.")
    from proofmill.inspect.show import shown

    if not names or not all(map(is_artifact, names)):
        book = book_of(options)
        names = [name for target in names or [next(iter(book.recipes))] for name in book.targeted(target)]
    print("\n".join(shown(names, options.results)))


def _show_one(options: argparse.Namespace) -> None:
    from proofmill.artifacts.tables import Table
    from proofmill.inspect import reading

    table = Table(options.targets[0], options.results)
    wanted = options.row or options.where or options.columns or options.rows is not None
    most = reading.ROWS if options.rows is None else options.rows
    found = reading.rows(table, options.row, options.where, options.columns, most) if wanted else None
    if options.json:
        return print(reading.as_json(table, found))
    if found is None:
        from proofmill.inspect.show import shown

        print(
            "\n".join([*(reading.facts(table) if table.path.exists() else ()), *shown([table.name], options.results)])
        )
    elif options.row:
        print("\n".join(reading.as_page(found.to_dicts()[0])))
    else:
        print(reading.as_table(found))


def view(options: argparse.Namespace) -> None:
    from proofmill.viewer import serving

    serving.serve(options.configfile, options.results, options.port)


def report(options: argparse.Namespace) -> None:
    from proofmill.viewer import report as reports

    book = book_of(options)
    recipe = options.recipe or next(iter(book.recipes))
    out = options.out or Path(f"{recipe}.html")
    out.write_text(reports.written(book, recipe, options.results), encoding="utf-8")
    say("report", f"is in {out}")


def why(options: argparse.Namespace) -> None:
    if options.row is not None:
        from proofmill.inspect import lineage

        return print("\n".join(lineage.lines(lineage.trail(options.name, options.row, options.results))))
    from proofmill.inspect import reasons

    print("\n".join(reasons.lines(book_of(options), options.name, options.results)))


def diff(options: argparse.Namespace) -> None:
    from proofmill.artifacts.tables import Table
    from proofmill.inspect import differences

    if options.other is None and options.beside is None:
        raise SettingError(f"diff {options.one}: expected another artifact, or --with another folder of results.")
    other = Table(options.other or options.one, options.beside or options.results)
    print("\n".join(differences.lines(Table(options.one, options.results), other)))


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
    drawing.draw(options.names, options.results, options.out, options.measures, options.smooth)
    say("curves", f"are in {options.out}")
