# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress display of long benchmarks, on stderr."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape

from benchmarks.common.figures import duration


class Progress:
    """Shows the current step, the elapsed time, and the step's last output line.

    On a terminal it updates one line; elsewhere it prints a line per step. A context manager.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._status = self._console.status("")
        self._began = time.perf_counter()
        self._step = ""

    def __enter__(self) -> Progress:
        self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()

    def step(self, text: str) -> None:
        """Start a step."""
        self._step = text
        if self._console.is_terminal:
            self._show(text)
        else:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def detail(self, text: str) -> None:
        """Show a line of the step's output, on a terminal only."""
        if self._console.is_terminal:
            room = max(0, self._console.width - len(self._step) - 16)
            self._show(f"{self._step}: {text[:room]}")

    def note(self, text: str) -> None:
        """Print a permanent line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _show(self, text: str) -> None:
        self._status.update(f"{duration(time.perf_counter() - self._began)}  {escape(text)}")
