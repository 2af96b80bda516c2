# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches the positions of games on a search pool, in this process or in several, and judges the moves.

Many games are in flight, so that the evaluator gets full batches. Games end in any order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

import chess

from engine._core import Game
from engine.evaluation.errors import PipelineError
from engine.options import Options
from engine.pool.pool import PoolPlayer, SearchPool
from engine.review.games import GameReview, SourceGame, finished
from engine.review.judging import INACCURACY, Searched, expected, losses
from engine.search.fen import read_fen
from engine.search.limits import Limits
from engine.search.memory import LEAST_MB, tree_megabytes
from engine.search.report import Line, Report
from engine.workers.executor import LocalExecutor, Log, MakeExecutor, WorkerContext, play_together

DEEPER = ((3, INACCURACY, 1.0), (10, 0.15, 0.3))
"""Second and third search: factor of the nodes, and least and greatest lost expected score of a move. Both of
its positions are searched again. One search may be mistaken. The third decides about marks as blunder."""

LINE_PLIES = 8
DIGITS = 5
"""Decimal places of probabilities."""

GAME_POSITIONS = 8
"""Positions of one game that are searched concurrently, on average: the first search has all positions, the
last, ten times as long, only a few."""

RESULTS = {"white_won": (1.0, 0.0, 0.0), "draw": (0.0, 1.0, 0.0), "black_won": (0.0, 0.0, 1.0)}


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A game and its review, or the reason why it cannot be reviewed.

    faults: those of the game's text that do not prevent the review. searches: number of searched positions,
    each as often as it was searched.
    """

    source: SourceGame
    review: GameReview | None = None
    reason: str = ""
    faults: tuple[str, ...] = ()
    searches: int = 0


@dataclass(frozen=True, slots=True)
class ReviewJob:
    """Reviews of games: a GameJob. The number of a game is its index in `sources`.

    options: of the searches, except chess960. nodes: of each position; more by DEEPER around moves that seem
    to lose something. positions: searched concurrently, in all processes together.
    """

    sources: tuple[SourceGame, ...]
    options: Options
    nodes: int
    positions: int

    @classmethod
    def of(cls, sources: Sequence[SourceGame], options: Options, nodes: int, pool: SearchPool) -> ReviewJob:
        """Return the job with as many positions as keep the evaluators busy. Raises NoEvaluatorError.

        options: the user's. There is no opponent, and every search uses all its nodes.
        """
        positions = pool.recommended_games(options)
        options = replace(
            options,
            smart_pruning_factor=0.0,
            contempt_mode="disable",
            multipv=2,
            tree_memory=max(LEAST_MB, tree_megabytes(options) // positions),
            hash=max(1, options.hash // positions),
        )
        return cls(tuple(sources), options, nodes, positions)

    @property
    def engines(self) -> tuple[Options, ...]:
        return (self.options,)

    def games_at_once(self, _pool: SearchPool | None = None) -> int:
        return min(len(self.sources), 2 + self.positions // GAME_POSITIONS)

    def executor(self, log: Log, context: WorkerContext, pool: SearchPool | None = None) -> ReviewExecutor:
        return ReviewExecutor(self, context, pool or context.search_pool(log, "analysis"))


class ReviewExecutor(LocalExecutor[Reviewed, ReviewJob]):
    """Reviews games in this process."""

    pool: SearchPool

    def __init__(self, job: ReviewJob, context: WorkerContext, pool: SearchPool) -> None:
        super().__init__(job, pool)
        self._options = context.options(job.options)
        self._slots = asyncio.Semaphore(ceil(job.positions / context.processes))
        self._idle: list[PoolPlayer] = []

    async def start(self) -> int:
        """Wait for the evaluator."""
        await asyncio.to_thread(self.pool.connections, self._options)
        return self.job.games_at_once()

    async def play_game(self, number: int) -> Reviewed:
        source = self.job.sources[number]
        faults: tuple[str, ...] = ()
        try:
            game = await asyncio.to_thread(source.read)
            faults = tuple(map(str, game.errors))
            board, moves = game.board(), list(game.mainline_moves())
            start, _ = read_fen(board.fen(), board.chess960)

            async def search(turns: Sequence[int], nodes: int) -> list[Searched]:
                return await play_together(self._search(start, moves, turn, nodes) for turn in turns)

            searched, searches = await search_game(moves, self.job.nodes, search)
        except (ValueError, PipelineError) as error:
            return Reviewed(source, reason=str(error), faults=faults)
        review = await asyncio.to_thread(finished, source, game, searched)
        return Reviewed(source, review, faults=faults, searches=searches)

    async def _search(self, start: Game, moves: Sequence[chess.Move], turn: int, nodes: int) -> Searched:
        """Search the position after `turn` moves when fewer than the limit are in flight.

        Raises ValueError, PipelineError and NoEvaluatorError.
        """
        async with self._slots:
            game = start.copy()
            for move in moves[:turn]:
                game.push_uci(move.uci())
            if not game.legal_moves():
                win, draw, loss = RESULTS[game.result()[0]]
                return Searched((win, draw, loss) if game.turn == "white" else (loss, draw, win))
            player = self._idle.pop() if self._idle else self.pool.player(self._options)
            player.new_game()
            player.options = replace(self._options, chess960=game.chess960)
            report = await asyncio.wrap_future(player.search(game, Limits(nodes=nodes)))
            self._idle.append(player)
        if report.ended_early or not report.nodes:
            raise PipelineError(report.ended_early or "the search ended before its first result")
        return searched_of(report)


async def search_game(
    moves: Sequence[chess.Move],
    nodes: int,
    search: Callable[[Sequence[int], int], Awaitable[Sequence[Searched]]],
) -> tuple[list[Searched], int]:
    """Search the positions of a game, and again those before and after moves that seem to lose something.

    search: called with turns and nodes. Return the last search of each position, and the number of searches.
    """
    searched = list(await search(range(len(moves) + 1), nodes))
    searches = len(searched)
    for factor, least, most in DEEPER:
        lost = losses(moves, searched)
        doubted = (ply for ply, loss in enumerate(lost) if least <= loss <= most)
        suspects = sorted({turn for ply in doubted for turn in (ply, ply + 1)})
        if suspects:
            for turn, again in zip(suspects, await search(suspects, factor * nodes), strict=True):
                searched[turn] = again
        searches += len(suspects)
    return searched, searches


def searched_of(report: Report) -> Searched:
    """Return what a search says of a position."""
    best, *others = (line for line in report.lines if line.visits or line.prior)
    return Searched(
        wdl=_rounded(best),
        best=best.moves[0],
        line=best.moves[:LINE_PLIES],
        second=expected(_rounded(others[0])) if others else None,
        prior=round(best.prior, DIGITS),
        mate=best.mate,
    )


def _rounded(line: Line) -> tuple[float, float, float]:
    win, draw, loss = (round(share, DIGITS) + 0.0 for share in line.wdl)  # No negative zero.
    return win, draw, loss


async def review_games(
    job: ReviewJob, make_executor: MakeExecutor[Reviewed], log: Log, take: Callable[[Reviewed], None]
) -> None:
    """Review the games of a job.

    take: called with each game at its end, in another thread, one at a time. Raises ExecutorError and the
    errors of `take`.
    """
    executor = await make_executor(job, log)
    numbers = iter(range(len(job.sources)))
    taking = asyncio.Lock()

    async def review_some() -> None:
        for number in numbers:
            (reviewed,) = await executor.play([number])
            async with taking:
                await asyncio.to_thread(take, reviewed)

    try:
        await play_together(review_some() for _ in range(await executor.open()))
    finally:
        await executor.close()
