# SPDX-License-Identifier: GPL-3.0-or-later
"""Scaling of one service over devices: positions/s with 1, 2 and 4 devices and 1 to 16 clients.

    python -m benchmarks.service.service_scale [--seconds 3] [--devices 1 2 4] [--backend NAME:OPTIONS]
                                       [--network FILE]

Also measures the time of one large request, and play on a fast device next to a slow one. By default the
devices sleep as long as an H200 computes T82, so the figures show the service. Give --backend once per device
(--backend gpu:device=0 --backend gpu:device=1) to measure real ones.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.common import sleeping_devices
from benchmarks.common.installation import CHECKOUT
from benchmarks.common.processes import CommandError
from benchmarks.common.tuned import tuned
from evaluator.backends.common.probe import probe_batch
from protocol import EvaluatorClient
from protocol.errors import EvaluatorLost

T82 = "sleeping:base=1.3,each=0.0316"
FAST, SLOW = "sleeping:base=1,each=0.03", "sleeping:base=20,each=2"
START_S = 120.0
CLIENTS = (1, 4, 16)


@contextmanager
def service(backends: Sequence[str], folder: Path, network: str = "") -> Iterator[str]:
    """Start an evaluator process with these devices and yield its address. Raises CommandError.
    network: file; "" means the shipped one."""
    address = f"ipc://{folder}/evaluator"
    command = [
        *CHECKOUT.evaluator,
        "serve",
        "--address",
        address,
        "--no-latency-cache",
        "--log-level",
        "warning",
    ]
    for backend in backends:
        command += ["--backend", tuned(backend)]
    if network:
        command += ["--network", network]
    paths = f"{CHECKOUT.variables['PYTHONPATH']}{os.pathsep}{folder / 'plugins'}"
    environment = CHECKOUT.environment(PYTHONPATH=paths)
    process = subprocess.Popen(command, env=environment, cwd=CHECKOUT.folder)
    try:
        give_up = time.perf_counter() + START_S
        while not _listens(address):
            if process.poll() is not None or time.perf_counter() > give_up:
                raise CommandError(f"{' '.join(command)}: the evaluator did not start")
        yield address
    finally:
        process.terminate()
        process.wait(START_S)


def _listens(address: str) -> bool:
    """Return True if an evaluator is ready at an address, else wait briefly and return False."""
    try:
        EvaluatorClient(address, timeout=START_S).close()
    except EvaluatorLost:
        time.sleep(0.1)
        return False
    return True


def load(
    address: str, seconds: float, clients: int, positions: int, in_flight: int
) -> tuple[float, list[float]]:
    """Return positions/s of closed loops, and milliseconds of every request, without the warm-up."""
    batch = probe_batch(positions)
    begin = time.perf_counter() + seconds / 5
    end = begin + seconds
    latencies: list[list[float]] = [[] for _ in range(clients)]

    def play(own: list[float]) -> None:
        with EvaluatorClient(address, timeout=START_S) as client:
            sent = {}
            for _ in range(in_flight):
                sent[client.submit(batch)] = time.perf_counter()
            while time.perf_counter() < end:
                done = client.receive(1000.0 * START_S)
                if done is None or done.error is not None:
                    raise CommandError(f"a request was not answered: {done and done.error}")
                now = time.perf_counter()
                if begin <= now < end:
                    own.append(1000 * (now - sent.pop(done.id)))
                sent[client.submit(batch)] = now

    threads = [threading.Thread(target=play, args=(own,)) for own in latencies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answered = [each for own in latencies for each in own]
    return len(answered) * positions / seconds, answered


def rates(backends: Sequence[str], devices: Sequence[int], seconds: float, network: str = "") -> None:
    """Print positions/s by devices and clients, and the time of one large request."""
    print("| devices | recommended batch, rate of the welcome | clients | requests | positions/s | of one |")
    print("|---|---|---|---|---|---|")
    alone = 0.0
    large = []
    for count in devices:
        used = list(backends) * count if len(backends) == 1 else list(backends)[:count]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            sleeping_devices.install(folder / "plugins")
            with service(used, folder, network) as address:
                with EvaluatorClient(address, timeout=START_S) as client:
                    best = client.recommended_batch
                    promised = max(1000 * size / ms for size, ms in client.curve)
                    most = client.max_batch
                for clients in CLIENTS:
                    size = max(16, min(most, best // clients))
                    rate, _ = load(address, seconds, clients, size, 2)
                    alone = alone or rate
                    told = f"{best}, {promised:,.0f}/s"
                    row = f"| {count} | {told} | {clients} | 2 of {size} each"
                    print(f"{row} | {rate:,.0f} | {rate / alone:.2f} |", flush=True)
                rate, _ = load(address, seconds, 1, best // count, 8)
                print(
                    f"| {count} | | 1 | 8 of {best // count} | {rate:,.0f} | {rate / alone:.2f} |", flush=True
                )
                _, times = load(address, seconds, 1, 1000, 1)
                large.append((count, statistics.median(times)))
    print("\nOne request of 1000 positions at a time, median ms: ", end="")
    print(", ".join(f"{count} devices {ms:.1f}" for count, ms in large))


def beside_a_slow_one(seconds: float) -> None:
    """Print the median time of requests of 64 on a fast device, alone and next to a slow one."""
    print("\n| devices | one request of 64 at a time, p50 / p99 ms | eight at a time |")
    print("|---|---|---|")
    for words, used in (("fast", [FAST]), ("fast, slow", [FAST, SLOW]), ("slow, fast", [SLOW, FAST])):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            sleeping_devices.install(folder / "plugins")
            with service(used, folder) as address:
                cells = []
                for in_flight in (1, 8):
                    _, times = load(address, seconds, 1, 64, in_flight)
                    times.sort()
                    cells.append(f"{statistics.median(times):.1f} / {times[int(0.99 * len(times))]:.1f}")
        print(f"| {words} | {cells[0]} | {cells[1]} |", flush=True)


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="for each figure (default: 3)")
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4], help="how many (default: 1 2 4)")
    parser.add_argument(
        "--backend", action="append", help="a device; once for each, or one that is used several times"
    )
    parser.add_argument("--network", default="", help="file that the devices hold (default: the shipped one)")
    arguments = parser.parse_args()
    try:
        rates(arguments.backend or [T82], arguments.devices, arguments.seconds, arguments.network)
        if not arguments.backend:
            beside_a_slow_one(arguments.seconds)
    except CommandError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
