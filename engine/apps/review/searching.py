# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches the positions of games on a search pool, in this process or in several, and judges the moves.

Many games are in flight, so that the evaluator gets full batches. Games end in any order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import ceil

import chess
import chess.pgn

from engine._core import Game
from engine.apps.review.games import GameReview, SourceGame, finished
from engine.apps.review.judging import (
    FAULTS,
    INACCURACY,
    MISTAKE,
    Searched,
    backed_up,
    decisive,
    losses,
    missed_win,
)
from engine.apps.review.people import ESTIMATE, Imitators, People, rating_of
from engine.apps.review.scale import Score
from engine.evaluation.errors import NoEvaluatorError, PipelineError
from engine.options import Options
from engine.search.fen import read_fen
from engine.search.limits import Limits
from engine.search.player.memory import LEAST_MB, cache_megabytes, tree_megabytes
from engine.search.pool import PoolPlayer, SearchPool
from engine.search.report import Line, Report
from engine.workers.executor import (
    FailedGame,
    LocalExecutor,
    Log,
    MakeExecutor,
    WorkerContext,
    play_together,
    searched,
)
from protocol.common.printing import reason

DOUBTFUL, AGAIN = 0.03, 3
"""Lost expected score from which both positions of a move are searched again, and factor of the nodes."""

TURNING, TURNING_FACTORS = 0.1, (10, 30)
"""Loss of a turning point, and factors of its nodes until two searches agree whether it is a mistake."""

MOST_TURNING = 24
"""Largest number of turning points in a game."""

LINE_PLIES = 12
LEAST_VISITS = 3
"""Length of a line, and visits of its last move: what fewer visits found is not told."""

DIGITS = 5
"""Decimal places of probabilities."""

GAME_POSITIONS = 8
"""Positions of one game that are searched concurrently, on average: the first search has all positions, the
last, ten times as long, only a few."""

NETWORK, NETWORK_NODES = "wavefront-gpu", 400
"""Default network of reviews, and its least nodes, on every device: it judges better (RESULTS.md)."""

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

    options: of the searches, except chess960. nodes: of each position, more where the game turns. positions:
    searched concurrently, in all processes together. people: whom the shares of people come from.
    """

    sources: tuple[SourceGame, ...]
    options: Options
    nodes: int
    positions: int
    people: Imitators = ESTIMATE

    @classmethod
    def of(
        cls,
        sources: Sequence[SourceGame],
        options: Options,
        nodes: int,
        pool: SearchPool,
        people: Imitators = ESTIMATE,
    ) -> ReviewJob:
        """Return the job with as many positions as keep the evaluators busy. Raises NoEvaluatorError.

        options: the user's, with a network. There is no opponent, and every search uses all its nodes.
        """
        positions = pool.recommended_games(options)
        options = replace(
            options,
            smart_pruning_factor=0.0,
            contempt_mode="disable",
            multipv=2,
            tree_memory=max(LEAST_MB, tree_megabytes(options) // positions),
            hash=max(1, cache_megabytes(options) // positions),
        )
        return cls(tuple(sources), options, nodes, positions, people)

    @property
    def engines(self) -> tuple[Options, ...]:
        return (self.options,)

    def games_at_once(self, _pool: SearchPool | None = None) -> int:
        return min(len(self.sources), 2 + self.positions // GAME_POSITIONS)

    def executor(self, log: Log, context: WorkerContext, pool: SearchPool | None = None) -> ReviewExecutor:
        return ReviewExecutor(self, context, pool or context.search_pool(log, "analysis"))


def with_network(options: Options, nodes: int) -> Options:
    """Return the options with the network of a review if the user names neither network nor evaluator."""
    named = options.weights or options.evaluator or nodes < NETWORK_NODES
    return options if named else options.changed(weights=NETWORK)


@dataclass(eq=False, slots=True)
class ReviewProgress:
    """A game while it is reviewed.

    found: searched positions by turn and nodes, the deepest of a turn last. asked: number of searches so far,
    running ones included.
    """

    source: SourceGame
    game: chess.pgn.Game
    found: dict[tuple[int, int], Searched] = field(default_factory=dict)
    asked: int = 0

    def review(self) -> GameReview:
        """Return the review of the moves up to the first position that was not searched."""
        latest = {turn: each for (turn, _), each in list(self.found.items())}
        known = [latest[turn] for turn in takewhile(latest.__contains__, range(len(latest)))]
        return finished(self.source, self.game, known or [Searched(Score.of((0.0, 1.0, 0.0)))])


class ReviewExecutor(LocalExecutor[Reviewed, ReviewJob]):
    """Reviews games in this process. first_nodes: of a first search of all; 0: none. owner: of searches."""

    pool: SearchPool
    first_nodes = 0
    owner = ""

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
            progress = self.progress(source, game)

            async def one(turn: int, nodes: int) -> Searched:
                if (turn, nodes) not in progress.found:
                    progress.found[turn, nodes] = await self._search(start, moves, turn, nodes)
                return progress.found[turn, nodes]

            async def search(turns: Sequence[int], nodes: int) -> list[Searched]:
                known = sum((turn, nodes) in progress.found for turn in turns)
                progress.asked = max(progress.asked, len(progress.found) + len(turns) - known)
                return await play_together(one(turn, nodes) for turn in turns)

            if self.first_nodes:
                await search(range(len(moves) + 1), self.first_nodes)
            result = game.headers.get("Result", "*")
            searches = await search_game(
                moves, self.job.nodes, search, result=result, white_begins=board.turn
            )
            review = await asyncio.to_thread(finished, source, game, searches.positions, searches.unclear)
            review = await self._with_people(review, start, moves)
        except NoEvaluatorError:
            raise
        except Exception as error:  # The other games go on, whatever it is.
            return Reviewed(source, reason=reason(error), faults=faults)
        return Reviewed(source, review, faults=faults, searches=searches.count)

    def progress(self, source: SourceGame, game: chess.pgn.Game) -> ReviewProgress:
        """Return where the searches of a game are kept: those that it has are not repeated."""
        return ReviewProgress(source, game)

    async def _with_people(self, review: GameReview, start: Game, moves: Sequence[chess.Move]) -> GameReview:
        """Return the review with what people of the players' ratings play instead of the marked moves."""
        positions, game = {}, start.copy()
        for move, played in zip(review.moves, moves, strict=True):
            if move.mark in FAULTS:
                positions[move.ply] = game.copy(), rating_of(review.headers, white=move.white)
            game.push_uci(played.uci())
        found = await self.job.people.shares(self.pool, self._options, positions)
        judged = []
        for move in review.moves:
            if move.ply in found:
                rating, shares = found[move.ply]
                plays, finds = (round(shares.get(each, 0.0), 3) for each in (move.uci, move.best_uci))
                move = replace(move, people=People(rating, plays, finds))
            judged.append(move)
        return replace(review, moves=judged, people=self.job.people.source if found else "")

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
                return Searched(Score.of((win, draw, loss) if game.turn == "white" else (loss, draw, win)))
            player = self._idle.pop() if self._idle else self.pool.player(self._options)
            player.new_game()
            player.owner = self.owner
            player.options = replace(self._options, chess960=game.chess960)
            report = await searched(player, game, Limits(nodes=nodes))
            self._idle.append(player)
        if report.ended_early or not report.nodes:
            raise PipelineError(report.ended_early or "the search ended before its first result")
        return searched_of(report)


@dataclass(frozen=True, slots=True)
class Searches:
    """The last search of each position of a game. unclear: plies whose mark the deepest searches do not agree
    on. count: number of searches."""

    positions: list[Searched]
    unclear: frozenset[int] = frozenset()
    count: int = 0


async def search_game(
    moves: Sequence[chess.Move],
    nodes: int,
    search: Callable[[Sequence[int], int], Awaitable[Sequence[Searched]]],
    *,
    result: str = "*",
    white_begins: bool = True,
) -> Searches:
    """Search the positions of a game: all of them, then deeper around the moves that change something, and
    deepest at the turning points.

    search: called with turns and nodes.
    """
    positions = list(await search(range(len(moves) + 1), nodes))
    count = len(positions)

    async def again(plies: Collection[int], factor: int) -> None:
        nonlocal count
        turns = sorted({turn for ply in plies for turn in (ply, ply + 1)})
        if turns:
            for turn, found in zip(turns, await search(turns, factor * nodes), strict=True):
                positions[turn] = found
        count += len(turns)

    lost = losses(backed_up(moves, positions))
    await again([ply for ply, loss in enumerate(lost) if loss >= DOUBTFUL], AGAIN)
    factors: dict[int, int] = {}
    serious: dict[int, bool] = {}
    settled: set[int] = set()
    while True:
        scores = backed_up(moves, positions)
        lost = losses(scores)
        turning = turning_points(scores, result, white_begins=white_begins)
        plies = {ply for ply in [*turning, *factors] if ply not in settled}
        plies = {ply for ply in plies if factors.get(ply) != TURNING_FACTORS[-1]}
        plies = set(sorted(plies, key=lambda ply: -lost[ply])[: MOST_TURNING - len(settled)])
        if not plies:
            break
        for ply in plies:
            serious[ply] = lost[ply] >= MISTAKE
            factors[ply] = next(each for each in TURNING_FACTORS if each > factors.get(ply, 0))
        for factor in TURNING_FACTORS:
            await again([ply for ply in plies if factors[ply] == factor], factor)
        lost = losses(backed_up(moves, positions))
        settled |= {ply for ply in plies if (lost[ply] >= MISTAKE) is serious[ply]}
    unclear = {ply for ply in factors.keys() - settled if lost[ply] >= INACCURACY}
    return Searches(positions, frozenset(unclear), count)


def turning_points(scores: Sequence[Score], result: str, *, white_begins: bool) -> list[int]:
    """Return the plies where the game was lost, wins were missed, and most was lost."""
    expected = [
        each.expected if white_begins == (turn % 2 == 0) else 1 - each.expected
        for turn, each in enumerate(scores)
    ]
    lost, loss = decisive(expected, result, white_begins), losses(scores)
    worst = [
        ply
        for ply in sorted(range(len(loss)), key=lambda ply: -loss[ply])
        if loss[ply] >= TURNING or missed_win(scores, ply)
    ]
    return ([] if lost is None else [lost]) + [ply for ply in worst if ply != lost]


def searched_of(report: Report) -> Searched:
    """Return what a search says of a position."""
    best, *others = (line for line in report.lines if line.visits or line.prior)
    second = others[0] if others and others[0].visits >= LEAST_VISITS else None
    return Searched(
        score=Score.of(best.wdl),
        best=best.moves[0],
        line=_supported_moves(best),
        second=Score.of(second.wdl) if second else None,
        second_line=_supported_moves(second) if second else (),
        prior=round(best.prior, DIGITS),
        mate=best.mate,
        tables=best.tablebase,
    )


def _supported_moves(line: Line) -> tuple[str, ...]:
    """Return the moves of a line that enough visits found; all of a proven mate."""
    if line.mate is not None:
        return line.moves
    enough = sum(visits >= LEAST_VISITS for visits in line.move_visits[:LINE_PLIES])
    return line.moves[: max(1, enough)]


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
            if isinstance(reviewed, FailedGame):
                reviewed = Reviewed(job.sources[number], reason=reviewed.reason)
            async with taking:
                await asyncio.to_thread(take, reviewed)

    try:
        await play_together(review_some() for _ in range(await executor.open()))
    finally:
        await executor.close()
