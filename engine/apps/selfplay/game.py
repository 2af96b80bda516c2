# SPDX-License-Identifier: GPL-3.0-or-later
"""The play of one game of self-play, from its opening to the training records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Literal, cast

from engine._core import ChildInfo, Game, RootInfo, Tree
from engine.apps.games.openings import Opening
from engine.apps.games.record import GameRecord, MoveRecord, Reason, Result
from engine.apps.games.referee import Verdict, end_by_rules, win_for
from engine.apps.selfplay.config import Resignation, SelfPlayConfig
from engine.apps.shards.training_record import Encoding, GameEnd, Records, finish_game, make_record
from engine.evaluation.errors import NetworkChangedError, NoEvaluatorError
from engine.search.limits import Limits
from engine.search.pool import answer
from engine.search.report import Line, Report

if TYPE_CHECKING:
    from engine.evaluation.link.encoding import HistoryFill
    from engine.search.pool import PoolPlayer, SearchPool

Side = Literal["white", "black"]

VALUES: dict[Result, int] = {"1-0": 1, "1/2-1/2": 0, "0-1": -1}

RANDOM_ATTEMPTS = 100
"""Maximum random openings that end the game; then the book's line is played without random moves."""


@dataclass(frozen=True, slots=True)
class PlayedGame:
    """A finished game: the moves, the training records, and the effect of resigning.

    playthrough: resigning was disabled. would_resign: the side that would have resigned first.
    """

    record: GameRecord
    training: Records
    playthrough: bool
    would_resign: Side | None


@dataclass(frozen=True, slots=True)
class _Searched:
    """A search's report, and the final root of the tree. children: best first. played: the chosen one."""

    report: Report
    root: RootInfo
    children: Sequence[ChildInfo]
    played: ChildInfo
    input_format: int

    @property
    def best_q(self) -> float:
        best = self.children[0]
        return best.evaluation.q if best.visits else self.root.evaluation.q


class Resigning:
    """Count each side's consecutive lost moves."""

    def __init__(self, rule: Resignation, *, playthrough: bool) -> None:
        """playthrough: no side resigns, but `first` is the side that would have."""
        self._rule = rule
        self._playthrough = playthrough
        self._lost: dict[Side, int] = {"white": 0, "black": 0}
        self.first: Side | None = None

    def resigns(self, side: Side, best_q: float, move_number: int) -> bool:
        """Return True if the side resigns after this move."""
        rule = self._rule
        hopeless = 50 * (best_q + 1) < rule.percent and move_number >= rule.earliest_move
        self._lost[side] = self._lost[side] + 1 if hopeless else 0
        if self._lost[side] < rule.moves:
            return False
        self.first = self.first or side
        return not self._playthrough


async def play_game(number: int, opening: Opening, config: SelfPlayConfig, pool: SearchPool) -> PlayedGame:
    """Play the game with this number, in the pool's thread (`SearchPool.drive`). Its randomness depends only
    on the number and the seed.

    If the evaluator's network changes, the game restarts, so that one network plays all of it. Raises
    NoEvaluatorError if the evaluator is lost.
    """
    while True:
        with suppress(NetworkChangedError):
            return await _play(number, opening, config, pool)


async def _play(number: int, opening: Opening, config: SelfPlayConfig, pool: SearchPool) -> PlayedGame:
    """Same as `play_game`, but raises NetworkChangedError."""
    random = Random(f"selfplay {config.seed} {number}")
    started, began = datetime.now(UTC), perf_counter()
    game = _opened(opening, config, random)
    opening_moves = tuple(game.moves())
    playthrough = random.random() * 100 < config.resign.playthrough
    resigning = Resigning(config.resign, playthrough=playthrough)
    player = pool.player(config.options, random)
    moves: list[MoveRecord] = []
    records: list[Records] = []
    white_to_move: list[bool] = []
    ending: Verdict | None = None
    network = ""
    try:
        while ending is None:
            found = await _search(player, game, config, random)
            network = network or found.report.network
            if found.report.network != network:
                raise NetworkChangedError("another network evaluates than for the moves so far")
            move, side, number_of_move = found.played.move, cast("Side", game.turn), game.ply // 2 + 1
            records.append(make_record(game, _encoding(config, found), found.root, found.children, move))
            white_to_move.append(side == "white")
            moves.append(_move_record(found))
            game.push_uci(move)
            resigned = resigning.resigns(side, found.best_q, number_of_move)
            ending = _ending(game, config, side if resigned else None)
    finally:
        player.stop()
    end = GameEnd(
        VALUES[ending.result],
        adjudicated=ending.reason in (Reason.RESIGNATION, Reason.MOVE_LIMIT),
        length_limit=ending.reason is Reason.MOVE_LIMIT,
    )
    record = GameRecord(
        number=number,
        pair=number // 2,
        white=0,
        black=0,
        result=ending.result,
        reason=ending.reason,
        opening=opening.name,
        start_fen=opening.fen,
        chess960=config.options.chess960,
        opening_moves=opening_moves,
        moves=tuple(moves),
        started=started.isoformat(timespec="seconds"),
        seconds=perf_counter() - began,
    )
    return PlayedGame(record, finish_game(records, white_to_move, end), playthrough, resigning.first)


async def _search(player: PoolPlayer, game: Game, config: SelfPlayConfig, random: Random) -> _Searched:
    if not config.reuse_tree:
        player.new_game()
    spread = random.uniform(-config.nodes_spread, config.nodes_spread)
    nodes = max(1, round(config.nodes * (1 + spread)))
    seen: list[tuple[RootInfo, Sequence[ChildInfo], int]] = []

    def look(tree: Tree) -> None:  # called in the pool's thread
        seen.append((tree.root_info(), tree.children(), tree.params.input_format))

    report = await answer(player.search(game, Limits(nodes=nodes), inspect=look))
    played = [child for _, children, _ in seen for child in children if child.move == report.best_move]
    if not played:
        raise NoEvaluatorError("a search ended before the evaluator had answered anything")
    root, children, input_format = seen[0]
    return _Searched(report, root, children, played[0], input_format)


def _opened(opening: Opening, config: SelfPlayConfig, random: Random) -> Game:
    """Return the game after the opening and its random moves."""
    game = Game(opening.fen, config.options.chess960)
    for move in opening.moves:
        game.push_uci(move)
    plies = random.randint(0, config.random_plies)
    for _ in range(RANDOM_ATTEMPTS):
        longer = game.copy()
        for _ in range(plies):
            longer.push_uci(random.choice(longer.legal_moves()))
            if longer.result()[0] != "undecided":
                break
        else:
            return longer
    return game


def _ending(game: Game, config: SelfPlayConfig, resigned: Side | None) -> Verdict | None:
    verdict = end_by_rules(game)
    if verdict is None and resigned is not None:
        verdict = Verdict(win_for(resigned == "black"), Reason.RESIGNATION)
    if verdict is None and len(game.moves()) >= config.max_plies:
        verdict = Verdict("1/2-1/2", Reason.MOVE_LIMIT)
    return verdict


def _encoding(config: SelfPlayConfig, found: _Searched) -> Encoding:
    return Encoding(found.input_format, cast("HistoryFill", config.options.history_fill))


def _move_record(found: _Searched) -> MoveRecord:
    report, played = found.report, found.played
    proof, evaluation = played.proof, played.evaluation
    mate = proof.value * ((proof.plies + 1) // 2) if proof is not None and proof.value else None
    line = Line((played.move,), played.visits, evaluation.q, evaluation.wdl, evaluation.m, played.prior, mate)
    return MoveRecord(
        uci=played.move,
        seconds=round(report.seconds, 4),
        score_cp=line.centipawns() if mate is None and played.visits else None,
        mate=mate,
        depth=report.depth,
        selective_depth=report.selective_depth,
        nodes=report.nodes,
    )
