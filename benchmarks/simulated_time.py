"""Searches whose time is counted, not measured: what a device, a call and a visit cost is given."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from batch_strength import options_of

from engine._core import Batch, Game, Tree
from engine.options import Options
from engine.search.batching import BatchSizes, Device
from engine.search.limits import Limits
from engine.search.tree import search_params
from protocol.batch import EvaluationBatch

LADDER = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Sizes at which the simulated device is measured."""

Evaluate = Callable[[Batch], EvaluationBatch]
"""What a network says of what a tree has collected."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds: of a call of n positions base + call + n * (each + position), and of a visit."""

    base: float = 0.2
    each: float = 0.001
    call: float = 0.75
    position: float = 0.004
    visit: float = 0.0012

    @property
    def device(self) -> Device:
        """The device as a search is told of it."""
        return Device(LADDER[-1], LADDER[-1], [(size, self.base + size * self.each) for size in LADDER])


@dataclass(frozen=True, slots=True)
class Step:
    """A call: positions sent, visits made, and how many of these the cache answered."""

    sent: int
    made: int
    hits: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What a search came to."""

    calls: int
    evaluations: int
    hits: int


class TimedSearch:
    """One player's tree, searched in simulated time. way: see batch_strength.py."""

    def __init__(
        self, way: str, costs: Costs, evaluate: Evaluate, input_format: int, has_moves_left: bool
    ) -> None:
        options = Options(smart_pruning_factor=0.0)
        for pair in filter(None, options_of(way).split(",")):
            options = options.with_uci(*pair.split("=", 1))
        self._costs = costs
        self._evaluate = evaluate
        self._sizes = BatchSizes.alone(costs.device, options, Limits(movetime_ms=1))
        self._batch = Batch(2 * LADDER[-1])
        self.tree = Tree(search_params(options, input_format, has_moves_left=has_moves_left))

    def set_position(self, game: Game) -> None:
        """Search this position next, with what the tree knows of it."""
        self.tree.set_position(game, 0)

    def step(self, wanted: int, ahead: int = 0, most: int = 1 << 30) -> Step:
        """One call for so many positions and so many ahead; most: visits that may be made."""
        batch = self._batch
        result = self.tree.collect(batch, wanted, most, ahead)
        if not batch.size:
            self.tree.cancel(batch)
            return Step(0, result.visits_done, result.cache_hits)
        step = Step(batch.size, result.visits_done + batch.wanted, result.cache_hits)
        answer = self._evaluate(batch)
        self.tree.apply(batch, answer.logits, answer.wdl, answer.moves_left)
        return step

    def search(self, move_ms: float) -> Spent:
        """Search for so many milliseconds, or until nothing is left to search."""
        costs = self._costs
        now, calls, evaluations, hits = 0.0, 0, 0, 0
        kept = visits = self.tree.root_info().visits
        while now < move_ms:
            expected = visits + int((visits - kept) / now * (move_ms - now)) if now else visits
            wanted = self._sizes.wanted(visits, 0, expected)
            step = self.step(wanted, max(0, self._sizes.filled - wanted))
            if not step.sent and not step.hits:
                break  # What is left is decided.
            now += step.made * costs.visit
            if step.sent:
                calls += 1
                now += costs.base + costs.call + step.sent * (costs.each + costs.position)
            evaluations += step.sent
            hits += step.hits
            visits = self.tree.root_info().visits
        return Spent(calls, evaluations, hits)


def add_cost_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags on what things cost."""
    parser.add_argument("--base-ms", type=float, default=0.2, help="of a batch on the device (0.2)")
    parser.add_argument("--each-us", type=float, default=1.0, help="of a position in it (1)")
    parser.add_argument("--call-ms", type=float, default=0.75, help="of a call besides the device (0.75)")
    parser.add_argument("--position-us", type=float, default=4.0, help="of the processor, a position (4)")
    parser.add_argument("--visit-us", type=float, default=1.2, help="of the processor, a visit (1.2)")
    parser.add_argument("--move-ms", type=float, default=65.0, help="of a move (65)")


def costs_of(arguments: argparse.Namespace) -> Costs:
    """The costs that the flags name."""
    each, position, visit = (
        figure / 1000 for figure in (arguments.each_us, arguments.position_us, arguments.visit_us)
    )
    return Costs(arguments.base_ms, each, arguments.call_ms, position, visit)
