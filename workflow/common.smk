"""The glue between Snakemake and proofmill: configuration, graph of artifacts, functions of the rules."""

import _thread
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from snakemake.logging import logger
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.settings.enums import Quietness, RerunTrigger

from proofmill.artifacts.graph import Graph, command, find_forced, format_forced, shell_word
from proofmill.config.config import expand
from proofmill.config.yaml_files import overlay, read
from proofmill.planning.connections import require_addresses
from proofmill.planning.rule_functions import RuleFunctions
from proofmill.runtime import environment
from proofmill.runtime.cluster.site_resources import LAUNCH
from proofmill.schema.errors import ProofmillError
from proofmill.schema.kinds import KINDS

PYTHON = f"{shell_word(sys.executable)} -m"


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
# Snakemake's records do not decide a rebuild, so those that are missing mean nothing.
workflow.log_metadata_info = lambda *_: None
# Jobs read which artifacts are forced from this variable. The Kubernetes executor reads it before `onstart`.
os.environ.setdefault("PROOFMILL_FORCE", "")


envvars:
    "PROOFMILL_FORCE",


# Our reader refuses duplicate names, explains mistakes, and leaves entries with mistakes out until they are targets.
try:
    environment.read_file()
    environment.keep_freed_memory()
    files = read("config.yaml", *workflow.overwrite_configfiles)
    CONFIG = expand(overlay(files, workflow.config_settings.config), drafts=True)
    require_addresses(CONFIG)
    SPLIT = [kind for kind in KINDS if KINDS[kind].splits]
    GRAPH = Graph(CONFIG, environment.shards(SPLIT), lambda: forced())
except ProofmillError as error:
    sys.exit(f"{type(error).__name__}: {error}")
RESULTS, RULES = CONFIG.results, RuleFunctions(GRAPH, workflow)
entry, parents, shards = RULES.entry, RULES.parents, RULES.shards


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


def job(kind, start=PYTHON, shard=False):
    """Return the shell command of a rule."""
    return command(CONFIG, kind, start, shard)
