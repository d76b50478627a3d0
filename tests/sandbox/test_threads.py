"""Threads, asyncio, temporary files, the usual imports and much memory, as contest programs use them."""

import json
import time

import pytest

from boxed import calls, ran
from proofmill.sandbox import jails
from proofmill.sandbox.executor import Execution, Executor
from proofmill.sandbox.sandbox import Ran, Sandbox


@pytest.fixture(scope="module", params=jails.KINDS)
def box(request):
    """Yield a sandbox of each kind of jail that works on this machine."""
    if fault := jails._fault(request.param):
        pytest.skip(f"{request.param}: {fault}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jails, "plan", lambda: request.param)
        with Sandbox(seconds=20, workers=1) as made:
            made.kind = request.param
            yield made


DOUBLING = {
    "deep recursion": """
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(2**29)
def deep(n): return n if n == 0 else 1 + deep(n - 1)
def main(): print(2 * int(input()) + deep(20000) - 20000)
threading.Thread(target=main).start()
""",
    "joined threads": """
import threading
found = []
threads = [threading.Thread(target=lambda: found.append(n)) for _ in range(8)]
n = int(input())
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(found) // 4)
""",
    "thread pool": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool: print(sum(pool.map(int, [input()] * 2)))
""",
    "queue": """
import queue, threading
q = queue.Queue()
threading.Thread(target=lambda: q.put(2 * int(input())), daemon=True).start()
print(q.get(timeout=9))
""",
    "asyncio": """
import asyncio
async def one(n):
    await asyncio.sleep(0.01)
    return n
async def main(): return sum(await asyncio.gather(*[one(int(n)) for n in [input()] * 2]))
print(asyncio.run(main()))
""",
    "asyncio in threads": """
import asyncio
async def main(): return 2 * await asyncio.to_thread(int, input())
print(asyncio.run(main()))
""",
}
FILES = """
import os, tempfile
with tempfile.TemporaryDirectory() as folder:
    for n in range(9): open(os.path.join(folder, str(n)), 'w').write('x' * 999)
    assert len(os.listdir(folder)) == 9
with tempfile.NamedTemporaryFile('w+') as file:
    file.write(input()); file.flush()
    open('/tmp/left', 'w').write(open(file.name).read())
print(2 * int(open('/tmp/left').read()))
"""


@pytest.mark.parametrize("program", DOUBLING)
def test_program_with_threads_is_run(box, program):
    """Threads start, are joined at exit as Python does, and have the stack size that they request."""
    assert ran(box, DOUBLING[program]) == Ran(1.0, 3, 3, "ok")


def test_program_with_temporary_files_is_run_and_leaves_none(box):
    """Each test has an empty folder for them; in a jail without one the program fails with a reason."""
    result = ran(box, "import os\nassert os.listdir('/tmp') == []\n" + FILES)
    if box.kind == "bubblewrap":
        assert result == Ran(1.0, 3, 3, "ok")
    else:
        assert result.share == 0 and "FileNotFoundError" in result.detail


def test_temporary_files_have_a_limit(box):
    """No more than 64 MB can be written, in files of 16 MB."""
    filling = "for n in range(9): open(f'/tmp/{n}', 'wb').write(bytes(10**7))"
    assert ran(box, filling, calls(("1", "1"))).share == 0


NEW_PROCESSES = [
    "import os; os.fork()",
    "import subprocess; subprocess.run(['true'])",
    "import multiprocessing as m; m.Process(target=print).start()",
    "import ctypes; n = ctypes.CDLL(None).syscall(56, 0x10000 | 0x100, 0, 0, 0, 0); assert n >= 0",  # not a thread
    "import ctypes; n = ctypes.CDLL(None).syscall(56, 0x3d0f00 | 0x10000000, 0, 0, 0, 0); assert n >= 0",
    "import threading\nt = threading.Thread(target=__import__('os').fork); errors = []\nthreading.excepthook = errors.append\nt.start(); t.join(); assert not errors",
]  # fmt: skip


@pytest.mark.parametrize("program", NEW_PROCESSES)
def test_process_is_not_started(box, program):
    """Only threads start; `clone` with other flags is refused."""
    assert ran(box, f"{program}\nprint(2 * int(input()))").share == 0


WAITS = {
    "yields": "import os\nwhile True: os.sched_yield()",
    "threads that yield": "import os, threading\ndef f():\n    while True: os.sched_yield()\nfor _ in range(4): threading.Thread(target=f).start()",
    "deadlock": "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()",
    "waiting thread": "import threading\nthreading.Thread(target=threading.Event().wait).start()",
    "asleep": "import asyncio\nasyncio.run(asyncio.sleep(10**6))",
    "many threads": "import threading\nfor _ in range(10): threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()",
}  # fmt: skip


def test_program_that_waits_for_ever_ends_by_the_clock(box, monkeypatch):
    """Each ends as `timeout` within a few times its seconds, and the programs after it have their values."""
    monkeypatch.setattr(jails, "GRACE", 1.0)
    begun = time.monotonic()
    with Executor(seconds=0.1, workers=2) as executor:
        results = list(executor.run(e for one in WAITS.values() for e in (Execution(one), Execution("import os", "5"))))
    assert {name: one.status for name, one in zip(WAITS, results[::2], strict=True)} == dict.fromkeys(WAITS, "timeout")
    assert {one.value for one in results[1::2]} == {"5"}
    assert time.monotonic() - begun < len(WAITS) * (jails.PATIENCE * 0.1 + 2)


SOLUTION = """
class Solution:
    def most(self, words: List[str]) -> Optional[str]:
        counts = defaultdict(int)
        for word in words: counts[word] += 1
        return nlargest(1, counts, key=counts.get)[0] if heapq and words else None
    def broken(self, n):
        return n / 0
"""


def test_program_that_relies_on_the_usual_imports_has_them_as_its_setup(box):
    """A LeetCode class runs only with `setup: leetcode`, and its line numbers exclude the setup."""
    test = {"call": "Solution().most(['a', 'b', 'b'])", "result": "'b'"}
    assert ran(box, SOLUTION, json.dumps([{**test, "setup": "leetcode"}])) == Ran(1.0, 1, 1, "ok")
    assert ran(box, SOLUTION, json.dumps([test])).share == 0
    broken = {"call": "Solution().broken(1)", "result": "1", "setup": "leetcode"}
    assert ran(box, SOLUTION, json.dumps([broken])).detail == "test 1: ZeroDivisionError: division by zero (line 8)"


def test_test_with_megabytes_has_that_memory(box):
    """600 MB exceed the default limit, but not `megabytes: 1024`."""
    test = {"call": "len(bytearray(600 * 10**6))", "result": "600000000"}
    assert ran(box, "import os", json.dumps([test])).share == 0
    assert ran(box, "import os", json.dumps([{**test, "megabytes": 1024}])) == Ran(1.0, 1, 1, "ok")
