# SPDX-License-Identifier: GPL-3.0-or-later
"""What is watched is told to be overdue once, and only if it is not done by then."""

import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from evaluator.devices.machine import ProcessorWaits
from evaluator.devices.runners import now_ms
from evaluator.devices.running import watchdog as watchdog_module
from evaluator.devices.running.watchdog import LATE_MS, TICK_MS, Patience, Watchdog

WAIT_S = 60.0

Overdue = queue.SimpleQueue[str]


def watched(*waits: Callable[[], ProcessorWaits]) -> tuple[threading.RLock, Watchdog[str], Overdue]:
    lock, overdue = threading.RLock(), Overdue()
    return lock, Watchdog(lock, overdue.put, *waits), overdue


def test_batch_is_given_up_when_overdue() -> None:
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


def test_finished_batch_is_never_overdue() -> None:
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
    lock, overdue = threading.RLock(), Overdue()

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


def test_time_does_not_count_when_the_process_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, watchdog, overdue = watched()
    ahead_ms = [0.0]
    noticed = threading.Event()
    monkeypatch.setattr(watchdog_module, "now_ms", lambda: now_ms() + ahead_ms[0])
    monkeypatch.setattr(watchdog_module.log, "info", lambda *_: noticed.set())
    with lock:
        watchdog.watch("first", now_ms() + 1)
        watchdog.watch("in flight", now_ms() + 100 * TICK_MS)
    assert overdue.get(timeout=WAIT_S) == "first"
    with lock:  # The watchdog sleeps, or it would have the lock.
        ahead_ms[0] = 1e9 * LATE_MS
    assert noticed.wait(WAIT_S)
    with lock:
        assert watchdog.done("in flight")
        watchdog.stop()
    assert overdue.empty()


class Waits(ProcessorWaits):
    """The process waited for a processor for longer than the clock went; `seen` once that was read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = threading.Event()
        self._calls = 0

    def lost_ms(self) -> float:
        self._calls += 1
        if self._calls > 1:
            self.seen.set()
        return 10 * TICK_MS


def test_time_does_not_count_when_waiting_for_a_processor() -> None:
    waits = Waits()
    lock, watchdog, overdue = watched(lambda: waits)
    with lock:
        watchdog.watch("slow", now_ms() + 4 * TICK_MS)
    assert waits.seen.wait(WAIT_S)
    with lock:
        assert watchdog.done("slow")
        watchdog.stop()
    assert overdue.empty()


def test_waits_are_those_of_the_thread_that_waited_longest(tmp_path: Path) -> None:
    def counted(**waited_ms: float) -> None:
        for thread, ms in waited_ms.items():
            (tmp_path / thread).mkdir(exist_ok=True)
            (tmp_path / thread / "schedstat").write_text(f"5 {int(1e6 * ms)} 7\n")

    counted(io=1000.0, device=50.0)
    waits = ProcessorWaits(tmp_path)
    counted(io=1001.0, device=80.0, new=2.0)
    assert waits.lost_ms() == pytest.approx(30.0)
    assert waits.lost_ms() == 0.0


@pytest.mark.parametrize(("busy", "own", "lost"), [(4.0, 0.25, 750.0), (3.0, 0.25, 0.0), (4.0, 4.0, 0.0)])
def test_busy_machine_explains_waits_when_these_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: float, own: float, lost: float
) -> None:
    readings = iter([(5.0, 10.0, 2.0), (6.0, 10.0 + busy, 2.0 + own)])
    monkeypatch.setattr("evaluator.devices.machine.reading", lambda: next(readings))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    waits = ProcessorWaits(tmp_path / "no such folder")
    assert waits.lost_ms() == pytest.approx(lost)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system does not count waits")
def test_thread_waiting_for_an_event_needs_no_processor() -> None:
    waits = ProcessorWaits()
    began = now_ms()
    blocked = threading.Thread(target=threading.Event().wait, args=(1.0,))
    blocked.start()
    blocked.join()
    # Other programs may have had the processors meanwhile, but hardly all the time.
    assert waits.lost_ms() < now_ms() - began


def test_a_batch_may_take_a_multiple_of_its_time_and_some_seconds() -> None:
    assert Patience(hang_factor=8.0, hang_s=4.0).batch_ms(250.0) == 6000.0
