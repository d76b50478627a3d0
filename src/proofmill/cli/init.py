"""`proofmill init`: create a project folder, or complete one that has files."""

import argparse
from pathlib import Path

from proofmill.schema.errors import SettingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `init`."""
    parser.add_argument("folder", type=Path, nargs="?", help="the folder to create")
    parser.add_argument("--here", action="store_true", help="add what is missing to this folder; overwrite nothing")


def run(options: argparse.Namespace) -> None:
    """Write the starter project."""
    from proofmill.config import starter

    if (options.folder is None) != options.here:
        raise SettingError("init: found both a folder and --here, or neither; expected one of them. Set one.")
    written, kept = starter.write(options.folder or Path(), options.here)
    if kept := [name for name in kept if not name.startswith("profiles/")]:
        print(f"kept, because they exist: {', '.join(kept)}")
    if options.here and "config.yaml" in written and kept:
        print("If config.yaml does not fit the files that were kept, change it: `proofmill plan` names what differs.")
    print(
        f"{options.folder or 'This folder'}: {len(written)} files were written: "
        f"{', '.join(name for name in written if not name.startswith('profiles/'))} and profiles/. Run "
        f"{'' if options.here else f'`cd {options.folder}`, then '}`proofmill plan` and `snakemake`."
    )
