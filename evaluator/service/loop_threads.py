# SPDX-License-Identifier: GPL-3.0-or-later
"""The thread that runs the service's loop, and its replacement if a driver call does not return.

The fast path (fast_path.py) enters the driver on the thread of the loop. A driver that hangs keeps that
thread, so another thread continues the loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("evaluator.service")


class LoopThreads:
    """Runs the loop. `run`: for the owner. `replace`: for any thread while the loop's thread is in a step."""

    def __init__(self, step: Callable[[], bool]) -> None:
        """step: one round of the loop; returns False to end it."""
        self._step = step
        self._current: threading.Thread | None = None
        self._ended = threading.Event()
        self._fault: BaseException | None = None

    def run(self) -> None:
        """Call `step` repeatedly until it returns False. Raises what `step` raises.

        The caller waits, so that it can handle signals whatever the thread does. Replaced threads are not
        waited for.
        """
        self.replace()
        while not self._ended.wait(1.0):  # With a time: without one, Windows handles no signals.
            pass
        if self._fault is not None:
            raise self._fault

    def replace(self) -> None:
        """Let a new thread run the loop. The one before ends when its step returns."""
        self._current = threading.Thread(target=self._loop, name="service", daemon=True)
        self._current.start()

    def _loop(self) -> None:
        own = threading.current_thread()
        going, fault = True, None
        while going and self._current is own:
            try:
                going = self._step()
            except BaseException as raised:
                going, fault = False, raised
        if self._current is own:
            self._fault = fault
            self._ended.set()
        elif fault is not None:
            log.error("a step failed after its thread had been replaced", exc_info=fault)
