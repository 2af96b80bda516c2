# SPDX-License-Identifier: GPL-3.0-or-later
"""Cost of hostile clients: growth of the evaluator's memory, and latency of another client.

    python -m benchmarks.service.hostile_clients [--seconds 10] [--keys] [--attack NAME ...]

It requests single positions, with and without an attack. With --keys the service requires keys, and the
attackers have none. The device sleeps for a millisecond, so the figures show the service.
Attackers are processes, and on a machine with few cores they take CPU time from the others. The row "busy"
shows that effect: a client that reads its answers and keeps as many positions in flight as allowed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgpack
import numpy as np
import psutil

from benchmarks.common import sleeping_devices
from benchmarks.common.installation import CHECKOUT, started_module
from benchmarks.common.processes import CommandError
from evaluator.backends.common.probe import probe_batch
from protocol import EvaluatorClient
from protocol.batch import POSITION_DTYPE, PositionBatch
from protocol.common.keys.clients import AllowedClient, allow
from protocol.common.keys.files import CLIENT_PAIR, CLIENTS, SERVICE_PAIR
from protocol.common.keys.notation import show_key
from protocol.common.keys.pairs import pair_at
from protocol.errors import EvaluatorLost, Overloaded
from protocol.wire.codec import encode_evaluate
from tests.evaluator.zmtp import GREETING, connect, exactly, frame, message, shake_hands

DEVICE = "sleeping:base=1,each=0.001"
START_S = 60.0
PAUSE_S = 0.003
"""Pause between two requests of the well-behaved client."""

FEW_DESCRIPTORS = 160
MANY_CONNECTIONS = 3000

LAUNCHER = """
import resource, sys
descriptors = int(sys.argv.pop(1))
if descriptors:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
from evaluator.cli import console
console()
"""


@dataclass(frozen=True, slots=True)
class Row:
    """Latency of the other client's answers in milliseconds, their number, and the evaluator's growth in MB:
    maximum, and five seconds after the attack."""

    attack: str
    answers: int
    p50: float
    p99: float
    longest: float
    growth: float
    left: float


_without_key = False
"""True in an attacker of a service that requires keys."""


def connected(port: int) -> socket.socket:
    """Return a connection after the handshake; without a key, after its first step."""
    if not _without_key:
        return connect(port)
    made = socket.create_connection(("127.0.0.1", port), timeout=60.0)
    greet(made)
    return made


def greet(connection: socket.socket) -> None:
    """Complete the handshake, as far as possible without a key."""
    if _without_key:
        connection.sendall(GREETING.replace(b"NULL\0", b"CURVE"))
        exactly(connection, len(GREETING))
    else:
        shake_hands(connection)


def large_request(identity: int, count: int = 4096, moves: int = 256) -> bytes:
    """Return the largest possible request, as sent on the wire."""
    batch = PositionBatch(
        np.zeros(count, POSITION_DTYPE),
        np.arange(0, count * moves + 1, moves, dtype=np.uint32),
        np.tile(np.arange(moves, dtype=np.uint16), count),
    )
    header, *arrays = encode_evaluate(identity, batch, "selfplay", None, "")
    return message([bytes(header), *(np.asarray(array).tobytes() for array in arrays)])


def never_reads(port: int, until: float) -> None:
    """Request large answers with new ids, and read none."""
    requests = [large_request(number + 1) for number in range(20)]
    with connected(port) as connection:
        while time.perf_counter() < until:
            for request in requests:
                connection.sendall(request)


def never_reads_status(port: int, until: float) -> None:
    """Request the status, and read nothing."""
    status = message([msgpack.packb({"type": "status", "id": 1})]) * 100
    with connected(port) as connection:
        while time.perf_counter() < until:
            connection.sendall(status)


def never_ends(port: int, until: float) -> None:
    """Send a message without a last frame."""
    part = frame(bytes(1_000_000), more=True)
    with connected(port) as connection:
        while time.perf_counter() < until:
            connection.sendall(part)


def half_frames(port: int, until: float) -> None:
    """Send most of a large frame on each of many connections, one after the other."""
    part = frame(bytes(3_000_000))[:-1]
    kept: list[socket.socket] = []
    while time.perf_counter() < until:
        with contextlib.suppress(OSError):
            kept.append(connected(port))
            kept[-1].sendall(part)
        if len(kept) > 200:
            kept.pop(0).close()


def empty_frames(port: int, until: float) -> None:
    """Send messages of a million empty frames."""
    parts = frame(b"", more=True) * 1_000_000 + frame(b"")
    while time.perf_counter() < until:
        with contextlib.suppress(OSError), connected(port) as connection:
            connection.sendall(parts)
            connection.recv(1)


def many_connections(port: int, until: float) -> None:
    """Open as many connections as allowed, complete the handshake, and send nothing else."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * MANY_CONNECTIONS), hard))
    kept: list[socket.socket] = []
    while time.perf_counter() < until:
        if len(kept) < MANY_CONNECTIONS:
            source = (f"127.0.0.{2 + len(kept) % 8}", 0)  # one address may have at most a quarter
            with contextlib.suppress(OSError):
                made = socket.create_connection(("127.0.0.1", port), 60.0, source)
                greet(made)
                kept.append(made)
        else:
            time.sleep(0.1)


def many_retries(port: int, until: float) -> None:
    """Connect to a service with few descriptors, and again after each refusal."""
    kept: list[socket.socket] = []
    while time.perf_counter() < until:
        with contextlib.suppress(OSError):
            kept.append(socket.create_connection(("127.0.0.1", port), timeout=1.0))
        if len(kept) > 500:
            kept.pop(0).close()


def garbage(port: int, until: float) -> None:
    """Send random bytes: at once, after the handshake, and in a message's frames."""
    rng = np.random.default_rng(1)
    while time.perf_counter() < until:
        noise = rng.bytes(5000)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as connection:
            connection.sendall(noise)
        with contextlib.suppress(OSError), connected(port) as connection:
            connection.sendall(noise)
        with contextlib.suppress(OSError), connected(port) as connection:
            connection.sendall(message([noise, noise[:100], noise[:10]]))
            connection.recv(1)


def connect_storm(port: int, until: float) -> None:
    """Connect and disconnect as often as possible, with and without a request in flight."""
    request = large_request(1, count=64, moves=16)
    while time.perf_counter() < until:
        with contextlib.suppress(OSError), connected(port):
            pass
        with contextlib.suppress(OSError), connected(port) as connection:
            connection.sendall(request)


def busy(port: int, until: float) -> None:
    """Send large requests and read the answers: a harmless load."""
    batch = probe_batch(4096)
    with EvaluatorClient(f"tcp://127.0.0.1:{port}", timeout=START_S) as client:
        while time.perf_counter() < until:
            while client.in_flight < 8:
                client.submit(batch, priority="selfplay")
            completed = client.receive()
            if completed is not None:
                with contextlib.suppress(Overloaded):
                    completed.result()


ATTACKS: dict[str, Callable[[int, float], None]] = {
    each.__name__: each
    for each in (
        busy,
        never_reads,
        never_reads_status,
        never_ends,
        empty_frames,
        many_connections,
        many_retries,
        garbage,
        connect_storm,
    )
}


WITHOUT_KEY = {name: each for name, each in ATTACKS.items() if each is not busy} | {
    "half_frames": half_frames
}
"""Attacks on a service that requires keys."""


@dataclass(frozen=True, slots=True)
class Target:
    """An evaluator under attack. own: folder of the other client's keys; empty without keys."""

    port: int
    process: psutil.Process
    address: str
    own: str

    def client(self) -> EvaluatorClient:
        return EvaluatorClient(self.address, timeout=START_S, keys=self.own)


@contextmanager
def service(keys: bool, descriptors: int, folder: Path) -> Iterator[Target]:
    """Start an evaluator. Raises CommandError. keys: clients need some. descriptors: limit, 0 for the
    system's."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    address, own = f"tcp://127.0.0.1:{port}", ""
    flags = [str(descriptors), "serve", "--backend", DEVICE]
    flags += ["--no-latency-cache", "--log-level", "error", "--address", address]
    if keys:
        own = str(folder / "own")
        allow(folder / CLIENTS, AllowedClient("other", "play", pair_at(folder / "own" / CLIENT_PAIR).public))
        address += f"#{show_key(pair_at(folder / SERVICE_PAIR).public)}"
        flags += ["--keys", str(folder), "--keys-on-loopback"]
    paths = f"{CHECKOUT.variables['PYTHONPATH']}{os.pathsep}{folder}"
    process = subprocess.Popen(
        [*CHECKOUT.python, "-c", LAUNCHER, *flags],
        env=CHECKOUT.environment(PYTHONPATH=paths),
        cwd=CHECKOUT.folder,
    )
    try:
        give_up = time.perf_counter() + START_S
        target = Target(port, psutil.Process(process.pid), address, own)
        while not _listens(target):
            if process.poll() is not None or time.perf_counter() > give_up:
                raise CommandError("the evaluator did not start")
        yield target
    finally:
        process.kill()
        process.wait()


def _listens(target: Target) -> bool:
    try:
        target.client().close()
    except EvaluatorLost:
        time.sleep(0.1)
        return False
    return True


def ask(target: Target, seconds: float) -> tuple[list[float], int]:
    """Return milliseconds of each single-position answer in that time, and the process's peak size."""
    batch, peak = probe_batch(1), 0
    times: list[float] = []
    with target.client() as client:
        client.evaluate(batch)
        ended = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not ended.wait(0.02):
                peak = max(peak, target.process.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()
        end = time.perf_counter() + seconds
        try:
            while (begin := time.perf_counter()) < end:
                client.evaluate(batch)
                times.append(1000 * (time.perf_counter() - begin))
                time.sleep(PAUSE_S)
        finally:
            ended.set()
            watcher.join()
    return times, peak


def measure(attack: str, seconds: float, keys: bool, folder: Path) -> tuple[Row, Row]:
    """Measure the other client without and with an attack."""
    with service(keys, FEW_DESCRIPTORS if attack == "many_retries" else 0, folder) as target:
        alone, _ = ask(target, seconds / 2)
        base = target.process.memory_info().rss
        words = ["--as", attack, str(target.port), str(seconds), *(["--keys"] if keys else [])]
        attacker = started_module("service.hostile_clients", *words, stderr=subprocess.DEVNULL)
        try:
            beside, peak = ask(target, seconds)
        finally:
            attacker.kill()
            attacker.wait()
        time.sleep(5.0)
        left = target.process.memory_info().rss
    return _row("alone", alone, 0, 0), _row(attack, beside, peak - base, left - base)


def _row(attack: str, times: list[float], growth: float, left: float) -> Row:
    p50, p99 = statistics.median(times), float(np.percentile(times, 99))
    return Row(attack, len(times), p50, p99, max(times), growth / 1e6, left / 1e6)


def show(row: Row) -> None:
    print(
        f"{row.attack:20} {row.answers:7d} {row.p50:8.1f} {row.p99:8.1f} {row.longest:9.1f} "
        f"{row.growth:9.0f} {row.left:7.0f}",
        flush=True,
    )


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack (default 10)")
    parser.add_argument("--keys", action="store_true", help="require keys, which the attackers lack")
    parser.add_argument(
        "--attack", action="append", choices=[*ATTACKS, *WITHOUT_KEY], help="one of them; may be repeated"
    )
    parser.add_argument("--as", nargs=3, metavar=("ATTACK", "PORT", "SECONDS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    attacker = getattr(arguments, "as")
    if attacker:
        globals()["_without_key"] = arguments.keys
        (ATTACKS | WITHOUT_KEY)[attacker[0]](int(attacker[1]), time.perf_counter() + float(attacker[2]))
        return
    print("times of another client's single positions in ms, growth of the evaluator in MB\n")
    print(f"{'attack':20} {'answers':>7} {'p50':>8} {'p99':>8} {'longest':>9} {'growth':>9} {'left':>7}")
    with tempfile.TemporaryDirectory() as folder:
        sleeping_devices.install(Path(folder))
        for attack in arguments.attack or (WITHOUT_KEY if arguments.keys else ATTACKS):
            for row in measure(attack, arguments.seconds, arguments.keys, Path(folder)):
                show(row)


if __name__ == "__main__":
    main()
