# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches in simulated time, with given costs of a device, a call and a visit."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.strength.batch_strength import in_way
from engine._core import Batch, Game, Tree
from engine.options import Options
from engine.search.limits import Limits
from engine.search.loop.batching import BatchSizes, Speed
from engine.search.player.tree import search_params
from protocol.batch import EvaluationBatch

LADDER = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Batch sizes in the simulated device's latency curve."""

Evaluate = Callable[[Batch], EvaluationBatch]
"""Returns a network's evaluations of collected positions."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs in milliseconds. base, each: per batch on the device, and per position; batches run in sequence.
    call: round trip. position, visit: CPU time of the search, per position sent and per visit."""

    base: float = 0.2
    each: float = 0.001
    call: float = 0.3
    position: float = 0.003
    visit: float = 0.0012

    @property
    def device(self) -> Speed:
        """The device in the form that a search uses."""
        return Speed(LADDER[-1], LADDER[-1], [(size, self.base + size * self.each) for size in LADDER])


@dataclass(frozen=True, slots=True)
class Step:
    """Result of collecting: positions sent, visits made, and visits answered by the cache."""

    sent: int
    made: int
    hits: int


@dataclass(frozen=True, slots=True)
class Spent:
    """Totals of a search. ms: simulated time."""

    calls: int
    evaluations: int
    hits: int
    ms: float


@dataclass(frozen=True, slots=True)
class Call:
    """A batch and the network's evaluation of it."""

    batch: Batch
    answer: EvaluationBatch


class TimedSearch:
    """One player's tree, searched in simulated time. way: see batch_strength.py."""

    def __init__(
        self, way: str, costs: Costs, evaluate: Evaluate, input_format: int, has_moves_left: bool
    ) -> None:
        self.options = options = in_way(way, Options(smart_pruning_factor=0.0))
        self._costs = costs
        self._evaluate = evaluate
        self._sizes = BatchSizes.alone(costs.device, options, Limits(movetime_ms=1))
        self._free = [Batch(2 * LADDER[-1]) for _ in range(self._sizes.in_flight)]
        self.tree = Tree(search_params(options, input_format, has_moves_left=has_moves_left))

    def set_position(self, game: Game) -> None:
        """Set the next position to search; the tree keeps what it knows of it."""
        self.tree.set_position(game, 0)

    def step(self, wanted: int, ahead: int = 0, most: int = 1 << 30) -> Step:
        """Make one call with `wanted` positions and `ahead` more, answered at once. most: maximum visits."""
        step, call = self._collect(wanted, ahead, most)
        if call is not None:
            self._apply(call)
        return step

    def search(self, move_ms: float, is_over: Callable[[float], bool] = lambda now: False) -> Spent:
        """Search for move_ms, or until nothing is left to search.
        is_over: called with the time after every answer; True ends the search."""
        costs, sizes = self._costs, self._sizes
        now = device_free = 0.0
        calls = evaluations = hits = 0
        in_flight: deque[tuple[float, Call]] = deque()
        """Calls, and the times of their answers."""
        visits = self.tree.root_info().visits
        while now < move_ms:
            wanted = sizes.rule.wanted(visits, sum(call.batch.wanted for _, call in in_flight))
            if len(in_flight) == sizes.in_flight or wanted <= 0:
                now = self._awaited(*in_flight.popleft(), now)
                if is_over(now):
                    break
                visits = self.tree.root_info().visits
                continue
            step, call = self._collect(wanted, max(0, sizes.filled - wanted))
            now += step.made * costs.visit + step.sent * costs.position
            hits += step.hits
            if call is not None:
                begin = max(now + costs.call / 2, device_free)
                device_free = begin + costs.base + step.sent * costs.each
                in_flight.append((device_free + costs.call / 2, call))
                calls += 1
                evaluations += step.sent
            elif in_flight:
                now = self._awaited(*in_flight.popleft(), now)
            elif not step.hits:
                break  # Everything left is decided.
            visits = self.tree.root_info().visits
        for _, call in in_flight:  # Late answers are no visits.
            self.tree.cancel(call.batch)
            self._free.append(call.batch)
        return Spent(calls, evaluations, hits, now)

    def _collect(self, wanted: int, ahead: int, most: int = 1 << 30) -> tuple[Step, Call | None]:
        """Collect the tree's next positions; return the step, and its call if anything is sent."""
        batch = self._free.pop()
        result = self.tree.collect(batch, wanted, most, ahead)
        if not batch.size:
            self.tree.cancel(batch)
            self._free.append(batch)
            return Step(0, result.visits_done, result.cache_hits), None
        step = Step(batch.size, result.visits_done + batch.wanted, result.cache_hits)
        return step, Call(batch, self._evaluate(batch))

    def _apply(self, call: Call) -> None:
        answer = call.answer
        self.tree.apply(call.batch, answer.logits, answer.wdl, answer.moves_left)
        self._free.append(call.batch)

    def _awaited(self, ready: float, call: Call, now: float) -> float:
        """Process an answer and return the time when that is done. ready: time of the answer."""
        self._apply(call)
        return max(now, ready)


def add_cost_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for costs."""
    parser.add_argument("--base-ms", type=float, default=0.2, help="of a batch on the device (0.2)")
    parser.add_argument("--each-us", type=float, default=1.0, help="of a position in it (1)")
    parser.add_argument("--call-ms", type=float, default=0.3, help="of the way to the device and back (0.3)")
    parser.add_argument("--position-us", type=float, default=3.0, help="of the processor, a position (3)")
    parser.add_argument("--visit-us", type=float, default=1.2, help="of the processor, a visit (1.2)")
    parser.add_argument("--move-ms", type=float, default=65.0, help="of a move (65)")


def costs_of(arguments: argparse.Namespace) -> Costs:
    """Return the costs of the flags."""
    each, position, visit = (
        figure / 1000 for figure in (arguments.each_us, arguments.position_us, arguments.visit_us)
    )
    return Costs(arguments.base_ms, each, arguments.call_ms, position, visit)
