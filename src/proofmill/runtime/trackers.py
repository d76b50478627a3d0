"""Trackers that follow a training while it runs, where the environment asks for them; nobody is told anything otherwise.

    PROOFMILL_TRACKERS    such as `tensorboard`, or `wandb trackio`: what transformers can report to, if it is installed

TensorBoard's files are in results/tensorboard/<kind>/<name>, unless TENSORBOARD_LOGGING_DIR says where. The table of the
training holds the same numbers, and is what other stages read.
"""

import os
from pathlib import Path
from typing import Any

from proofmill.schema.errors import SettingError


def asked(name: str, results: Path) -> dict[str, Any]:
    """Arguments of a trainer. Raises SettingError for a tracker that is not installed, or that transformers has not."""
    from transformers.integrations import get_available_reporting_integrations

    names = os.environ.get("PROOFMILL_TRACKERS", "").replace(",", " ").split()
    there = get_available_reporting_integrations()
    if missing := [tracker for tracker in names if tracker not in there]:
        raise SettingError(
            f"PROOFMILL_TRACKERS names {missing[0]}, which is not installed or unknown; expected some of "
            f"{', '.join(there) or 'those that transformers knows (tensorboard, trackio, wandb, ...)'}. Install its package "
            "into the environment of the stages."
        )
    if "tensorboard" in names:
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(results / "tensorboard" / name))
    return {"report_to": names, "run_name": name}
