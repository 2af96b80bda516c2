# SPDX-License-Identifier: GPL-3.0-or-later
"""Latency of play under load: a play client alone, and with seconds of queued self-play or analysis.

    python -m benchmarks.service.latency_under_load [--backend onnx|gpu|NAME:OPTIONS] [--seconds 5]
                                            [--load selfplay analysis] [--depth 6]

The play client requests single positions in two ways. A closed loop sends the next request a fixed time after
an answer (--think). An open loop sends them at random times, regardless of answers (--rate). Each is measured
alone and with each load. By default the device sleeps as long as an H200 computes T82, so the figures show
the service. The load's clients are another process.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.common import sleeping_devices
from benchmarks.common.figures import Figure, print_figures
from benchmarks.common.installation import started_module
from benchmarks.common.processes import CommandError
from benchmarks.service.service_scale import START_S, T82, service
from evaluator.backends.common.probe import probe_batch
from evaluator.settings import Settings
from protocol import EvaluatorClient
from protocol.errors import Overloaded

CLIENTS = 4
"""Number of the load's clients; their requests are queued together."""

MOST_QUEUED = 60_000
"""Positions: slightly less than the service's limit for a class."""

WAIT_S = 60.0
LEAST_ANSWERS, MOST_LATE, MOST_LOST = 0.95, 1.5, 0.03
"""Targets: answers relative to those without load; 99 % latency relative to play's target; loss of the load's
rate relative to the curve without play."""

PLAY_MS = Settings().play_latency_ms


@dataclass(slots=True)
class Play:
    """Results of a play client: number of requests, and milliseconds of those answered."""

    seconds: float
    sent: int = 0
    times: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.times) / self.seconds

    def percentile(self, share: float) -> float:
        """Return a percentile in milliseconds; infinite without answers."""
        return float(np.percentile(self.times, share)) if self.times else float("inf")


def closed_loop(address: str, seconds: float, think_s: float) -> Play:
    """Send one request after the other, each a fixed time after the previous answer."""
    play, batch = Play(seconds), probe_batch(1)
    with EvaluatorClient(address, timeout=WAIT_S) as client:
        client.evaluate(batch)
        start = time.perf_counter()
        while (begin := time.perf_counter()) < start + seconds:
            client.evaluate(batch)
            play.sent += 1
            play.times.append(1000 * (time.perf_counter() - begin))
            time.sleep(think_s)
        play.seconds = time.perf_counter() - start  # of complete rounds
    return play


def open_loop(address: str, seconds: float, rate: float) -> Play:
    """Send requests at random times, and wait for all answers at the end."""
    play, batch, at_random = Play(seconds), probe_batch(1), random.Random(1)
    sent: dict[int, float] = {}
    with EvaluatorClient(address, timeout=WAIT_S) as client:
        client.evaluate(batch)
        due = time.perf_counter()
        end = due + seconds
        while sent or due < end:
            now = time.perf_counter()
            if due <= now and due < end:
                sent[client.submit(batch)] = due  # otherwise a late sender would make the service look faster
                play.sent += 1
                due += at_random.expovariate(rate)
                continue
            if now > end + WAIT_S:
                break
            waits_s = (due if due < end else end + WAIT_S) - now
            if not sent:
                time.sleep(max(0.0, waits_s))
                continue
            completed = client.receive(max(0.0, 1000 * waits_s))
            if completed is not None:
                completed.result()
                play.times.append(1000 * (time.perf_counter() - sent.pop(completed.id)))
    return play


class Load:
    """Clients in another process that keep N positions queued."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def count(self) -> int:
        """Return the number of answered positions."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise CommandError("the clients of the load have failed")
        return int(line)


@contextmanager
def loaded(address: str, priority: str, positions: int, request: int) -> Iterator[Load]:
    """Yield a load once it has filled the queue and received its first answers."""
    words = ["--as", priority, address, str(positions), str(request)]
    with started_module(
        "service.latency_under_load", *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            load = Load(process)
            while load.count() < 2 * request:
                time.sleep(0.1)
            yield load
        finally:
            process.kill()


def be_load(priority: str, address: str, positions: int, request: int) -> None:
    """Keep positions queued until killed; print the number answered for each line of stdin."""
    done = [0] * CLIENTS
    most = max(2, round(positions / request / CLIENTS))
    batch = probe_batch(request)

    def work(number: int) -> None:
        with EvaluatorClient(address, timeout=START_S, name=f"load {number}") as client:
            while True:
                while client.in_flight < most:
                    client.submit(batch, priority=priority)  # type: ignore[arg-type]
                completed = client.receive()
                try:
                    if completed is not None:
                        done[number] += len(completed.result())
                except Overloaded:
                    time.sleep(0.1)

    for number in range(CLIENTS):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    for _ in sys.stdin:
        print(sum(done), flush=True)


@dataclass(frozen=True, slots=True)
class Loops:
    """Parameters of the play client. seconds: of each measurement."""

    seconds: float
    think_s: float
    rate: float

    def measure(self, address: str) -> dict[str, Play]:
        """Measure both loops; return results by name."""
        return {
            "closed": closed_loop(address, self.seconds, self.think_s),
            "open": open_loop(address, self.seconds, self.rate),
        }


def beside(address: str, priority: str, depth_s: float, loops: Loops, alone: dict[str, Play]) -> list[Figure]:
    """Measure and print both loops with one load, and return the figures with targets."""
    with EvaluatorClient(address, timeout=START_S) as client:
        request = min(client.recommended_batch, client.max_batch)
        best = max(1000 * size / ms for size, ms in client.curve)
    queued = min(MOST_QUEUED, max(2 * CLIENTS * request, round(depth_s * best)))
    with loaded(address, priority, queued, request) as load:
        begin, before = time.perf_counter(), load.count()
        time.sleep(loops.seconds)
        undisturbed = (load.count() - before) / (time.perf_counter() - begin)
        begin, before = time.perf_counter(), load.count()
        seen = loops.measure(address)
        answered = load.count() - before + sum(play.sent for play in seen.values())
        disturbed = answered / (time.perf_counter() - begin)
    figures = []
    for name, play in seen.items():
        show(f"{name}, beside {priority}", play)
        what = f"{name} loop beside {priority}"
        share = play.rate / max(1e-9, alone[name].rate)
        figures.append(Figure(f"{what}: share of the answers alone", share, LEAST_ANSWERS))
        figures.append(Figure(f"{what}: p99, ms", play.percentile(99), MOST_LATE * PLAY_MS, at_least=False))
    print(
        f"{priority}: {undisturbed:,.0f} positions/s alone, {disturbed:,.0f} with those of play, "
        f"of {best:,.0f} by the curve; {queued:,} queued in requests of {request}"
    )
    what = f"positions/s of {priority} without play by those of the curve"
    figures.append(Figure(what, undisturbed / best, 1 - MOST_LOST))
    return figures


def show(what: str, play: Play) -> None:
    """Print a row."""
    print(
        f"{what:24} {play.sent:6d} {len(play.times):8d} {play.rate:9.1f} {play.percentile(50):8.1f} "
        f"{play.percentile(99):8.1f} {play.percentile(100):8.1f}",
        flush=True,
    )


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default=T82, help="a device (default: one that sleeps)")
    parser.add_argument("--network", default="", help="file that it holds (default: the shipped one)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default 5)")
    parser.add_argument(
        "--load", nargs="+", choices=["selfplay", "analysis"], default=["selfplay", "analysis"]
    )
    parser.add_argument("--depth", type=float, default=6.0, help="seconds of work queued (default 6)")
    parser.add_argument("--think", type=float, default=200.0, help="milliseconds (default 200)")
    parser.add_argument("--rate", type=float, default=25.0, help="requests a second (default 25)")
    parser.add_argument("--as", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    role = getattr(arguments, "as")
    if role:
        be_load(role[0], role[1], int(role[2]), int(role[3]))
        return
    loops = Loops(arguments.seconds, arguments.think / 1000, arguments.rate)
    figures: list[Figure] = []
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            sleeping_devices.install(folder / "plugins")
            with service([arguments.backend], folder, arguments.network) as address:
                print(f"{arguments.backend}, play in single positions\n")
                print(f"{'':24}   sent answered  a second   p50 ms      p99     most")
                alone = loops.measure(address)
                for loop, play in alone.items():
                    show(f"{loop}, alone", play)
                for priority in arguments.load:
                    figures += beside(address, priority, arguments.depth, loops, alone)
    except CommandError as error:
        raise SystemExit(str(error)) from None
    print()
    print_figures(figures)


if __name__ == "__main__":
    main()
