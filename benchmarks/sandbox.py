"""Count programs per second: the sandbox, a pool of processes that run `exec`, and one bubblewrap for each program.

    python benchmarks/sandbox.py [--rows 2000] [--workers 2] [--seconds 1] [--data ../shared/data]

The programs are those of CRUXEval with their inputs, repeated, each with its own comment, so that caches of texts do
not help. Without that file, ten programs of this module are used. None, 1 % and 5 % of them are replaced by endless
loops. The pool is `pebble.ProcessPool` if installed (it is not a requirement), or one of this module: a process for
each worker, killed when a program's seconds are over. It is unsafe. Each contender runs in its own process,
sequentially. Values are compared with the recorded ones. `cpu` is the CPU time per program over all processes,
including their start. It says more than programs per second if the machine is busy, but not if programs loop. Without
`bwrap` the sandbox uses its other jail, and one contender is left out.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from proofmill.sandbox import jails, values
from proofmill.sandbox.executor import Execution, Executor
from proofmill.sandbox.plain import is_tame

Row = tuple[str, str, str]  # program, call, value; empty for a loop
LOOP = "def f(*_):\n    while True: pass"
EMBEDDED = [
    (f"def f(n):\n    found = []\n    for x in range({n}, n):\n        if x % {n + 2} == 1:\n            found.append(x * x)\n    return found", "f(40)")
    for n in range(1, 11)
]  # fmt: skip


def rows(data: Path, number: int, loops: float) -> list[Row]:
    path = data / "cruxeval" / "first400.jsonl"
    if path.exists():
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        made = [(record["code"], f"f({record['input']})", record["output"]) for record in records]
    else:
        made = [(program, call, plain(program, call)) for program, call in EMBEDDED]
    chosen = [
        (f"{program}\n# {n}", call, value) for n in range(number) for program, call, value in [made[n % len(made)]]
    ]
    every = round(1 / loops) if loops else 2 * number + 1
    return [(LOOP, call, "") if n % every == every // 2 else (program, call, value) for n, (program, call, value) in enumerate(chosen)]  # fmt: skip


# ----------------------------------------------------------------------------------------------------- the contenders


def plain(program: str, call: str) -> str:
    names: dict = {}
    exec(program, names)
    return repr(eval(call, names))


def with_pebble(asked: list[Row], workers: int, seconds: float) -> Iterator[str]:
    from pebble import ProcessPool

    with ProcessPool(max_workers=workers) as pool:
        for future in [pool.schedule(plain, args=row[:2], timeout=seconds) for row in asked]:
            try:
                yield future.result()
            except Exception as error:
                yield repr(error)


def with_pool(asked: list[Row], workers: int, seconds: float) -> Iterator[str]:
    context = multiprocessing.get_context("fork")
    own = threading.local()

    def serve(pipe: Connection) -> None:
        while True:
            program, call = pipe.recv()
            try:
                pipe.send(plain(program, call))
            except Exception as error:
                pipe.send(repr(error))

    def ask(row: Row) -> str:
        if not hasattr(own, "pipe"):
            own.pipe, theirs = context.Pipe()
            own.process = context.Process(target=serve, args=(theirs,), daemon=True)
            own.process.start()
        own.pipe.send(row[:2])
        if own.pipe.poll(seconds):
            return own.pipe.recv()
        own.process.kill()
        own.process.join()
        del own.pipe
        return "TimeoutError"

    with ThreadPoolExecutor(workers) as threads:
        yield from threads.map(ask, asked)
    for process in multiprocessing.active_children():
        process.kill()
        process.join()


def with_bubblewrap(asked: list[Row], workers: int, seconds: float) -> Iterator[str]:
    # Otherwise a program would continue to loop after its timeout.
    bubblewrap = [*jails._bubblewrap()[:-1], "--die-with-parent", "--"]
    python = [*bubblewrap, jails._python(), "-I", "-S", "-c"]

    def ask(row: Row) -> str:
        source = f"{row[0]}\nprint(repr({row[1]}))"
        try:
            return subprocess.run([*python, source], capture_output=True, text=True, timeout=seconds).stdout.rstrip(
                "\n"
            )
        except subprocess.TimeoutExpired:
            return "TimeoutError"

    with ThreadPoolExecutor(workers) as threads:
        yield from threads.map(ask, asked)


def with_sandbox(asked: list[Row], workers: int, seconds: float) -> Iterator[str]:
    with Executor(seconds, workers=workers, longest=100_000) as executor:
        list(executor.run([Execution("x = 1", "x"), Execution("import os", "1")] * 4 * workers))
        START.append(time.perf_counter())
        for result in executor.run(Execution(program, call) for program, call, _ in asked):
            yield result.value or result.error


CONTENDERS: dict[str, Callable[[list[Row], int, float], Iterator[str]]] = {
    "pool": with_pool,
    "bubblewrap for each": with_bubblewrap,
    "sandbox": with_sandbox,
}
START: list[float] = []  # when a contender was ready


def evaluate(name: str, asked: list[Row], workers: int, seconds: float, pipe: Connection) -> None:
    """Send programs per second, CPU time per program, peak megabytes, and the number of correct values."""
    most = [0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            with contextlib.suppress(psutil.Error):  # one has ended
                living = psutil.Process().children(recursive=True)
                most.append(sum(process.memory_full_info().uss for process in living))

    threading.Thread(target=watch, daemon=True).start()
    START.append(time.perf_counter())
    running = CONTENDERS[name](asked, workers, seconds)
    found = [next(running) for _ in asked]
    spent = time.perf_counter() - START[-1]
    ended.set()
    cpu = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            cpu += sum(process.cpu_times()[:4])  # including its finished children
    for _ in running:  # closes its resources
        pass
    right = sum(bool(value) and same(text, value) for text, (_, _, value) in zip(found, asked, strict=True))
    pipe.send((len(asked) / spent, 1e6 * cpu / len(asked), max(most) / 1e6, right, sum(bool(row[2]) for row in asked)))


def same(text: str, other: str) -> bool:
    try:
        return values.same(values.parse(text), values.parse(other))
    except ValueError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--loops", type=float, nargs="+", default=[0, 0.01, 0.05], help="shares of endless loops")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    try:
        import pebble  # noqa: F401

        CONTENDERS["pool"] = with_pebble
    except ImportError:
        print("pebble is not installed: using the pool of this script", file=sys.stderr)
    if not shutil.which("bwrap"):
        print("bwrap is not installed: skipping `bubblewrap for each` (`apt install bubblewrap`)", file=sys.stderr)
        del CONTENDERS["bubblewrap for each"]
    kind = jails.plan()  # tests once which jail works
    print(f"{options.workers} workers, {options.seconds:g} s, jail {kind}, load {os.getloadavg()[0]:.1f}")
    print(
        f"{'loops':>5}  {'contender':<20} {'programs/s':>10} {'of pool':>8} {'cpu us':>8} {'of pool':>8} {'MB':>6}  correct"
    )
    for loops in options.loops:
        asked = rows(options.data, options.rows, loops)
        pool: tuple = ()
        for name in CONTENDERS:
            mine = asked[: len(asked) // 10] if name == "bubblewrap for each" else asked
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.get_context("fork").Process(
                target=evaluate, args=(name, mine, options.workers, options.seconds, theirs)
            )
            process.start()
            theirs.close()
            found = ours.recv()
            process.join()
            pool = pool or found
            speed, cpu, memory, right, of = found
            print(
                f"{loops:>5.0%}  {name:<20} {speed:>10,.0f} {speed / pool[0]:>8.2f} {cpu:>8,.0f} {pool[1] / cpu:>8.2f} "
                f"{memory:>6,.0f}  {right} of {of}",
                flush=True,
            )
        print(f"{loops:>5.0%}  {sum(is_tame(*row[:2]) for row in asked) / len(asked):.1%} of the programs are tame")


if __name__ == "__main__":
    main()
