"""What the environment says: addresses, keys and limits of remote models, numbers, and what a file `.env` adds to it.

    PROOFMILL_<NAME>_URL, PROOFMILL_<NAME>_KEY    address of the server of api/<name>, and its key
    PROOFMILL_<NAME>_RPM, PROOFMILL_<NAME>_TPM    requests and tokens a minute that its server allows all jobs
    PROOFMILL_SHARDS                              by how many jobs stages are asked: `grades=4 responses/big=16`

A file `.env` in the working folder, beside config.yaml, has such variables, one a line: NAME=value. What the environment
has already wins. No message shows a key, an address that may hold one, or a line of that file.
"""

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from proofmill.schema.errors import SettingError

FILE = ".env"
ENCODING = "utf-8-sig"  # some editors put a mark of the encoding before the first line
SERVICE = "service"  # in the place of an address
NO_KEY = "none"  # what is sent to a server that wants no key
# What people write as fields of an `api/...`, by the end of the variable that it belongs in.
_MEANT = {
    "URL": ("url", "base-url", "api-url", "api-base", "server-url", "address", "endpoint", "host", "server"),
    "KEY": ("key", "api-key", "apikey", "token", "api-token", "secret", "password", "auth"),
    "RPM": ("rpm", "requests-per-minute"),
    "TPM": ("tpm", "tokens-per-minute"),
}
_MEANT_BY_ALL = {"concurrency": "PROOFMILL_CONCURRENCY", "timeout": "PROOFMILL_TIMEOUT"}
_EXAMPLES = {"URL": "https://host/v1", "KEY": "sk-0123", "RPM": "60", "TPM": "100000"}


def read_file(folder: Path = Path()) -> None:
    """Add the variables of the folder's `.env` to the environment. SettingError for a line that is no NAME=value."""
    from dotenv import load_dotenv
    from dotenv.parser import parse_stream

    path = folder / FILE
    if not path.is_file():  # some call a folder of Python's so
        return
    try:
        with open(path, encoding=ENCODING) as file:
            broken = [b.original for b in parse_stream(file) if b.error or (b.key is not None and b.value is None)]
        if broken:
            blank = broken[0].string
            line = broken[0].line + blank[: len(blank) - len(blank.lstrip())].count("\n")
            raise SettingError(
                f"{path}:{line}: is no NAME=value (the line is not shown: it may hold a key); expected such as "
                "PROOFMILL_JUDGE_URL=https://host/v1. Mend it, or begin it with #."
            )
        load_dotenv(path, override=False, encoding=ENCODING)
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "is no UTF-8"
        raise SettingError(f"{path}: {what}; expected a text file with a line NAME=value for each variable.") from error


# ------------------------------------------------------------------------------------------------------- remote models


def variable(name: str) -> str:
    """The prefix of the environment variables of `api/<name>`: PROOFMILL_<NAME>."""
    return f"PROOFMILL_{name.partition('/')[2].upper().replace('-', '_').replace('.', '_')}"


def meant_by(name: str, key: str) -> str | None:
    """An example of the variable in which what somebody wrote as the field `key` of `api/<name>` belongs, or None."""
    for end, words in _MEANT.items():
        if key.lower() in words:
            return f"{variable(name)}_{end}={_EXAMPLES[end]}"
    return f"{_MEANT_BY_ALL[key.lower()]}=32" if key.lower() in _MEANT_BY_ALL else None


def is_service(name: str) -> bool:
    """Whether `api/<name>` is served by a service of this project (engines/services), whose place jobs look up."""
    return os.environ.get(f"{variable(name)}_URL") == SERVICE


def has_address(name: str) -> bool:
    """Whether the environment names a server for `api/<name>`."""
    return f"{variable(name)}_URL" in os.environ


def address(name: str) -> str:
    """The address of the server of `api/<name>`; nothing is asked of the network.

    Raises SettingError where it is unset, no address, or holds a password; the message does not show it.
    """
    variable_of_url = f"{variable(name)}_URL"
    url = os.environ.get(variable_of_url)
    if url is None:
        raise SettingError(
            f"{name}: the environment has no {variable_of_url}; expected the address of the server, such as "
            f"https://host/v1. Set it, and {variable(name)}_KEY if the server wants a key, in the shell or in a line of {FILE}."
        )
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        right, parts = False, urlsplit("")
    if not right:
        raise SettingError(
            f"{variable_of_url}: is no address of a server ({_fault(url)}); expected one such as https://host/v1 or "
            "http://127.0.0.1:8000/v1. Mend it."
        )
    if parts.username is not None or parts.password is not None:
        raise SettingError(
            f"{variable_of_url}: holds a user or a password; expected an address without one. Give what the server wants as a key "
            f"in {variable(name)}_KEY."
        )
    return url


def _fault(url: str) -> str:
    """What is wrong with an address, without showing more of it than how it begins."""
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
    return "its host or its port cannot be read"


def key(name: str) -> str:
    """The key of `api/<name>`, NO_KEY if unset. Raises SettingError, without the key, for what no header can carry."""
    value = os.environ.get(f"{variable(name)}_KEY", NO_KEY)
    if re.fullmatch(r"[!-~]+", value) is None:
        found = "is empty" if not value.strip() else "has a line end, a blank or another character that no key has"
        raise SettingError(
            f"{variable(name)}_KEY: the key {found} (it is not shown here); expected letters, digits and signs alone. Set it "
            "again, or unset it for a server that wants none."
        )
    return value


# -------------------------------------------------------------------------------------------------------------- numbers


def number(name: str, kind: type) -> Any:
    """A positive number from the environment, None if unset; SettingError for anything else."""
    value = os.environ.get(name)
    if value is None:
        return None
    try:
        found = kind(value)
    except ValueError:
        found = 0
    if not found > 0:
        raise SettingError(
            f"{name}={value}: found no positive number; expected one, such as {name}=60. Set or unset it."
        )
    return found


SHARDS = "PROOFMILL_SHARDS"


def shards(kinds: Collection[str]) -> dict[str, int]:
    """By how many jobs the questions of stages are asked: of an artifact by its name, or of a kind, one of `kinds`.

    Raises SettingError for a word that is no NAME=NUMBER, or names what is not shared out.
    """
    found = {}
    for word in os.environ.get(SHARDS, "").split():
        name, _, number = word.partition("=")
        if name.partition("/")[0] not in kinds or not re.fullmatch(r"[1-9][0-9]{0,5}", number):
            raise SettingError(
                f"{SHARDS}: has the word `{word}`; expected words such as grades=4 or responses/big=16, of the kinds "
                f"{', '.join(kinds)}. Mend or unset it."
            )
        found[name] = int(number)
    return found


def seconds(name: str, default: float) -> float:
    """A number of seconds from the environment, or what holds without it."""
    return number(name, float) or default
