"""Files with which the jobs of a results folder find a service, and with which it sees whether it is still needed.

    results/services/<kind>/<name>/
        0.lock    held by the job that serves replica 0, whose name it contains
        0.json    the replica's address, while its server is up
        key       of all replicas: 64 random digits, readable by the owner only
        needed    a shared lock, held by every job that makes calls
        looks     held by a replica while it checks `needed`
        requested time at which a job submitted it (start_on_demand.py); removed once it serves or has failed

The operating system releases the locks when their holders end. So nothing depends on clocks or on a clean exit.
"""

import json
import os
import secrets
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from proofmill.runtime import locks
from proofmill.schema.errors import ServiceError


@dataclass(frozen=True)
class Replica:
    """One server of a service: its address (`/v1`), and the node and process id of its job."""

    url: str
    node: str
    process: int


class Service:
    """The service of a model: `api/<name>`, or an artifact with weights."""

    def __init__(self, name: str, results: Path):
        self.name, self.folder = name, results / "services" / name

    def key(self) -> str:
        """Return the key of the servers; the first caller creates it. Raises ServiceError if another user owns it."""
        path = self.folder / "key"
        self.folder.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"key.{secrets.token_hex(8)}")
        try:
            if not path.exists():
                new.touch(mode=0o600)
                new.write_text(secrets.token_hex(32))
                with suppress(FileExistsError):
                    os.link(new, path)  # atomic: readers never see a partial key
            return path.read_text().strip()
        except PermissionError as error:
            raise ServiceError(
                f"{path}: {error.strerror}; expected a service that you own. Serve the model from your own results folder."
            ) from error
        finally:
            new.unlink(missing_ok=True)

    @property
    def requested(self) -> Path:
        return self.folder / "requested"

    @property
    def start_log(self) -> Path:
        """The output of the command that submitted its job."""
        return self.folder / "start.log"

    def lock(self, replica: int) -> Path:
        return self.folder / f"{replica}.lock"

    def announce(self, replica: int, where: Replica) -> None:
        """Write a replica's address atomically."""
        path = self._address(replica)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(where)) + "\n")
        os.replace(new, path)

    def withdraw(self, replica: int) -> None:
        """Remove a replica's address, because its server is not up."""
        self._address(replica).unlink(missing_ok=True)

    def _address(self, replica: int) -> Path:
        return self.folder / f"{replica}.json"

    def replicas(self) -> list[Replica]:
        """Return the replicas whose servers are up and whose jobs are running."""
        replicas = []
        for path in sorted(self.folder.glob("[0-9]*.json")):
            with suppress(FileNotFoundError):  # withdrawn meanwhile
                if locks.is_held(path.with_suffix(".lock")):
                    replicas.append(Replica(**json.loads(path.read_text())))
        return replicas

    def has_job(self) -> bool:
        """Return whether a job serves a replica; its server may not be up yet."""
        return any(locks.is_held(path) for path in self.folder.glob("[0-9]*.lock"))

    def starting(self) -> int:
        """Return the number of replicas with a job but without a server that is up."""
        return sum(locks.is_held(path) for path in self.folder.glob("[0-9]*.lock")) - len(self.replicas())

    def keep_alive(self) -> AbstractContextManager[None]:
        """Return a context in which the service is needed, so it does not end."""
        return locks.together(self.folder / "needed")

    def is_needed(self) -> bool:
        """Return whether a job that makes calls is running, on any machine.

        The check takes the lock for a moment. Two replicas that checked at once would take each other for such a job.
        """
        with locks.in_turn(self.folder / "looks"):
            return locks.is_held(self.folder / "needed", shared=True)
