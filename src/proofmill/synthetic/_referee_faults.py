"""Simulate server faults, by a schedule that is the same in every run.

    {"seed": 1, "shares": {"overloaded": 0.1, "drop": 0.05}, "times": 2, "script": {"40": "die"}}

Each request draws its fault from `shares` by the seed, its body and the number of earlier requests with this body, so
the order of other requests does not matter. After `times` requests (2) the same body is answered. Only faults of
CONTENT, which a client cannot avoid by a retry, stay with their body forever. `script` names the fault of the n-th
request of all, counted from 1. Every answer is delayed by `delay` seconds. GET /faults returns the numbers of requests
and of answers.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LONG = 3600.0  # seconds
GARBAGE = '<points>many</points> ```json {"incomplete": perhaps'
HTML = b"<html><body><h1>Bad gateway</h1></body></html>"
Send = Callable[[dict], Awaitable[None]]


def _error(status: int, text: str, **headers: str) -> Callable[[Send, bytes], Awaitable[None]]:
    async def fault(send: Send, _: bytes) -> None:
        await _reply(send, status, json.dumps({"error": {"message": text}}).encode(), None, **headers)

    return fault


async def _reply(send: Send, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
    """Send a reply; with a `length` greater than the body's, the connection breaks before the end."""
    fields = {"content_type": "application/json", "content_length": str(length or len(body)), **headers}
    encoded = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": length is not None})


async def _time_out(send: Send, _: bytes) -> None:
    await asyncio.sleep(LONG)


async def _drop(send: Send, body: bytes) -> None:
    await _reply(send, 200, body[:20], length=len(body))
    raise ConnectionAbortedError("dropped, as scheduled")


async def _trickle(send: Send, body: bytes) -> None:
    await _reply(send, 200, b"", length=len(body))
    for byte in body:
        await asyncio.sleep(0.5)
        await send({"type": "http.response.body", "body": bytes([byte]), "more_body": True})


async def _die(send: Send, _: bytes) -> None:
    os._exit(9)


def _saying(text: str) -> Callable[[Send, bytes], Awaitable[None]]:
    async def fault(send: Send, body: bytes) -> None:
        reply = json.loads(body)
        reply["choices"][0]["message"]["content"] = text
        await _reply(send, 200, json.dumps(reply).encode())

    return fault


async def _truncate(send: Send, body: bytes) -> None:
    await _reply(send, 200, body[: len(body) // 2])


async def _wrong_type(send: Send, _: bytes) -> None:
    await _reply(send, 200, HTML, content_type="text/html")


FAULTS: dict[str, Callable[[Send, bytes], Awaitable[None]]] = {
    "rate-limit": _error(429, "slow down", retry_after="1"),
    "rate-limit-bare": _error(429, "slow down"),
    "broken": _error(500, "internal error"),
    "overloaded": _error(503, "overloaded"),
    "timeout": _time_out,
    "drop": _drop,
    "truncated": _truncate,
    "empty": _saying(""),
    "wrong-type": _wrong_type,
    "garbage": _saying(GARBAGE),
    "trickle": _trickle,
    "die": _die,
}
CONTENT = {"garbage"}


@dataclass(frozen=True)
class Schedule:
    """The faults of requests."""

    seed: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)
    times: int = 2
    script: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0

    def fault(self, body: bytes, earlier: int, number: int) -> str | None:
        """Return the fault of the `number`-th request, whose body came `earlier` times before; None for an answer."""
        if scripted := self.script.get(str(number)):
            return scripted
        permanent = self._draw(body, 0)
        if permanent in CONTENT:
            return permanent
        transient = self._draw(body, earlier) if earlier < self.times else None
        return None if transient in CONTENT else transient

    def _draw(self, body: bytes, earlier: int) -> str | None:
        chance = int.from_bytes(hashlib.sha256(b"%d %d " % (self.seed, earlier) + body).digest()[:6]) / 2**48
        for name, share in self.shares.items():
            chance -= share
            if chance < 0:
                return name
        return None


def read(text: str) -> Schedule:
    """Read a schedule from JSON, or from a file of JSON. Raises ValueError for an unknown fault."""
    values = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    schedule = Schedule(**values)
    if unknown := {*schedule.shares, *schedule.script.values()} - set(FAULTS):
        raise ValueError(
            f"faults: found {', '.join(sorted(unknown))}; expected some of {', '.join(FAULTS)}. Fix the names."
        )
    return schedule


class Unreliable:
    """A web application that fails by a schedule. Only POST requests count."""

    def __init__(self, application: Any, schedule: Schedule):
        self.application, self.schedule = application, schedule
        self.number = self.answered = 0
        self.earlier: dict[bytes, int] = {}  # requests by the digest of their body

    async def __call__(self, scope: dict, receive: Callable, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/faults":
            counts = {"requests": self.number, "answered": self.answered}
            await _reply(send, 200, json.dumps(counts).encode())
            return
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.application(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        digest = hashlib.sha256(body).digest()
        self.number += 1
        fault = self.schedule.fault(body, self.earlier.get(digest, 0), self.number)
        self.earlier[digest] = self.earlier.get(digest, 0) + 1
        answer = bytearray()

        async def receive_body() -> dict:
            return {"type": "http.request", "body": body, "more_body": False}

        async def keep_answer(message: dict) -> None:
            answer.extend(message.get("body", b""))

        await asyncio.sleep(self.schedule.delay)
        self.answered += fault is None or fault in CONTENT
        if fault is None:
            await self.application(scope, receive_body, send)
        else:
            await self.application(scope, receive_body, keep_answer)
            await FAULTS[fault](send, bytes(answer))
