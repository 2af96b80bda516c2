# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses which players meet next: those whose games reduce the errors of the scale most per second.

The ratings so far come from all results and a prior around the guesses. Only pairs with an expected score of
10 to 90 % may play, because others tell little and depend on the model's tails. Of these it takes the pair
with the largest decrease of the summed variances of the players that need games, divided by the seconds
that its games take. So a player of slow games gets fewer of them if the time is short.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.strength.ladder.scale import (
    ELO,
    Floats,
    Prior,
    Results,
    expected_scores,
    laplacian,
    likely_ratings,
    rated_players,
)

LOWEST_SCORE = 0.1
"""Least expected score of a player in a game."""

PRIOR_DEVIATION = 300.0
"""Standard deviation of the guesses, in Elo."""

BRIDGE_GAMES = 20
"""Games of two players after which they are too unequal to join two groups of players."""

PAIR_GAMES = 2
"""Games of an opening."""

COST_WEIGHT = 4.0
"""Games that the guessed seconds of a player's games count for, next to the measured ones."""

LEAST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class PairingRules:
    """What the choice depends on besides results.

    guesses: Elo [players]. labels: of the anchors. games: of each player.
    """

    guesses: Floats
    labels: Mapping[int, float]
    games: int


def choose_pairs(
    rules: PairingRules, results: Results, pending: Floats, seconds: Floats, most: int, longest_s: float
) -> list[tuple[int, int]]:
    """Return up to `most` pairs of players, the lower number first; empty if nobody needs or can play.

    pending: games in flight [players, players]. seconds: expected time of a game [players, players].
    longest_s: excludes pairs whose games take longer.
    """
    elo = likely_ratings(results, Prior(rules.guesses, PRIOR_DEVIATION))
    scores = expected_scores(elo)
    information = scores * (1 - scores)
    games = results.games + pending
    players = len(games)
    covariance = np.linalg.inv(
        laplacian(games * information) + (ELO / PRIOR_DEVIATION) ** 2 * np.eye(players)
    )
    centred = np.eye(players)
    anchors = sorted(rules.labels) or list(range(players))
    centred[:, anchors] -= 1 / len(anchors)
    possible = np.triu((scores >= LOWEST_SCORE) & (scores <= 1 - LOWEST_SCORE), 1) & (seconds <= longest_s)
    can_join = (games < BRIDGE_GAMES) & (seconds <= longest_s)
    needed = bool((games.sum(axis=1) < rules.games).any())
    chosen = _bridge(results, scores, can_join)[:most] if needed else []
    for first, second in chosen:
        games[first, second] += PAIR_GAMES
        games[second, first] += PAIR_GAMES
    while len(chosen) < most:
        needing = games.sum(axis=1) < rules.games
        allowed = possible & (needing[:, None] | needing[None, :])
        if not allowed.any():
            break
        weight = PAIR_GAMES * information
        moved = (centred @ covariance)[needing]
        gain = weight * _distances(moved.T @ moved) / (1 + weight * _distances(covariance))
        first, second = divmod(int(np.argmax(np.where(allowed, gain / seconds, -1.0))), players)
        difference = covariance[:, first] - covariance[:, second]
        spread = difference[first] - difference[second]
        pair_weight = weight[first, second]
        covariance -= pair_weight / (1 + pair_weight * spread) * np.outer(difference, difference)
        games[first, second] += PAIR_GAMES
        games[second, first] += PAIR_GAMES
        chosen.append((first, second))
    return chosen


def _bridge(results: Results, scores: Floats, allowed: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the pair that may join the rated players and the others, or no pair.

    allowed: [players, players].

    Guesses that are wrong by more than their prior would keep groups of players apart for ever. So the two
    players nearest to each other meet, whatever score the guesses expect.
    """
    rated = rated_players(results)
    others = [player for player in range(len(scores)) if player not in rated]
    pairs = [
        (min(first, second), max(first, second))
        for first in rated
        for second in others
        if allowed[first, second]
    ]
    return sorted(pairs, key=lambda pair: abs(scores[pair] - 0.5))[:1]


class GameTimes:
    """Expected time of games.

    A game's time is the sum of its players' shares, which are fitted to the games by least squares.
    """

    def __init__(self, guesses: Floats) -> None:
        """guesses: seconds of each player; they count as COST_WEIGHT games."""
        self._matrix = COST_WEIGHT * np.eye(len(guesses))
        self._vector = COST_WEIGHT * guesses

    def add(self, first: int, second: int, seconds: float) -> None:
        """Count a game."""
        for one, other in ((first, second), (second, first)):
            self._matrix[one, one] += 1
            self._matrix[one, other] += 1
            self._vector[one] += seconds

    def seconds(self) -> Floats:
        """Return the expected time of a game of each pair of players."""
        shares = np.maximum(np.linalg.solve(self._matrix, self._vector), LEAST_SECONDS)
        times: Floats = shares[:, None] + shares[None, :]
        return times


def _distances(gram: Floats) -> Floats:
    """Return dᵀ gram d for every pair of players."""
    diagonal = np.diag(gram)
    distances: Floats = diagonal[:, None] + diagonal[None, :] - 2 * gram
    return distances
