# SPDX-License-Identifier: GPL-3.0-or-later
"""Fits one Elo scale to all results of many players.

The model is logistic: a player of rating a scores 1 / (1 + 10^((b - a) / 400)) against one of rating b.
A draw counts half. All ratings are fitted together by maximum likelihood, with Newton's method on the Fisher
information matrix F = Σ games p (1 - p) d dᵀ, where d is +1 for one player and -1 for the other.

The two games of an opening are one sample, because they share the opening; and draws make results less varied
than the model's. So the covariance is F⁻¹ B F⁻¹. B is F with the measured variance of the points of an
opening in place of the model's (the sandwich estimator, with openings as clusters).

Only differences of ratings follow from games. The scale's zero is chosen so that the mean rating of the
anchors equals the mean of their labels. The errors are those of the distance to that mean. White's advantage
is not fitted: reversed colours cancel it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ELO = 400 / np.log(10)
"""Elo of one unit of the logistic function's argument."""

Z95 = 1.959963984540054
"""Standard errors of a 95 % interval."""

LARGEST_STEP = 2.0
"""Bound of a rating's change in one Newton step, in units of ELO: full steps may diverge."""

STEPS = 200
"""Bound of the Newton steps; about ten are needed."""

COMMON_WEIGHT = 5.0
"""Weight of the variance ratio of all openings, next to a pairing's own, in units of games p (1 - p): about
that of ten openings."""


@dataclass(frozen=True, slots=True)
class OpeningResult:
    """Result of one opening between two players. points: of `first`. games: 1 or 2."""

    first: int
    second: int
    points: float
    games: int


@dataclass(frozen=True, slots=True)
class Results:
    """Sums over openings for each ordered pair of players, arrays [players, players].

    games: symmetric. points: of the row's player against the column's.
    """

    openings: tuple[OpeningResult, ...]
    games: Floats
    points: Floats

    @classmethod
    def of(cls, players: int, openings: Sequence[OpeningResult]) -> Results:
        games, points = np.zeros((players, players)), np.zeros((players, players))
        for opening in openings:
            first, second = opening.first, opening.second
            games[first, second] += opening.games
            games[second, first] += opening.games
            points[first, second] += opening.points
            points[second, first] += opening.games - opening.points
        return cls(tuple(openings), games, points)


@dataclass(frozen=True, slots=True)
class Scale:
    """Fitted ratings; nan for players without a finite one.

    elo, error: [players]; error is half the 95 % interval. dispersion: measured variance of an opening's
    points over the model's, of all openings. anchored: players that fix the zero; if none is rated, all rated
    players have mean 0.
    """

    elo: Floats
    error: Floats
    dispersion: float
    anchored: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prior:
    """Normal prior that keeps ratings finite while games are few. elo: guesses [players]. deviation: Elo."""

    elo: Floats
    deviation: float


def expected_scores(elo: Floats) -> Floats:
    """Return the expected score of each row's player against each column's."""
    difference = np.clip((elo[:, None] - elo[None, :]) / ELO, -30, 30)
    scores: Floats = 1 / (1 + np.exp(-difference))
    return scores


def laplacian(weights: Floats) -> Floats:
    """Return Σ weights d dᵀ over all pairs. weights: symmetric [players, players]."""
    matrix: Floats = np.diag(weights.sum(axis=1)) - weights
    return matrix


def fit_scale(results: Results, labels: Mapping[int, float]) -> Scale:
    """Fit the ratings of all players that have a finite one. labels: of the anchors, in Elo."""
    players = len(results.games)
    elo, error = np.full(players, np.nan), np.full(players, np.nan)
    rated = rated_players(results)
    anchored = tuple(player for player in sorted(labels) if player in rated)
    if len(rated) < 2:
        return Scale(elo, error, np.nan, anchored)
    part = np.ix_(rated, rated)
    games, points = results.games[part], results.points[part]
    ratings = maximum_likelihood(games, points, np.zeros(len(rated)))
    scores = expected_scores(ratings)
    expected = games * scores * (1 - scores)
    variance, dispersion = _measured_variance(results, rated, scores, expected)
    inverse = np.linalg.pinv(laplacian(expected), hermitian=True)
    anchors = [rated.index(player) for player in anchored] or list(range(len(rated)))
    centred = np.eye(len(rated))
    centred[:, anchors] -= 1 / len(anchors)
    covariance = centred @ inverse @ laplacian(variance) @ inverse @ centred.T
    zero = float(np.mean([labels[player] for player in anchored])) if anchored else 0.0
    elo[rated] = centred @ ratings + zero
    error[rated] = Z95 * ELO * np.sqrt(np.diag(covariance))
    return Scale(elo, error, dispersion, anchored)


def likely_ratings(results: Results, prior: Prior) -> Floats:
    """Return the most likely ratings under a prior, finite for all players."""
    return maximum_likelihood(results.games, results.points, prior.elo, prior)


def maximum_likelihood(games: Floats, points: Floats, start: Floats, prior: Prior | None = None) -> Floats:
    """Return the likeliest ratings in Elo. Without a prior their mean is that of `start`."""
    players = len(games)
    ratings = start / ELO
    # Without a prior F has no inverse, because it does not depend on the mean; a constant fixes the mean.
    gauge = np.full((players, players), 1.0 / players) if prior is None else np.zeros((players, players))
    precision = 0.0 if prior is None else (ELO / prior.deviation) ** 2
    for _ in range(STEPS):
        scores = expected_scores(ratings * ELO)
        gradient = (points - games * scores).sum(axis=1)
        if prior is not None:
            gradient -= precision * (ratings - prior.elo / ELO)
        information = laplacian(games * scores * (1 - scores)) + precision * np.eye(players)
        step = np.linalg.solve(information + gauge + 1e-12 * np.eye(players), gradient)
        largest = np.abs(step).max()
        ratings = ratings + step * min(1.0, LARGEST_STEP / max(largest, 1e-300))
        if largest < 1e-9:
            break
    likeliest: Floats = ratings * ELO
    return likeliest


def rated_players(results: Results) -> list[int]:
    """Return the players with finite likeliest ratings.

    They are the largest group in which everybody has scored against everybody else, directly or through
    others. A player that lost or won all its games against the group has no finite rating.
    """
    reaches = (results.points > 0) | np.eye(len(results.points), dtype=bool)
    for _ in range(len(reaches).bit_length()):
        reaches = (reaches.astype(np.float64) @ reaches) > 0
    mutual = reaches & reaches.T
    largest = int(np.argmax(mutual.sum(axis=1)))
    group = np.flatnonzero(mutual[largest])
    return [int(player) for player in group] if len(group) > 1 else []


def _measured_variance(
    results: Results, rated: Sequence[int], scores: Floats, expected: Floats
) -> tuple[Floats, float]:
    """Return the variance of each pairing's points, and the ratio of all openings' to the model's.

    expected: the model's variance. A pairing's ratio is shrunk towards that of all openings.
    """
    place = {player: index for index, player in enumerate(rated)}
    measured = np.zeros_like(expected)
    count = 0
    for opening in results.openings:
        if opening.first in place and opening.second in place:
            first, second = place[opening.first], place[opening.second]
            square = (opening.points - opening.games * scores[first, second]) ** 2
            measured[first, second] += square
            measured[second, first] += square
            count += 1
    freedom = count - (len(rated) - 1)
    correction = count / freedom if freedom > 0 else 1.0
    dispersion = correction * float(measured.sum() / expected.sum())
    ratio = (COMMON_WEIGHT * dispersion + correction * measured) / (COMMON_WEIGHT + expected)
    return expected * ratio, dispersion
