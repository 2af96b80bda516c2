"""What is watched is told to be overdue once, and only if it is not done by then."""

from __future__ import annotations

import queue
import threading

import pytest

from evaluator.devices import watchdog as watchdog_module
from evaluator.devices.runners import now_ms
from evaluator.devices.watchdog import LATE_MS, TICK_MS, Patience, Watchdog

WAIT_S = 60.0


def watched() -> tuple[threading.RLock, Watchdog[str], queue.SimpleQueue[str]]:
    lock = threading.RLock()
    overdue: queue.SimpleQueue[str] = queue.SimpleQueue()
    return lock, Watchdog(lock, overdue.put), overdue


def test_what_is_not_done_in_time_is_overdue_and_given_up() -> None:
    lock, watchdog, overdue = watched()
    with lock:
        watchdog.watch("late", now_ms() + 1e7)
        watchdog.watch("early", now_ms() + 1)
    assert overdue.get(timeout=WAIT_S) == "early"
    with lock:
        assert not watchdog.done("early")
        assert watchdog.done("late")
        watchdog.stop()
    assert overdue.empty()


def test_what_is_done_is_never_overdue() -> None:
    lock, watchdog, overdue = watched()
    with lock:
        watchdog.watch("done", now_ms() + 1)
        watchdog.watch("next", now_ms() + 2)
        assert watchdog.done("done")
        assert "done" not in watchdog
    assert overdue.get(timeout=WAIT_S) == "next"
    with lock:
        watchdog.stop()
    assert overdue.empty()


def test_a_fault_over_one_does_not_leave_the_others_unwatched() -> None:
    lock = threading.RLock()
    overdue: queue.SimpleQueue[str] = queue.SimpleQueue()

    def tell(work: str) -> None:
        overdue.put(work)
        raise ZeroDivisionError("a fault of the owner")

    watchdog = Watchdog(lock, tell)
    with lock:
        watchdog.watch("first", now_ms() + 1)
    assert overdue.get(timeout=WAIT_S) == "first"
    with lock:
        watchdog.watch("second", now_ms() + 1)
    assert overdue.get(timeout=WAIT_S) == "second"
    with lock:
        watchdog.stop()


def test_the_time_in_which_the_whole_process_stood_still_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock, watchdog, overdue = watched()
    ahead_ms = [0.0]
    noticed = threading.Event()
    monkeypatch.setattr(watchdog_module, "now_ms", lambda: now_ms() + ahead_ms[0])
    monkeypatch.setattr(watchdog_module.log, "info", lambda *_: noticed.set())
    with lock:
        watchdog.watch("first", now_ms() + 1)
        watchdog.watch("under way", now_ms() + 100 * TICK_MS)
    assert overdue.get(timeout=WAIT_S) == "first"
    with lock:  # The watchdog sleeps, or it would have the lock.
        ahead_ms[0] = 1e9 * LATE_MS
    assert noticed.wait(WAIT_S)
    with lock:
        assert watchdog.done("under way")
        watchdog.stop()
    assert overdue.empty()


def test_a_batch_may_take_a_multiple_of_its_time_and_some_seconds() -> None:
    assert Patience(hang_factor=8.0, hang_s=4.0).batch_ms(250.0) == 6000.0
