# SPDX-License-Identifier: GPL-3.0-or-later
"""The schedule: who plays whom, from which opening, with which colours."""

from collections import Counter

import pytest

from engine.apps.match.schedule import Schedule


def test_in_a_round_robin_all_meet_equally_often_with_both_colours() -> None:
    schedule = Schedule(4, "round-robin", games=6)
    meetings = Counter((game.white, game.black) for game in schedule)
    assert len(schedule) == 36
    assert meetings == {(a, b): 3 for a in range(4) for b in range(4) if a != b}


def test_in_a_gauntlet_the_first_plays_all_others() -> None:
    schedule = Schedule(4, "gauntlet", games=2)
    assert {frozenset((game.white, game.black)) for game in schedule} == {
        frozenset((0, other)) for other in (1, 2, 3)
    }


def test_a_pair_has_one_opening_and_reversed_colours() -> None:
    schedule = Schedule(3, games=4)
    for pair in range(len(schedule) // 2):
        first, second = (schedule[2 * pair], schedule[2 * pair + 1])
        assert first.pair == second.pair == pair
        assert first.round == second.round
        assert (first.white, first.black) == (second.black, second.white)


def test_all_pairings_of_a_round_get_the_same_opening() -> None:
    schedule = Schedule(3, games=4)
    assert schedule.rounds == 2
    assert Counter(game.round for game in schedule) == {0: 6, 1: 6}


def test_without_pairs_colours_alternate() -> None:
    games = list(Schedule(2, games=4, pairs=False))
    assert [(game.white, game.black) for game in games] == [(0, 1), (1, 0), (0, 1), (1, 0)]
    assert [game.round for game in games] == [0, 1, 2, 3]
    assert [game.pair for game in games] == [0, 1, 2, 3]


def test_a_longer_match_begins_as_the_shorter_one() -> None:
    short, long = Schedule(3, games=4), Schedule(3, games=10)
    assert list(short) == list(long)[: len(short)]


def test_numbers_outside_are_refused() -> None:
    with pytest.raises(IndexError):
        Schedule(2, games=2)[2]


@pytest.mark.parametrize(
    ("players", "games", "message"), [(1, 2, "two players"), (2, 0, "one game"), (2, 3, "3 is odd")]
)
def test_schedules_that_cannot_be_are_refused(players: int, games: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(players, games=games)
