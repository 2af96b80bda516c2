# SPDX-License-Identifier: GPL-3.0-or-later
"""Maximum likelihood of a distribution of scores under a constraint: the core of the SPRT and of intervals.

A sample is a histogram: `counts` of results over a few `scores` (0, ½, 1 for games; 0, ¼ … 1 for pairs). Its
unconstrained maximum likelihood distribution is the histogram itself. Under a given mean, or a given ratio of
mean to standard deviation, that distribution has a closed form with one unknown number.

Source: M. Van den Bergh, "The Generalized Maximum Likelihood Ratio for the Expectation Value of a
Distribution" and "Comments on Normalized Elo" (section 4.1).

All functions are vectorised: arrays of shape [..., k] give results of shape [..., k].
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

UNSEEN = 1e-3
"""Replacement for a count of zero, because an unobserved result is not impossible."""

NEWTON_STEPS = 60
"""Maximum steps to the unknown number; about six are needed."""

T_VALUE_STEPS = 60
"""Maximum fixed-point iterations in `likeliest_with_t_value`; about six are needed, more for hypotheses far
from the results."""

BISECTIONS = 50
"""Bisection steps to a distribution with a given t-value."""


def regularised(counts: Floats) -> Floats:
    """Return the counts with zeros replaced by `UNSEEN`."""
    return np.where(counts > 0, counts, UNSEEN)


def likeliest_with_mean(frequencies: Floats, scores: Floats, mean: float) -> Floats:
    """Return the distribution with mean `mean` under which `frequencies` (positive, sum 1) are likeliest.

    It is p_i = f_i / (1 + θ (a_i - mean)), with the θ that gives it this mean. scores: a_i, broadcast against
    frequencies; on both sides of the mean.
    """
    distance = np.broadcast_to(scores - mean, frequencies.shape)
    # All p_i are positive for θ between these. The excess decreases with θ from +inf to -inf.
    low = -1.0 / distance.max(axis=-1, keepdims=True)
    high = -1.0 / distance.min(axis=-1, keepdims=True)
    theta = np.zeros_like(low)
    for _ in range(NEWTON_STEPS):
        weight = distance / (1.0 + theta * distance)
        excess = (frequencies * weight).sum(axis=-1, keepdims=True)
        slope = (frequencies * weight * weight).sum(axis=-1, keepdims=True)
        low = np.where(excess > 0, theta, low)
        high = np.where(excess > 0, high, theta)
        step = theta + excess / slope
        step = np.where((step > low) & (step < high), step, (low + high) / 2)
        settled = np.abs(step - theta) <= 1e-12 * (1.0 + np.abs(theta))
        theta = step
        if settled.all():
            break
    likeliest: Floats = frequencies / (1.0 + theta * distance)
    return likeliest


def likeliest_with_t_value(frequencies: Floats, scores: Floats, reference: float, t_value: float) -> Floats:
    """Return the likeliest distribution with (mean - reference) / standard deviation = t_value.

    The constraint is linearised around the last distribution until that converges. frequencies: see
    `likeliest_with_mean`. scores: of shape [k].
    """
    first = _distribution_with_t_value(tuple(scores.tolist()), reference, t_value)
    found = np.broadcast_to(first, frequencies.shape)
    for _ in range(T_VALUE_STEPS):
        mean = (found * scores).sum(axis=-1, keepdims=True)
        deviation = np.sqrt((found * (scores - mean) ** 2).sum(axis=-1, keepdims=True))
        tangent = scores - reference - t_value * deviation * (1.0 + ((scores - mean) / deviation) ** 2) / 2.0
        before, found = found, likeliest_with_mean(frequencies, tangent, 0.0)
        if np.abs(found - before).max() < 1e-9:
            break
    return found


@cache
def _distribution_with_t_value(scores: tuple[float, ...], reference: float, t_value: float) -> Floats:
    """Return a distribution [k] with (mean - reference) / standard deviation = t_value, as uniform as its
    mean allows. It is the start, because far from the constraint the linear one may have no solution."""
    bins = np.array(scores)
    even = np.full(len(scores), 1.0 / len(scores))
    low, high = min(scores), max(scores)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        found = likeliest_with_mean(even, bins, middle)
        deviation = float(np.sqrt((found * (bins - middle) ** 2).sum()))
        low, high = (middle, high) if middle - reference < t_value * deviation else (low, middle)
    return found
