"""What the rules share: the checked configuration, an artifact's entry and parents, and the recipes as targets."""

import _thread
import contextlib
import functools
import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.io import contains_wildcard
from snakemake.logging import logger
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.settings.enums import Quietness, RerunTrigger

from proofmill.artifacts import configurations
from proofmill.artifacts.states import States
from proofmill.planning import data
from proofmill.planning.connections import connections, require_addresses, require_answers
from proofmill.recipes.book import expand
from proofmill.recipes.identity import arguments, identity_of
from proofmill.recipes.paths import source_names
from proofmill.recipes.yaml_files import overlay, read
from proofmill.runtime import environment
from proofmill.schema.errors import MissingData, ProofmillError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of
from proofmill.schema.references import reads


def word(text):
    """A word of a shell's command, in which nothing is a field for Snakemake to fill in."""
    return shlex.quote(text).replace("{", "{{").replace("}", "}}")


PYTHON = f"{word(sys.executable)} -m"
# One process. To train, a profile may start one for each device: `accelerate launch --config_file
# workflow/accelerate/... -m`.
LAUNCH = f"{shlex.quote(sys.executable)} -m"


wildcard_constraints:
    name=r"[^/]+",


# SLURM tells every process of a job that its walltime is near. It is for the job alone to heed that: Snakemake, shells
# and launchers would die of it, and with them what they started.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)


# Snakemake's answer to SIGTERM takes locks that the thread it interrupts may hold: it then waits for itself, for ever.
# Another thread can wait for them.
exit_gracefully = JobScheduler.exit_gracefully
JobScheduler.exit_gracefully = lambda *args: _thread.start_new_thread(exit_gracefully, args)


# What Snakemake says before and between jobs belongs to its words on progress, though it cannot tell; and the command
# of a job that failed would stand around what the job itself said (`onerror` says it again).
NOISE = ("Building DAG", "Using shell", "Select jobs to execute", "Execute ", "RuleException:\nCalledProcessError")
if Quietness.PROGRESS in (workflow.output_settings.quiet or ()):
    logger.addFilter(lambda record: not str(record.msg).startswith(NOISE))


# Our own reader refuses a name declared twice, which Snakemake's lets win, says what is wrong with a file, and follows
# the lists of recipe files. What the command line names (--configfile, --config) is laid over config.yaml. An entry
# with a mistake is left out until somebody asks for it.
try:
    environment.read_file()
    CONFIG = overlay(read("config.yaml", *workflow.overwrite_configfiles), workflow.config_settings.config)
    BOOK = expand(CONFIG, drafts=True)
    require_addresses(BOOK)
    SPLIT = [kind for kind in KINDS if KINDS[kind].splits]
    SHARDS = environment.shards(SPLIT)
except ProofmillError as error:
    sys.exit(f"{type(error).__name__}: {error}")
RESULTS = BOOK.results


# Before the first job: what the environment lacks is said for all models that stages due ask, then all are tried.
onstart:
    for mistake in dict.fromkeys(line for lines in BOOK.faults.values() for line in lines.splitlines()):
        print(f"left out until it is mended: {mistake}", file=sys.stderr)
    connect()
    note()
    screen()


def note():
    """Record what the configuration declares, which `proofmill gc` keeps; needed only where something is made."""
    files = ["config.yaml", *workflow.overwrite_configfiles]
    try:
        configurations.note(BOOK, Path(RESULTS), files, workflow.config_settings.config)
    except OSError as error:
        if any(job.rule.name in KINDS for job in workflow.dag.needrun_jobs()):
            raise WorkflowError(f"{error.filename}: {error.strerror}; expected a results folder that can be written.")


SCREEN = contextlib.ExitStack()  # closes the screen, before something else is printed at the end


def screen():
    """A screen in the place of the lines of jobs that run here, if somebody watches; PROOFMILL_SCREEN=no for lines."""
    from proofmill.inspect.screen import Screen, wanted

    names = [f"{job.rule.name}/{job.wildcards.name}" for job in workflow.dag.needrun_jobs() if job.rule.name in KINDS]
    try:
        if not names or not workflow.local_exec or workflow.touch or not wanted():
            return
    except ProofmillError as error:
        raise WorkflowError(f"{type(error).__name__}: {error}")
    workflow.scheduler.print_progress = True  # else nothing says that a job has ended; it is not printed all the same
    lines = [each for each in logger.handlers if getattr(each, "stream", None) is sys.stderr]
    shown = Screen(names, Path(RESULTS), BOOK.budget, lines, colour=not workflow.output_settings.nocolor)
    logger.addHandler(shown)
    SCREEN.callback(shown.close)


def job(kind, start=PYTHON, shard=False):
    """The command of a kind's rule: what runs is decided by the entry, where it runs by threads and resources.

    Only the job itself hears SIGTERM, SIGUSR1 and Ctrl-C: it says how to go on, and somebody must be there to write
    that down. A log has every run of its job, each line with its time; it is none of Snakemake's, which would remove
    it before the next. Beside a screen nothing else is written: what there is to see, it reads there, and what the
    shell itself says (that a job was killed) in the folder PROOFMILL_NOW.
    """
    log = ".{wildcards.shard}-of-{wildcards.shards}.log" if shard else ".log"
    share = "--shard {wildcards.shard}/{wildcards.shards} " if shard else ""
    return (
        f"trap '' INT TERM USR1; mkdir -p {RESULTS}/{kind}; log={RESULTS}/{kind}/{{wildcards.name}}{log}; "
        "printf '\\n%(%F %T %Z)T on %s\\n' -1 \"$HOSTNAME\" >>$log; "
        '[ -z "${{PROOFMILL_NOW:-}}" ] || exec 2>>"$PROOFMILL_NOW/shell"; '
        f"{start} proofmill.{kind} {kind}/{{wildcards.name}} {share}"
        f"--entry {{params.entry:q}} --terms {word(BOOK.terms)} "
        f"--results {RESULTS} --engine {{resources.engine}} --engine-args={{resources.engine_args:q}} "
        '--threads {threads} 2>&1 | while IFS= read -r line || [ -n "$line" ]; do '
        'printf \'%(%T)T  %s\\n\' -1 "$line" >>$log; [ -n "${{PROOFMILL_NOW:-}}" ] || printf \'%s\\n\' "$line"; done'
        + " && mkdir -p $(dirname {output}) && touch {output}" * shard
    )


def declared(name):
    if name not in BOOK.entries:
        refused(name)
    return BOOK.entries[name]


def refused(target):
    """Stop with what is wrong with a target that cannot be made; an error would come with the stack of this file."""
    try:
        BOOK.targeted(target)
    except ProofmillError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    sys.exit(f"{target}: is made, but is no file; expected it as a target alone.")


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
    if workflow.executor_plugin is not None and workflow.executor_plugin.name == "slurm" and not shutil.which("sbatch"):
        sys.exit("sbatch: no such command; expected SLURM's, on a machine that may submit jobs. Run it there.")
    tell_forced()
    forced = {name for name in BOOK.entries if table(name) in dag.forcefiles}
    rules_forced = {rule.name for rule in dag.forcerules}
    forced |= {name for name in BOOK.entries if rules_forced & {name, kind_of(name)}}
    return States(BOOK, Path(RESULTS), forced)


# --forcerun means made again, not brought back from the kept tables. Jobs learn it from this variable, which every
# executor passes to its jobs; that of Kubernetes puts it into a secret before `onstart`.
os.environ.setdefault("PROOFMILL_FRESH", "")


envvars:
    "PROOFMILL_FRESH",


def tell_forced():
    """Set PROOFMILL_FRESH while the graph is built: before, settings are unknown; after, an executor has read it."""
    if not workflow.is_main_process:
        return
    dag = workflow.dag_settings
    asked = [*dag.forcerun, *(dag.targets if dag.forcetargets else ())]
    forced = [str(f).removeprefix(f"{RESULTS}/").removesuffix(".parquet") for f in asked]
    run = [f"run-{time.time_ns()}"]  # a job that goes back into the queue is forced once
    os.environ.update(PROOFMILL_FRESH=" ".join(["all"] * bool(dag.forceall) + forced + run))


def table(name):
    return f"{RESULTS}/{name}.parquet"


def due(name):
    """Whether an artifact is to be made or restored; Snakemake is then told to, whatever the files' times are."""
    if states()[name].name == "done":
        return False
    workflow.dag.forcefiles.add(table(name))
    return True


def connect():
    """Stop where a remote model that this run is to ask cannot be reached; jobs on other nodes have no such hook."""
    if workflow.touch:
        return
    jobs = [f"{job.rule.name}/{job.wildcards.name}" for job in workflow.dag.needrun_jobs() if job.rule.name in KINDS]
    asked = connections(BOOK, [name for name in jobs if states()[name].name == "make"])
    try:
        require_answers(asked, Path(RESULTS), BOOK.budget)
    except ProofmillError as error:
        raise WorkflowError(f"{type(error).__name__}: {error}")


def parents(kind):
    """The tables and source files an artifact is made from: first those that are due, then those that stand."""

    def files(wildcards):
        name = f"{kind}/{wildcards.name}"
        made_from = declared(name)
        try:
            sources = sources_of(name)
            tables = reads(kind, made_from, BOOK.entries.get, BOOK.declared)
            # A job on another node makes what it was started for: nothing is coming there.
            coming = [other for other in tables if due(other)] if not workflow.remote_exec and due(name) else []
        except ProofmillError as error:
            sys.exit(f"{name}: {type(error).__name__}: {error}")
        standing = [table(other) for other in tables if other not in coming] + sources
        return [table(other) for other in coming] + [ancient(file) for file in standing if shown(file)]

    return files


def shards(kind):
    """What the shards of an artifact leave, where the place has some for it, it is to be made, and asks somebody."""

    def files(wildcards):
        name = f"{kind}/{wildcards.name}"
        if getattr(declared(name), "taken", False) or states()[name].name != "make":
            return []
        ends = list(shard_ends(name).values())
        # What a run left that was broken off says nothing about the entry as it is now. Nobody is asked twice.
        workflow.dag.forcefiles.update([] if workflow.remote_exec else ends)
        return ends

    return files


def shard_ends(name):
    """The empty file that each shard of an artifact leaves, by the shard's own name; none where there is one job."""
    number = SHARDS.get(name, SHARDS.get(kind_of(name), 1))
    parts = range(1, number + 1) if number > 1 else ()
    return {f"{name}.{n}-of-{number}": f"{RESULTS}/unfinished/{name}/shard-{n}-of-{number}" for n in parts}


def sources_of(name):
    """The files that an artifact reads besides tables; none where public data are gone that it was made from."""
    try:
        return [*source_names(kind_of(name), declared(name), BOOK.entries.get)]
    except MissingData:
        if states()[name].name == "done":
            return []
        sys.exit(missing_data(name))


def missing_data(name):
    """One message about all public data that the targets still need and that are not here; at least those of `name`."""
    asked = [str(target) for target in workflow.dag_settings.targets or [next(iter(BOOK.recipes))]]
    ours = [target for target in asked if target in BOOK.recipes or target in BOOK.entries] or [name]
    coming = [other for other in data.artifacts(BOOK, ours) if states()[other].missing]
    found = data.needed(BOOK, dict.fromkeys([*coming, name]))
    models = [item for item in found if item.source.startswith(data.MODEL)]
    return data.missing_message([item for item in found if item not in models], " ".join(ours))


def shown(file):
    """Whether Snakemake can be shown a file: it refuses those of the future, and reads words in braces as wildcards."""
    return os.path.exists(file) and os.path.getmtime(file) <= time.time() and not contains_wildcard(file)


def targeted(target):
    """The tables of a recipe, or of an artifact by its name."""

    def files(_):
        try:
            return [table(name) for name in BOOK.targeted(target)]
        except ProofmillError as error:
            sys.exit(f"{type(error).__name__}: {error}")

    return files


STARTED = time.time()


def stopped():
    """A line for each job of this run that did not end well, its last words."""
    for name in BOOK.entries:
        jobs = {} if os.path.exists(table(name)) else {name: table(name), **shard_ends(name)}
        for job_name, end in jobs.items():
            log = Path(RESULTS, f"{job_name}.log")
            if not os.path.exists(end) and log.exists() and log.stat().st_mtime >= STARTED:
                words = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1]
                yield f"{job_name} was not made: {words} (all of it: {log})"
