"""Run a program of this folder under another interpreter, with a request and a reply as JSON files, and with limits.

PROOFMILL_FOREIGN_SECONDS for each start (600), and PROOFMILL_FOREIGN_GB of memory (16).
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from proofmill.runtime import environment
from proofmill.schema.errors import SettingError, short

SECONDS, GIGABYTES = 600.0, 16.0


class ChildError(Exception):
    """A child that ended without a reply; the message says how."""


def run(python: str, program: Path, request: dict[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Return the reply of a program. Raises SettingError if `python` cannot be started, ChildError without a reply."""
    import resource  # not on Windows, where recipes can be read

    seconds = environment.seconds("PROOFMILL_FOREIGN_SECONDS", SECONDS)
    limit = int((environment.number("PROOFMILL_FOREIGN_GB", float) or GIGABYTES) * 2**30)
    with tempfile.TemporaryDirectory(prefix="proofmill-") as scratch:
        asked, replied = Path(scratch, "request.json"), Path(scratch, "reply.json")
        asked.write_text(json.dumps(request), encoding="utf-8")
        try:
            done = subprocess.run(
                [python, program, asked, replied],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                cwd=folder,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ChildError(f"it took more than {seconds:g} s") from error
        except OSError as error:
            raise SettingError(f"{python}: cannot be started ({error.strerror}); expected a Python.") from error
        if done.returncode or not replied.exists():
            raise ChildError(short((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]))
        return json.loads(replied.read_text(encoding="utf-8"))
