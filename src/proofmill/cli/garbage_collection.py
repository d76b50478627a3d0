"""`proofmill gc`: list or delete files that no recipe needs."""

import argparse

from proofmill.cli.config_options import add_configfile, add_json, print_result, read_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `gc`."""
    parser.add_argument("--delete", action="store_true", help="delete the files")
    parser.add_argument(
        "--journals", action="store_true", help="include journals of artifacts in no recipe: paid model outputs"
    )
    parser.add_argument(
        "--forget",
        metavar="CONFIGURATION",
        help="delete no file, but remove the record of this other configuration: its files then count as unneeded",
    )
    add_json(parser)
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """List the files that can go; with `--delete`, delete them."""
    from proofmill.artifacts import configurations
    from proofmill.artifacts.maintenance import garbage

    files = ["config.yaml", *options.configfile]
    if options.forget:
        configurations.forget(options.results, files, options.forget)
        return print_result(options, {"forgotten": options.forget}, [f"forgotten: {options.forget}"])
    sorts = garbage.SORTS if options.journals else garbage.SORTS[:-1]
    config = read_config(options, drafts=False)
    others = list(configurations.others(options.results, files))
    unused = garbage.find_unused(config, options.results, sorts, others)
    held = garbage.list_held_by_others(config, options.results, sorts, others)
    report = garbage.report(unused, options.delete, held)  # before deleting: it has the sizes
    if options.delete:
        garbage.delete(unused)
    print_result(options, report, garbage.lines(report))
