"""Starting a service when the first job needs it, by the place's own command.

    PROOFMILL_SERVICE_START    a command of the shell; {name} in it is the model's:
                               sbatch --gpus 8 --wrap "proofmill serve {name}"

So a service takes no GPU before it is needed, and comes again after it ended or was killed, as long as somebody asks.
"""

import fcntl
import os
import shlex
import subprocess
import time
from contextlib import suppress

from proofmill.engines.services.directory import Service
from proofmill.runtime.progress import say
from proofmill.schema.errors import SettingError

START = "PROOFMILL_SERVICE_START"
AGAIN = 3600.0  # seconds after which a job that was submitted and has not begun is taken for lost
SECONDS = 120.0  # that the command may take


def summon(service: Service) -> bool:
    """Run the place's command, if it has one, where no job serves the model and none was submitted.

    Of several jobs that need the service one runs it. Returns whether this one did; SettingError when the command fails.
    """
    command = os.environ.get(START)
    if not command or service.has_job():
        return False
    with open(service.summoned, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another job does it right now
            return False
        file.seek(0)
        if service.has_job() or _recent(file.read()):
            return False
        file.truncate(0)
        file.write(f"{time.time():.0f}")
        file.flush()
        said = _run(command.replace("{name}", shlex.quote(service.name)), service)
    say(service.name, f"its service was asked for{': ' + said if said else ''}")
    return True


def pending(service: Service) -> float | None:
    """When the job was submitted that has not begun; None without one, or where it is taken for lost."""
    with suppress(FileNotFoundError):
        return _recent(service.summoned.read_text())
    return None


def _recent(said: str) -> float | None:
    """The time of a submission, if it is not so long ago that the job is taken for lost."""
    submitted = float(said or 0)
    return submitted if abs(time.time() - submitted) < AGAIN else None


def _run(command: str, service: Service) -> str:
    """Run a command of the shell in a session of its own; returns the last line that it said."""
    log = service.start_log
    # What a cluster says of this job is not true of the one that is submitted.
    own = ("SLURM_", "SBATCH_", "CUDA_VISIBLE_DEVICES")
    environment = {
        name: value for name, value in os.environ.items() if name == "SLURM_CONF" or not name.startswith(own)
    }
    with open(log, "w+") as file:
        try:
            code = subprocess.run(
                command, shell=True, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                env=environment, start_new_session=True, timeout=SECONDS, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            code = -1
        file.seek(0)
        words = file.read().strip().splitlines()
    if code:
        service.summoned.unlink(missing_ok=True)
        raise SettingError(
            f"{START}: `{command}` ended with {code} ({words[-1] if words else 'it said nothing'}); expected a command that starts "
            f"the service in the background. All that it said is in {log}."
        )
    return words[-1] if words else ""
