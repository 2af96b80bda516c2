# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of a search: the arguments of UCI's `go`, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace

REQUESTS = 32
"""Requests one after the other that a move should have time for."""

MOVES_LEFT = 40
"""Moves that a clock is roughly shared among."""

DEFAULT_MS = 500
"""Milliseconds for a move if no limit says how long to search."""

QUICK_MS = 50.0
"""Latency target of class play in the evaluator's default settings."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Time left on both clocks and the increments per move, in milliseconds."""

    white_ms: int | None = None
    black_ms: int | None = None
    white_increment_ms: int = 0
    black_increment_ms: int = 0
    moves_to_go: int | None = None

    def of(self, turn: str) -> tuple[int, int] | None:
        """Return time left and increment of "white" or "black"; None if that side has no clock."""
        remaining, increment = (
            (self.white_ms, self.white_increment_ms)
            if turn == "white"
            else (self.black_ms, self.black_increment_ms)
        )
        return None if remaining is None else (remaining, increment)

    def completed(self, turn: str) -> Clock:
        """Return a clock for "white" or "black": if that side has none, it equals the opponent's."""
        if turn == "white":
            return self if self.white_ms is not None else replace(self, white_ms=self.black_ms)
        return self if self.black_ms is not None else replace(self, black_ms=self.white_ms)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a search, which ends at the first one that it meets. Without limits it ends with `stop`.

    It ends earlier if the second move can no longer catch up in the remaining nodes or time: `nodes=1000` may
    mean 960. The option SmartPruningFactor controls this; 0 uses up all.

    nodes: visits of the root, including those kept from an earlier search unless NodesAsPlayouts is set.
    depth: Report.depth, at least. mate: first look for a mate in at most this many moves.
    search_moves: the root moves to choose from, in UCI notation; empty means all. ponder: the clock starts
    with `ponderhit`.
    """

    clock: Clock | None = None
    movetime_ms: int | None = None
    nodes: int | None = None
    depth: int | None = None
    mate: int | None = None
    infinite: bool = False
    ponder: bool = False
    search_moves: tuple[str, ...] = ()

    def move_ms(self, turn: str) -> float | None:
        """Return roughly the milliseconds for a move of "white" or "black"; None without a time limit."""
        if self.movetime_ms is not None:
            return float(self.movetime_ms)
        clock = self.clock.of(turn) if self.clock is not None else None
        return None if clock is None else min(clock[0] / MOVES_LEFT + clock[1], clock[0])

    def target_ms(self, turn: str) -> float | None:
        """Return the latency in milliseconds that "white" or "black" needs from a shared evaluator.

        None unless it is below QUICK_MS: the evaluator's own target is then short enough.
        """
        move_ms = self.move_ms(turn)
        if move_ms is None or self.infinite:
            return None
        target_ms = max(1.0, move_ms / REQUESTS)
        return target_ms if target_ms < QUICK_MS else None

    @property
    def unbounded(self) -> bool:
        """True if only `stop` ends the search."""
        return self.may_not_end and (self.infinite or self.mate is None)

    @property
    def may_not_end(self) -> bool:
        """True if the search may run until `stop`: without a limit, or for a mate, which may take long."""
        return self.infinite or (
            self.clock is None and self.movetime_ms is None and self.nodes is None and self.depth is None
        )

    @property
    def by_nodes(self) -> bool:
        """True if visits are limited and time is not."""
        return self.nodes is not None and self.clock is None and self.movetime_ms is None
