"""Where a service is, and whether somebody needs it: files that all jobs of a results folder see.

    results/services/<kind>/<name>/
        0.lock    held by the job that serves replica 0, and names it
        0.json    the replica's address, while its server is up
        key       of all replicas: 64 random digits, for the owner's eyes
        needed    held by every job that asks, together (a shared lock)
        looks     held by a replica that looks at `needed`, for a moment
        summoned  when a job that needs it had it submitted (summoning.py), until it serves or has failed

Locks go with their holders, so that nothing here depends on clocks, or on a job that ends in good order.
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
    """One server of a service: its address (`/v1`), the machine and the process of its job."""

    url: str
    node: str
    process: int


class Service:
    """The service of a model: `api/<name>`, or an artifact with weights."""

    def __init__(self, name: str, results: Path):
        self.name, self.folder = name, results / "services" / name

    def key(self) -> str:
        """The key that servers want; made by whoever comes first. ServiceError where it belongs to somebody else."""
        path = self.folder / "key"
        self.folder.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"key.{secrets.token_hex(8)}")
        try:
            if not path.exists():
                new.touch(mode=0o600)
                new.write_text(secrets.token_hex(32))
                with suppress(FileExistsError):
                    os.link(new, path)  # whole, or not at all
            return path.read_text().strip()
        except PermissionError as error:
            raise ServiceError(
                f"{path}: {error.strerror}; expected a service of one's own. Serve the model from a results folder of yours."
            ) from error
        finally:
            new.unlink(missing_ok=True)

    @property
    def summoned(self) -> Path:
        return self.folder / "summoned"

    @property
    def start_log(self) -> Path:
        """What the command said that submitted its job."""
        return self.folder / "start.log"

    def lock(self, replica: int) -> Path:
        return self.folder / f"{replica}.lock"

    def announce(self, replica: int, where: Replica) -> None:
        """Write a replica's address; by one rename, so that nobody reads half of it."""
        path = self._address(replica)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(where)) + "\n")
        os.replace(new, path)

    def withdraw(self, replica: int) -> None:
        """Remove a replica's address: its server is not up."""
        self._address(replica).unlink(missing_ok=True)

    def _address(self, replica: int) -> Path:
        return self.folder / f"{replica}.json"

    def replicas(self) -> list[Replica]:
        """The replicas whose servers are up, and whose jobs live."""
        found = []
        for path in sorted(self.folder.glob("[0-9]*.json")):
            with suppress(FileNotFoundError):  # withdrawn meanwhile
                if locks.held(path.with_suffix(".lock")):
                    found.append(Replica(**json.loads(path.read_text())))
        return found

    def has_job(self) -> bool:
        """Whether a job serves a replica, be its server up or not."""
        return any(locks.held(path) for path in self.folder.glob("[0-9]*.lock"))

    def starting(self) -> int:
        """How many replicas have a job, but no server that is up."""
        return sum(locks.held(path) for path in self.folder.glob("[0-9]*.lock")) - len(self.replicas())

    def needed(self) -> AbstractContextManager[None]:
        """While inside, the service is needed: it does not end."""
        return locks.together(self.folder / "needed")

    def is_needed(self) -> bool:
        """Whether a job that asks is at work, on whatever machine.

        A look takes the lock for a moment: two replicas that looked at once would each be a job that asks to the other.
        """
        with locks.in_turn(self.folder / "looks"):
            return locks.held(self.folder / "needed", shared=True)
