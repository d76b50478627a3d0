"""The referee as an unreliable server: faults by a schedule that is the same in every run."""

import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter

import pytest

from proofmill.synthetic import _referee_faults
from proofmill.synthetic._referee_faults import FAULTS, GARBAGE, Schedule


def test_shares_do_not_depend_on_the_order():
    """The fault depends on the request and the number of its repetitions, and faults have their configured shares."""
    schedule = Schedule(seed=3, shares={"overloaded": 0.2, "drop": 0.1})
    requests = [str(n).encode() for n in range(3000)]
    first = [schedule.fault(q, 0, 1 + n) for n, q in enumerate(requests)]
    assert first[::-1] == [schedule.fault(q, 0, 7) for q in requests[::-1]]
    counts = Counter(first)
    assert counts["overloaded"] == pytest.approx(600, abs=100)
    assert counts["drop"] == pytest.approx(300, abs=75)


def test_request_is_answered_after_its_faults():
    """After `times` requests the same request gets no transient fault."""
    schedule = Schedule(shares={"overloaded": 1.0}, times=3)
    assert [schedule.fault(b"q", earlier, 1) for earlier in range(5)] == ["overloaded"] * 3 + [None] * 2


def test_garbage_is_permanent():
    """A request with a bad verdict always gets it, so resumed runs see the same."""
    schedule = Schedule(shares={"garbage": 0.3, "broken": 0.3})
    for n in range(200):
        seen = [schedule.fault(b"%d" % n, earlier, 1) for earlier in range(6)]
        assert seen in (["garbage"] * 6, [*seen[:2], None, None, None, None])
        assert "garbage" not in seen or set(seen) == {"garbage"}


def test_script_names_requests_by_number():
    """The n-th request of all gets the fault of the script."""
    schedule = Schedule(script={"2": "die"})
    assert [schedule.fault(b"q", 0, number) for number in (1, 2, 3)] == [None, "die", None]


def test_unknown_fault_is_named(tmp_path):
    """A schedule is read from JSON or a file; an unknown fault raises an error with the known ones."""
    path = tmp_path / "faults.json"
    path.write_text('{"shares": {"drop": 0.5}}')
    assert (
        _referee_faults.read(str(path))
        == _referee_faults.read('{"shares": {"drop": 0.5}}')
        == Schedule(shares={"drop": 0.5})
    )
    with pytest.raises(ValueError, match=r"found dropp; expected some of .*drop"):
        _referee_faults.read('{"shares": {"dropp": 0.5}}')


@pytest.fixture(scope="module")
def adversary():
    """Start a referee whose n-th request gets the n-th fault of the list."""
    named = [name for name in FAULTS if name not in ("timeout", "die", "trickle")]
    script = {str(n): name for n, name in enumerate(named, 1)} | {str(len(named) + 1): "die"}
    process = subprocess.Popen(
        [sys.executable, "-m", "proofmill.synthetic.referee", "--faults", json.dumps({"script": script})],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    url = process.stdout.readline().strip()
    yield url, named, process
    process.kill()


def test_every_fault_reaches_the_client(adversary):
    """A plain client receives each fault as the failure of its name."""
    url, named, process = adversary
    body = json.dumps({"model": "referee-1", "messages": [{"role": "user", "content": "hello"}]}).encode()

    def send():
        request = urllib.request.Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return reply.status, dict(reply.headers), reply.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()
        except Exception as error:  # the error of a plain client for a broken connection
            return 0, {}, type(error).__name__.encode()

    replies = {name: send() for name in named}
    assert {name: status for name, (status, _, _) in replies.items()} == {
        "rate-limit": 429, "rate-limit-bare": 429, "broken": 500, "overloaded": 503, "drop": 0, "truncated": 200,
        "empty": 200, "wrong-type": 200, "garbage": 200}  # fmt: skip
    assert ("retry-after" in replies["rate-limit"][1], "retry-after" in replies["rate-limit-bare"][1]) == (True, False)
    with pytest.raises(ValueError, match=r"Expecting|Unterminated|delimiter"):
        json.loads(replies["truncated"][2])
    texts = {name: json.loads(replies[name][2])["choices"][0]["message"]["content"] for name in ("empty", "garbage")}
    assert texts == {"empty": "", "garbage": GARBAGE}
    assert replies["wrong-type"][1]["content-type"] == "text/html"
    assert send()[0] == 0
    assert process.wait(10) == 9


def test_trickle_is_slow():
    """A trickle sends single bytes, and takes more than 0.9 s for three of them."""
    process = subprocess.Popen(
        [sys.executable, "-m", "proofmill.synthetic.referee", "--faults", '{"script": {"1": "trickle"}}'],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    url = process.stdout.readline().strip()
    body = json.dumps({"model": "referee-1", "messages": [{"role": "user", "content": "hello"}]}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body), timeout=10) as reply:
        start = time.monotonic()
        got = reply.read(3)
        assert (len(got), reply.status) == (3, 200)
        assert time.monotonic() - start > 0.9
    process.kill()
