"""What the rules share: the checked configuration, an artifact's entry and parents, and the recipes as targets."""

import functools
import os
import shlex
import sys
import time

from snakemake.exceptions import WorkflowError
from snakemake.io import contains_wildcard
from snakemake.settings.enums import RerunTrigger

from proofmill.artifacts.states import States
from proofmill.recipes.book import expand
from proofmill.recipes.identity import arguments, identity_of
from proofmill.recipes.paths import source_files
from proofmill.recipes.yaml_files import overlay, read
from proofmill.schema.errors import ProofmillError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of
from proofmill.schema.references import reads

PYTHON = sys.executable
# One process. To train, a profile may start one for each device: `accelerate launch --config_file
# workflow/accelerate/... -m`.
LAUNCH = f"{shlex.quote(PYTHON)} -m"


wildcard_constraints:
    name=r"[^/]+",


# Our own reader refuses a name declared twice, which Snakemake's lets win, says what is wrong with a file, and follows
# the lists of recipe files. What the command line names (--configfile, --config) is laid over config.yaml.
try:
    BOOK = expand(overlay(read("config.yaml", *workflow.overwrite_configfiles), workflow.config_settings.config))
    TERMS = BOOK.terms
except ProofmillError as error:
    raise WorkflowError(f"{type(error).__name__}: {error}")


# --forcerun means made again, not brought back from the kept tables; jobs learn it from the environment. The settings
# are not known yet while this file is read.
onstart:
    dag = workflow.dag_settings
    asked = [*dag.forcerun, *(dag.targets if dag.forcetargets else ())]
    forced = [str(f).removeprefix("results/").removesuffix(".parquet") for f in asked]
    os.environ["PROOFMILL_FRESH"] = " ".join(["all"] * bool(dag.forceall) + forced)


# One command for every kind: what runs is decided by the entry, where it runs by threads and resources. Only the job
# itself hears SIGTERM and Ctrl-C: it says how to go on, and somebody must be there to write that down.
JOB = (
    "trap '' INT TERM; {LAUNCH} proofmill.{rule} {rule}/{wildcards.name} --entry {params.entry:q} --terms {TERMS:q} "
    "--engine {resources.engine} --engine-args={resources.engine_args:q} --threads {threads} 2>&1 | tee {log}"
)
TRAINING = JOB.replace("{LAUNCH}", "{resources.launch}")


def declared(name):
    if name not in BOOK.entries:
        raise WorkflowError(f"{name}: no recipe declares it; see `python -m proofmill.recipes` for all that do.")
    return BOOK.entries[name]


def entry(kind):
    """An artifact's entry with defaults, revision, prompts and remote models: what decides its rows."""
    return lambda wildcards: arguments(identity_of(declared(f"{kind}/{wildcards.name}"), BOOK.declared))


@functools.cache
def states():
    """What every artifact is, by its stamp. What Snakemake is told to make is known once it builds the graph.

    Its own reasons count for nothing: what it remembers of runs, and marks of incomplete files. A table is whole or
    absent.
    """
    dag = workflow.dag
    dag.ignore_incomplete = True
    workflow.dag_settings.rerun_triggers = frozenset({RerunTrigger.MTIME})
    forced = {name for name in BOOK.entries if f"results/{name}.parquet" in dag.forcefiles}
    rules_forced = {rule.name for rule in dag.forcerules}
    return States(BOOK, forced=forced | {name for name in BOOK.entries if kind_of(name) in rules_forced})


def due(name):
    """Whether an artifact is to be made or restored; Snakemake is then told to, whatever the files' times are."""
    if states()[name].name == "done":
        return False
    workflow.dag.forcefiles.add(f"results/{name}.parquet")
    return True


def parents(kind):
    """The tables and source files an artifact is made from: first those that are due, then those that stand."""

    def files(wildcards):
        name = f"{kind}/{wildcards.name}"
        made_from = declared(name)
        try:
            sources = source_files(kind, made_from, BOOK.entries.get)
            tables = reads(kind, made_from, BOOK.entries.get, BOOK.declared)
            # A job on another node makes what it was started for: nothing is coming there.
            coming = [table for table in tables if due(table)] if not workflow.remote_exec and due(name) else []
        except ProofmillError as error:
            raise WorkflowError(f"{name}: {type(error).__name__}: {error}")
        standing = [f"results/{table}.parquet" for table in tables if table not in coming] + sources
        return [f"results/{table}.parquet" for table in coming] + [ancient(file) for file in standing if shown(file)]

    return files


def shown(file):
    """Whether Snakemake can be shown a file: it refuses those of the future, and reads words in braces as wildcards."""
    return os.path.exists(file) and os.path.getmtime(file) <= time.time() and not contains_wildcard(file)


def targets(recipe):
    return [f"results/{name}.parquet" for name in BOOK.recipes[recipe]]
