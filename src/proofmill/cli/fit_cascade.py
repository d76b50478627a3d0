"""`proofmill fit-cascade`: choose the cascade of graders with the lowest cost at a bound on the error."""

import argparse

from proofmill.cli.config_options import add_configfile
from proofmill.schema.errors import SettingError
from proofmill.schema.names import kind_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fit-cascade`."""
    parser.add_argument(
        "names",
        nargs="+",
        metavar="GRADES",
        help="grades/<name> of the same responses, the least expensive grader first",
    )
    parser.add_argument("--gold", metavar="GRADES", help="grades/<name> with the gold grades (default: the last table)")
    parser.add_argument(
        "--error", type=float, default=0.05, help="highest mean error, as a share of the points (default: 0.05)"
    )
    parser.add_argument("--confidence", type=float, default=0.95, help="confidence of the bound (default: 0.95)")
    parser.add_argument("--name", default="grader/cascade", help="name of the entry to print (default: grader/cascade)")
    parser.add_argument(
        "--realized",
        nargs=2,
        default=[],
        metavar=("GRADES", "GOLD"),
        help="grades/<name> of other responses by this cascade, and their gold grades: compare with the forecast",
    )
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Print the graders' errors and costs, the cascade's, and its entry."""
    from proofmill.analysis import cascades
    from proofmill.artifacts.tables import Table

    if len(options.names) < 2:
        raise SettingError("fit-cascade: expected at least two tables of grades. Name the graders to combine.")
    for name in (*options.names, options.gold, *options.realized):
        if name and kind_of(name) != "grades":
            raise SettingError(f"fit-cascade: `{name}` is no table of grades; expected grades/<name>. Name one.")
    if not 0 < options.error < 1 or not 0.5 < options.confidence < 1:
        raise SettingError(
            f"fit-cascade: found --error {options.error:g} and --confidence {options.confidence:g}; expected an error between 0 and 1, and a confidence between 0.5 and 1."
        )
    if kind_of(options.name) != "grader":
        raise SettingError(f"fit-cascade: --name is `{options.name}`; expected grader/<name>.")
    gold = Table(options.gold, options.results) if options.gold else None
    tables = [Table(name, options.results) for name in options.names]
    fit = cascades.fit(tables, gold, options.error, options.confidence, options.name)
    print("\n".join(cascades.lines(fit, options.error, options.confidence)))
    if options.realized:
        realized, truth = (Table(name, options.results) for name in options.realized)
        print("\n".join(["", *cascades.compare_realized(fit, realized, truth, options.confidence)]))
