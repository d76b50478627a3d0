"""Run before the first job and after the last one: checks, the live display, publishing, last words of failed jobs."""

import contextlib
import time

from snakemake.exceptions import WorkflowError

from proofmill.artifacts import configurations
from proofmill.planning.connections import connections, require_answers

STARTED = time.time()
DISPLAY = contextlib.ExitStack()  # closes the live display before the last lines are printed


# Before the first job: report entries left out, then call every model that is needed, so that nothing starts in vain.
onstart:
    for mistake in dict.fromkeys(line for lines in CONFIG.faults.values() for line in lines.splitlines()):
        print(f"skipped until it is fixed: {mistake}", file=sys.stderr)
    names = RULES.due_jobs()
    try:
        if not workflow.touch:
            models = connections(CONFIG, [name for name in names if GRAPH.states[name].name == "make"])
            require_answers(models, Path(RESULTS), CONFIG.budget)
        record_configuration(names)
        start_display(names)
    except ProofmillError as error:
        raise WorkflowError(f"{type(error).__name__}: {error}")


def record_configuration(names):
    """Record what the configuration declares, for `proofmill gc`. A read-only folder matters only if jobs run."""
    files = ["config.yaml", *workflow.overwrite_configfiles]
    try:
        configurations.note(CONFIG, Path(RESULTS), files, workflow.config_settings.config)
    except OSError as error:
        if names:
            raise WorkflowError(f"{error.filename}: {error.strerror}; expected a writable results folder.")


def start_display(names):
    """Show local jobs in a live display on a terminal; PROOFMILL_DISPLAY=plain turns it off."""
    from proofmill.calls import budget
    from proofmill.runtime.display import Display, is_wanted

    if not names or not workflow.local_exec or workflow.touch or not is_wanted():
        return
    workflow.scheduler.print_progress = True  # else Snakemake does not log that a job has ended
    lines = [each for each in logger.handlers if getattr(each, "stream", None) is sys.stderr]
    spent = lambda: budget.format_spent(Path(RESULTS, "calls"), CONFIG.budget)
    shown = Display(names, Path(RESULTS), spent, lines, colour=not workflow.output_settings.nocolor)
    logger.addHandler(shown)
    DISPLAY.callback(shown.close)


# Publish the recipe if PROOFMILL_PUBLISH is set (docs/publishing.md).
onsuccess:
    DISPLAY.close()
    if "PROOFMILL_PUBLISH" in os.environ:
        from proofmill.publishing.hub import at_end

        targets = workflow.dag_settings.targets or [next(iter(CONFIG.recipes))]
        at_end([str(target) for target in targets], Path(RESULTS), CONFIG)


# Repeat the last words of each failed job: other jobs have logged since.
onerror:
    DISPLAY.close()
    for line in GRAPH.failures(STARTED):
        print(line, file=sys.stderr)
