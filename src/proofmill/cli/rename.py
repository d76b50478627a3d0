"""`proofmill rename`: give an artifact's model outputs to its new name."""

import argparse

from proofmill.runtime.progress import log
from proofmill.schema.errors import SettingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rename`."""
    parser.add_argument("old", help="old <kind>/<name>")
    parser.add_argument("new", help="new <kind>/<name>")


def run(options: argparse.Namespace) -> None:
    """Move the journal of an artifact to its new name. Raises SettingError for names that are equal, invalid or of two kinds."""
    from proofmill.artifacts.tables import Table
    from proofmill.calls import merging
    from proofmill.schema.kinds import KINDS
    from proofmill.schema.names import ARTIFACT, file_fault, kind_of

    if kind_of(options.old) != kind_of(options.new) or kind_of(options.new) not in KINDS:
        raise SettingError(
            f"{options.old} and {options.new}: expected two names of one kind, such as grades/a and grades/b."
        )
    for name in (options.old, options.new):
        if not ARTIFACT.match(name):
            raise SettingError(
                f"{name}: is no artifact's name; expected <kind>/<name> of small letters, digits, `.` and `-`. Correct it."
            )
        if fault := file_fault(name):
            raise SettingError(f"{name}: {fault}")
    if options.old == options.new:
        raise SettingError(f"{options.new}: is both the old and the new name; expected two. Change one.")
    old, new = (Table(name, options.results).calls for name in (options.old, options.new))
    log(options.new, f"has {merging.move(old, new):,} model outputs now, including those of {options.old}")
