"""The pace of calls, with a clock that the test moves and simulated servers."""

import heapq
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.calls.pacing import FIRST, LONGEST_ASKED, MOST, Pace, backoff


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def played(pace_, clock, seconds, answer=2.0, capacity=math.inf):
    """Call a server for some seconds that answers after `answer` seconds and refuses more than `capacity` at once; gives
    the number answered and refused."""
    flying, answered, refused = [], 0, 0
    end = clock.now + seconds
    while clock.now < end:
        while not (delay := pace_.delay()):
            over = len(flying) >= capacity
            heapq.heappush(flying, (clock.now + (0.05 if over else answer), over, pace_.start_call()))
        until = min(flying[0][0] if flying else math.inf, clock.now + delay)
        clock.now = max(clock.now + 1e-6, until)  # as a real clock does while we look
        while flying and flying[0][0] <= clock.now:
            _, over, start = heapq.heappop(flying)
            pace_.end_call(start, overload=over)
            answered, refused = answered + (not over), refused + over
    return answered, refused


def test_window_doubles_until_the_first_complaint(clock):
    """With no complaint the calls in flight double with each round of answers, up to the most."""
    unbounded = Pace(clock=clock)
    played(unbounded, clock, 1.9)
    assert unbounded.window == 2 * FIRST
    played(unbounded, clock, 20)
    assert unbounded.window == MOST


def test_known_limit_is_used_from_the_start(clock):
    """A declared limit is used at once and never exceeded: 512 in 2 s is 256 a second."""
    answered, _ = played(Pace(most=512, clock=clock), clock, 60)
    assert answered == pytest.approx(60 * 256, abs=512)


@pytest.mark.parametrize("capacity", [1, 10, 100])
def test_window_settles_about_what_the_server_allows(clock, capacity):
    """A server that refuses calls above its capacity is used to more than half of it, with few refusals."""
    measured = Pace(clock=clock)
    played(measured, clock, 120, capacity=capacity)
    answered, refused = played(measured, clock, 600, capacity=capacity)
    assert answered > 0.5 * 300 * capacity
    assert refused < 0.4 * answered + 10


def test_calls_that_were_in_flight_together_cut_once(clock):
    """A burst of refusals of calls that started before the reduction is one complaint, not a hundred."""
    cut = Pace(most=100, clock=clock)
    starts = [cut.start_call() for _ in range(100)]
    for start in starts:
        clock.now += 0.001
        cut.end_call(start, overload=True)
    assert cut.window == pytest.approx(70)
    clock.now += 100
    late = cut.start_call()
    clock.now += 1
    cut.end_call(late, overload=True)
    assert cut.window == pytest.approx(49)


def test_single_overload_slows_no_call_down(clock):
    """One complaint among many outputs, as from one restarted replica, neither reduces the window nor pauses."""
    lucky = Pace(most=100, clock=clock)
    for number in range(1000):
        clock.now += 0.1
        lucky.end_call(lucky.start_call(), overload=number % 25 == 24)
    assert (lucky.window, lucky.delay()) == (100, 0)


def test_retry_after_holds_everybody(clock):
    """No call starts before the time that the server requested; an excessive time is limited."""
    held = Pace(clock=clock)
    held.end_call(held.start_call(), overload=True, asked=30)
    assert held.delay() == pytest.approx(30)
    clock.now += 30
    assert held.delay() == 0
    held.end_call(held.start_call(), overload=True, asked=1e9)
    assert held.delay() == pytest.approx(LONGEST_ASKED)


def test_requests_a_minute_are_kept_without_a_burst(clock):
    """600 a minute are ten a second, also in the first second."""
    limited = Pace(requests=600, clock=clock)
    answered, _ = played(limited, clock, 1.0, answer=0.0)
    assert answered <= 21
    answered, _ = played(limited, clock, 60, answer=0.0)
    assert answered == pytest.approx(600, rel=0.03)


def test_tokens_a_minute_count_what_was_used(clock):
    """An output longer than estimated is a debt; calls wait until it is paid back."""
    limited = Pace(tokens=6000, clock=clock)
    assert limited.delay(1000) == 0
    limited.end_call(limited.start_call(1000), tokens=2000)
    assert limited.delay(1000) == pytest.approx(30)  # owes 2,000 and needs 1,000, at 100 a second
    clock.now += 30
    assert limited.delay(1000) == pytest.approx(0)


def test_call_larger_than_the_bucket_may_start_when_it_is_full(clock):
    """One call of more tokens than ten seconds hold is not held back for ever."""
    limited = Pace(tokens=600, clock=clock)
    assert limited.delay(5000) == 0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=300))
@settings(deadline=None)
def test_window_stays_between_one_and_the_most(events):
    """Whatever happens, at least one call may be in flight and never more than the most."""
    clock = Clock()
    steered, starts = Pace(most=20, clock=clock), []
    for begin, overload in events:
        clock.now += 0.5
        if begin and steered.in_flight < int(steered.window):
            starts.append(steered.start_call())
        elif starts:
            steered.end_call(starts.pop(0), overload=overload)
        assert 1 <= steered.window <= 20
        assert steered.in_flight == len(starts)


def test_backoff_doubles_up_to_a_minute():
    """1, 2, 4, ... seconds, a minute at most, however many failures."""
    assert [backoff(n) for n in (1, 2, 3, 7, 10_000)] == [1, 2, 4, 60, 60]
