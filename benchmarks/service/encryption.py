# SPDX-License-Identifier: GPL-3.0-or-later
"""What keys cost: the time of a request, the processor time of both sides, and positions/s, on plain loopback
and on an encrypted address of the same service.

    python -m benchmarks.service.encryption [--seconds 3]

The backend is `random`, which computes next to nothing. Ping shows the transport alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.common.installation import CHECKOUT
from benchmarks.common.processes import CommandError
from evaluator.backends.probe import probe_batch
from protocol import EvaluatorClient
from protocol.keys.clients import AllowedClient, allow
from protocol.keys.files import CLIENT_PAIR, CLIENTS
from protocol.keys.pairs import make_pair

START_S = 120.0
SIZES = (1, 64, 256, 1024)
IN_FLIGHT = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """Of requests of one size. ms: median time of one alone. client_us, service_us: processor time of each
    side a request. rate: positions/s with several in flight."""

    ms: float
    client_us: float
    service_us: float
    rate: float


@contextmanager
def service(folder: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """An evaluator process; gives its id, and its addresses by `plain` and `keys`. Raises CommandError."""
    pair = make_pair(folder / CLIENT_PAIR)
    allow(folder / CLIENTS, AllowedClient("benchmark", "play", pair.public))
    command = [*CHECKOUT.evaluator, "serve", "--backend", "random", "--log-format", "json"]
    command += ["--address", "tcp://127.0.0.1:0", "--address", "tcp://0.0.0.0:0", "--keys", str(folder)]
    process = subprocess.Popen(
        command, env=CHECKOUT.environment(), cwd=CHECKOUT.folder, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        addresses: dict[str, str] = {}
        for line in process.stderr:
            message = json.loads(line)["message"]
            if message.startswith("listening on "):
                address = message.removeprefix("listening on ").replace("0.0.0.0", "127.0.0.1")
                addresses["keys" if "#" in address else "plain"] = address
            if message == "ready":
                break
        else:
            raise CommandError(f"{' '.join(command)}: the evaluator did not start")
        yield process.pid, addresses
    finally:
        process.terminate()
        process.communicate(timeout=START_S)


def _used(*processes: psutil.Process) -> list[float]:
    """Processor seconds of each so far."""
    return [sum(process.cpu_times()[:2]) for process in processes]


def cost(client: EvaluatorClient, pid: int, size: int, seconds: float) -> Cost:
    """Measure requests of one size."""
    batch = probe_batch(size)
    processes = (psutil.Process(), psutil.Process(pid))
    client.evaluate(batch)
    times = []
    before, end = _used(*processes), time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        client.evaluate(batch)
        times.append(1000 * (time.perf_counter() - begin))
    client_s, service_s = (after - first for first, after in zip(before, _used(*processes), strict=True))
    for _ in range(IN_FLIGHT):
        client.submit(batch)
    answered, begin = 0, time.perf_counter()
    while time.perf_counter() < begin + seconds:
        client.receive(1000.0 * START_S)
        client.submit(batch)
        answered += 1
    rate = answered * size / (time.perf_counter() - begin)
    while client.in_flight:
        client.receive(1000.0 * START_S)
    return Cost(statistics.median(times), 1e6 * client_s / len(times), 1e6 * service_s / len(times), rate)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="for each figure (default: %(default)g)")
    seconds: float = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with service(folder) as (pid, addresses):
            clients = {
                kind: EvaluatorClient(address, timeout=START_S, keys=folder)
                for kind, address in addresses.items()
            }
            pings = {
                kind: statistics.median(each.ping() for _ in range(500)) for kind, each in clients.items()
            }
            print("| positions a request | | ms, one alone | client, µs of a core | service | positions/s |")
            print("|---|---|---|---|---|---|")
            print("".join(f"| ping | {kind} | {ms:.3f} | | | |\n" for kind, ms in pings.items()), end="")
            for size in SIZES:
                for kind, client in clients.items():
                    found = cost(client, pid, size, seconds)
                    figures = f"{found.client_us:.0f} | {found.service_us:.0f} | {found.rate:,.0f}"
                    print(f"| {size} | {kind} | {found.ms:.2f} | {figures} |", flush=True)
            for client in clients.values():
                client.close()


if __name__ == "__main__":
    main()
