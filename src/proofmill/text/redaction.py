"""Remove secrets from the texts of servers, also if a server returns them encoded, or a part of them.

The forms are the secret itself, percent-encoded, in hexadecimal, and in Base64 at any offset in the encoded bytes.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from urllib.request import getproxies

HIDDEN = "***"
PART = 12  # shortest part of a secret, in characters, that is recognized
# Each part contains a seed of PART - STRIDE + 1 characters at a multiple of STRIDE, so only these places are searched.
STRIDE = 6
SECRET = re.compile(r"key|token|sig|secret|code|password|auth", re.IGNORECASE)  # names of parameters of an address
PASSWORD = re.compile(r"//[^/:@]*:([^/]+)@")  # of a proxy
_USER = re.compile(r"(?<=://)[^/?#\s]+@")  # of a URL
_RUN = re.compile(rf"[\w+/=%.~-]{{{PART},}}", re.ASCII)


class Redaction:
    """A function that removes the secrets of at least `least` characters from a text."""

    def __init__(self, secrets: Iterable[str], least: int = PART):
        kept = [secret for secret in secrets if len(secret) >= least]
        self._whole = sorted({form for secret in kept for form in _forms(secret)}, key=len, reverse=True)
        self._parts = {form[i : i + PART] for form in self._whole for i in range(len(form) - PART + 1)}
        self._seeds = {part[i : i + PART - STRIDE + 1] for part in self._parts for i in range(STRIDE)}

    def __call__(self, text: str) -> str:
        for form in self._whole:
            text = text.replace(form, HIDDEN)
        return _RUN.sub(self._hidden, text) if self._parts else text

    def _hidden(self, run: re.Match) -> str:
        text = run[0]
        if self._seeds.isdisjoint(text[i : i + PART - STRIDE + 1] for i in range(0, len(text), STRIDE)):
            return text
        known = any(text[i : i + PART] in self._parts for i in range(len(text) - PART + 1))
        return HIDDEN if known else text


def without_users(text: str) -> str:
    """Return the text without the users and passwords of its URLs."""
    return _USER.sub(f"{HIDDEN}@", text)


def _forms(secret: str) -> Iterator[str]:
    data = secret.encode()
    yield secret
    if len(secret) < PART:
        return
    yield from (quote(secret, safe=""), data.hex(), data.hex().upper())
    for before in range(3):  # Base64 encodes groups of three bytes, so the offset matters
        encoded = base64.b64encode(b"\0" * before + data).decode()
        whole = encoded[-(-before * 4 // 3) : len(encoded) - (4 if (before + len(data)) % 3 else 0)]
        yield from (whole, whole.translate(str.maketrans("+/", "-_")))


def secrets_of(url: str) -> list[str]:
    """Return the values of an address's query parameters whose names suggest keys."""
    return [value for name, value in parse_qsl(urlsplit(url).query) if SECRET.search(name)]


def passwords_of_proxies() -> list[str]:
    """Return the passwords of the environment's proxies, both verbatim and decoded."""
    passwords = [password for proxy in getproxies().values() for password in PASSWORD.findall(proxy)]
    return [form for password in passwords for form in (password, unquote(password))]
