"""Money: all charges of any server are booked, and their sum is at most the budget plus the calls in flight.

PYTHONPATH=tests/fixtures python tests/engines/test_money.py    prints the charges of each behaviour
"""

import os
import tempfile
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest import mock

import pytest

from charging import BEHAVIOURS, ENDLESS, LIMIT, PRICE, dollars, of_call
from misbehaving import misbehaving
from proofmill.calls import pacing, records
from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelRequest, Requests
from proofmill.engines import retries
from proofmill.engines.open_engine import open_api
from proofmill.schema.entries.declared import Api
from proofmill.schema.errors import ServiceError

BUDGET, ROWS, IN_FLIGHT = 0.05, 20, 8


@contextmanager
def quick(url):
    """Set the environment of a stage that calls a server at `url` and retries without waiting."""
    environment = {"PROOFMILL_JUDGE_URL": url, "PROOFMILL_CONCURRENCY": str(IN_FLIGHT), "PROOFMILL_CALL_TIMEOUT": "0.4"}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environment))
        for module in (pacing, retries):
            stack.enter_context(mock.patch.object(module, "backoff", lambda failures: 0.0))
        yield


def ask(asker, made):
    """Run the calls until all rows are answered or failed, or the stage stops."""
    with suppress(ServiceError, SystemExit):
        asker(Requests(len(made), lambda: made))


def charged(behaviour, server, folder):
    """Return the dollars that the server charged, the dollars booked, the calls, and the most expensive call."""
    url, state = server
    calls, lock, tokens = folder / "calls", threading.Lock(), []

    def answers():
        with lock:
            answer, charge = of_call(behaviour, len(tokens))
            tokens.append(charge)
        state.does = answer
        return answer

    state.answers = answers
    made = [(f"row {n}", ModelRequest("m", (("user", f"question {n}"),), max_tokens=LIMIT)) for n in range(ROWS)]
    api = Api(id="m", price=PRICE, max_failed=1.0)
    with quick(url), open_api("api/judge", api) as engine, Journal(calls / "test/x") as journal:
        ask(Asker("test/x", engine, journal, Budget(BUDGET, calls, journal)), made)
    highest = max(map(dollars, tokens))
    return sum(map(dollars, tokens)), records.cost(calls / "test/x"), len(tokens), highest


@pytest.fixture(scope="module")
def server():
    with misbehaving() as running:
        yield running


def test_there_are_forty_behaviours():
    """The bound below is claimed for this number."""
    assert len(BEHAVIOURS) >= 40


@pytest.mark.sampled(5)
@pytest.mark.parametrize("behaviour", BEHAVIOURS.values(), ids=BEHAVIOURS)
def test_what_a_server_charges_is_booked_and_stays_within_the_budget(server, tmp_path, behaviour):
    """No charge is booked at less, and a server that keeps its limits never charges more than the budget.

    One that ignores `max_tokens` charges one call more; if it starts to do so later, the calls in flight.
    """
    paid, booked, calls, highest = charged(behaviour, server, tmp_path)
    assert booked >= paid - 1e-9
    if highest <= dollars(LIMIT):
        assert paid <= BUDGET + 1e-9
    else:
        steady = not callable(behaviour)
        assert paid <= BUDGET + (highest if steady else IN_FLIGHT * dollars(ENDLESS))
    assert calls >= (1 if highest else IN_FLIGHT)


if __name__ == "__main__":
    print("| behaviour | calls | charged | booked |\n|---|---|---|---|")
    with misbehaving() as running:
        for name, each in BEHAVIOURS.items():
            with tempfile.TemporaryDirectory() as folder:
                paid, booked, calls, _ = charged(each, running, Path(folder))
            print(f"| {name} | {calls} | ${paid:.4f} | ${booked:.4f} |")
