"""Pools of jails: a jail that is killed from outside is replaced, and its program rerun once."""

import pytest

from proofmill.sandbox import pools
from proofmill.sandbox.executor import Execution, Executor
from proofmill.sandbox.jails import Died, Jail, ProcessResult
from proofmill.schema.errors import SandboxError

BUSY = Execution("import time\nwhile time.process_time() < 0.5: pass", "5")


def kill_jails(monkeypatch: pytest.MonkeyPatch, times: int) -> list[Jail]:
    """Kill the jail of each of the first `times` replies while it runs a program. Return the list of killed jails."""
    killed: list[Jail] = []
    original = Jail.reply

    def reply(jail: Jail) -> ProcessResult:
        if len(killed) < times:
            killed.append(jail)
            jail.kill()
        return original(jail)

    monkeypatch.setattr(Jail, "reply", reply)
    return killed


@pytest.mark.parametrize(("times", "status", "value"), [(1, "ok", "5"), (2, "crashed", "")])
def test_program_whose_jail_is_killed_is_rerun_once(monkeypatch, times, status, value):
    """Its value is returned if the second jail survives; after two killed jails it counts as crashed."""
    with Executor(seconds=20, workers=1) as executor:
        killed = kill_jails(monkeypatch, times)
        (result,) = executor.run([BUSY])
        (after,) = executor.run([Execution("import os", "7")])
    assert (result.status, result.value, after.value) == (status, value, "7")
    assert len({id(jail) for jail in killed}) == times
    assert result.error.startswith("its jail died twice" if times == 2 else "")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("workers", [1, 3])
def test_programs_fail_when_no_jail_starts_any_more(monkeypatch, workers):
    """All of them, queued and later ones: none waits forever."""

    def die(*_, **__):
        raise Died("it could not be started")

    monkeypatch.setattr(pools, "Jail", die)
    with Executor(seconds=5, workers=workers) as executor:
        for _again in range(2):
            with pytest.raises(SandboxError, match="a jail does not start"):
                list(executor.run([Execution("import os", str(n)) for n in range(20)]))
