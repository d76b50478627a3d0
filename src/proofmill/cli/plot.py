"""`proofmill plot`: draw training metrics and scores."""

import argparse
from pathlib import Path

from proofmill.runtime.progress import log
from proofmill.schema.errors import SettingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `plot`."""
    parser.add_argument(
        "names", nargs="+", help="sft/<name>, grpo/<name>, selfplay/<name>: by step; scores/<name>: by cost or attempts"
    )
    parser.add_argument("--metrics", nargs="+", default=[], help="metrics to draw, one panel each (default: the usual)")
    parser.add_argument(
        "--smoothing", type=float, default=0.6, help="exponential smoothing factor in [0, 1); 0 is off (default: 0.6)"
    )
    parser.add_argument("--out", type=Path, default=Path("curves.svg"), help="the file to write (default: curves.svg)")


def run(options: argparse.Namespace) -> None:
    """Write the plot."""
    from proofmill.viewer.curves import pictures

    if not 0 <= options.smoothing < 1:
        raise SettingError(f"--smoothing {options.smoothing:g}; expected a number in [0, 1).")
    pictures.draw(options.names, options.results, options.out, options.metrics, options.smoothing)
    log("plot", f"is in {options.out}")
