# SPDX-License-Identifier: GPL-3.0-or-later
"""Waking a thread that sleeps on sockets."""

import select
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from protocol.common.wakeup import Wakeup

PATIENCE_S = 60.0
"""Longest wait for anything; a test that needs it has failed."""


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    """One that is closed at the end."""
    made = Wakeup()
    yield made
    made.close()


def readable(wakeup: Wakeup) -> bool:
    """Whether a poll would return at once."""
    return bool(select.select([wakeup], [], [], 0)[0])


def test_an_earlier_call_ends_the_next_sleep(wakeup: Wakeup) -> None:
    wakeup.wake()
    wakeup.wait(None)
    assert readable(wakeup)
    wakeup.clear()
    assert not readable(wakeup)
    wakeup.wake()
    assert readable(wakeup)


@pytest.mark.parametrize("wake", [Wakeup.wake, Wakeup.wake_from_signal_handler])
def test_a_full_buffer_wakes_as_well(wakeup: Wakeup, wake: Callable[[Wakeup], None]) -> None:
    for _ in range(100_000):
        wake(wakeup)
    assert readable(wakeup)
    wakeup.clear()
    assert not readable(wakeup)


def test_awake_thread_gets_no_write_and_sleeps_no_more(wakeup: Wakeup) -> None:
    assert wakeup.falls_asleep()
    wakeup.awake()
    wakeup.wake()
    assert not readable(wakeup)
    assert not wakeup.falls_asleep()
    wakeup.awake()
    assert wakeup.falls_asleep()


def test_call_of_a_signal_handler_is_readable(wakeup: Wakeup) -> None:
    wakeup.awake()
    wakeup.wake()
    wakeup.wake_from_signal_handler()
    assert readable(wakeup)


def test_no_call_is_lost_between_two_threads(wakeup: Wakeup) -> None:
    """Each turn waits for the other thread's answer: a lost call would be the end of it."""
    other = Wakeup()
    turns = 2000
    answered: list[int] = []

    def answer() -> None:
        for turn in range(turns):
            sleep_until(other, partial(has_more, asked, turn))
            answered.append(turn)
            wakeup.wake()

    asked: list[int] = []
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    for turn in range(turns):
        asked.append(turn)
        other.wake()
        sleep_until(wakeup, partial(has_more, answered, turn))
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    other.close()


def has_more(items: list[int], count: int) -> bool:
    return len(items) > count


def sleep_until(wakeup: Wakeup, reached: Callable[[], bool]) -> None:
    """As the service's loop does it."""
    while not reached():
        may_wait = wakeup.falls_asleep()
        ready = select.select([wakeup], [], [], PATIENCE_S if may_wait else 0)[0]
        assert ready or not may_wait, "nobody woke this thread"
        wakeup.awake()
        if ready:
            wakeup.clear()


def test_waking_what_is_closed_does_nothing() -> None:
    wakeup = Wakeup()
    wakeup.close()
    wakeup.wake()
    wakeup.wake_from_signal_handler()
