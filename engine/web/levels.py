# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves of the engine's levels for games, in the evaluator's class of players; and what people would play."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.analysis.evaluation import outputs
from engine.evaluation.errors import NoEvaluatorError
from engine.games.casual import MOST_NODES, CasualGame
from engine.games.referee import game_of
from engine.pool.pool import PoolPlayer, SearchPool
from engine.search.levels import LEAST_ELO, NETWORK, TABLE, calibrated
from engine.search.limits import Limits
from engine.search.memory import LEAST_MB
from engine.workers.executor import searched

if TYPE_CHECKING:
    from engine.options import Options
    from engine.search.report import Report

MOST_IDLE = 8
"""Idle players that are kept with their trees' memory."""

ONE_NODE = max(elo for elo, nodes, _ in TABLE if nodes == 1)
"""Largest Elo of a level that only draws from the policy."""

_NUMBER = re.compile(r"\d{3,4}")


class Levels:
    """The players of games. Only the event loop may use it."""

    def __init__(
        self, pool: SearchPool, options: Options, human: Sequence[Path], log: Callable[[str], None]
    ) -> None:
        """pool: of the analysis, whose evaluator is used. human: networks that imitate people, whose file
        names have their rating."""
        self._pool = pool
        self._options = options
        self._human = {int(found[0]): path for path in human if (found := _NUMBER.search(path.name))}
        self._log = log
        self._address = ""  # Of the evaluator that the players of the pool use.
        self._play = SearchPool(log=log, priority="play")
        self._idle: list[PoolPlayer] = []
        self._ended = 0  # Searches of earlier pools.

    async def move(self, game: CasualGame, *, elo: int, nodes: int) -> Report:
        """Search the engine's move. elo: of its level; 0 plays at full strength with these nodes. Raises
        NoEvaluatorError and PipelineError."""
        options = self._shared(self._options.changed(tree_memory=LEAST_MB, hash=1))
        if elo:
            options = options.changed(limit_strength=True, elo=elo)
        options = options.changed(chess960=game.board.chess960)
        if self._address not in (
            "",
            options.evaluator,
        ):  # That evaluator died: its players would wait for it.
            self._ended += self._play.statistics().searches
            asyncio.get_running_loop().run_in_executor(None, self._play.close)
            self._play, self._idle = SearchPool(log=self._log, priority="play"), []
        self._address, pool = options.evaluator, self._play
        player = self._idle.pop() if self._idle else pool.player(options)
        player.options = options
        player.new_game()
        limits = Limits(nodes=MOST_NODES if elo else nodes)
        report = await searched(player, game_of(game.board), limits, play=True)
        if pool is self._play and len(self._idle) < MOST_IDLE:
            self._idle.append(player)
        return report

    async def human(self, game: CasualGame, elo: int) -> dict[str, Any]:
        """Return the policy of people of a rating: of the human network with the nearest one, else of the
        level. Raises NoEvaluatorError and PipelineError."""
        if self._human:
            rating = min(self._human, key=lambda each: abs(each - elo))
            weights, temperature, name = str(self._human[rating]), 1.0, self._human[rating].name
        else:
            rating = min(max(elo, LEAST_ELO), ONE_NODE)
            weights, temperature, name = NETWORK, calibrated(rating).temperature, "level"
        position = game_of(game.board)
        policy: dict[str, float] = {}
        if position.legal_moves():
            options = replace(self._options, weights=weights, policy_head="", value_head="")
            batch = await asyncio.wrap_future(self._pool.evaluate([position], options))
            (output,) = outputs([position], *batch)
            policy = output["policy"]
        powers = {move: share ** (1 / max(temperature, 0.05)) for move, share in policy.items()}
        total = sum(powers.values()) or 1.0
        ordered = sorted(powers.items(), key=lambda each: -each[1])
        board = game.board
        moves = [
            {"move": move, "san": board.san(board.parse_uci(move)), "share": round(power / total, 5)}
            for move, power in ordered
        ]
        return {"network": name, "elo": rating, "moves": moves}

    def load(self) -> tuple[int, int]:
        """Return the number of moves that are searched, and of those since the start."""
        return self._play.searching, self._ended + self._play.statistics().searches

    def close(self) -> None:
        """Stop all searches."""
        self._play.close()

    def _shared(self, options: Options) -> Options:
        """Return the options with the address of the analysis's evaluator. Raises NoEvaluatorError."""
        if options.evaluator:
            return options
        clients = [link.client for link in self._pool.links(self._options)]
        addresses = [client.address for client in clients if client is not None]
        if not addresses:
            raise NoEvaluatorError("the evaluator is starting")
        return replace(options, evaluator=addresses[0])
