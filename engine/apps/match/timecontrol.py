# SPDX-License-Identifier: GPL-3.0-or-later
"""Time controls: the limits of each move and the clock of a game."""

from __future__ import annotations

import re
from dataclasses import dataclass

CLOCK = re.compile(
    r"^(?:(?P<moves>\d+)/)?(?:(?P<minutes>\d+):)?(?P<seconds>\d+(?:\.\d+)?)(?:\+(?P<increment>\d+(?:\.\d+)?))?$"
)


@dataclass(frozen=True, slots=True)
class TimeControl:
    """The limits of a player's thinking. All given limits apply together.

    base_ms: time on the clock at the start, added again after every `moves` moves, if set. increment_ms:
    added after each move. movetime_ms, nodes, depth (plies): limits of each move.
    """

    base_ms: int | None = None
    increment_ms: int = 0
    moves: int | None = None
    movetime_ms: int | None = None
    nodes: int | None = None
    depth: int | None = None

    @staticmethod
    def parse_clock(text: str) -> tuple[int, int, int | None]:
        """Return (base_ms, increment_ms, moves) of `[moves/][minutes:]seconds[+increment]`.

        Examples: 60+0.6, 40/1:30, 5:00+3. Raises ValueError.
        """
        match = CLOCK.match(text.strip())
        if match is None:
            raise ValueError(
                f"{text!r} is not a clock: write [moves/][minutes:]seconds[+increment], e.g. 60+0.6"
            )
        seconds = 60 * int(match["minutes"] or 0) + float(match["seconds"])
        base_ms, increment_ms = round(seconds * 1000), round(float(match["increment"] or 0) * 1000)
        if base_ms < 1 or (match["moves"] is not None and int(match["moves"]) < 1):
            raise ValueError(f"{text!r}: the time and the number of moves must be above 0")
        if base_ms > 10**10:
            raise ValueError(f"{text!r} is more than a hundred days")
        return base_ms, increment_ms, int(match["moves"]) if match["moves"] else None

    @property
    def is_timed(self) -> bool:
        """True if there is a clock or a time for each move."""
        return self.base_ms is not None or self.movetime_ms is not None

    def __str__(self) -> str:
        parts = []
        if self.base_ms is not None:
            moves = f"{self.moves}/" if self.moves else ""
            increment = f"+{_seconds(self.increment_ms)}" if self.increment_ms else ""
            parts.append(f"{moves}{_seconds(self.base_ms)}{increment}")
        if self.movetime_ms is not None:
            parts.append(f"{_seconds(self.movetime_ms)}/move")
        if self.nodes is not None:
            parts.append(f"{self.nodes} nodes")
        if self.depth is not None:
            parts.append(f"depth {self.depth}")
        return ", ".join(parts) or "unlimited"


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".")


class GameClock:
    """One player's clock in one game."""

    def __init__(self, control: TimeControl, *, margin_ms: float = 0.0) -> None:
        """margin_ms: tolerated excess of the clock, because of the runner's own delays."""
        self.control = control
        self.margin_ms = margin_ms
        self.remaining_ms: float | None = None if control.base_ms is None else float(control.base_ms)
        self.moves_to_go = control.moves

    @property
    def allowed_ms(self) -> float | None:
        """Maximum time of the next move, margin included; None without a time limit."""
        limits = [limit for limit in (self.remaining_ms, self.control.movetime_ms) if limit is not None]
        return min(limits) + self.margin_ms if limits else None

    def spend(self, elapsed_ms: float) -> bool:
        """Subtract the time of a move from the clock; return False if it was too long."""
        allowed = self.allowed_ms
        in_time = allowed is None or elapsed_ms <= allowed
        if self.remaining_ms is not None:
            # A tolerated excess is not subtracted later.
            self.remaining_ms = max(0.0, self.remaining_ms - elapsed_ms) + self.control.increment_ms
            if self.moves_to_go is not None:
                self.moves_to_go -= 1
                if self.moves_to_go == 0:
                    self.moves_to_go = self.control.moves
                    self.remaining_ms += float(self.control.base_ms or 0)
        return in_time
