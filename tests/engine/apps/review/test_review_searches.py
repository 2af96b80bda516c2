# SPDX-License-Identifier: GPL-3.0-or-later
"""The positions of a game that a review searches, how often, and in how many processes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import chess
import pytest

from engine.apps.review.games import SourceGame
from engine.apps.review.judging import MoveReview, MoveTime, Searched, judge
from engine.apps.review.scale import Score
from engine.apps.review.searching import Reviewed, ReviewJob, Searches, review_games, search_game
from engine.options import Options
from engine.search.pool import SearchPool
from engine.workers.local import local_executor

MOVES = [chess.Move.from_uci(move) for move in ("e2e4", "e7e5", "g1f3")]
"""A game of four positions. The searches prefer another move everywhere."""

Requested = list[tuple[int, list[int]]]


def reviewed(
    value: Callable[[int, int], float], result: str = "*"
) -> tuple[list[MoveReview], Requested, Searches]:
    """Return the judged moves, the requests and the searches of a review with 100 nodes.

    value: expected score of a turn's side to move, by turn and nodes.
    """
    requested: Requested = []

    async def search(turns: Sequence[int], nodes: int) -> list[Searched]:
        requested.append((nodes, list(turns)))
        found = []
        for turn in turns:
            best, points = "a2a3" if turn % 2 == 0 else "a7a6", value(turn, nodes)
            found.append(Searched(Score((points, 0.0, 1 - points), 0.0), best, (best,), prior=0.1))
        return found

    searches = asyncio.run(search_game(MOVES, 100, search, result=result))
    judged = judge(chess.Board(), MOVES, searches.positions, [MoveTime()] * 3, searches.unclear)
    return judged, requested, searches


def test_a_quiet_game_is_searched_once() -> None:
    moves, requested, searches = reviewed(lambda turn, nodes: 0.5)
    assert requested == [(100, [0, 1, 2, 3])] and not any(move.mark for move in moves)
    assert searches.count == 4


def test_suspicious_move_is_marked_by_its_last_search() -> None:
    moves, requested, searches = reviewed(lambda turn, nodes: 0.7 if turn == 2 and nodes < 300 else 0.5)
    assert requested == [(100, [0, 1, 2, 3]), (300, [1, 2, 3])]
    assert not any(move.mark for move in moves) and searches.count == 7


def test_a_turning_point_is_settled_if_ten_times_the_nodes_agree() -> None:
    moves, requested, searches = reviewed(lambda turn, nodes: (0.5, 0.5, 0.75, 0.25)[turn])
    assert [nodes for nodes, _ in requested] == [100, 300, 1000] and not searches.unclear
    assert [move.mark for move in moves] == ["", "blunder", ""]


def test_deep_searches_agree_if_both_see_a_mistake_of_any_size() -> None:
    moves, requested, searches = reviewed(
        lambda turn, nodes: (0.5, 0.5, 0.75 if nodes < 1000 else 0.65, 0.5)[turn]
    )
    assert [nodes for nodes, _ in requested] == [100, 300, 1000] and not searches.unclear
    assert moves[1].mark == "mistake"


def test_turning_point_is_unmarked_when_deep_searches_disagree() -> None:
    by_nodes = {100: 0.75, 300: 0.75, 1000: 0.6, 3000: 0.8}
    moves, requested, searches = reviewed(lambda turn, nodes: (0.5, 0.5, by_nodes[nodes], 0.5)[turn])
    assert [nodes for nodes, _ in requested] == [100, 300, 1000, 3000] and 1 in searches.unclear
    assert moves[1].unclear and not moves[1].mark


@pytest.mark.integration
@pytest.mark.parametrize("processes", [1, 2])
def test_games_are_reviewed_or_named_in_any_processes(processes: int) -> None:
    texts = (
        "1. e4 e5 2. Nf3 *",
        "1. f3 e5 2. g4 Qh4# 0-1",
        '[FEN "8/8/8/8/8/8/8/8 w - - 0 1"]\n\n1. e4 *',
        "1. c4 *",
        "*",
    )
    sources = [SourceGame(number, "games.pgn", 1, text) for number, text in enumerate(texts)]
    games: dict[int, Reviewed] = {}
    with SearchPool() as pool:
        job = replace(ReviewJob.of(sources, Options(backend="random"), 20, pool), positions=3)
        make = partial(local_executor, pool=pool, workers=processes)
        asyncio.run(review_games(job, make, print, lambda game: games.update({game.source.number: game})))
    assert sorted(games) == [0, 1, 2, 3, 4]
    assert "king" in games.pop(2).reason
    moves = {number: len(game.review.moves) for number, game in games.items() if game.review is not None}
    assert moves == {0: 3, 1: 4, 3: 1, 4: 0}
    assert all(game.searches > moves[number] for number, game in games.items())
    mated = games[1].review
    assert mated is not None and mated.wdl[-1] == (0.0, 0.0, 1.0) and mated.moves[-1].pawns > 0
