"""Measure the concurrency and the memory of a stage with many calls per problem, and of a plain asyncio loop.

    python benchmarks/scaffolds.py [--problems 200]

A server process answers each request after 1 s. `deepseek-math` with its defaults makes 60 calls per problem in six
rounds, because no proof is ever scored 1. The stage runs with its journal on. The plain version makes the same calls
with asyncio.gather over the `openai` client and a semaphore, and stores nothing. Numbers are shares of the ideal, which
is all calls at the allowed concurrency. Peak memory is that of the stage at a quarter of the problems and at all.
"""

import argparse
import asyncio
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import calls as bench

ALLOWED, SECONDS = 256, 1.0
CALLS, POOL, CHECKS, ROUNDS = 60, 4, 4, 2
bench.TEXT = "Doubtful, and therefore \\boxed{0.5}. " + bench.TEXT


def stage(results: Path, url: str, count: int, share: multiprocessing.Queue) -> None:
    """Run the stage, and send its seconds, its number of calls and its peak memory."""
    from proofmill import responses
    from proofmill.artifacts.jobs import Job
    from proofmill.artifacts.stamps import new_stamp
    from proofmill.artifacts.tables import Table
    from proofmill.schema.entries.declared import Api
    from proofmill.schema.entries.response_entries import Responses

    os.environ.update(PROOFMILL_BENCH_URL=url, PROOFMILL_CONCURRENCY=str(ALLOWED))
    blank = {"solution": None, "answer": None, "candidates": [], "guidelines": None, "question_type": "proof", "origin": None,
             "year": None, "level": None, "tags": [], "dropped": None, "evidence": None, "matched": None}  # fmt: skip
    problems = ({"problem": f"p{n}", "statement": f"{n}: {bench.TEXT[:400]}", **blank} for n in range(count))
    Table("problems/x", results).write(problems, new_stamp("problems/x", '{"entry": {}}', "f", {}, {}))
    entry = Responses(
        problems="problems/x", model="api/bench", prompt="solve", max_tokens=2048, scaffold="deepseek-math"
    )
    apis = {"api/bench": Api(id="m", price={"input": 1.0, "output": 1.0})}
    table = Table("responses/x", results)
    stamp = new_stamp("responses/x", '{"entry": {}}', "g", {"problems/x": "f"}, {})
    start = time.monotonic()
    responses.main(entry, Job(table, apis, "g", stamp))
    seconds = time.monotonic() - start
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # before the steps are read
    share.put((seconds, sum(len(row["steps"]) for row in table.rows("steps")), used))


def plain(url: str, count: int) -> float:
    """Return the seconds of the same calls by asyncio.gather, all problems concurrently."""
    import httpx2
    import openai

    async def run() -> None:
        limits = httpx2.Limits(max_connections=ALLOWED, max_keepalive_connections=ALLOWED)
        http = openai.DefaultAsyncHttpxClient(limits=limits, trust_env=False)
        client, room = openai.AsyncOpenAI(base_url=url, api_key="none", http_client=http), asyncio.Semaphore(ALLOWED)

        async def call(text: str) -> str:
            async with room:
                asked = [{"role": "user", "content": text}]
                return (await client.chat.completions.create(model="m", messages=asked)).choices[0].message.content

        async def problem(number: int) -> None:
            for _ in range(1 + ROUNDS):
                proofs = await asyncio.gather(*(call(f"{number} prove") for _ in range(POOL)))
                await asyncio.gather(*(call(f"verify {proof}") for proof in proofs for _ in range(CHECKS)))

        await asyncio.gather(*map(problem, range(count)))
        await client.close()

    start = time.monotonic()
    asyncio.run(run())
    return time.monotonic() - start


def main(problems: int) -> None:
    ideal = problems * CALLS * SECONDS / ALLOWED
    print(f"{problems} problems, {problems * CALLS:,} calls, ideal {ideal:.1f} s\n")
    print("| | seconds | share of the ideal | peak memory, MB |\n|---|---|---|---|", flush=True)
    context = multiprocessing.get_context("spawn")
    for count in (problems // 4, problems):
        with tempfile.TemporaryDirectory() as folder, bench.Served(SECONDS, ALLOWED, 1500) as url:
            share = context.Queue()
            process = context.Process(target=stage, args=(Path(folder), url, count, share))
            process.start()
            seconds, steps, used = share.get()
            process.join()
        assert steps == count * CALLS, f"{steps} calls; expected {count * CALLS}"
        part = count * CALLS * SECONDS / ALLOWED / seconds
        print(f"| ours, {count} problems, journal on | {seconds:.1f} | {part:.3f} | {used:,.0f} |", flush=True)
    with bench.Served(SECONDS, ALLOWED, 1500) as url:
        seconds = plain(url, problems)
    print(f"| asyncio loop, {problems} problems | {seconds:.1f} | {ideal / seconds:.3f} | |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    sys.stdout.flush()
    main(options.problems)
