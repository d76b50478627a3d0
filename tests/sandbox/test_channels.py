"""Channels to a program: none gives it expected results or data of other programs.

For each channel a probe detects a planted secret in a jail that the test weakened. In the unchanged jail it detects
nothing, although other programs held the secret in every possible way.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boxed import block, calls
from proofmill.sandbox import jails
from proofmill.sandbox.executor import Execution, Executor
from proofmill.sandbox.sandbox import Ran, Sandbox

SECRET = "planted-2718281828459045"
START = """
import re
SHAPE = re.compile(rb'planted-[0-9]{16}')
def among(*things):
    return any(SHAPE.search(t if isinstance(t, bytes) else str(t).encode()) for t in things)
"""
PROBES = {
    "frames": """
import sys
frame, out = sys._getframe(), False
while frame := frame.f_back:
    out |= among(*frame.f_locals.values(), *frame.f_globals.values())
""",
    "gc": """
import gc
gc.unfreeze()
out = any(among(*x) for x in gc.get_objects() if isinstance(x, (list, tuple, set)))
out |= any(among(*x.values()) for x in gc.get_objects() if isinstance(x, dict))
""",
    "/proc/self": """
import os
out = False
for name in ('cmdline', 'environ', 'maps', 'status', 'task/self/cmdline', 'fd/3', 'fd/4', '../1/cmdline', '../1/environ'):
    try: out |= among(open(f'/proc/self/{name}', 'rb').read())
    except OSError: pass
""",
    "descriptors": """
import os
out = False
for fd in range(3, 64):
    for read in (lambda: os.pread(fd, 99999, 0), lambda: (os.set_blocking(fd, False), os.read(fd, 99999))[1]):
        try: out |= among(read())
        except OSError: pass
""",
    "memory": """
import ctypes, os
libc, out = ctypes.CDLL(None), False
libc.sbrk.restype = ctypes.c_void_p
def pages(address):  # unmapped pages cannot be written, which does not crash
    for page in range((address >> 12) - 4096 << 12, (address >> 12) + 4096 << 12, 4096):
        os.lseek(1, 0, 0)
        if libc.write(1, ctypes.c_void_p(page), 4096) == 4096:
            yield os.pread(1, 4096, 0)
for address in (id(object()), id(10**6), id('x' * 600), id(os), libc.sbrk(0), ctypes.addressof(ctypes.create_string_buffer(99999))):
    out |= any(among(page) for page in pages(address))
""",
    "files": """
import os
out = False
for folder, _, names in os.walk('/tmp'):
    for name in names:
        out |= among(open(os.path.join(folder, name), 'rb').read())
out |= os.path.exists('/tmp') and os.listdir('/tmp') != []
""",
    "time": """
import time
out = time.process_time() >= 0.2
""",
}
# Changes to the source of the forking process that open a channel.
READY = '    os.write(REPORTS, b"ready")\n'
WEAK = {
    "frames": ("    requests = select.poll()\n", f"    requests, planted = select.poll(), {SECRET!r}\n"),
    "gc": (READY, f"    gc.left = [{SECRET!r}]\n{READY}"),
    "descriptors": (READY, f"    os.write(os.memfd_create(''), {SECRET.encode()!r})\n{READY}"),
    "memory": (READY, f"    gc.left = bytearray({SECRET.encode()!r}) * 9\n{READY}"),
    "files": ("def has_changed():\n", "def has_changed():\n    return False\n"),
    "time": ("    lock(all_limits)\n    program, call, stdin", "    lock(all_limits)\n    while time.process_time() < 0.25: pass\n    program, call, stdin"),
}  # fmt: skip
# Programs that have the secret as text, value, input or output, or that store, raise or write it.
HOLDERS = [
    Execution(f"import os\nx = [{SECRET!r}] * 9", "x"),
    Execution(f"def f(): return {SECRET!r}", "f()"),
    Execution("print(input())", stdin=SECRET),
    Execution(
        f"import os, sys, gc\nos.environ['A'] = sys.left = gc.left = {SECRET!r}\nraise ValueError(sys.left)", "1"
    ),
    Execution(f"import sys\nsys.stdout.write({SECRET!r} * 9999)"),
    Execution(f"try: open('/tmp/x', 'w').write({SECRET!r})\nexcept OSError: pass", "1"),
]


@pytest.fixture(scope="module", params=jails.KINDS)
def kind(request):
    """Return each kind of jail that works on this machine."""
    if fault := jails._fault(request.param):
        pytest.skip(f"{request.param}: {fault}")
    return request.param


def detects(channel: str) -> bool:
    """Return whether the probe of a channel detects the secret, after other programs had it in the same jail."""
    probe = Execution(START + PROBES[channel], "out")
    with Executor(seconds=20, workers=1, longest=10**6) as executor:
        *_, held, result = executor.run([*HOLDERS, probe] * 2 if channel != "time" else [*HOLDERS, probe])
    assert (held.status, result.status) == ("ok", "ok"), result
    return result.value == "True"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("channel", PROBES)
def test_probe_detects_a_secret_only_in_a_weakened_jail(kind, channel, monkeypatch, tmp_path):
    """The probe detects the secret in a weakened jail, and nothing in the unchanged one."""
    if channel == "files" and kind == "landlock":
        pytest.skip("it has no folder for temporary files")
    monkeypatch.setattr(jails, "plan", lambda: kind)
    assert not detects(channel)
    weaken(channel, monkeypatch, tmp_path)
    assert detects(channel)


def weaken(channel: str, monkeypatch, tmp_path: Path) -> None:
    if channel == "/proc/self":  # its command contains the secret, and all files can be read
        monkeypatch.setattr(jails, "LINKED", [*jails.LINKED, SECRET])
        monkeypatch.setattr(jails, "plan", lambda: "landlock")
        monkeypatch.setattr(jails, "_readable", lambda: {"/": True})
        old, new = "between()\n", "pass\n"
    else:
        old, new = WEAK[channel]
    source = jails._ZYGOTE.read_text("utf-8")
    assert source.count(old) == 1
    weak = tmp_path / "zygote.py"
    weak.write_text(source.replace(old, new), "utf-8")
    monkeypatch.setattr(jails, "_ZYGOTE", weak)


# ----------------------------------------------------------------------------------------------------------- requests

PROGRAM = (
    "class P:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return self.x == o.x\ndef f(n): return n"
)
PLAIN = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
CALLS = (
    "f(1)",
    "f(1) == 1",
    "not f(0)",
    "abs(f(2) - 2) < 1e-6",
    "[f(1), f(2)]",
    "P(1) == P(2)",
    "isinstance(f(1), int)",
    "f(3) and f(4)",
)


@pytest.fixture(scope="module")
def box():
    with Sandbox(workers=1) as made:
        yield made


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(PLAIN, min_size=2, max_size=2),
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=2),
    st.integers(0, 4),
)
def test_requests_do_not_depend_on_expected_results(box, results, outputs, long):
    """Two lists of tests that differ only in their results and outputs send the same requests."""
    outputs[1] += "x" * 10**long

    def sent(n: int) -> Counter:
        requests = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                jails, "_request", lambda texts, of=jails._request: requests.append(of(texts)) or requests[-1]
            )
            tests = [{"call": call, "result": repr(results[n])} for call in CALLS]
            tests += [{"input": "5\n", "output": outputs[n]}]
            list(box.check([(block("\n" + PROGRAM), json.dumps(tests))]))
        return Counter(requests)

    assert sent(0) == sent(1)


GUESSES = {
    "length of the longest value": "import sys\nframe, out = sys._getframe(), 'NO'\nwhile frame:\n    if 'longest' in frame.f_locals: out = frame.f_locals['longest']\n    frame = frame.f_back\ndef f(): return out",
    "neighbour's reply": "import sys\nframe, out = sys._getframe(), b''\nwhile frame:\n    for name in ('data', 'parts', 'text', 'value'):\n        if isinstance(found := frame.f_locals.get(name), bytes) and found: out = found\n    frame = frame.f_back\ndef f(): return eval(out[1:])",
}  # fmt: skip


@pytest.mark.parametrize("guess", GUESSES)
def test_programs_that_search_for_the_answer_of_a_correct_one_earn_nothing(kind, guess, monkeypatch):
    """Seven programs that search the frames pass nothing, although their worker ran the correct program before them."""
    monkeypatch.setattr(jails, "plan", lambda: kind)
    answer = calls(("f()", "'YES'"))
    with Sandbox(workers=1) as sandbox:
        texts = [block("\n" + code) for code in ("import os\ndef f(): return 'YES'", GUESSES[guess])] * 7
        results = list(sandbox.check([(text, answer) for text in texts]))
    assert results[::2] == [Ran(1.0, 1, 1, "ok")] * 7
    assert [one.share for one in results[1::2]] == [0.0] * 7
