"""Starts the viewer: a port of the loopback, a token, and the configuration as it stands whenever a page is asked for."""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from proofmill.recipes import yaml_files
from proofmill.recipes.book import Book, expand
from proofmill.runtime.progress import say
from proofmill.schema.errors import SettingError


def configuration(files: Sequence[str]) -> Callable[[], Book]:
    """Reads the configuration when one of its files was edited since, and else gives what was read."""
    read: tuple[tuple[int, ...], Book] | None = None

    def book_of() -> Book:
        nonlocal read
        paths = [Path("config.yaml"), *map(Path, files), *sorted(Path("workflow").glob("**/*.yaml"))]
        now = tuple(path.stat().st_mtime_ns for path in paths if path.exists())
        if read is None or read[0] != now:
            read = now, expand(yaml_files.read("config.yaml", *files), drafts=True)
        return read[1]

    return book_of


def serve(files: Sequence[str], results: Path, port: int) -> None:
    """Serve until interrupted, and say where. Raises SettingError where the port is taken."""
    import uvicorn

    from proofmill.viewer.app import application

    token = secrets.token_urlsafe(18)
    app = application(configuration(files), results, token)
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="off")
    try:
        socket = config.bind_socket()
    except SystemExit as error:
        raise SettingError(f"--port {port}: is taken; expected a free one, or 0 for any.") from error
    socket.listen(128)
    here = socket.getsockname()[1]
    print(f"http://127.0.0.1:{here}/?token={token}", flush=True)
    say(
        "view",
        f"shows {results}/ until Ctrl-C; on another machine: ssh -L {here}:127.0.0.1:{here} HOST, then the same address",
    )
    uvicorn.Server(config).run(sockets=[socket])
