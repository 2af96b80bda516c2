# SPDX-License-Identifier: GPL-3.0-or-later
"""Displays of matches and self-play: lines in a log or pipe, or a drawing in a terminal, updated once per
second."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Self, TextIO

from engine.games.run import RunState, State

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def shows_tables(console: Console) -> bool:
    """Return True if the console is a terminal that can redraw its contents."""
    return console.is_terminal and not console.is_dumb_terminal


class PlainDisplay:
    """Write lines to a stream. A context manager, like LiveDisplay."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def note(self, text: str) -> None:
        """Write a line."""
        print(text, file=self._stream, flush=True)


class QuietDisplay(PlainDisplay):
    """Show only the notes of a run."""

    def __init__(self, stream: TextIO, *, prefix: str = "") -> None:
        """prefix: precedes each note."""
        super().__init__(stream)
        self._prefix = prefix

    def started(self, state: RunState) -> None:
        pass

    def game_over(self, state: RunState, entry: object) -> None:
        pass

    def tick(self, state: RunState) -> None:
        pass

    def note(self, text: str) -> None:
        super().note(self._prefix + text)


class LiveDisplay(ABC, Generic[State]):
    """Draw the state in a terminal, which it occupies while the context is open."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        # Draw once per second at most: drawing takes more CPU time than playing.
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.__exit__(None, None, None)

    @property
    def console(self) -> Console:
        return self._live.console

    @abstractmethod
    def drawing(self, state: State) -> RenderableType:
        """Return the drawing of a state."""

    def started(self, state: State) -> None:
        self.tick(state)

    def tick(self, state: State) -> None:
        self._live.update(self.drawing(state), refresh=True)
