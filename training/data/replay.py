# SPDX-License-Identifier: GPL-3.0-or-later
"""Replays the games of a shard to selected positions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from engine._core import Game
from engine.selfplay.shard import Shard
from training.data.moves import uci_move


def games_at(shard: Shard, rows: Collection[int]) -> Iterator[tuple[int, Game]]:
    """Yield rows and their games: samples along the games and branches. The caller owns the games.

    The moves must be known to be legal.
    """
    columns = shard.columns
    beside: defaultdict[int, list[int]] = defaultdict(list)
    for number in range(shard.branches):
        if shard.positions + number in rows:
            beside[int(columns["branch_at"][number])].append(number)
    wanted = {*rows, *beside}
    sample = place = 0
    for fen, chess960, plies, prefix in zip(
        shard.fens(), columns["chess960"], columns["plies"].tolist(), columns["prefix"].tolist(), strict=True
    ):
        last = max((ply for ply in range(prefix, plies) if sample + ply - prefix in wanted), default=-1)
        game = Game(fen, bool(chess960)) if last >= 0 else None
        for ply in range(last + 1):
            assert game is not None
            here = sample + ply - prefix
            if ply >= prefix:
                if here in rows:
                    yield here, game.copy()
                for branch in beside.get(here, ()):
                    other = game.copy()
                    other.push_uci(uci_move(int(columns["branch_move"][branch])))
                    yield shard.positions + branch, other
            if ply < last:
                game.push_uci(uci_move(int(columns["moves"][place + ply])))
        sample += plies - prefix
        place += plies
