# SPDX-License-Identifier: GPL-3.0-or-later
"""Effect of batching methods on a move in limited time, on a simulated device.

    python -m benchmarks.strength.search_under_clock [WAY …] [--base-ms 0.2] [--each-us 1] [--call-ms 0.3]
        [--move-ms 65] [--kept 1200] [--positions 8] [--weights FILE] [--json]

Each way searches the same positions for --move-ms of simulated time, from a tree of --kept visits, as after
the opponent's move. The network is real, computed by the `onnx` backend and cached by position, so a run
takes minutes. The time is the device's (--base-ms, and --each-us per position), the call's (--call-ms) and
the CPU's (--position-us per position sent, --visit-us per visit). WAY is one of `batch_strength.py --list` or
options written Key=Value,Key=Value; the engine's BatchSizes chooses its requests. Reports averages: final
visits, calls, evaluated positions, visits answered by the cache, and the distance of the root's visits from
those of a sequential search with as many visits, in percent (half the sum of the differences of the moves'
shares).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.strength.simulated_time import Costs, TimedSearch, add_cost_arguments, costs_of
from engine._core import Batch, Game, Tree
from engine.commands.bench import POSITIONS
from engine.evaluation.encoding import position_batch
from evaluator.backends.onnx.backend import OnnxBackend
from evaluator.network import SHIPPED_NETWORK, load_network
from evaluator.network.spec import NetworkSpec
from protocol.batch import EvaluationBatch, PositionBatch

SEQUENTIAL_AHEAD = 31
"""Look-ahead of sequential search, which only changes the number of calls."""

CHECKPOINTS = 500
"""Visits between checkpoints of the sequential search."""


class RememberedNetwork:
    """A network whose results are cached by position."""

    def __init__(self, network: NetworkSpec) -> None:
        self.input_format = int(network.input_format)
        self.has_moves_left = network.moves_left is not None
        self._backend = OnnxBackend(network)
        self._known: dict[bytes, EvaluationBatch] = {}

    def evaluate(self, batch: Batch) -> EvaluationBatch:
        """Return the network's evaluations of the collected positions."""
        positions = position_batch(batch)
        keys = [record.tobytes() for record in positions.positions]
        unknown = [index for index, key in enumerate(keys) if key not in self._known]
        if unknown:
            parts = [positions.slice(index, index + 1) for index in unknown]
            answers = self._backend.evaluate(PositionBatch.concatenate(parts))
            sizes = [(1, len(part.moves)) for part in parts]
            self._known.update(zip((keys[index] for index in unknown), answers.split(sizes), strict=True))
        return EvaluationBatch.concatenate([self._known[key] for key in keys])

    def forget(self) -> None:
        """Clear the cache before searching another position."""
        self._known.clear()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A search, or the mean of several. hits: visits answered by the cache. distance: of the root's visits
    from a sequential search, 0 to 1."""

    visits: float
    calls: float
    evaluations: float
    hits: float
    distance: float


class Simulation:
    """Searches of one position with the same network."""

    def __init__(self, network: RememberedNetwork, fen: str, costs: Costs) -> None:
        self._network = network
        self._fen = fen
        self._costs = costs
        self._sequential = self._search("sequential")
        self._shares: dict[int, dict[str, float]] = {}

    def _search(self, way: str) -> TimedSearch:
        network = self._network
        search = TimedSearch(way, self._costs, network.evaluate, network.input_format, network.has_moves_left)
        search.set_position(Game() if self._fen == "startpos" else Game(self._fen))
        return search

    def _grow(self, search: TimedSearch, visits: int) -> None:
        """Search sequentially up to a number of visits."""
        while (left := visits - search.tree.root_info().visits) > 0:
            step = search.step(1, SEQUENTIAL_AHEAD, left)
            if not step.sent and not step.made:
                raise SystemExit(f"{self._fen} is decided; leave it out")

    def _sequential_shares(self, visits: int) -> dict[str, float]:
        """Return the shares of root moves of a sequential search with about as many visits."""
        visits = max(1, round(visits / CHECKPOINTS)) * CHECKPOINTS
        while (last := max(self._shares, default=0)) < visits:
            self._grow(self._sequential, last + CHECKPOINTS)
            self._shares[last + CHECKPOINTS] = shares(self._sequential.tree)
        return self._shares[visits]

    def outcome(self, way: str, kept: int, move_ms: float) -> Outcome:
        """Search in one way for this time."""
        search = self._search(way)
        self._grow(search, kept)
        spent = search.search(move_ms)
        visits = search.tree.root_info().visits
        apart = distance(shares(search.tree), self._sequential_shares(visits))
        return Outcome(visits, spent.calls, spent.evaluations, spent.hits, apart)


def shares(tree: Tree) -> dict[str, float]:
    """Return each move's share of the root's visits."""
    children = tree.children()
    total = sum(child.visits for child in children)
    return {child.move: child.visits / total for child in children}


def distance(a: dict[str, float], b: dict[str, float]) -> float:
    """Return the total variation: half the sum of the differences, 0 to 1."""
    return sum(abs(a[move] - b[move]) for move in a) / 2


def mean(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the mean of each figure."""
    return Outcome(*np.mean([tuple(asdict(outcome).values()) for outcome in outcomes], axis=0).tolist())


def table(outcomes: dict[str, list[Outcome]]) -> str:
    """Return a table of 80 columns."""
    lines = [f"{'way':38} {'visits':>7} {'calls':>6} {'eval.':>7} {'hits':>7} {'distance':>9}"]
    for way, each in outcomes.items():
        m = mean(each)
        lines.append(
            f"{way[:38]:38} {m.visits:7.0f} {m.calls:6.1f} {m.evaluations:7.0f} {m.hits:7.0f} "
            f"{100 * m.distance:7.2f} %"
        )
    return "\n".join(lines)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ways", nargs="*", default=["default"], metavar="WAY", help="(default: default)")
    add_cost_arguments(parser)
    parser.add_argument("--kept", type=int, default=1200, metavar="VISITS", help="of the tree before (1200)")
    parser.add_argument("--positions", type=int, default=8, help="of the benchmark suite (8)")
    parser.add_argument("--weights", default=str(SHIPPED_NETWORK), help="(default: wavefront-cpu)")
    parser.add_argument("--json", action="store_true", help="print a JSON object at the end, and no table")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    costs = costs_of(arguments)
    network = RememberedNetwork(load_network(arguments.weights))
    outcomes: dict[str, list[Outcome]] = {way: [] for way in arguments.ways}
    for number, fen in enumerate(POSITIONS[: arguments.positions], 1):
        simulation = Simulation(network, fen, costs)
        for way, each_outcome in outcomes.items():
            each_outcome.append(simulation.outcome(way, arguments.kept, arguments.move_ms))
        network.forget()
        print(f"\n{number} positions\n{table(outcomes)}", file=sys.stderr, flush=True)
    averages = {way: asdict(mean(each_outcome)) for way, each_outcome in outcomes.items()}
    print(json.dumps(averages) if arguments.json else table(outcomes))


if __name__ == "__main__":
    main()
