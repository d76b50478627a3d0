"""Start the viewer: a port of the loopback, a token, and the current configuration for every page.

Modules that take long to import are imported after the address was printed; the browser waits meanwhile.
"""

import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proofmill.runtime.progress import log
from proofmill.schema.errors import SettingError

if TYPE_CHECKING:
    from proofmill.config.config import Config


def configuration(files: Sequence[str]) -> "Callable[[], Config]":
    """Return a function that returns the configuration and rereads it only after an edit of its files."""
    from proofmill.config import yaml_files
    from proofmill.config.config import expand

    read: tuple[tuple[int, ...], Config] | None = None

    def book_of() -> "Config":
        nonlocal read
        paths = [Path("config.yaml"), *map(Path, files), *sorted(Path("workflow").glob("**/*.yaml"))]
        now = tuple(path.stat().st_mtime_ns for path in paths if path.exists())
        if read is None or read[0] != now:
            read = now, expand(yaml_files.read("config.yaml", *files), drafts=True)
        return read[1]

    return book_of


def announce(port: int) -> tuple[socket.socket, str]:
    """Open a port of the loopback and print the address. Return the socket and the token.

    Raises SettingError if the port is in use.
    """
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        raise SettingError(f"--port {port}: in use; expected a free port. Set another, or 0 for any.") from error
    token, chosen = secrets.token_urlsafe(18), listening.getsockname()[1]
    print(f"http://127.0.0.1:{chosen}/?token={token}", flush=True)
    return listening, token


def serve(files: Sequence[str], results: Path, listening: socket.socket, token: str) -> None:
    """Serve until interrupted."""
    import uvicorn

    from proofmill.viewer.app import application

    chosen = listening.getsockname()[1]
    log(
        "view",
        f"serves {results}/ until Ctrl-C; from another machine: ssh -L {chosen}:127.0.0.1:{chosen} HOST, then open the same address",
    )
    app = application(configuration(files), results, token)
    config = uvicorn.Config(app, host="127.0.0.1", port=chosen, log_level="error", lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])
