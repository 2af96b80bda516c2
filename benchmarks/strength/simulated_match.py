# SPDX-License-Identifier: GPL-3.0-or-later
"""Matches between two batching methods in simulated time.

    python -m benchmarks.strength.simulated_match WAY [--against WAY] [--games 400] [--processes N]
        [--abreast 4] [--seconds S] [--evaluator ADDRESS,…] [--weights FILE] [--move-ms 65 | --tc 3+0.03]
        [--base-ms 0.2] [--each-us 1] [--call-ms 0.3] [--position-us 3] [--visit-us 1.2] [--json]

With a real clock, one device supports one game at a time, since games disturb each other. Here each search
ends when its calls and visits would have taken --move-ms on the given device and CPU (simulated_time.py),
regardless of real time. So --processes times --abreast games keep the evaluator busy; each process sends its
games' requests together. They play pairs of shipped openings with reversed colours. A game is adjudicated
when both players see one side at 95 % or more, three moves long. It is drawn when both see less than 5 % for
either side from move 40 on, six moves long, or after 200 moves. Reports the Elo of WAY with its 95 %
interval, and both sides' visits and calls per move. With --tc each player has a clock and the engine's time
manager, including smart pruning.
--evaluator: running evaluators, divided among the processes (default: start one).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.queues import Queue
from queue import Empty

import numpy as np

from benchmarks.common.tuned import tuned
from benchmarks.strength.simulated_clock import SimulatedClock
from benchmarks.strength.simulated_time import Costs, TimedSearch, add_cost_arguments, costs_of
from engine import Engine
from engine._core import Batch, Game
from engine.apps.games.openings import Opening, OpeningSettings, read_openings
from engine.apps.match.results.statistics import Tally, elo
from engine.apps.match.timecontrol import TimeControl
from engine.evaluation.link.encoding import position_batch
from evaluator.network import SHIPPED_NETWORK
from protocol import EvaluatorClient
from protocol.batch import EvaluationBatch, PositionBatch

DECIDED, DECIDED_MOVES = 0.95, 3
"""A game is over when both sides' |q| is at least DECIDED for DECIDED_MOVES moves of each."""

EVEN, EVEN_MOVES, EVEN_FROM_PLY = 0.05, 6, 80
"""A game is drawn when from EVEN_FROM_PLY on both sides' |q| is at most EVEN for EVEN_MOVES moves of each."""

LONGEST = 400
"""Plies after which a game is drawn."""

SEED = 20


@dataclass(frozen=True, slots=True)
class Task:
    """A process's share of a match: the rounds first, first + step, …"""

    ways: tuple[str, str]
    costs: Costs
    move_ms: float
    control: TimeControl | None
    address: str
    openings: Sequence[Opening]
    first: int
    step: int
    abreast: int


class Together:
    """A client shared by threads, whose batches are sent together as soon as all threads wait."""

    def __init__(self, client: EvaluatorClient, threads: int) -> None:
        self.network = client.network
        self._client = client
        self._threads = threads
        self._changed = threading.Condition()
        self._batches: list[PositionBatch] = []
        self._answers: dict[int, EvaluationBatch] = {}

    def evaluate(self, batch: Batch) -> EvaluationBatch:
        """Return the evaluation of a tree's batch; block until the other threads have one too."""
        positions = position_batch(batch)
        with self._changed:
            self._batches.append(positions)
            self._send_if_complete()
            self._changed.wait_for(lambda: id(positions) in self._answers)
            return self._answers.pop(id(positions))

    def leave(self) -> None:
        """Report that a thread has finished."""
        with self._changed:
            self._threads -= 1
            self._send_if_complete()

    def _send_if_complete(self) -> None:
        if not self._batches or len(self._batches) < self._threads:
            return
        batches, self._batches = self._batches, []
        answers = self._client.evaluate(PositionBatch.concatenate(batches), priority="selfplay")
        sizes = [(len(each), len(each.moves)) for each in batches]
        for batch, answer in zip(batches, answers.split(sizes), strict=True):
            self._answers[id(batch)] = answer
        self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class Played:
    """A pair of games. points: of the first way, 0 to 1 each. visits, calls, moves: of both ways."""

    points: tuple[float, float]
    visits: tuple[int, int]
    calls: tuple[int, int]
    moves: tuple[int, int]


class Players:
    """The two ways, with a tree each, on one evaluator."""

    def __init__(self, task: Task, client: Together) -> None:
        network = client.network
        self._move_ms, self._control = task.move_ms, task.control
        self._searches = [
            TimedSearch(way, task.costs, client.evaluate, network.input_format, network.has_moves_left)
            for way in task.ways
        ]
        self.visits, self.calls, self.moves = [0, 0], [0, 0], [0, 0]

    def game(self, opening: Opening, white: int) -> float:
        """Play a game and return the first way's points. white: index of the way that plays White."""
        game = Game(opening.fen)
        for move in opening.moves:
            game.push_uci(move)
        for search in self._searches:
            search.tree.clear()
        control = self._control
        self._clocks = [SimulatedClock(each, control) for each in self._searches] if control else []
        decided = [0, 0]
        """Consecutive plies in which each side was seen to win."""
        even = 0
        while (result := game.result()[0]) == "undecided" and len(game.moves()) < LONGEST:
            mover = 0 if game.turn == "white" else 1
            move, q = self._move(white if mover == 0 else 1 - white, game)
            for side, value in ((mover, q), (1 - mover, -q)):
                decided[side] = decided[side] + 1 if value >= DECIDED else 0
            if (won := max(decided)) >= 2 * DECIDED_MOVES:
                result = "white_won" if decided[0] == won else "black_won"
                break
            even = even + 1 if abs(q) <= EVEN and game.ply >= EVEN_FROM_PLY else 0
            if even >= 2 * EVEN_MOVES:
                break
            game.push_uci(move)
        points = {"white_won": 1.0, "black_won": 0.0}.get(result, 0.5)
        return points if white == 0 else 1 - points

    def _move(self, way: int, game: Game) -> tuple[str, float]:
        search = self._searches[way]
        search.set_position(game)
        spent = self._clocks[way].search(game.ply) if self._clocks else search.search(self._move_ms)
        self.visits[way] += search.tree.root_info().visits
        self.calls[way] += spent.calls
        self.moves[way] += 1
        best = search.tree.lines(1)[0]
        return best.moves[0], best.evaluation.q


def play(task: Task, results: Queue[Played | BaseException]) -> None:
    """Play a process's pairs, `abreast` of them concurrently."""
    numbers = iter(range(task.first, len(task.openings), task.step))
    with EvaluatorClient(task.address) as client:
        together = Together(client, task.abreast)
        threads = [
            threading.Thread(target=_play_pairs, args=(task, together, numbers, results))
            for _ in range(task.abreast)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _play_pairs(
    task: Task, together: Together, numbers: Iterator[int], results: Queue[Played | BaseException]
) -> None:
    """Play pairs while there are numbers, which the threads of a process share."""
    try:
        for number in numbers:
            players = Players(task, together)
            points = (players.game(task.openings[number], 0), players.game(task.openings[number], 1))
            results.put(
                Played(
                    points,
                    (players.visits[0], players.visits[1]),
                    (players.calls[0], players.calls[1]),
                    (players.moves[0], players.moves[1]),
                )
            )
    except BaseException as error:
        results.put(error)
    finally:
        together.leave()


def pairs(arguments: argparse.Namespace, addresses: Sequence[str]) -> Iterator[Played]:
    """Yield finished pairs of all processes; stop after --seconds."""
    rounds = arguments.games // 2
    openings = read_openings(OpeningSettings(), rounds, seed=SEED)
    context = multiprocessing.get_context("spawn")
    results: Queue[Played | BaseException] = context.Queue()
    processes = []
    for index in range(min(arguments.processes, rounds)):
        task = Task(
            (arguments.way, arguments.against),
            costs_of(arguments),
            arguments.move_ms,
            TimeControl(*TimeControl.parse_clock(arguments.tc)) if arguments.tc else None,
            addresses[index % len(addresses)],
            openings,
            index,
            arguments.processes,
            arguments.abreast,
        )
        processes.append(context.Process(target=play, args=(task, results), daemon=True))
    for process in processes:
        process.start()
    ends = time.perf_counter() + (arguments.seconds or float("inf"))
    try:
        for _ in range(rounds):
            try:
                played = results.get(timeout=min(ends - time.perf_counter(), 1e6))
            except (Empty, ValueError):
                return
            if isinstance(played, BaseException):
                raise SystemExit(f"a process has failed: {played!r}")
            yield played
    finally:
        for process in processes:
            process.terminate()


@dataclass(frozen=True, slots=True)
class Summary:
    """A match. elo, low, high: of way, with the 95 % interval. visits, calls: per move, of both ways."""

    way: str
    against: str
    games: int
    points: float
    elo: float
    low: float
    high: float
    visits: tuple[float, float]
    calls: tuple[float, float]

    @classmethod
    def of(cls, way: str, against: str, played: Sequence[Played]) -> Summary:
        tally = Tally()
        for pair in played:
            tally = tally.with_game(pair.points[0]).with_game(pair.points[1]).with_pair(sum(pair.points))
        estimate = elo(tally)
        visits, calls, moves = (
            np.sum([getattr(pair, name) for pair in played], axis=0) for name in ("visits", "calls", "moves")
        )
        return cls(
            way,
            against,
            tally.games,
            tally.points,
            estimate.value,
            estimate.low,
            estimate.high,
            tuple((visits / moves).tolist()),
            tuple((calls / moves).tolist()),
        )

    def __str__(self) -> str:
        return (
            f"{self.way} against {self.against}: {self.points:g} of {self.games} points, Elo {self.elo:+.0f} "
            f"({self.low:+.0f} to {self.high:+.0f}); visits a move {self.visits[0]:.0f} and "
            f"{self.visits[1]:.0f}, calls {self.calls[0]:.1f} and {self.calls[1]:.1f}"
        )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("way", metavar="WAY")
    parser.add_argument("--against", default="default", metavar="WAY", help="(default: default)")
    parser.add_argument("--games", type=int, default=400, help="(400)")
    parser.add_argument("--seconds", type=float, default=0, help="end with the pairs there are then")
    parser.add_argument("--processes", type=int, default=4, help="(4)")
    parser.add_argument("--abreast", type=int, default=4, help="games of each process at once (4)")
    parser.add_argument("--evaluator", default="", metavar="ADDRESS,…", help="those that are running")
    parser.add_argument("--weights", default=str(SHIPPED_NETWORK), help="(default: wavefront-cpu)")
    parser.add_argument("--backend", default="auto")
    add_cost_arguments(parser)
    parser.add_argument("--tc", default="", metavar="SECONDS+INCREMENT", help="a clock in place of --move-ms")
    parser.add_argument("--json", action="store_true", help="print a JSON object at the end")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    # Without a handler SIGTERM would leave the processes running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with Engine(weights=arguments.weights, backend=tuned(arguments.backend)) as engine:
        addresses = [address for address in arguments.evaluator.split(",") if address]
        if not addresses:
            engine.analyse(nodes=1)
            addresses = [engine.evaluator_address]
        played: list[Played] = []
        try:
            for pair in pairs(arguments, addresses):
                played.append(pair)
                if len(played) % 10 == 0:
                    print(Summary.of(arguments.way, arguments.against, played), file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print("interrupted; the result is of the pairs so far", file=sys.stderr)
    if not played:
        raise SystemExit("no pair has ended")
    summary = Summary.of(arguments.way, arguments.against, played)
    print(json.dumps(asdict(summary)) if arguments.json else summary)


if __name__ == "__main__":
    main()
