"""Replies of programs: any bytes of any length give a result, and the pool survives."""

import random

import pytest

from boxed import block, calls, prints
from proofmill.sandbox import jails
from proofmill.sandbox.cases import Case
from proofmill.sandbox.executions import parse_reply
from proofmill.sandbox.executor import Execution, Executor
from proofmill.sandbox.jails import Limits, ProcessResult
from proofmill.sandbox.sandbox import Ran, Sandbox

STATUSES = {"ok", "raised", "timeout", "memory", "output", "crashed", "refused"}
VALID = [
    b"v[1, 2]",
    b"v{'a': (1.5, None)}",
    b"vset((1, 2,))",
    b"e3 ValueError: x",
    b"m0 MemoryError",
    b"rno data",
    b"p5\n",
    b"o",
    b"",
]
ODD = [
    b"v\xff\xfe", b"e" + b"9" * 5000 + b" x", b"m" + b"9" * 5000, "e٣ x".encode(), b"p\xff\x80", b"v" + b"[" * 5000, b"v" + b"(" * 99 + b")" * 99,
    b"v" + b"9" * 5000, b"v0x" + b"f" * 5000, b"v'\\ud800'", "v'\ud800'".encode("utf-8", "surrogatepass"), b"v{[]}", b"v{1: {}, {}: 2}", b"v1 +", b"v\0",
    b"v-'a'", b"vfloat('x')", b"vcomplex('1j')", b"v1e999", b"vfrozenset(5)", b"v" + b"-" * 50000 + b"1", b"vset(({},))", b"x", b"v", b"e", b"m", b"r", b"p",
    b"v" + b"1," * 100, b"vf'{x}'", b"v__import__('os')", b"v...", b"v" + b"{1:" * 200 + b"1" + b"}" * 200, b"r\xff", b"e\xff",
]  # fmt: skip


def forged(number: int) -> list[bytes]:
    """Return random replies, and mutations of valid and odd ones; the same each time."""
    draw = random.Random(25)
    made = list(ODD)
    while len(made) < number:
        if draw.random() < 0.3:
            made.append(draw.choice(b"veormpx ").to_bytes() + draw.randbytes(draw.choice([0, 1, 3, 30, 3000])))
            continue
        data = bytearray(draw.choice(VALID + ODD))
        for _ in range(draw.randint(1, 4)):
            at = draw.randint(0, len(data))
            data[at : at + draw.randint(0, 3)] = draw.choice(
                [b"", b"\xff", b"\0", b"'", b"(", b"]", b"9" * 4400, b"e", bytes([draw.randrange(256)])]
            )
        made.append(bytes(data))
    return made


def test_parse_reply_of_any_bytes_is_a_result_that_can_be_compared():
    """2,000 random and mutated replies, with any exit status, each give a result that passes no test."""
    draw = random.Random(7)
    limits = Limits(1, 1 << 28, 1_000_000)
    cases = (
        Case(call="f()", result="'no such value'"),
        Case(input="", output="no such output"),
        Case(call="f()", result="[3.5]", absolute=1e-6),
    )
    for data in forged(2000):
        ended = draw.choice([0, 0, 0, 256, 9, 11, 33, 64, 126, 127, 139, 1407])
        result = parse_reply(ProcessResult(data, ended, draw.choice([0.0, 2.0])), limits)
        assert result.status in STATUSES and (result.status == "ok" or result.error), data
        assert not any(case.passes(result) for case in cases)


@pytest.mark.parametrize("many", [120])
def test_forged_replies_of_programs_leave_the_pool_alive(many):
    """Each forgery is written into the reply pipe, and the program after it has its own value."""
    forging = (
        "import os\nfor n in range(3, 40):\n    try: os.write(n, {data!r})\n    except OSError: pass\nos._exit({code})"
    )
    executions = [Execution(forging.format(data=data, code=n % 2), "1") for n, data in enumerate(forged(many))]
    after = Execution("import os\ndef f(): return [5]", "f()")
    with Executor(seconds=20, workers=2) as executor:
        results = list(executor.run(one for forgery in executions for one in (forgery, after)))
    assert {result.value for result in results[1::2]} == {"[5]"}
    assert {result.status for result in results} <= STATUSES


def test_output_of_millions_of_characters_fails_its_test_and_no_other():
    """Outputs are compared in full up to a limit, which is the same for all programs."""
    million = "x" * 1_100_000
    with Sandbox(seconds=20, workers=1) as sandbox:
        long, right, longer, value = sandbox.check([
            (block("print('x' * 1100000)"), prints("y" * 300_000)),
            (block("print('x' * 1100000)"), prints(million)),
            (block(f"print('x' * {jails.OUTPUT})"), prints("x")),
            (block("\ndef f(): return [1] * 10**6"), calls(("f()", "[1]"))),
        ])  # fmt: skip
    assert long == Ran(0.0, 0, 1, "ok") and right == Ran(1.0, 1, 1, "ok")
    assert longer.detail.startswith("test 1: output") and value.detail.startswith("test 1: refused")
