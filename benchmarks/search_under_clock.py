"""What ways to choose batches make of a move's time on a device that need not be at hand.

    python benchmarks/search_under_clock.py [WAY …] [--base-ms 0.2] [--each-us 1] [--call-ms 0.75]
        [--move-ms 65] [--kept 1200] [--positions 8] [--weights FILE] [--json]

Each way searches the same positions for --move-ms of simulated time, from a tree of --kept visits, as there
are after the opponent's move. The network is the real one, computed by the `onnx` backend and remembered by
position, so it takes minutes; the time is the device's (--base-ms, and --each-us a position), the call's
(--call-ms) and the processor's (--position-us for each position sent, --visit-us for each visit). A way is
one of `batch_strength.py --list` or options written Key=Value,Key=Value; what it asks for is decided by the
engine's BatchSizes. Printed are the averages: visits in the end, calls, positions evaluated, visits that the
cache answered, and the distance of the root's visits from those of a sequential search of as many visits, in
per cent (half the sum of the differences of the moves' shares).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import checkout  # noqa: F401 -- this checkout is measured, whatever is installed
import numpy as np
from batch_strength import options_of

from engine._core import Batch, Game, Tree
from engine.commands.bench import POSITIONS
from engine.evaluation.encoding import position_batch
from engine.options import Options
from engine.search.batching import BatchSizes, Device
from engine.search.limits import Limits
from engine.search.tree import search_params
from evaluator.backends.onnx.backend import OnnxBackend
from evaluator.network import SHIPPED_NETWORK, load_network
from evaluator.network.spec import NetworkSpec
from protocol.batch import EvaluationBatch, PositionBatch

LADDER = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Sizes at which the simulated device is measured."""

SEQUENTIAL_AHEAD = 31
"""Sequential search looks so far ahead: it changes nothing but the number of calls."""

CHECKPOINTS = 500
"""Sequential search is looked at every so many visits."""


class RememberedNetwork:
    """A network whose answers are kept by position."""

    def __init__(self, network: NetworkSpec) -> None:
        self.input_format = int(network.input_format)
        self.has_moves_left = network.moves_left is not None
        self._backend = OnnxBackend(network)
        self._known: dict[bytes, EvaluationBatch] = {}

    def evaluate(self, batch: Batch) -> EvaluationBatch:
        """What the network says of what a tree has collected."""
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
        """Drop all answers: the next search is of another position."""
        self._known.clear()


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds: of a call of n positions base + call + n * (each + position), and of a visit."""

    base: float
    each: float
    call: float
    position: float
    visit: float

    @property
    def device(self) -> Device:
        """The device as a search is told of it."""
        return Device(LADDER[-1], LADDER[-1], [(size, self.base + size * self.each) for size in LADDER])


@dataclass(frozen=True, slots=True)
class Outcome:
    """A search, or the mean of several. hits: visits that the cache answered. distance: of the root's visits
    from a sequential search, 0 to 1."""

    visits: float
    calls: float
    evaluations: float
    hits: float
    distance: float


class Simulation:
    """Searches of one position, all with the same network."""

    def __init__(self, network: RememberedNetwork, fen: str) -> None:
        self._network = network
        self._fen = fen
        self._batch = Batch(2 * LADDER[-1])
        self._sequential = self._tree(Options())
        self._shares: dict[int, dict[str, float]] = {}

    def _tree(self, options: Options) -> Tree:
        options = options.changed(smart_pruning_factor=0.0)
        network = self._network
        tree = Tree(search_params(options, network.input_format, has_moves_left=network.has_moves_left))
        tree.set_position(Game() if self._fen == "startpos" else Game(self._fen), 0)
        return tree

    def _step(self, tree: Tree, wanted: int, ahead: int, most: int) -> tuple[int, int, int]:
        """One call: positions sent, visits made, and how many of these the cache answered."""
        batch = self._batch
        result = tree.collect(batch, wanted, most, ahead)
        sent, made = batch.size, result.visits_done + batch.wanted
        if not sent:
            tree.cancel(batch)
            return 0, made, result.cache_hits
        answer = self._network.evaluate(batch)
        tree.apply(batch, answer.logits, answer.wdl, answer.moves_left)
        return sent, made, result.cache_hits

    def _grow(self, tree: Tree, visits: int) -> None:
        while (left := visits - tree.root_info().visits) > 0:
            if not any(self._step(tree, 1, SEQUENTIAL_AHEAD, left)):
                raise SystemExit(f"{self._fen} is decided; leave it out")

    def _sequential_shares(self, visits: int) -> dict[str, float]:
        """Of the moves at the root of a sequential search of about so many visits."""
        visits = max(1, round(visits / CHECKPOINTS)) * CHECKPOINTS
        while (last := max(self._shares, default=0)) < visits:
            self._grow(self._sequential, last + CHECKPOINTS)
            self._shares[last + CHECKPOINTS] = shares(self._sequential)
        return self._shares[visits]

    def search(self, way: str, costs: Costs, kept: int, move_ms: float) -> Outcome:
        """Search in one way for so many milliseconds."""
        options = Options()
        for pair in filter(None, options_of(way).split(",")):
            options = options.with_uci(*pair.split("=", 1))
        sizes = BatchSizes.alone(costs.device, options, Limits(movetime_ms=round(move_ms)))
        tree = self._tree(options)
        self._grow(tree, kept)
        now, calls, evaluations, hits = 0.0, 0, 0, 0
        while now < move_ms:
            visits = tree.root_info().visits
            expected = visits + int((visits - kept) / now * (move_ms - now)) if now else visits
            wanted = sizes.wanted(visits, 0, expected)
            sent, made, answered = self._step(tree, wanted, max(0, sizes.filled - wanted), 1 << 30)
            if not sent and not made:
                break
            now += made * costs.visit
            if sent:
                calls += 1
                now += costs.base + costs.call + sent * (costs.each + costs.position)
            evaluations += sent
            hits += answered
        visits = tree.root_info().visits
        return Outcome(
            visits, calls, evaluations, hits, distance(shares(tree), self._sequential_shares(visits))
        )


def shares(tree: Tree) -> dict[str, float]:
    """Each move's part of the root's visits."""
    children = tree.children()
    total = sum(child.visits for child in children)
    return {child.move: child.visits / total for child in children}


def distance(a: dict[str, float], b: dict[str, float]) -> float:
    """Total variation: half the sum of the differences, 0 to 1."""
    return sum(abs(a[move] - b[move]) for move in a) / 2


def mean(outcomes: Sequence[Outcome]) -> Outcome:
    """Figure by figure."""
    return Outcome(*np.mean([tuple(asdict(outcome).values()) for outcome in outcomes], axis=0).tolist())


def table(outcomes: dict[str, list[Outcome]]) -> str:
    """The lines of a table of 80 columns."""
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
    parser.add_argument("--base-ms", type=float, default=0.2, help="of a batch on the device (0.2)")
    parser.add_argument("--each-us", type=float, default=1.0, help="of a position in it (1)")
    parser.add_argument("--call-ms", type=float, default=0.75, help="of a call besides the device (0.75)")
    parser.add_argument("--position-us", type=float, default=4.0, help="of the processor, a position (4)")
    parser.add_argument("--visit-us", type=float, default=1.2, help="of the processor, a visit (1.2)")
    parser.add_argument("--move-ms", type=float, default=65.0, help="of a move (65)")
    parser.add_argument("--kept", type=int, default=1200, metavar="VISITS", help="of the tree before (1200)")
    parser.add_argument("--positions", type=int, default=8, help="of the benchmark suite (8)")
    parser.add_argument("--weights", default=str(SHIPPED_NETWORK), help="(default: the shipped network)")
    parser.add_argument("--json", action="store_true", help="print a JSON object at the end, and no table")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    microseconds = (arguments.each_us, arguments.position_us, arguments.visit_us)
    each, position, visit = (figure / 1000 for figure in microseconds)
    costs = Costs(arguments.base_ms, each, arguments.call_ms, position, visit)
    network = RememberedNetwork(load_network(arguments.weights))
    outcomes: dict[str, list[Outcome]] = {way: [] for way in arguments.ways}
    for number, fen in enumerate(POSITIONS[: arguments.positions], 1):
        simulation = Simulation(network, fen)
        for way, each_outcome in outcomes.items():
            each_outcome.append(simulation.search(way, costs, arguments.kept, arguments.move_ms))
        network.forget()
        print(f"\n{number} positions\n{table(outcomes)}", file=sys.stderr, flush=True)
    averages = {way: asdict(mean(each_outcome)) for way, each_outcome in outcomes.items()}
    print(json.dumps(averages) if arguments.json else table(outcomes))


if __name__ == "__main__":
    main()
