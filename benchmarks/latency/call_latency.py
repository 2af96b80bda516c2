# SPDX-License-Identifier: GPL-3.0-or-later
"""Cost of one evaluator call: wall time, and CPU time of both processes, by thread.

    python -m benchmarks.latency.call_latency [--device-ms 0.25] [--json] [--address ADDRESS]

The evaluator is a process whose device sleeps (timed_evaluator.py). Rows "N x K" are calls of a bare client
with N positions each, K in flight. "nodes" are searches of 2,000 nodes in each of 12 positions, "time" of 70
ms, with a new tree each and batches filled as on a GPU.
--address makes the evaluator a shared one without the fast path, unlike an engine's: tcp://127.0.0.1:0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.common.installation import started_module
from engine.commands.bench import POSITIONS
from engine.options import Options
from engine.search.limits import Limits
from engine.search.session import Session
from evaluator.backends.common.probe import probe_batch
from protocol import EvaluatorClient

NODES = 2000
"""Nodes of a search: a young tree, whose calls are sequential."""

MOVETIME_MS = 70
"""Time of a search in a fast game, with two calls in flight."""

SIZES, IN_FLIGHT = (1, 8, 64), (1, 2)


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds per call: wall time, device time, and CPU time by thread of engine and evaluator."""

    what: str
    calls: int
    positions: float
    wall: float
    device: float
    engine: dict[str, float]
    evaluator: dict[str, float]

    @property
    def overhead(self) -> float:
        """Wall time minus the device's time."""
        return self.wall - self.device


def thread_times(pid: int) -> Counter[str]:
    """Return nanoseconds of CPU time of a process's threads, by name; "main" is the first."""
    times: Counter[str] = Counter()
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = "main" if int(task.name) == pid else (task / "comm").read_text().strip()
            times[name] += int((task / "schedstat").read_text().split()[0])
        except OSError:  # it has ended
            continue
    return times


class Meter:
    """Measures an evaluator process's calls from this process."""

    def __init__(self, evaluator: int, address: str) -> None:
        self._pids = (threading.main_thread().native_id or 0, evaluator)
        self._status = EvaluatorClient(address, handshake=False)

    def close(self) -> None:
        self._status.close()

    def measured(self, what: str, work: Iterator[None]) -> Cost:
        """Return the cost of the calls that `work` makes between its first and its second step."""
        next(work)
        before, seconds = self._counts(), perf_counter()
        times = [thread_times(pid) for pid in self._pids]
        next(work)
        spent = [thread_times(pid) - earlier for pid, earlier in zip(self._pids, times, strict=True)]
        wall = 1e6 * (perf_counter() - seconds)
        next(work, None)
        calls, positions, device = (now - then for now, then in zip(self._counts(), before, strict=True))
        own, other = ({name: ns / 1000 / calls for name, ns in each.most_common()} for each in spent)
        return Cost(what, int(calls), positions / calls, wall / calls, device / calls, own, other)

    def _counts(self) -> tuple[float, float, float]:
        """Return total calls, positions and microseconds of the device."""
        metrics = self._status.status().metrics
        return metrics["batches"], metrics["positions"], 1000 * metrics["compute_ms_total"]


def bare_calls(client: EvaluatorClient, size: int, in_flight: int, calls: int) -> Iterator[None]:
    """Make calls with a client that does nothing else."""
    batches = [probe_batch(size, seed) for seed in range(in_flight)]
    for number in range(100 + calls):
        if number == 100:
            while client.in_flight:
                client.receive()
            yield
        client.submit(batches[number % in_flight])
        if client.in_flight == in_flight:
            client.receive()
    while client.in_flight:
        client.receive()
    yield


def begin(session: Session, fen: str) -> None:
    """Set a position with a new tree and an empty cache."""
    session.new_game()
    session.clear()
    session.set_position(None if fen == "startpos" else fen)


def searches(address: str, limits: Limits, rounds: int) -> Generator[None]:
    """Search each position with a new tree. As on the clock, a 32nd of the tree may be in flight."""
    options = Options(evaluator=address, visits_per_position=32, smart_pruning_factor=0.0)
    session = Session(options)
    try:
        session.ready(60.0)
        for number in range(rounds + 1):
            for fen in POSITIONS:
                begin(session, fen)
                session.search(limits)
            if number in (0, rounds):
                yield
    finally:
        session.close()


@contextmanager
def evaluator(device_ms: float, flags: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Start an evaluator (timed_evaluator.py); yield its process id and address."""
    words = ["--device-ms", str(device_ms), *flags]
    with started_module(
        "latency.timed_evaluator", *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        bound = json.loads(process.stdout.readline())
        yield process.pid, bound["address"]
        assert process.stdin is not None
        process.stdin.close()


def measure(device_ms: float, calls: int, rounds: int, flags: Sequence[str]) -> list[Cost]:
    """Measure all rows. calls: of a bare client. rounds: searches per position. flags: of the evaluator."""
    with evaluator(device_ms, flags) as (pid, address), EvaluatorClient(address) as client:
        meter = Meter(pid, address)
        costs = [
            meter.measured(f"{size} x {in_flight}", bare_calls(client, size, in_flight, calls))
            for size in SIZES
            for in_flight in IN_FLIGHT
        ]
        for what, limits in (("nodes", Limits(nodes=NODES)), ("time", Limits(movetime_ms=MOVETIME_MS))):
            costs.append(meter.measured(what, searches(address, limits, rounds)))
        meter.close()
    return costs


def show(costs: list[Cost]) -> None:
    print(
        f"{'µs a call':10} {'calls':>6} {'positions':>9} {'wall':>7} {'device':>7} {'overhead':>8} "
        f"{'engine':>7} {'evaluator':>9}   processor time by thread"
    )
    for cost in costs:
        threads = ", ".join(
            f"{owner} {name} {us:.0f}"
            for owner, each in (("engine", cost.engine), ("evaluator", cost.evaluator))
            for name, us in each.items()
            if us >= 1
        )
        print(
            f"{cost.what:10} {cost.calls:6d} {cost.positions:9.1f} {cost.wall:7.0f} {cost.device:7.0f} "
            f"{cost.overhead:8.0f} {sum(cost.engine.values()):7.0f} {sum(cost.evaluator.values()):9.0f}   "
            f"{threads}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device-ms", type=float, default=0.25, help="time of a batch (default 0.25)")
    parser.add_argument(
        "--calls", type=int, default=2000, help="of a bare client, for each row (default 2000)"
    )
    parser.add_argument("--rounds", type=int, default=4, help="searches of all positions (default 4)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--address", help="where the evaluator listens; private without")
    parser.add_argument("--interpreted", action="store_true", help="an evaluator without its fast path")
    arguments = parser.parse_args()
    flags = ["--address", arguments.address] if arguments.address else []
    flags += ["--interpreted"] if arguments.interpreted else []
    costs = measure(arguments.device_ms, arguments.calls, arguments.rounds, flags)
    if arguments.json:
        print(json.dumps([asdict(cost) for cost in costs]))
        return
    show(costs)


if __name__ == "__main__":
    main()
