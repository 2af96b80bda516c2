# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice of the move to play: the best one, or with a temperature a random one weighted by visits.

The rules and option names are lc0's: Temperature, TempDecayMoves, TempDecayDelayMoves, TempCutoffMove,
TempEndgame, TempValueCutoff, TempVisitOffset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.options import Options


@dataclass(frozen=True, slots=True)
class Candidate:
    """A root move. visits: completed. q: expected result for the mover, -1 to 1; 0 without visits."""

    move: str
    visits: int
    q: float


def temperature_at(options: Options, moves: int) -> float:
    """Return the temperature after N full moves of the game (plies // 2); 0 plays the best move.

    It falls linearly from `temperature` to 0 over `temp_decay_moves` moves, after `temp_decay_delay_moves`
    moves, but not below `temp_endgame`. From move `temp_cutoff_move` (counted from 1) on it is
    `temp_endgame`. 0 disables decay and cut-off.
    """
    if options.temp_cutoff_move and moves + 1 >= options.temp_cutoff_move:
        return options.temp_endgame
    temperature = options.temperature
    if not temperature or not options.temp_decay_moves:
        return temperature
    left = options.temp_decay_delay_moves + options.temp_decay_moves - moves
    share = max(0.0, min(1.0, left / options.temp_decay_moves))
    return max(temperature * share, options.temp_endgame)


def choose_move(moves: Sequence[Candidate], options: Options, temperature: float, random: Random) -> str:
    """Return the move to play. moves: best first, at least one.

    With temperature T, a move's weight is (visits + temp_visit_offset)^(1/T). Moves are excluded if their
    winning chance, 50 (q + 1) percent, is more than `temp_value_cutoff` points below the most visited move's.
    At 100 no move is excluded; below, moves without visits are. If no move has weight, the best is played.
    """
    if temperature <= 0:
        return moves[0].move
    offset = options.temp_visit_offset
    most = max(moves, key=lambda candidate: candidate.visits)
    largest = most.visits + offset
    cut_off = options.temp_value_cutoff < 100
    lowest_q = most.q - options.temp_value_cutoff / 50
    weights = [
        0.0
        if largest <= 0 or (cut_off and (candidate.visits == 0 or candidate.q < lowest_q))
        else max(0.0, (candidate.visits + offset) / largest) ** (1 / temperature)
        for candidate in moves
    ]
    sums = list(accumulate(weights))
    if sums[-1] <= 0:
        return moves[0].move
    return random.choices(moves, cum_weights=sums)[0].move
