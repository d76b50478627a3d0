"""Start a service when the first job needs it, with the site's own command.

    PROOFMILL_SERVICE_COMMAND    a shell command, in which {name} is the model's name:
                               sbatch --gpus 8 --wrap "proofmill serve {name}"

So a service takes no GPU before it is needed. If it ended or was killed, it is restarted as long as jobs call it.
"""

import fcntl
import os
import shlex
import subprocess
import time
from contextlib import suppress

from proofmill.engines.services.directory import Service
from proofmill.runtime.progress import log
from proofmill.schema.errors import SettingError

START = "PROOFMILL_SERVICE_COMMAND"
AGAIN = 3600.0  # seconds after which a submitted job that has not started counts as lost
SECONDS = 120.0  # time limit of the command


def request_start(service: Service) -> bool:
    """Run the site's command, if it is set, no job serves the model and none was submitted; return whether it ran.

    If several jobs need the service, only one runs the command. Raises SettingError if the command fails.
    """
    command = os.environ.get(START)
    if not command or service.has_job():
        return False
    with open(service.requested, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another job is running the command
            return False
        file.seek(0)
        if service.has_job() or _recent(file.read()):
            return False
        file.truncate(0)
        file.write(f"{time.time():.0f}")
        file.flush()
        output = _run(command.replace("{name}", shlex.quote(service.name)), service)
    log(service.name, f"requested its service{': ' + output if output else ''}")
    return True


def pending(service: Service) -> float | None:
    """Return the time at which a job was submitted that has not started; None without one, or if it counts as lost."""
    with suppress(FileNotFoundError):
        return _recent(service.requested.read_text())
    return None


def _recent(text: str) -> float | None:
    """Return the time of a submission; None without one, or if it is so long ago that the job counts as lost."""
    submitted = float(text or 0)
    return submitted if abs(time.time() - submitted) < AGAIN else None


def _run(command: str, service: Service) -> str:
    """Run a shell command in its own session; return the last line of its output."""
    log = service.start_log
    # Variables of this job's allocation must not reach the submitted job.
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
        lines = file.read().strip().splitlines()
    if code:
        service.requested.unlink(missing_ok=True)
        raise SettingError(
            f"{START}: `{command}` ended with {code} ({lines[-1] if lines else 'no output'}); expected a command that starts "
            f"the service in the background. Fix it; its full output is in {log}."
        )
    return lines[-1] if lines else ""
