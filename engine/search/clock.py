"""The time manager: how long to think about a move. Pure functions of the clock."""

from __future__ import annotations

from dataclasses import dataclass

EXPECTED_MOVES = 40
"""Moves a game is planned to last from the first; `MINIMUM_EXPECTED_MOVES` later on. Early stops
(smart pruning) give back about a quarter of the time, so that more is in fact left for later moves."""
MINIMUM_EXPECTED_MOVES = 22


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """Milliseconds for one move. soft_ms: stop here unless the choice of move is unsettled; hard_ms: stop."""

    soft_ms: float
    hard_ms: float


def allocate(
    remaining_ms: float,
    increment_ms: float = 0.0,
    moves_to_go: int | None = None,
    *,
    overhead_ms: float = 100.0,
    slowmover: float = 1.0,
    fullmove: int = 1,
) -> TimeBudget:
    """Share out the clock.

    overhead_ms is a reserve for what the clock counts and the engine does not see (pipes, the GUI, a busy
    machine); at most 80 % of the clock is kept back, so that a short one still plays. The increment is
    spent only as far as the clock without it allows: with a delay per move larger than the increment the time
    per move goes to zero before the clock does. slowmover multiplies the soft limit. remaining_ms may be
    negative (some GUIs let a clock run out): the answer is then zero, a move at once.
    """
    usable = remaining_ms - min(overhead_ms, remaining_ms * 0.8)
    if usable <= 0:
        return TimeBudget(0.0, 0.0)
    if moves_to_go is not None and moves_to_go > 0:
        moves = float(min(moves_to_go, EXPECTED_MOVES))
        # The last move before the control may use nearly all; the increment arrives only after the move.
        largest_share = 0.8 if moves_to_go == 1 else max(0.2, 1.5 / moves_to_go)
    else:
        moves = max(MINIMUM_EXPECTED_MOVES, EXPECTED_MOVES - fullmove / 3)
        largest_share = 0.2
    largest_share = min(largest_share, 0.8)
    # Close to the reserve, save the increment too: unseen delays may be as long as it is.
    saved = min(1.0, usable / (2 * overhead_ms)) if overhead_ms > 0 else 1.0
    soft = (usable / moves + 0.8 * increment_ms * saved) * slowmover
    soft = min(soft, usable * largest_share)
    hard = min(soft * 3, usable * min(0.8, largest_share * 2))
    return TimeBudget(soft, max(soft, hard))
