# SPDX-License-Identifier: GPL-3.0-or-later
"""Which positions `review_games` searches, and how often, with a scheduler that answers at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from engine.analysis.scheduler import Scheduler
from engine.review.games import Effort, SourceGame, review_games

GAME = '[Result "*"]\n\n1. e4 e5 2. Nf3 *\n'
"""Four positions. The answers name another best move everywhere."""


class Answering:
    """A scheduler. value: expected score of a turn's side to move, by turn and nodes."""

    def __init__(self, value: Callable[[int, int], float]) -> None:
        self.value = value
        self.searched: list[tuple[int, list[int]]] = []

    def receive(self, client: Any, message: str) -> None:
        query = json.loads(message)
        self.searched.append((query["nodes"], query["analyze_turns"]))
        for turn in query["analyze_turns"]:
            value = self.value(turn, query["nodes"])
            best = "a2a3" if turn % 2 == 0 else "a7a6"
            move = {"move": best, "wdl": [value, 0.0, 1 - value], "pv": [best], "prior": 0.1}
            answer = {"id": query["id"], "turn": turn, "moves": [move], "search": {"evaluations": 7}}
            client.send(json.dumps(answer).encode())


def reviewed(value: Callable[[int, int], float]) -> tuple[list[str], list[tuple[int, list[int]]], Effort]:
    """Return the marks, the searches, and the counts of a review with 100 nodes."""
    scheduler, effort = Answering(value), Effort()
    source = SourceGame(1, "games.pgn", 1, GAME)
    (review,) = review_games(
        iter([source]),
        cast(Scheduler, scheduler),
        100,
        skipped=lambda *_: pytest.fail("skipped"),
        effort=effort,
    )
    return [move.mark for move in review.moves], scheduler.searched, effort


def test_a_quiet_game_is_searched_once() -> None:
    marks, searches, effort = reviewed(lambda turn, nodes: 0.5)
    assert searches == [(100, [0, 1, 2, 3])] and marks == ["", "", ""]
    assert effort.positions == 4


def test_a_suspicious_move_is_searched_three_times_and_marked_by_the_last_search() -> None:
    marks, searches, effort = reviewed(lambda turn, nodes: 0.7 if turn == 2 and nodes < 1000 else 0.5)
    assert searches == [(100, [0, 1, 2, 3]), (300, [1, 2, 3]), (1000, [1, 2, 3])]
    assert marks == ["", "", ""] and effort.positions == 10


@pytest.mark.parametrize(("value", "mark"), [(0.57, "inaccuracy"), (0.62, "mistake"), (0.84, "blunder")])
def test_a_move_far_from_the_loss_of_a_blunder_is_not_searched_a_third_time(value: float, mark: str) -> None:
    marks, searches, _ = reviewed(lambda turn, nodes: value if turn == 2 else 0.5)
    assert [nodes for nodes, _ in searches] == [100, 300] and marks == ["", mark, mark]
