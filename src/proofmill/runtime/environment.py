"""Settings from environment variables and `.env`: addresses, keys and limits of remote models, and numbers.

    PROOFMILL_<NAME>_URL, PROOFMILL_<NAME>_KEY    address of the server of api/<name>, and its key
    PROOFMILL_<NAME>_RPM, PROOFMILL_<NAME>_TPM    requests and tokens per minute, for all jobs together
    PROOFMILL_SHARDS                              number of jobs per stage: `grades=4 responses/big=16`

A file `.env` in the working folder, next to config.yaml, has such variables, one NAME=value per line. Variables that
are set already win. Messages never show a key, an address that may hold one, or a line of that file.
"""

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from proofmill.schema.errors import SettingError

FILE = ".env"
ENCODING = "utf-8-sig"  # some editors write a byte order mark before the first line
SERVICE = "service"  # instead of an address
NO_KEY = "none"  # sent to a server that needs no key
# Names that users try as fields of an `api/...`, by the suffix of the variable to use instead.
_MEANT = {
    "URL": ("url", "base-url", "api-url", "api-base", "server-url", "address", "endpoint", "host", "server"),
    "KEY": ("key", "api-key", "apikey", "token", "api-token", "secret", "password", "auth"),
    "RPM": ("rpm", "requests-per-minute"),
    "TPM": ("tpm", "tokens-per-minute"),
}
_MEANT_BY_ALL = {"concurrency": "PROOFMILL_CONCURRENCY", "timeout": "PROOFMILL_CALL_TIMEOUT"}
_EXAMPLES = {"URL": "https://host/v1", "KEY": "sk-0123", "RPM": "60", "TPM": "100000"}


def read_file(folder: Path = Path()) -> None:
    """Load the variables of the folder's `.env`. Raises SettingError for a line that is not NAME=value."""
    from dotenv import load_dotenv
    from dotenv.parser import parse_stream

    path = folder / FILE
    if not path.is_file():  # `.env` may be a virtual environment
        return
    try:
        with open(path, encoding=ENCODING) as file:
            broken = [b.original for b in parse_stream(file) if b.error or (b.key is not None and b.value is None)]
        if broken:
            blank = broken[0].string
            line = broken[0].line + blank[: len(blank) - len(blank.lstrip())].count("\n")
            raise SettingError(
                f"{path}:{line}: is not NAME=value (the line is not shown: it may hold a key); expected a line such as "
                "PROOFMILL_JUDGE_URL=https://host/v1. Fix it, or begin it with #."
            )
        load_dotenv(path, override=False, encoding=ENCODING)
    except (OSError, ValueError) as error:
        fault = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise SettingError(f"{path}: {fault}; expected a text file with one NAME=value per line. Fix it.") from error


# Options of glibc's malloc: the heap is never trimmed, grows by 256 MiB, in pages of 2 MiB if the system has them, and all
# allocations are made there. Caches of threads would leave holes that the next aligned tensor does not fit into.
TUNABLES = {"mmap_max": 0, "trim_threshold": 2**64 - 1, "top_pad": 2**28, "hugetlb": 1, "tcache_count": 0}


def keep_freed_memory() -> None:
    """Keep freed memory in the processes that this one starts, unless the user set malloc's variables.

    glibc returns large freed tensors to the system, which has to clear their pages when the next step asks for them: a
    tenth of GRPO of SmolLM2-135M on a CPU (docs/performance.md). Other C libraries ignore the variable.
    """
    if not any(name.startswith("MALLOC_") for name in os.environ):
        options = ":".join(f"glibc.malloc.{name}={value}" for name, value in TUNABLES.items())
        os.environ.setdefault("GLIBC_TUNABLES", options)


# ------------------------------------------------------------------------------------------------------- remote models


def variable(name: str) -> str:
    """Return the prefix of the environment variables of `api/<name>`: PROOFMILL_<NAME>."""
    return f"PROOFMILL_{name.partition('/')[2].upper().replace('-', '_').replace('.', '_')}"


def meant_by(name: str, key: str) -> str | None:
    """Return an example of the variable to set instead of the unknown field `key` of `api/<name>`, or None."""
    for end, words in _MEANT.items():
        if key.lower() in words:
            return f"{variable(name)}_{end}={_EXAMPLES[end]}"
    return f"{_MEANT_BY_ALL[key.lower()]}=32" if key.lower() in _MEANT_BY_ALL else None


def is_service(name: str) -> bool:
    """Return whether `api/<name>` is a service of this project (engines/services), whose address jobs look up."""
    return os.environ.get(f"{variable(name)}_URL") == SERVICE


def is_batched(name: str) -> bool:
    """Return whether `api/<name>` is called by batches. Raises SettingError for another value than 1."""
    value = os.environ.get(f"{variable(name)}_BATCH")
    if value not in (None, "", "0", "1"):
        raise SettingError(
            f"{variable(name)}_BATCH={value}: expected 1 to call the model by batches. Set 1 or unset it."
        )
    return value == "1"


def has_address(name: str) -> bool:
    """Return whether the environment names a server for `api/<name>`."""
    return f"{variable(name)}_URL" in os.environ


def address(name: str) -> str:
    """Return the address of the server of `api/<name>`, without using the network.

    Raises SettingError if it is unset, not an address, or contains a password; the message does not show it.
    """
    variable_of_url = f"{variable(name)}_URL"
    url = os.environ.get(variable_of_url)
    if url is None:
        raise SettingError(
            f"{name}: the environment has no {variable_of_url}; expected the address of the server, such as "
            f"https://host/v1. Set it, and {variable(name)}_KEY if the server needs a key, in the shell or in {FILE}."
        )
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname and parts.path) and (parts.port or 1) > 0
    except ValueError:
        is_valid, parts = False, urlsplit("")
    if not is_valid:
        raise SettingError(
            f"{variable_of_url}: is not the address of a server ({_fault(url)}); expected one such as https://host/v1 or "
            "http://127.0.0.1:8000/v1. Fix it."
        )
    if parts.username is not None or parts.password is not None:
        raise SettingError(
            f"{variable_of_url}: contains a user name or a password; expected an address without them. Set the server's key "
            f"in {variable(name)}_KEY."
        )
    return url


def _fault(url: str) -> str:
    """Describe the fault of an address, showing at most its scheme."""
    if not url.strip():
        return "it is empty"
    scheme, colon, _ = url.partition("://")
    if not colon:
        return "it has no https:// or http:// before the host"
    if scheme not in ("http", "https"):
        return (
            f"it begins with {scheme}://"
            if re.fullmatch(r"[a-zA-Z]{1,10}", scheme)
            else "it does not begin with https://"
        )
    if re.fullmatch(r"https?://[\w.\[\]-]+(:\d{1,5})?", url):
        return "it has no path: most servers answer at /v1, some at /"
    return "its host or its port cannot be read"


def key(name: str) -> str:
    """Return the key of `api/<name>`, NO_KEY if unset. Raises SettingError if no header can carry it."""
    value = os.environ.get(f"{variable(name)}_KEY", NO_KEY)
    if re.fullmatch(r"[!-~]+", value) is None:
        fault = "is empty" if not value.strip() else "contains a line break, a space or another invalid character"
        raise SettingError(
            f"{variable(name)}_KEY: the key {fault} (it is not shown here); expected only printable ASCII characters without spaces. "
            "Set it correctly, or unset it for a server that needs none."
        )
    return value


# -------------------------------------------------------------------------------------------------------------- numbers


def number(name: str, kind: type) -> Any:
    """Return a positive number from the environment, None if unset. Raises SettingError for anything else."""
    value = os.environ.get(name)
    if value is None:
        return None
    try:
        parsed = kind(value)
    except ValueError:
        parsed = 0
    if not parsed > 0:
        raise SettingError(
            f"{name}={value}: is not a positive number; expected one, such as {name}=60. Set or unset it."
        )
    return parsed


SHARDS = "PROOFMILL_SHARDS"


def shards(kinds: Collection[str]) -> dict[str, int]:
    """Return the number of jobs that make a stage's calls, by artifact or by kind, which is one of `kinds`.

    Raises SettingError for a word that is not NAME=NUMBER, or that names a stage without shards.
    """
    numbers = {}
    for word in os.environ.get(SHARDS, "").split():
        name, _, number = word.partition("=")
        if name.partition("/")[0] not in kinds or not re.fullmatch(r"[1-9][0-9]{0,5}", number):
            raise SettingError(
                f"{SHARDS}: has the word `{word}`; expected words such as grades=4 or responses/big=16, of the kinds "
                f"{', '.join(kinds)}. Fix or unset it."
            )
        numbers[name] = int(number)
    return numbers


def seconds(name: str, default: float) -> float:
    """Return a number of seconds from the environment, or the default."""
    return number(name, float) or default
