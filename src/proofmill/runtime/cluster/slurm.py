"""Queries to SLURM: the time left for a job, requeueing it, and other jobs for the same artifact.

Snakemake's executor plugin submits jobs and follows them by number. A requeued job keeps its number, so Snakemake need
not know. Nothing is stored: the plugin writes rule and wildcards into each job's comment, so the queue itself shows
which artifacts are in progress.
"""

import os
import re
import subprocess
from pathlib import Path

_LEFT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


def job() -> str | None:
    """Return the number of this process's SLURM job; None outside of SLURM."""
    return os.environ.get("SLURM_JOB_ID")


def seconds_left() -> float | None:
    """Return the seconds until the walltime of this job; None outside of SLURM, without a limit, or if SLURM fails."""
    match = _LEFT.fullmatch(_output("squeue", "--noheader", "--format=%L", "--jobs", job() or "") if job() else "")
    if not match:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def nodes() -> list[str]:
    """Return the names of the nodes of this job; empty outside of SLURM."""
    names = _output("squeue", "--noheader", "--format=%N", "--jobs", job() or "") if job() else ""
    return _output("scontrol", "show", "hostnames", names).split() if names else []


def address(node: str) -> str:
    """Return the address of a node as SLURM uses it, usually its name."""
    match = re.search(r"NodeAddr=(\S+)", _output("scontrol", "show", "node", node))
    return match[1] if match else node


def requeue() -> bool:
    """Requeue this job; SLURM then stops it. Return False outside of SLURM, or if SLURM refuses."""
    return job() is not None and _output("scontrol", "requeue", job() or "", done="done") == "done"


def in_queue(number: str) -> bool:
    """Return whether a job is pending or running."""
    return _output("squeue", "--noheader", "--format=%i", "--jobs", number) == number


def after(kind: str, name: str, shard: str | None = None, shards: str | None = None) -> str:
    """Return sbatch's option to wait for jobs of this user and folder that already make an artifact; empty without any.

    They belong to another Snakemake, or to one that died, and include shards of the artifact. A shard (number `shard`
    of `shards`) waits for an older job of the same shard, for shards of another split, and for the artifact's own job.
    It does not wait for its siblings, which run concurrently.
    """
    if job():  # evaluated again inside the submitted job
        return ""
    fields = [line.split("|", 2) for line in _output("squeue", "--me", "--noheader", "--format=%i|%Z|%k").splitlines()]
    table = f"rule_{kind}_wildcards_{name}"  # the plugin joins the values of all wildcards
    part = re.compile(rf"rule_{kind}_shard_wildcards_{kind}_{re.escape(name)}_(\d+)_(\d+)")

    def precedes(comment: str) -> bool:
        match = part.fullmatch(comment)
        return comment == table or bool(match and (shard in (None, match[1]) or shards != match[2]))

    here = str(Path.cwd())
    numbers = [number for number, folder, comment in fields if folder == here and precedes(comment)]
    return f" --dependency=afterany:{':'.join(numbers)}" if numbers else ""


def _output(*command: str, done: str = "") -> str:
    """Return the output of a SLURM command followed by `done`; empty if it fails or does not exist."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{result.stdout.strip()}{done}"
