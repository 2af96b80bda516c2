# SPDX-License-Identifier: GPL-3.0-or-later
"""Counting games."""

import random

import pytest

from engine.apps.games.record import GameOutcome, Reason, Result
from engine.apps.match.results.sprt import Sprt
from engine.apps.match.results.standings import Standings
from engine.apps.match.schedule import Schedule


def outcome(
    schedule: Schedule, number: int, result: Result, reason: Reason = Reason.CHECKMATE
) -> GameOutcome:
    game = schedule[number]
    return GameOutcome(number, game.pair, game.white, game.black, result, reason, 80, 1.0)


def test_games_and_pairs_are_counted_from_the_first_players_view() -> None:
    schedule = Schedule(2, games=6)
    standings = Standings(schedule)
    # Pairs of the first player: 2 points, 1 point, half a point.
    results: tuple[Result, ...] = ("1-0", "0-1", "1/2-1/2", "1/2-1/2", "0-1", "1/2-1/2")
    for number, result in enumerate(results):
        standings.add(outcome(schedule, number, result))
    tally = standings.tally(0, 1)
    assert (tally.wins, tally.draws, tally.losses) == (2, 3, 1)
    assert tally.pairs == (0, 1, 1, 0, 1)
    assert standings.tally(1, 0) == tally.reversed()
    assert standings.finished


def test_the_order_of_games_does_not_matter() -> None:
    schedule = Schedule(4, games=8)
    results: list[Result] = ["1-0", "0-1", "1/2-1/2"]
    rng = random.Random(4)
    outcomes = [outcome(schedule, number, rng.choice(results)) for number in range(len(schedule))]
    ordered, shuffled = Standings(schedule), Standings(schedule)
    for game in outcomes:
        ordered.add(game)
    rng.shuffle(outcomes)
    for game in outcomes:
        shuffled.add(game)
    for player in range(4):
        assert ordered.total(player) == shuffled.total(player)
        assert ordered.total(player).games == 24
        assert ordered.total(player).finished_pairs == 12


def test_a_half_pair_counts_as_a_game_but_not_as_a_pair() -> None:
    schedule = Schedule(2, games=4)
    standings = Standings(schedule)
    standings.add(outcome(schedule, 0, "1-0"))
    standings.add(outcome(schedule, 2, "1-0"))
    assert standings.tally(0, 1).games == 2
    assert standings.tally(0, 1).finished_pairs == 0


def test_a_game_counts_once() -> None:
    schedule = Schedule(2, games=2)
    standings = Standings(schedule)
    standings.add(outcome(schedule, 0, "1-0"))
    with pytest.raises(ValueError, match="game 1 "):
        standings.add(outcome(schedule, 0, "0-1"))
    with pytest.raises(ValueError, match="beyond"):
        standings.add(GameOutcome(2, 1, 0, 1, "1-0", Reason.CHECKMATE, 1, 1.0))
    with pytest.raises(ValueError, match="schedule"):
        standings.add(GameOutcome(1, 0, 0, 1, "1-0", Reason.CHECKMATE, 1, 1.0))
    assert standings.games == 1


def test_faults_are_counted_with_the_one_that_made_them() -> None:
    schedule = Schedule(2, games=4)
    standings = Standings(schedule)
    standings.add(outcome(schedule, 0, "0-1", Reason.TIME))
    standings.add(outcome(schedule, 1, "0-1", Reason.CHECKMATE))
    standings.add(outcome(schedule, 2, "1-0", Reason.ILLEGAL_MOVE))
    assert standings.players[0].faults == {Reason.TIME: 1}
    assert standings.players[1].faults == {Reason.ILLEGAL_MOVE: 1}


def test_the_sprt_decides_once() -> None:
    schedule = Schedule(2, games=400)
    standings = Standings(schedule, Sprt(0, 50))
    number = 0
    while not standings.over:
        first_is_white = schedule[number].white == 0
        points: Result = "1/2-1/2" if number % 4 == 0 else "1-0" if first_is_white else "0-1"
        standings.add(outcome(schedule, number, points))
        number += 1
    assert standings.decision == "H1"
    assert number < 100
    # A game that ended together with the last one is counted, and changes nothing.
    llr = standings.llr()
    for _ in range(20):
        lost: Result = "0-1" if schedule[number].white == 0 else "1-0"
        standings.add(outcome(schedule, number, lost))
        number += 1
    assert standings.llr() < llr
    assert standings.decision == "H1"
