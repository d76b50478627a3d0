"""The engine of a model that is called by batches: submit, poll, and merge into the journal.

PROOFMILL_<NAME>_BATCH=1 turns it on for api/<name>; PROOFMILL_BATCH_SECONDS is the time between two looks (30). The
protocol is OpenAI's: /files, /batches, a day at most, half the price (platform.openai.com/docs/guides/batch).

A kill at any moment loses and repeats nothing:
1. The batch is recorded (batch_log.py) before the server gets it, with a digest that the server stores as metadata. No
   two batches have the same, even with the same requests.
2. A rerun adopts the batches that are not merged, by their id; without one, by the digest in the server's list.
3. Outputs are journaled one by one, also those that no row needs any more; a batch counts as merged after the last.
   Merging again adds nothing.

Differences from single calls (retries.py):
1. What a batch failed, or did not answer twice because it expired or was cancelled, is called singly, at the full price.
2. A budget bounds a batch by the sum of its requests' maximum; what does not fit waits for the next one.
3. After SIGTERM or Ctrl-C the batch continues at the server, and a rerun merges it.
"""

import asyncio
import io
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from proofmill.calls.batches.batch_log import Batch, BatchLog, Shape
from proofmill.calls.calls import Asking
from proofmill.calls.model_requests import PATHS, ModelOutput, ModelRequest
from proofmill.calls.pacing import backoff
from proofmill.calls.runner import Feed
from proofmill.engines import replies
from proofmill.engines.remote import ApiEngine, Endpoint
from proofmill.engines.retries import Failure, RequestQueue
from proofmill.engines.transport import LIMIT
from proofmill.runtime import environment
from proofmill.runtime.progress import log
from proofmill.schema.errors import ServiceError, short
from proofmill.schema.ids import digest
from proofmill.schema.reasons import Reason, StopReason

MOST = 50_000  # requests of a batch
TOKEN_BYTES = 8  # of a reply, at most, with its share of the JSON
ENDED = ("completed", "failed", "expired", "cancelled")
TIMES = 2  # batches that may leave a request without a reply
TRIES = 6  # of a call of the protocol
LOOK = 0.5  # seconds between two looks at whether a signal stopped the run


class BatchEngine(ApiEngine):
    """A model behind the batch API. Its price is half of `singly`, which calls what batches failed."""

    def __init__(self, name: str, api: Any, endpoint: Endpoint, full_price: Any, runner: asyncio.Runner | None):
        super().__init__(name, api, endpoint, runner=runner)
        self.singly = ApiEngine(name, replace(api, price=full_price), endpoint, runner=self.runner)
        self.singly.fields = self.fields  # what the server refuses in one way, it refuses in the other
        self.seconds = environment.seconds("PROOFMILL_BATCH_SECONDS", 30.0)

    def close(self) -> None:
        self.singly.close()
        super().close()

    async def hold(self, requests: Iterator[ModelRequest] | Feed, asking: Asking) -> None:
        """Answer all requests; with a feed, until the feed is closed."""
        with self.limits, self.singly.limits:
            await BatchRun(self, requests, asking).hold()

    def try_out(self, request: ModelRequest, seconds: float) -> tuple[list[dict[str, Any]], ModelOutput | Failure]:
        """Ask once, outside of a batch, so at the full price."""
        return self.singly.try_out(request, seconds)

    # ------------------------------------------------------------------------------------------------- the protocol

    def line_of(self, request: ModelRequest) -> bytes:
        """Return the line of a request in the file of a batch."""
        path = f"/v1/{PATHS.get(self.api.protocol, self.api.protocol)}"
        line = {"custom_id": request.key, "method": "POST", "url": path, "body": self._request(request)}
        return f"{json.dumps(line)}\n".encode()

    async def create(self, content: bytes, batch: Batch) -> str:
        """Create a batch at the server and return its id."""
        file = await self._client.files.create(file=("batch.jsonl", io.BytesIO(content)), purpose="batch")
        path: Any = f"/v1/{PATHS.get(self.api.protocol, self.api.protocol)}"
        made = await self._client.batches.create(
            input_file_id=file.id, endpoint=path, completion_window="24h", metadata={"proofmill": batch.digest}
        )
        return made.id

    async def find(self, batch: Batch) -> str | None:
        """Return the id of a batch that the server may have, by its digest."""
        async for listed in self._client.batches.list(limit=100):
            if (listed.metadata or {}).get("proofmill") == batch.digest:
                return listed.id
        return None

    async def look(self, batch: Batch) -> Any:
        """Return the server's record of a batch."""
        return await self._client.batches.retrieve(str(batch.id))

    async def lines(self, record: Any) -> list[dict[str, Any]]:
        """Return the replies of an ended batch: those of its output file, then those of its error file."""
        found = []
        for file in filter(None, (record.output_file_id, record.error_file_id)):
            content = (await self._client.files.content(file)).content
            for line in content.split(b"\n"):
                with suppress(ValueError, TypeError, RecursionError):  # a torn line: its request is repeated
                    found.append(dict(json.loads(line)))
        return found

    def read_line(self, line: dict[str, Any], request: ModelRequest) -> ModelOutput:
        """Return the output in a line of a batch; without one that counts, a failure with its cost, None if unknown."""
        body, status = _reply_in(line)
        raw = json.dumps(body).encode()
        if not replies.is_error(line.get("error")) and status == 200:
            with suppress(replies.UnreadableReply, replies.ErrorReply):
                output = self._answer(replies.read(raw, self.api.protocol, request), 0.0, 1)
                if not output.failed and (output.reason != Reason.OK or output.text or output.reasoning):
                    return output
        charge = self._charge(raw, request, 200 if status == 200 else 400)  # what a batch refused is free
        cost = None if charge["charged"] else charge["cost"]
        return ModelOutput("", StopReason.ERROR, Reason.PROVIDER, cost=cost, detail=f"no usable reply, status {status}")

    def find_refused_fields(self, line: dict[str, Any], request: ModelRequest) -> set[str]:
        """Return the fields that a batch's line was refused for, and that a request may omit."""
        body, status = _reply_in(line)
        return self.fields.find_refused(request, json.dumps(body)) if status in (400, 422) else set()


def _reply_in(line: dict[str, Any]) -> tuple[Any, int | None]:
    """Return the body and the status in a line of a batch, whatever a server wrote there."""
    response = line.get("response")
    response = response if isinstance(response, dict) else {}
    status = str(response.get("status_code"))
    return response.get("body"), int(status[:4]) if status.isdecimal() else None


class BatchRun:
    """The requests of one `hold`: new ones, and those in batches."""

    def __init__(self, engine: BatchEngine, requests: Iterator[ModelRequest] | Feed, asking: Asking):
        self.engine, self.requests, self.asking = engine, requests, asking
        self.feed = requests if isinstance(requests, Feed) else None
        self.log = BatchLog(asking.journal.folder, engine.model)
        self.open = self.log.open()
        self.waiting: dict[str, ModelRequest] = {}
        self.left: Counter[str] = Counter()  # how often a batch left a request without a reply

    async def hold(self) -> None:
        """Submit, poll and merge until no request is left, or the run stops."""
        self._take_more()
        for batch in [batch for batch in self.open if not batch.keys & self.waiting.keys()]:
            await self._merge_unneeded(batch)
        while not self.asking.stop.why:
            self._take_more()
            if not self.waiting:
                if self.feed is None or not self.feed.open:
                    break
                await asyncio.sleep(LOOK)  # other models may still lead to requests
                continue
            while (fresh := self._find_uncovered()) and await self._submit(fresh):
                pass
            needed = [batch for batch in self.open if batch.keys & self.waiting.keys()]
            for batch in needed:
                await self._finish(batch)
            if not needed:  # other jobs hold the budget
                await asyncio.sleep(LOOK)
        for batch in self.open:  # after a stop, or because no request needs them
            log(self.engine.name, f"batch {batch.id} continues at the server; a rerun merges it")

    def _take_more(self) -> None:
        """Take new requests. A batch may have answered some while they were queued."""
        for request in islice(self.requests, MOST):
            if request in self.asking.journal:
                self.asking.take(request, self.asking.journal[request])
            else:
                self.waiting[request.key] = request

    def _find_uncovered(self) -> list[ModelRequest]:
        """Return the requests that are in no batch."""
        covered = frozenset[str]().union(*(batch.keys for batch in self.open))
        return [request for key, request in self.waiting.items() if key not in covered]

    async def _submit(self, requests: list[ModelRequest]) -> bool:
        """Record and create a batch of the requests that fit. Return False if the budget has no room for one."""
        lines, shapes, size, reserved = dict[str, bytes](), dict[str, Shape](), 0, 0.0
        for request in requests[:MOST]:
            line, most = self.engine.line_of(request), self.asking.most(request)
            # The file of replies is read at once, and may be as long as the limits of its requests allow.
            size += len(line) + TOKEN_BYTES * request.max_tokens
            if (lines and size > LIMIT) or not self.asking.reserve(most):
                break
            lines[request.key], reserved = line, reserved + most
            shapes[request.key] = request.size, request.max_tokens, request.logprobs
        if not lines:
            needed = any(batch.keys & self.waiting.keys() for batch in self.open)
            if not needed and self.asking.budget.is_spent(self.asking.most(requests[0])):
                self.asking.stop.ask(f"stopped because the budget of ${self.asking.budget.dollars:,.2f} is spent")
            return False
        content = b"".join(lines.values())
        # An earlier batch with the same requests was merged, or has failed: the server's record of it is not this one's.
        name = digest(content.decode(), secrets.token_hex(16))
        batch = Batch(name, frozenset(lines), None, reserved, shapes, frozenset(self.engine.fields.left_out))
        self.log.add("intended", batch)
        self.open.append(batch)
        await self._create(batch, content)
        return True

    async def _create(self, batch: Batch, content: bytes | None = None) -> None:
        """Give a recorded batch its id: of the server's batch with its digest, or of a new one."""
        if content is None:
            asked = [self.waiting[key] for key in sorted(batch.keys & self.waiting.keys())]
            content = b"".join(map(self.engine.line_of, asked))

        async def create() -> str:
            return await self.engine.find(batch) or await self.engine.create(content, batch)

        batch.id = await self._call(create)  # a server may have created it although its reply was lost
        self.log.add("created", batch)
        log(self.engine.name, f"batch {batch.id}: {len(batch.keys):,} requests submitted")

    async def _finish(self, batch: Batch) -> None:
        """Wait for a batch, merge its replies, and call singly what it failed."""
        if batch.id is None:
            await self._create(batch)
        shown = ""
        while (record := await self._call(lambda: self.engine.look(batch))).status not in ENDED:
            counts = record.request_counts
            state = f"{record.status}, {counts.completed:,} of {counts.total:,}" if counts else record.status
            if state != shown:
                log(self.engine.name, f"batch {batch.id}: {state}")
            shown = state
            for _ in range(max(1, round(self.engine.seconds / LOOK))):
                if self.asking.stop.why:
                    return
                await asyncio.sleep(min(LOOK, self.engine.seconds))
        await self._merge(batch, record)

    async def _merge_unneeded(self, batch: Batch) -> None:
        """Merge a batch of an earlier run that no request needs now, if it has ended: its cost counts."""
        try:
            if batch.id is None:
                batch.id = await self._call(lambda: self.engine.find(batch))
            if batch.id is None:  # the server never got it
                self._end(batch)
            elif (record := await self._call(lambda: self.engine.look(batch))).status in ENDED:
                await self._merge(batch, record)
        except ServiceError as error:
            log(
                self.engine.name,
                f"batch {batch.id or batch.digest}, which no request needs now, is not merged: {error}",
            )

    async def _merge(self, batch: Batch, record: Any) -> None:
        failed: list[ModelRequest] = []
        read: set[str] = set()
        again: dict[str, ModelRequest] = {}  # without the fields that the server refused
        for line in await self._call(lambda: self.engine.lines(record)):
            if (key := str(line.get("custom_id"))) not in batch.keys - read:
                continue
            read.add(key)
            needed = self.waiting.pop(key, None)
            request = needed or batch.build_outline(key, self.engine.model)
            if request in self.asking.journal:  # merged before a kill
                continue
            output = self.engine.read_line(line, request)
            if output.cost is None and self.asking.limited:
                output = replace(output, cost=max(self.asking.most(request), self.engine.overrun(request, output)))
            if output.failed:
                if needed and (new := self.engine.find_refused_fields(line, needed) - batch.left_out):
                    self.engine.fields.left_out |= new
                    again[key] = needed
                elif needed:
                    failed.append(needed)
                output = replace(output, detail=f"batch {batch.id}: {output.detail}")
                known = self.asking.journal.failure_of(request) and self.asking.journal[request].detail
                if output.cost and output.detail != known:  # not merged before a kill
                    self.asking.learn(output.cost)
                    self.asking.journal.add(request, output)
                continue
            self.asking.learn(output.cost or 0.0)
            self.engine.fields.confirm(batch.left_out)
            if needed:
                self.asking.take(request, output)
            else:  # the row that asked for it is no more, or asks later
                self.asking.journal.add(request, output)
        self.asking.journal.sync()
        self._end(batch)
        unanswered = batch.keys & self.waiting.keys()
        self.left.update(unanswered)
        failed += [self.waiting.pop(key) for key in sorted(unanswered) if self.left[key] >= TIMES]
        self.waiting |= again
        why = "; ".join(str(error.message) for error in (record.errors and record.errors.data) or ())
        singly = f"; {len(again):,} requests are submitted again, without what was refused" if again else ""
        singly += f"; {len(failed):,} requests are called singly" if failed else ""
        log(self.engine.name, f"batch {batch.id} {record.status}{f' ({short(why)})' if why else ''}: merged{singly}")
        if failed:
            await self._call_singly(failed)

    async def _call_singly(self, requests: list[ModelRequest]) -> None:
        """Call requests outside of a batch; the budget must have room for the full price."""
        half, self.asking.price = self.asking.price, self.engine.singly.price
        try:
            await RequestQueue(self.engine.singly, iter(requests), self.asking).hold()
        finally:
            self.asking.price = half

    def _end(self, batch: Batch) -> None:
        """Record that the journal has all that a batch answered, and release what was reserved for it."""
        self.log.add("merged", batch)
        self.open.remove(batch)
        self.asking.budget.settle_batch(batch)

    async def _call(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Return the result of a call of the protocol. Raises ServiceError after TRIES failures, or a refusal."""
        import openai

        for attempt in range(1, TRIES + 1):
            try:
                async with self.engine.limits.at_most(self.engine.limit):
                    return await call()
            except (openai.APIError, TimeoutError) as error:
                status = getattr(error, "status_code", None) or 500
                if attempt == TRIES or (status < 500 and status not in (408, 409, 429)):
                    raise ServiceError(
                        f"{self.engine.name}: its batch API fails ({short(str(error) or 'no reply')}); expected /files and /batches of "
                        f"the OpenAI protocol. Rerun to continue, or unset {environment.variable(self.engine.name)}_BATCH to call it singly."
                    ) from error
                await asyncio.sleep(backoff(attempt) / 2)
