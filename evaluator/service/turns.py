"""Threads that take turns at one loop: when one is held up outside of it, another goes on.

An idle device evaluates a small batch soonest on the thread that has received it: to hand it to another one,
and the answer back, costs more than the device does. But what a device will do nobody knows, and the thread
inside it can serve nobody. So it leaves the loop before, and comes back afterwards: usually at once, to find
its place free. If it stays away for TAKE_OVER_S, another thread takes the place; or at once, where the thread
that leaves expects more to do meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("evaluator.turns")

TAKE_OVER_S = 0.02
"""After so long, twice that at most, another thread takes over."""

THREADS = 3
"""One is in the loop, one may have left it for a batch and another for the next one; then the last looks
after the loop."""


class Turns:
    """The loop, and who is in it.

    `run` belongs to the owner; `can_leave`, `leave` and `come_back` to the thread in the loop.
    """

    def __init__(self) -> None:
        self._place = threading.Lock()
        """Held while somebody is in the loop."""
        self._holder: threading.Thread | None = None
        self._absences = 0
        """Begun and ended so far, each counted: odd while nobody is in the loop."""
        self._absent = threading.Event()
        """Set when somebody has left since the others last looked."""
        self._calls = threading.Semaphore(0)
        """Released for each time that another thread is to take the place at once."""
        self._watching: set[threading.Thread] = set()
        self._ended = threading.Event()
        self._fault: BaseException | None = None

    def run(self, step: Callable[[], bool]) -> None:
        """Call `step` again and again until it returns False, from one of THREADS threads at a time.

        The caller waits meanwhile, so that it handles signals whatever they are inside of. Raises what `step`
        raises. Threads that are away when the loop ends are not waited for.
        """
        threads = [
            threading.Thread(target=self._take_turns, args=(step,), name=f"service-{index}", daemon=True)
            for index in range(THREADS)
        ]
        self._place.acquire()
        self._holder = threads[0]
        for thread in threads:
            thread.start()
        while not self._ended.wait(1.0):  # With a time: without one, Windows handles no signals.
            pass
        if self._fault is not None:
            raise self._fault

    @property
    def can_leave(self) -> bool:
        """Whether another thread is there to take over."""
        return bool(self._watching)

    def leave(self, *, at_once: bool = False) -> None:
        """Be outside of the loop for a moment. at_once: another thread shall take the place right away."""
        self._absences += 1
        if not self._absent.is_set():
            self._absent.set()
        self._place.release()
        if at_once:
            self._calls.release()

    def come_back(self) -> bool:
        """Be in the loop again; False if somebody else is, and the step must end without touching anything
        that belongs to it."""
        if not self._place.acquire(blocking=False):
            return False
        self._absences += 1
        self._holder = threading.current_thread()
        return True

    def _take_turns(self, step: Callable[[], bool]) -> None:
        own = threading.current_thread()
        while self._holder is own or self._take_over():
            fault: BaseException | None = None
            try:
                going = step()
            except BaseException as raised:
                going, fault = False, raised
            if self._holder is own and not going:
                self._fault = fault
                self._ended.set()
                self._absent.set()
                self._calls.release(THREADS)
                return
            if fault is not None:
                log.error("a step failed after its turn had been taken over", exc_info=fault)

    def _take_over(self) -> bool:
        """Wait until the thread in the loop stays away, or calls for another; False if the loop has ended."""
        own = threading.current_thread()
        self._watching.add(own)
        while not self._ended.is_set():
            self._absent.wait()
            seen = self._absences
            called = self._calls.acquire(timeout=TAKE_OVER_S)
            if self._ended.is_set():
                break
            if not called and self._absences != seen:
                continue
            if (called or seen % 2) and self._place.acquire(blocking=False):
                self._watching.discard(own)
                self._absences += 1
                self._holder = own
                return True
            if not called and seen % 2 == 0:  # Nobody has left for a while: sleep until somebody does.
                self._absent.clear()
                if self._absences != seen:
                    self._absent.set()
        return False
