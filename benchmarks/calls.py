"""Time model calls: throughput, memory over many rows, opening a large journal, and shared rate limits.

    python benchmarks/calls.py throughput [--calls 20480]
    python benchmarks/calls.py rates
    python benchmarks/calls.py memory [--rows 100000]
    python benchmarks/calls.py journal [--rows 1000000]

throughput   A server process answers each request after 2 s and allows 512 requests in flight; it refuses the 513th
             with 429. Our stage (journal on), an asyncio loop over the `openai` client with a semaphore, and 512
             threads with the synchronous client make the same calls, sequentially in one run. The ideal is 512 calls
             per 2 s.
rates        The time in which a call checks its rate limits, with limits of one process and with shared limits that
             never delay it; and how often eight jobs that exhaust a shared limit open its file.
memory       The peak resident size of a sampling stage, at a quarter of the rows and at all. The server sends 4 kB
             immediately.
journal      A process opens a journal of a million outputs and looks up all its requests and 1,000 new ones.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ALLOWED, SECONDS = 512, 2.0
TEXT = "The residue of the power is found line by line, as the scheme wants it to be. " * 60


# ---------------------------------------------------------------------------------------------------------- the server


def serve(ready: multiprocessing.Queue, delay: float, allowed: int, size: int) -> None:
    """Run a server that only waits and counts; plain asyncio, so that it is not the bottleneck."""
    body = json.dumps({
        "id": "x", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": TEXT[:size]}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 1000, "total_tokens": 1100},
    }).encode()  # fmt: skip
    head = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    good = b"HTTP/1.1 200 OK\r\n" + head % len(body) + body
    busy = b"HTTP/1.1 429 Too Many Requests\r\n" + head % 2 + b"{}"
    state = {"now": 0}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in asked.split(b"\r\n") if line.lower().startswith(b"content-length")
                )
                await reader.readexactly(length)
                if state["now"] >= allowed:
                    writer.write(busy)
                    continue
                state["now"] += 1
                await asyncio.sleep(delay)
                state["now"] -= 1
                writer.write(good)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0, backlog=2048)
        ready.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


class Served:
    """A context with the server in its own process."""

    def __init__(self, delay: float, allowed: int = ALLOWED, size: int = 400):
        self.arguments = (delay, allowed, size)

    def __enter__(self) -> str:
        context = multiprocessing.get_context("spawn")
        ready = context.Queue()
        self.process = context.Process(target=serve, args=(ready, *self.arguments), daemon=True)
        self.process.start()
        return f"http://127.0.0.1:{ready.get()}/v1"

    def __exit__(self, *_: object) -> None:
        self.process.kill()


# -------------------------------------------------------------------------------------------------------- three clients


def ours(url: str, texts: list[str]) -> float:
    """Return the seconds of our client, journal on."""
    from proofmill.calls.budget import Budget
    from proofmill.calls.calls import Asker
    from proofmill.calls.journal import Journal
    from proofmill.calls.model_requests import ModelRequest, Requests
    from proofmill.engines.open_engine import open_api
    from proofmill.schema.entries.declared import Api

    os.environ.update(PROOFMILL_BENCH_URL=url, PROOFMILL_CONCURRENCY=str(ALLOWED))
    api = Api(id="m", price={"input": 1.0, "output": 1.0})
    asked = Requests(len(texts), lambda: (("", ModelRequest("m", (("user", text),))) for text in texts))
    with tempfile.TemporaryDirectory() as folder, open_api("api/bench", api) as engine:
        start = time.monotonic()
        with Journal(Path(folder) / "calls") as journal:
            answers = Asker("bench", engine, journal, Budget(None, Path(folder), journal))(asked, quiet=True)
        assert sum(answer.reason == "ok" for answer in answers) == len(texts)
        return time.monotonic() - start


def plain_loop(url: str, texts: list[str]) -> float:
    """Return the seconds of asyncio.gather over the `openai` client with a semaphore."""
    import httpx2
    import openai

    async def run() -> None:
        limits = httpx2.Limits(max_connections=ALLOWED, max_keepalive_connections=ALLOWED)
        http = openai.DefaultAsyncHttpxClient(limits=limits, trust_env=False)
        client, room = openai.AsyncOpenAI(base_url=url, api_key="none", http_client=http), asyncio.Semaphore(ALLOWED)

        async def one(text: str) -> str:
            async with room:
                reply = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
                return reply.choices[0].message.content

        assert all(await asyncio.gather(*map(one, texts)))
        await client.close()

    start = time.monotonic()
    asyncio.run(run())
    return time.monotonic() - start


def threads(url: str, texts: list[str]) -> float:
    """Return the seconds of a pool of threads over the synchronous `openai` client."""
    import httpx2
    import openai

    limits = httpx2.Limits(max_connections=ALLOWED, max_keepalive_connections=ALLOWED)
    http = openai.DefaultHttpxClient(limits=limits, trust_env=False)
    client = openai.OpenAI(base_url=url, api_key="none", http_client=http)

    def one(text: str) -> str:
        return (
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
            .choices[0]
            .message.content
        )

    start = time.monotonic()
    with ThreadPoolExecutor(ALLOWED) as pool:
        assert all(pool.map(one, texts))
    return time.monotonic() - start


def throughput(calls: int) -> None:
    """Print the seconds of three clients for the same calls."""
    texts = [f"question {number}: {TEXT[:800]}" for number in range(calls)]
    ideal = calls * SECONDS / ALLOWED
    print(f"{calls:,} calls, ideal {ideal:.1f} s\n\n| client | seconds | share of the ideal |\n|---|---|---|")
    shares = {}
    for name, client in (("ours, journal on", ours), ("asyncio loop", plain_loop), ("512 threads", threads)):
        with Served(0.0) as url:
            client(url, texts[:8])  # imports at the first call do not count
        with Served(SECONDS) as url:
            seconds = client(url, texts)
        shares[name] = ideal / seconds
        print(f"| {name} | {seconds:.1f} | {ideal / seconds:.3f} |", flush=True)
    best = max(share for name, share in shares.items() if name != "ours, journal on")
    print(f"\nours over the better of the two: {shares['ours, journal on'] / best:.3f}")


# ---------------------------------------------------------------------------------------------------- memory and opening


def stage(results: Path, url: str, count: int) -> None:
    """Run a sampling stage of `count` rows and print its time and memory."""
    from proofmill import responses
    from proofmill.artifacts.jobs import Job
    from proofmill.artifacts.stamps import new_stamp
    from proofmill.artifacts.tables import Table
    from proofmill.schema.entries.declared import Api
    from proofmill.schema.entries.response_entries import Responses

    os.environ.update(PROOFMILL_BENCH_URL=url, PROOFMILL_CONCURRENCY="64")
    blank = {"solution": None, "answer": None, "candidates": [], "guidelines": None, "question_type": "proof", "origin": None,
             "year": None, "level": None, "tags": [], "dropped": None, "evidence": None, "matched": None}  # fmt: skip
    problems = ({"problem": f"p{n}", "statement": f"{n}: {TEXT[:800]}", **blank} for n in range(count // 4))
    Table("problems/x", results).write(problems, new_stamp("problems/x", '{"entry": {}}', "f", {}, {}))
    entry = Responses(problems="problems/x", model="api/bench", attempts=4, prompt="solve", max_tokens=128)
    apis = {"api/bench": Api(id="m", price={"input": 1.0, "output": 1.0})}
    start, used_before = time.monotonic(), time.process_time()
    table = Table("responses/x", results)
    responses.main(
        entry, Job(table, apis, "g", new_stamp("responses/x", '{"entry": {}}', "g", {"problems/x": "f"}, {}))
    )
    seconds, used = time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    each = (time.process_time() - used_before) / count * 1000
    print(f"| {count:,} | {seconds:.0f} | {count / seconds:,.0f} | {each:.2f} | {used:,.0f} |", flush=True)


def memory(rows: int) -> None:
    """Print the time and memory of a stage at two sizes, each in its own process."""
    print("| rows | seconds | rows/s | CPU, ms a row | peak memory, MB |\n|---|---|---|---|---|", flush=True)
    for count in (rows // 4, rows):
        with tempfile.TemporaryDirectory() as folder, Served(0.0, size=4000) as url:
            process = multiprocessing.get_context("spawn").Process(target=stage, args=(Path(folder), url, count))
            process.start()
            process.join()


def open_journal(rows: int) -> None:
    """Print the time and memory to open a journal of `rows` outputs and to look up its requests."""
    from proofmill.calls.journal import Journal
    from proofmill.calls.model_requests import ModelOutput, ModelRequest

    def asked(start: int, end: int):
        for number in range(start, end):
            yield ModelRequest("m", (("user", f"problem {number // 8}: {TEXT[:800]}"),), sample=number % 8)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = time.monotonic()
        pid = os.fork()
        if pid == 0:
            with Journal(folder) as journal:
                for request in asked(0, rows):
                    journal.add(request, ModelOutput(f"{request.key} {TEXT[:1000]}", "end", cost=0.01, tokens=300))
            os._exit(0)
        os.waitpid(pid, 0)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
        print(f"{rows:,} outputs of 1 kB written in {time.monotonic() - start:.0f} s, {size:,.0f} MB on disk")
        start = time.monotonic()
        pid = os.fork()
        if pid == 0:
            with Journal(folder) as journal:
                opened = time.monotonic() - start
                missing = sum(request not in journal for request in asked(0, rows + 1000))
                seconds = time.monotonic() - start
                print(f"opened in {opened:.1f} s; {missing:,} of {rows + 1000:,} missing, known after {seconds:.1f} s")
            sys.stdout.flush()
            os._exit(0)
        _, _, used = os.wait4(pid, 0)
        print(f"peak memory {used.ru_maxrss / 1024:,.0f} MB")


def rates() -> None:
    """Print the time of a rate check, and how often eight jobs open the file of a limit of 30,000 requests a minute."""
    from functools import partial

    from proofmill.calls.pacing import Pace
    from proofmill.calls.rates import SharedBucket

    calls = 100_000
    with tempfile.TemporaryDirectory() as name:
        shared = partial(SharedBucket, Path(name) / "judge")
        print("| limits | microseconds a call |\n|---|---|")
        for what, bucket in (("", None), ("of this process", None), ("of all jobs", shared)):
            pace = Pace(requests=1e9, tokens=1e12, bucket=bucket)
            start = time.monotonic()
            for _ in range(calls):
                while pace.delay(1000.0):
                    pass
                pace.end_call(pace.start_call(1000.0))
            if what:  # the first loop warms up
                print(f"| {what} | {(time.monotonic() - start) / calls * 1e6:.1f} |")

        now = [1e9]
        jobs = [SharedBucket(Path(name) / "other", "requests", 30_000, 500, 1, lambda: now[0]) for _ in range(8)]
        opened, used, due = 0, 0, [0.0] * 8
        while now[0] < 1e9 + 60:
            now[0] += 0.001
            for number, job in enumerate(jobs):
                while now[0] >= due[number]:
                    before = job.level
                    job.refill(now[0])
                    wait = job.delay(1.0)
                    opened += job.level != before or bool(wait)
                    if wait:
                        due[number] = now[0] + wait
                        break
                    job.level -= 1
                    used += 1
        print(f"eight jobs, 60 s: {used:,} calls of 30,000; each opens the file {opened / 60 / 8:.0f} times a second")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["throughput", "memory", "journal", "rates"])
    parser.add_argument("--calls", type=int, default=20_480)
    parser.add_argument("--rows", type=int)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    if options.part == "throughput":
        throughput(options.calls)
    elif options.part == "rates":
        rates()
    elif options.part == "memory":
        memory(options.rows or 100_000)
    else:
        open_journal(options.rows or 1_000_000)
