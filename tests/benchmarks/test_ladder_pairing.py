# SPDX-License-Identifier: GPL-3.0-or-later
"""benchmarks/strength/ladder/pairing.py: who meets whom, without playing."""

import numpy as np
import pytest

from benchmarks.strength.ladder.pairing import BRIDGE_GAMES, GameTimes, PairingRules, choose_pairs
from benchmarks.strength.ladder.scale import OpeningResult, Results, expected_scores

GUESSES = np.array([1300.0, 1500.0, 1900.0, 2000.0, 2350.0])


def chosen(
    *, games: int = 100, results: Results | None = None, seconds: float = 1.0, slow: int = -1, most: int = 60
) -> list[tuple[int, int]]:
    players = len(GUESSES)
    times = np.full((players, players), seconds)
    if slow >= 0:
        times[slow, :] *= 30
        times[:, slow] *= 30
    return choose_pairs(
        PairingRules(GUESSES, {0: 1300.0, 1: 1500.0}, games),
        results or Results.of(players, []),
        np.zeros((players, players)),
        times,
        most,
        longest_s=1e9,
    )


def test_only_pairs_of_10_to_90_percent_play() -> None:
    scores = expected_scores(GUESSES)
    pairs = set(chosen())
    assert pairs
    assert all(0.1 <= scores[first, second] <= 0.9 for first, second in pairs)
    assert {player for pair in pairs for player in pair} == {0, 1, 2, 3, 4}


def test_results_move_a_pair_out_of_the_range() -> None:
    won = [OpeningResult(0, 1, 0.0, 2)] * 60 + [OpeningResult(1, 2, 1.0, 2)] * 60
    assert (0, 1) in chosen()
    assert (0, 1) not in chosen(results=Results.of(len(GUESSES), won), games=500)


def test_wrong_guesses_do_not_keep_groups_of_players_apart() -> None:
    """Two groups whose guesses are 1,000 apart: no pair across is expected to score 10 %."""
    guesses = np.array([1000.0, 1100.0, 2100.0, 2200.0])
    even = [OpeningResult(0, 1, 1.0, 2), OpeningResult(2, 3, 1.0, 2)] * 20
    results, times = Results.of(4, even), np.ones((4, 4))
    rules = PairingRules(guesses, {}, 100)

    def pairs(pending: float) -> list[tuple[int, int]]:
        return choose_pairs(rules, results, np.full((4, 4), pending), times, 9, longest_s=10.0)

    assert pairs(0.0)[0] == (1, 2)
    assert not {(0, 2), (0, 3), (1, 2), (1, 3)} & set(pairs(BRIDGE_GAMES))


def test_players_get_no_more_games_than_they_need() -> None:
    pairs = chosen(games=20, most=1000)
    games = np.zeros(len(GUESSES))
    for pair in pairs:
        games[list(pair)] += 2
    assert games.min() >= 20
    assert sum(games) < 20 * len(GUESSES) * 1.5
    finished = Results.of(len(GUESSES), [OpeningResult(one, other, 1.0, 2) for one, other in pairs])
    assert chosen(games=20, results=finished) == []


def test_players_of_slow_games_get_fewer() -> None:
    equal = sum(3 in pair for pair in chosen(games=1000, most=200))
    slow = sum(3 in pair for pair in chosen(games=1000, most=200, slow=3))
    assert 0 < slow < equal / 2


def test_games_longer_than_the_rest_of_the_time_do_not_begin() -> None:
    players = len(GUESSES)
    rules = PairingRules(GUESSES, {}, 100)
    times = np.full((players, players), 5.0)
    assert choose_pairs(rules, Results.of(players, []), np.zeros_like(times), times, 9, longest_s=4.0) == []


def test_times_of_games_are_learnt() -> None:
    times = GameTimes(np.array([1.0, 1.0, 1.0]))
    assert times.seconds() == pytest.approx(np.full((3, 3), 2.0))
    for _ in range(200):
        times.add(0, 1, 3.0)
        times.add(1, 2, 12.0)
        times.add(0, 2, 11.0)
    seconds = times.seconds()
    assert [seconds[0, 1], seconds[1, 2], seconds[0, 2]] == pytest.approx([3, 12, 11], abs=0.5)
