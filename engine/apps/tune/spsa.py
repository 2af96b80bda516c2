# SPDX-License-Identifier: GPL-3.0-or-later
"""Simultaneous perturbation stochastic approximation (SPSA), as pure functions.

J. C. Spall, "Implementation of the Simultaneous Perturbation Algorithm for Stochastic Optimization", IEEE
Transactions on Aerospace and Electronic Systems 34 (1998). Iteration k = 0, 1, …, N - 1 changes all
parameters together: theta+ = theta + c_k delta and theta- = theta - c_k delta, where each element of delta is
+1 or -1 at random. They play each other, and

    theta <- theta + (a_k / c_k) y delta       y: games that theta+ won, less those that it lost
    c_k = c / (k + 1)^GAMMA                    size of the perturbation
    a_k = a / (A + k + 1)^ALPHA                size of the step, with A = STABILITY N

Each parameter has its own c and a, from two numbers at the last iteration, as in fishtest and OpenBench:
c_end = c_k, and r_end = a_k / c_k². So one won game in the last iteration moves a parameter by r_end c_end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from random import Random

ALPHA = 0.602
GAMMA = 0.101
STABILITY = 0.1
"""Spall's exponents, and his ratio of A to the number of iterations."""

Values = tuple[float, ...]
"""A value of each parameter."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number to tune. name: the engine's option. start: first value. low, high: inclusive range of all
    values. c_end, r_end: see above. integer: games are played with whole numbers only."""

    name: str
    start: float
    low: float
    high: float
    c_end: float
    r_end: float = 0.002
    integer: bool = False

    def clipped(self, value: float) -> float:
        """Return the value of the range that is nearest to `value`."""
        return min(self.high, max(self.low, value))


@dataclass(frozen=True, slots=True)
class Perturbation:
    """The random numbers of an iteration, by parameter. signs: +1 or -1. fractions: from 0 to 1; an integer
    parameter's value x is played as floor(x + fraction), so that its mean is x."""

    signs: Values
    fractions: Values

    def played(self, parameters: Sequence[Parameter], theta: Values, sizes: Values, side: int) -> Values:
        """Return the values of theta+ (side 1) or theta- (side -1). sizes: c_k of each parameter."""
        values = []
        for index, parameter in enumerate(parameters):
            value = parameter.clipped(theta[index] + side * sizes[index] * self.signs[index])
            if parameter.integer:
                value = floor(value + self.fractions[index])
            values.append(value)
        return tuple(values)


@dataclass(frozen=True, slots=True)
class Spsa:
    """The method for some parameters and a number of iterations. seed: of all random choices."""

    parameters: tuple[Parameter, ...]
    iterations: int
    seed: int = 1

    def sizes(self, iteration: int) -> Values:
        """Return c_k of each parameter."""
        scale = self._scale(iteration)
        return tuple(parameter.c_end * scale for parameter in self.parameters)

    def perturbation(self, iteration: int) -> Perturbation:
        """Return the random numbers of an iteration. They do not depend on other iterations."""
        random = Random(f"{self.seed} {iteration}")
        draws = [(random.random(), random.random()) for _ in self.parameters]
        return Perturbation(
            tuple(1.0 if sign < 0.5 else -1.0 for sign, _ in draws), tuple(fraction for _, fraction in draws)
        )

    def shift(self, iteration: int) -> Values:
        """Return c_k delta of each parameter, in units of c_end."""
        scale = self._scale(iteration)
        return tuple(scale * sign for sign in self.perturbation(iteration).signs)

    def played(self, iteration: int, theta: Values, side: int) -> Values:
        """Return the values of theta+ (side 1) or theta- (side -1) around theta."""
        return self.perturbation(iteration).played(self.parameters, theta, self.sizes(iteration), side)

    def step(self, iteration: int, theta: Values, score: float) -> Values:
        """Return theta after the result of an iteration. score: y."""
        stability = STABILITY * self.iterations
        decay = ((stability + self.iterations) / (stability + iteration + 1)) ** ALPHA
        signs, sizes = self.perturbation(iteration).signs, self.sizes(iteration)
        moved = []
        for index, parameter in enumerate(self.parameters):
            gain = parameter.r_end * parameter.c_end**2 * decay
            moved.append(parameter.clipped(theta[index] + gain / sizes[index] * score * signs[index]))
        return tuple(moved)

    def _scale(self, iteration: int) -> float:
        """Return c_k in units of c_end."""
        return float((self.iterations / (iteration + 1)) ** GAMMA)
