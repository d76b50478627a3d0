"""The glue between Snakemake and `proofmill.artifacts.graph`: configuration and functions of the rules."""

import _thread
import contextlib
import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

from snakemake.io import contains_wildcard
from snakemake.logging import logger
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.settings.enums import Quietness, RerunTrigger

from proofmill.artifacts.graph import Graph, command, find_forced, format_forced, shell_word
from proofmill.planning import data
from proofmill.planning.connections import require_addresses
from proofmill.config.config import expand
from proofmill.config.identity import arguments, identity_of
from proofmill.config.yaml_files import overlay, read
from proofmill.runtime import environment
from proofmill.schema.errors import MissingData, ProofmillError
from proofmill.schema.kinds import KINDS

PYTHON = f"{shell_word(sys.executable)} -m"
LAUNCH = f"{shlex.quote(sys.executable)} -m"  # of trainings; a profile may start a process per device instead


wildcard_constraints:
    name=r"[^/]+",


# SLURM signals every process of the job before its walltime. Only the job itself handles it; Snakemake would die.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
# Snakemake's handler of SIGTERM takes locks that the interrupted thread may hold. In a thread it cannot deadlock.
exit_gracefully = JobScheduler.exit_gracefully
JobScheduler.exit_gracefully = lambda *args: _thread.start_new_thread(exit_gracefully, args)
# `quiet: progress` does not cover these lines. `onerror` repeats what a failed job logged, without its long command.
NOISE = ("Building DAG", "Using shell", "Select jobs to execute", "Execute ", "RuleException:\nCalledProcessError")
if Quietness.PROGRESS in (workflow.output_settings.quiet or ()):
    logger.addFilter(lambda record: not str(record.msg).startswith(NOISE))
# Jobs read which artifacts are forced from this variable. The Kubernetes executor reads it before `onstart`.
os.environ.setdefault("PROOFMILL_FORCE", "")


envvars:
    "PROOFMILL_FORCE",


# Our reader refuses duplicate names, explains mistakes, and leaves entries with mistakes out until they are targets.
try:
    environment.read_file()
    files = read("config.yaml", *workflow.overwrite_configfiles)
    CONFIG = expand(overlay(files, workflow.config_settings.config), drafts=True)
    require_addresses(CONFIG)
    SPLIT = [kind for kind in KINDS if KINDS[kind].splits]
    GRAPH = Graph(CONFIG, environment.shards(SPLIT), lambda: forced())
except ProofmillError as error:
    sys.exit(f"{type(error).__name__}: {error}")
RESULTS = CONFIG.results


def forced():
    """Return the forced artifacts, and set up Snakemake and the jobs for them. Settings are known only at this point.

    Snakemake's own reasons for a rerun, and its records of incomplete files, are ignored: stamps decide.
    """
    dag, settings = workflow.dag, workflow.dag_settings
    dag.ignore_incomplete = True
    settings.rerun_triggers = frozenset({RerunTrigger.MTIME})
    if workflow.executor_plugin is not None and workflow.executor_plugin.name == "slurm" and not shutil.which("sbatch"):
        sys.exit("sbatch: no such command; expected SLURM's, on a machine that may submit jobs. Run it there.")
    if workflow.is_main_process:
        words = [*settings.forcerun, *(settings.targets if settings.forcetargets else ())]
        os.environ["PROOFMILL_FORCE"] = format_forced(words, bool(settings.forceall), RESULTS, time.time_ns())
    return find_forced(CONFIG, dag.forcefiles, {rule.name for rule in dag.forcerules})


@contextlib.contextmanager
def explained(name=None):
    """Exit with the message of an error of ours, without a traceback of this file."""
    try:
        yield
    except MissingData:
        sys.exit(missing_data(name))
    except ProofmillError as error:
        sys.exit(f"{f'{name}: ' if name else ''}{type(error).__name__}: {error}")


def missing_data(name):
    """Return one message about all public data that the targets, or at least `name`, lack on this machine."""
    targets = GRAPH.targets(workflow.dag_settings.targets) or [name]
    lacking = GRAPH.without_data(data.artifacts(CONFIG, targets))
    items = data.list_needed(CONFIG, dict.fromkeys([*lacking, name]))
    return data.missing_message([item for item in items if not item.source.startswith(data.MODEL)], " ".join(targets))


def artifact(kind, wildcards):
    """Return the name of the artifact of a job; exit if it cannot be built."""
    name = f"{kind}/{wildcards.name}"
    return name if name in CONFIG.entries else refused(name)


def refused(target):
    """Exit with the reason why a target cannot be built."""
    with explained():
        CONFIG.list_target(target)
    sys.exit(f"{target}: is a target and not a file; expected it on the command line alone. Run: snakemake {target}")


def entry(kind):
    """Return a function to the entry of a job, with defaults, revision, prompts and models, which decide its rows."""
    return lambda wildcards: arguments(identity_of(CONFIG.entries[artifact(kind, wildcards)], CONFIG.declared))


def tables_of(target):
    """Return a function to the tables of a recipe or an artifact."""

    def files(_):
        with explained():
            return [GRAPH.table(name) for name in CONFIG.list_target(target)]

    return files


def parents(kind):
    """Return a function to the input files of a job: tables that are due, then tables and sources that are up to date.

    Snakemake rebuilds by modification time, so tables that are due are forced and the others are `ancient`.
    """

    def files(wildcards):
        name = artifact(kind, wildcards)
        with explained(name):
            inputs = GRAPH.inputs(name, alone=workflow.remote_exec)
            if not workflow.remote_exec and GRAPH.is_due(name):
                workflow.dag.forcefiles.update([GRAPH.table(name), *inputs.due])
        return [*inputs.due, *(ancient(file) for file in inputs.current if is_visible(file))]

    return files


def is_visible(file):
    """Return whether Snakemake accepts a file: not one of the future, nor with words in braces, its wildcards."""
    return os.path.exists(file) and os.path.getmtime(file) <= time.time() and not contains_wildcard(file)


def shards(kind):
    """Return a function to the files of shards that a job waits for. They are forced: old ones are of another run."""

    def files(wildcards):
        outputs = GRAPH.shard_inputs(artifact(kind, wildcards))
        workflow.dag.forcefiles.update([] if workflow.remote_exec else outputs)
        return outputs

    return files


def job(kind, start=PYTHON, shard=False):
    """Return the shell command of a rule."""
    return command(CONFIG, kind, start, shard)


def due_jobs():
    """Return the artifacts that this run builds or restores."""
    return [f"{job.rule.name}/{job.wildcards.name}" for job in workflow.dag.needrun_jobs() if job.rule.name in KINDS]
