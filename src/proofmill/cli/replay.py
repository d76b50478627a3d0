"""`proofmill replay`: recompute the rewards of stored rollouts under other settings."""

import argparse
from pathlib import Path

from proofmill.cli.config_options import add_configfile, read_config
from proofmill.runtime.progress import log


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `replay`."""
    parser.add_argument("name", help="grpo/<name>, whose rollouts are in the results folder")
    parser.add_argument(
        "--rewards",
        help="replace all rewards, in the form of an entry: `{grade: 1, overlong: {weight: 1, buffer: 64}}`",
    )
    parser.add_argument("--grades", help="grades/<name> of the rollouts, made with another scheme or judge")
    parser.add_argument(
        "--scale-rewards",
        choices=["group", "batch", "none"],
        help="normalize advantages by the standard deviation of the group, of the batch, or not at all",
    )
    parser.add_argument(
        "--unscored", choices=["drop", "zero"], help="exclude rollouts without a grade, or give them the reward 0"
    )
    parser.add_argument("--out", type=Path, help="write rollouts, new rewards and advantages to a new Parquet file")
    add_configfile(parser)


def run(options: argparse.Namespace) -> None:
    """Print the old and new rewards; with `--out`, write the rollouts."""
    from proofmill.analysis import replay

    if options.out:
        replay.require_absent(options.out)
    if Path("config.yaml").exists():
        read_config(options)  # registers its plugins, which may define rewards
    result = replay.replay_run(
        options.name, options.results, options.rewards, options.grades, options.scale_rewards, options.unscored
    )
    print("\n".join(result.lines()))
    if options.out:
        result.write(options.out)
        log(options.name, f"rollouts with new rewards and advantages are in {options.out}")
