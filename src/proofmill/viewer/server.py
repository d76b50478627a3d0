"""Start the viewer: a port of the loopback, a token, and the current configuration for every page."""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from proofmill.config import yaml_files
from proofmill.config.config import Config, expand
from proofmill.runtime.progress import log
from proofmill.schema.errors import SettingError


def configuration(files: Sequence[str]) -> Callable[[], Config]:
    """Return a function that returns the configuration and rereads it only after an edit of its files."""
    read: tuple[tuple[int, ...], Config] | None = None

    def book_of() -> Config:
        nonlocal read
        paths = [Path("config.yaml"), *map(Path, files), *sorted(Path("workflow").glob("**/*.yaml"))]
        now = tuple(path.stat().st_mtime_ns for path in paths if path.exists())
        if read is None or read[0] != now:
            read = now, expand(yaml_files.read("config.yaml", *files), drafts=True)
        return read[1]

    return book_of


def serve(files: Sequence[str], results: Path, port: int) -> None:
    """Serve until interrupted, and print the address. Raises SettingError if the port is in use."""
    import uvicorn

    from proofmill.viewer.app import application

    token = secrets.token_urlsafe(18)
    app = application(configuration(files), results, token)
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="off")
    try:
        socket = config.bind_socket()
    except SystemExit as error:
        raise SettingError(f"--port {port}: in use; expected a free port. Set another, or 0 for any.") from error
    socket.listen(128)
    chosen = socket.getsockname()[1]
    print(f"http://127.0.0.1:{chosen}/?token={token}", flush=True)
    log(
        "view",
        f"serves {results}/ until Ctrl-C; from another machine: ssh -L {chosen}:127.0.0.1:{chosen} HOST, then open the same address",
    )
    uvicorn.Server(config).run(sockets=[socket])
