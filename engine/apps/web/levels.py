# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves of the engine's levels for games, in the evaluator's class of players; and what people would play."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.apps.games.casual import MOST_NODES, CasualGame
from engine.apps.games.referee import game_of
from engine.apps.review.people import Imitators
from engine.evaluation.errors import NoEvaluatorError
from engine.search.limits import Limits
from engine.search.player.memory import LEAST_MB
from engine.search.pool import PoolPlayer, SearchPool
from engine.workers.executor import searched

if TYPE_CHECKING:
    from engine.options import Options
    from engine.search.report import Report

MOST_IDLE = 8
"""Idle players that are kept with their trees' memory."""


class Levels:
    """The players of games. Only the event loop may use it."""

    def __init__(
        self, pool: SearchPool, options: Options, people: Imitators, log: Callable[[str], None]
    ) -> None:
        """pool: of the analysis, whose evaluator is used."""
        self._pool = pool
        self._options = options
        self._people = people
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
        if self._address not in ("", options.evaluator):  # Its players would wait for the one that died.
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
        """Return what people of a rating play. Raises NoEvaluatorError and PipelineError."""
        rating, options, _ = self._people.nearest(elo, self._options)
        position, board = game_of(game.board), game.board
        positions = {0: (position, elo)} if position.legal_moves() else {}
        _, shares = (await self._people.shares(self._pool, self._options, positions)).get(0, (rating, {}))
        moves = [
            {"move": move, "san": board.san(board.parse_uci(move)), "share": round(share, 5)}
            for move, share in sorted(shares.items(), key=lambda each: -each[1])
        ]
        name = Path(options.weights).name if self._people.networks else "estimate"
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
