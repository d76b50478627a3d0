"""Limits that jobs share: buckets in files, with clocks that the test moves, and real processes with a server."""

import os
import random
import subprocess
import sys
from collections import Counter

import pytest

from proofmill.calls.pacing import Pace
from proofmill.calls.rates import LEASE, SHARE, SharedBucket
from served import GOOD, server

MINUTE, ROOM = 600.0, 10.0  # ten a second, of which the bucket holds a second's worth


class Clock:
    def __init__(self, now=1e9):
        self.now = now

    def __call__(self):
        return self.now


def buckets(folder, clocks, limit="requests"):
    return [SharedBucket(folder / "judge", limit, MINUTE, ROOM, 1.0, clock) for clock in clocks]


def used(jobs, clocks, seconds, step=0.05, amount=1.0):
    """Run each job at the rate it may have for some seconds, and return the amounts by job."""
    counts = Counter()
    for _ in range(round(seconds / step)):
        for clock in clocks:
            clock.now += step
        for number, job in enumerate(jobs):
            job.refill(clocks[number].now)
            while not job.delay(amount):
                job.level -= amount
                counts[number] += amount
    return counts


@pytest.mark.parametrize("jobs", [1, 3, 8])
def test_jobs_together_use_the_limit_and_no_more(tmp_path, jobs):
    """Five minutes of ten a second are 3,000, plus at most the bucket's content and what each job draws in advance."""
    clocks = [Clock() for _ in range(jobs)]
    counts = used(buckets(tmp_path, clocks), clocks, 300)
    assert 3000 <= counts.total() + ROOM + jobs <= 3000 + 2 * ROOM + jobs * (1 + ROOM / SHARE)


@pytest.mark.parametrize("skew", [2.0, 7.0])
def test_clocks_that_differ_count_each_second_once(tmp_path, skew):
    """With one machine ahead and one behind, the limit is kept; what is lost is the skew, once."""
    clocks = [Clock(), Clock(1e9 + skew), Clock(1e9 - skew)]
    counts = used(buckets(tmp_path, clocks), clocks, 300)
    assert 3000 - 3 * skew * MINUTE / 60 <= counts.total() <= 3000 + ROOM + 3 * ROOM / SHARE
    assert used(buckets(tmp_path, clocks[2:]), clocks[2:], 60)[0] >= 600 - ROOM - 2 * skew * MINUTE / 60


def test_wrong_clock_stops_no_job(tmp_path):
    """A machine that is a year ahead wrote last; the others continue at the limit."""
    wrong, right = Clock(1e9 + 3e7), Clock()
    used(buckets(tmp_path, [wrong]), [wrong], 5)
    assert used(buckets(tmp_path, [right]), [right], 60)[0] == pytest.approx(600, abs=2 * ROOM)


@pytest.mark.parametrize("skew", [0.5, 30.0, 59.0])
def test_time_of_the_bucket_never_goes_back(tmp_path, skew):
    """Two jobs with clocks up to 59 s apart draw in turn: the limit holds, and the written time only grows."""
    clocks = [Clock(), Clock(1e9 + skew)]
    jobs, counts, times = buckets(tmp_path, clocks), Counter(), []
    for _ in range(120 * 10):
        counts += used(jobs, clocks, 0.1, step=0.1)
        times.append(float((tmp_path / "judge-requests").read_text().split()[1]))
    assert times == sorted(times)
    assert 1200 - 2 * skew * MINUTE / 60 <= counts.total() <= 1200 + ROOM + 2 * ROOM / SHARE


def test_what_a_job_draws_and_does_not_use_is_put_back(tmp_path):
    """After a while, and at its end; of a job that is killed no more than a quarter of the bucket is lost."""
    one, other = Clock(), Clock()
    (idle,), (busy,) = buckets(tmp_path, [one]), buckets(tmp_path, [other])
    used([idle], [one], 2.0)
    idle.refill(one.now)
    one.now += 1.0
    idle.refill(one.now)
    assert not idle.delay(1.0) and 0 < idle.level <= ROOM / SHARE + 1e-3
    one.now += LEASE + 0.1
    idle.refill(one.now)
    assert idle.level == 0
    other.now = one.now
    busy.refill(other.now)
    assert not busy.delay(1.0) and busy.level > 0
    busy.close()
    assert used([idle], [one], 0.05)[0] >= ROOM - 1


def test_amount_larger_than_the_bucket_waits_for_a_full_one_and_is_owed(tmp_path):
    """Such a call begins when the bucket is full; the next ones wait until it is paid for, in whatever job they are."""
    clocks = [Clock(), Clock()]
    one, other = buckets(tmp_path, clocks)
    assert used([one], clocks, 60, amount=25.0).total() == pytest.approx(600, abs=60)
    one.refill(clocks[0].now)
    one.level -= 100.0  # as the answer was longer than was thought
    one.close()
    clocks[1].now = clocks[0].now
    assert not used([other], clocks[1:], 8.0).total() and used([other], clocks[1:], 4.0).total()


@pytest.mark.parametrize("amount", [3.0, 9.0])
def test_job_with_long_calls_progresses_next_to_jobs_with_short_ones(tmp_path, amount):
    """All that wait get about as much, though what a long call needs is never in the bucket at once."""
    clocks = [Clock() for _ in range(4)]
    jobs, counts = buckets(tmp_path, clocks), Counter()
    for _ in range(20 * 300):
        for number in random.sample(range(4), 4):
            job, clock = jobs[number], clocks[number]
            clock.now += 0.05
            job.refill(clock.now)
            own = 1.0 if number else amount
            while not job.delay(own):
                job.level -= own
                counts[number] += own
    assert counts.total() == pytest.approx(3000, abs=3 * ROOM)
    assert min(counts.values()) > 600, counts


def test_pace_of_a_job_keeps_the_limits_of_all(tmp_path):
    """Requests and tokens have their own files; a job waits if another has drawn all."""
    clock = Clock()
    paces = [
        Pace(requests=60, tokens=6000, clock=clock, bucket=lambda *of: SharedBucket(tmp_path / "judge", *of, clock))
        for _ in range(2)
    ]
    assert paces[0].delay(tokens=500) == 0
    paces[0].start_call(tokens=500)
    assert 0 < paces[1].delay(tokens=500) <= 1
    clock.now += 1
    assert paces[1].delay(tokens=500) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"judge-requests", "judge-tokens"}


def test_job_whose_server_pauses_puts_back_what_it_has_drawn(tmp_path):
    """It draws nothing meanwhile, and others use the limit."""
    clock = Clock()
    pace = Pace(requests=600, clock=clock, bucket=lambda *of: SharedBucket(tmp_path / "judge", *of, clock))
    assert pace.delay() == 0
    pace.end_call(pace.start_call())
    clock.now += 1.0
    assert pace.delay() == 0
    pace.end_call(pace.start_call(), overload=True, asked=60.0)
    level = pace._requests.level
    assert level > 0 and pace.is_paused and pace.delay() > 50 and pace._requests.level == level
    clock.now += LEASE + 0.1
    assert pace.delay() > 50 and pace._requests.level == 0


CALLER = """
import sys
from pathlib import Path
from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker
from proofmill.calls.model_requests import ModelRequest, Requests
from proofmill.calls.journal import Journal
from proofmill.engines.open_engine import open_api
from proofmill.schema.entries.declared import Api

calls, name, count = Path(sys.argv[1], 'calls'), sys.argv[2], int(sys.argv[3])
asked = Requests(count, lambda: ((str(n), ModelRequest("m", (("user", f"{name} {n}"),))) for n in range(count)))
with open_api("api/judge", Api(id="m", price="unknown"), None, calls.parent) as engine, Journal(calls / "grades" / name) as journal:
    Asker(name, engine, journal, Budget(None, calls, journal))(asked)
"""


@pytest.mark.long
def test_processes_before_one_server_keep_its_limit_together(tmp_path):
    """Three jobs of 50 calls at 1,800 a minute take as long as one of 150: a server counts when they come."""
    with server(lambda *_: (200, GOOD, {})) as (url, served):
        environment = {**os.environ, "PROOFMILL_JUDGE_URL": url, "PROOFMILL_JUDGE_RPM": "1800"}
        jobs = [
            subprocess.Popen([sys.executable, "-c", CALLER, str(tmp_path), name, "50"], env=environment)
            for name in ("a", "b", "c")
        ]
        assert [job.wait() for job in jobs] == [0, 0, 0]
    assert len(served.times) == 150
    room = 1800 / 60
    allowed = 1 + room + 3 * room / SHARE  # at once: by the bucket, and drawn in advance
    # Two seconds and more. Without a shared limit each job would keep its own, in 0.7 s.
    assert served.times[-1] - served.times[0] >= (150 - allowed) * 60 / 1800 * 0.9
