"""What a process asks SLURM: how long its job may still run, that it be put back into the queue, what others are making.

The executor plugin of Snakemake submits jobs and follows them by number. A job that goes back into the queue keeps its
number, so the Snakemake that waits for it needs not know. Nothing is written anywhere: the queue itself says which
artifacts are under way, for the plugin names rule and wildcard in each job's comment.
"""

import os
import re
import subprocess
from pathlib import Path

_LEFT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


def job() -> str | None:
    """The number of the SLURM job that this process belongs to; None outside of SLURM."""
    return os.environ.get("SLURM_JOB_ID")


def seconds_left() -> float | None:
    """Seconds until the walltime of this process's job; None outside of SLURM, without a limit, or without an answer."""
    found = _LEFT.fullmatch(_said("squeue", "--noheader", "--format=%L", "--jobs", job() or "") if job() else "")
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def nodes() -> list[str]:
    """The names of the nodes of this process's job; none outside of SLURM."""
    found = _said("squeue", "--noheader", "--format=%N", "--jobs", job() or "") if job() else ""
    return _said("scontrol", "show", "hostnames", found).split() if found else []


def address(node: str) -> str:
    """Where a node is reached, as SLURM reaches it: mostly its name."""
    found = re.search(r"NodeAddr=(\S+)", _said("scontrol", "show", "node", node))
    return found[1] if found else node


def requeue() -> bool:
    """Put this process's job back into the queue; SLURM then ends it. False outside of SLURM, or if SLURM refuses."""
    return job() is not None and _said("scontrol", "requeue", job() or "", done="done") == "done"


def in_queue(number: str) -> bool:
    """Whether a job waits or runs."""
    return _said("squeue", "--noheader", "--format=%i", "--jobs", number) == number


def after(kind: str, name: str, shard: str | None = None, shards: str | None = None) -> str:
    """sbatch's option to wait for jobs of this user and folder that make an artifact already; empty where there are none.

    They are another Snakemake's, or those of one that died; of an artifact asked by shards, these too. A shard (of so
    many) waits for the same one, for those of another number, and for the artifact's own job: not for its siblings, which
    are to run beside it.
    """
    if job():  # the job itself, which was submitted long ago
        return ""
    fields = [line.split("|", 2) for line in _said("squeue", "--me", "--noheader", "--format=%i|%Z|%k").splitlines()]
    whole = f"rule_{kind}_wildcards_{name}"  # the plugin joins the values of all wildcards
    part = re.compile(rf"rule_{kind}_shard_wildcards_{kind}_{re.escape(name)}_(\d+)_(\d+)")

    def comes_first(comment: str) -> bool:
        found = part.fullmatch(comment)
        return comment == whole or bool(found and (shard in (None, found[1]) or shards != found[2]))

    here = str(Path.cwd())
    numbers = [number for number, folder, comment in fields if folder == here and comes_first(comment)]
    return f" --dependency=afterany:{':'.join(numbers)}" if numbers else ""


def _said(*command: str, done: str = "") -> str:
    """What a command of SLURM prints, and `done` after it; empty where it fails or is not there."""
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{found.stdout.strip()}{done}"
