# SPDX-License-Identifier: GPL-3.0-or-later
"""Steady clients of the soak test, which count requests and answers.

    python -m benchmarks.service.soak_clients KIND ADDRESS [--exact]

One process runs all clients of a kind, each in a thread, until its stdin ends; then it waits for requests in
flight. It prints a line of JSON each second: the fields of Report, summed over all its clients.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from evaluator.backends.common.probe import probe_batch
from evaluator.backends.reference.random import random_evaluation
from protocol import EvaluatorClient
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.errors import EvaluatorFailure, EvaluatorLost
from protocol.wire.messages import Priority

WAIT_S = 180.0
"""Seconds after which a request counts as unanswered."""

LOOK_MS = 200.0
RETRY_S = 0.2
BATCHES = 16


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of clients. rate: requests per second of each, at random times; 0 for a closed loop that keeps
    in_flight requests. largest: maximum positions of a request. cancels, deadlines: one in N requests is
    cancelled after sending, or has a deadline of 50 ms. stays: requests per connection, 0 for no limit.
    network: alias of the network to use, empty for the default. waits: seconds after which a request counts
    as unanswered."""

    priority: Priority
    clients: int
    in_flight: int
    largest: int
    rate: float = 0.0
    cancels: int = 0
    deadlines: int = 0
    stays: int = 0
    network: str = ""
    waits: float = WAIT_S


KINDS = {
    "play": Kind("play", clients=2, in_flight=64, largest=4, rate=15.0),
    "analysis": Kind("analysis", clients=2, in_flight=4, largest=48, cancels=40),
    # A flood of analysis leaves it a twentieth of the device, so its 1,800 positions in flight take minutes.
    "selfplay": Kind("selfplay", clients=3, in_flight=6, largest=200, deadlines=50, waits=600.0),
    "visitor": Kind("play", clients=1, in_flight=2, largest=4, rate=10.0, stays=4),
    "guest": Kind("analysis", clients=1, in_flight=2, largest=16, rate=10.0, network="guest"),
}


@dataclass(slots=True)
class Report:
    """Counts of requests: sent; with a result; with an error, by code; cancelled; without an answer on a
    working connection, or on a broken one; with a wrong result. latencies: milliseconds of the results since
    the last report. losses: failed connections, by message."""

    sent: int = 0
    results: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    cancelled: int = 0
    unanswered: int = 0
    broken_off: int = 0
    wrong: int = 0
    in_flight: int = 0
    losses: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)

    @property
    def answered(self) -> int:
        """Number of answered requests."""
        return self.results + self.cancelled + sum(self.errors.values())


class SteadyClient:
    """One client of a kind, in one thread. exact: results must equal those of `random`."""

    def __init__(self, kind: Kind, address: str, exact: bool, ends: threading.Event, seed: int) -> None:
        self.report = Report()
        self.lock = threading.Lock()
        self._kind, self._address, self._exact, self._ends = kind, address, exact, ends
        self._random = random.Random(seed)
        self._batches = [
            probe_batch(self._random.randint(1, kind.largest), 100 * seed + n) for n in range(BATCHES)
        ]
        self._expected = [random_evaluation(batch) for batch in self._batches]
        self._sent: dict[int, tuple[float, int]] = {}
        self._name = f"soak {kind.priority} {seed}"

    def run(self) -> None:
        """Connect repeatedly until the soak ends."""
        while not self._ends.is_set():
            self._sent.clear()
            try:
                network = self._kind.network or None
                with EvaluatorClient(
                    self._address, timeout=self._kind.waits, name=self._name, network=network
                ) as client:
                    self._talk(client)
            except EvaluatorFailure as error:
                with self.lock:
                    self.report.losses[f"{type(error).__name__}: {error}"] += 1
                    if isinstance(error, EvaluatorLost):
                        self.report.broken_off += len(self._sent)
                    else:
                        self.report.unanswered += len(self._sent)
                    self.report.in_flight = 0
                self._ends.wait(RETRY_S)

    def _talk(self, client: EvaluatorClient) -> None:
        """Send requests for the connection's lifetime; return when all are answered or nothing arrives."""
        due, asked = time.perf_counter(), 0
        while True:
            over = self._ends.is_set() or client.draining or 0 < self._kind.stays <= asked
            if over and not self._sent:
                return
            now = time.perf_counter()
            while not over and len(self._sent) < self._kind.in_flight and due <= now:
                self._submit(client)
                asked += 1
                due = now if not self._kind.rate else due + self._random.expovariate(self._kind.rate)
            if self._sent and now - next(iter(self._sent.values()))[0] > self._kind.waits:
                with self.lock:
                    self.report.unanswered += len(self._sent)
                    self.report.in_flight = 0
                return
            waits = LOOK_MS if over or due <= now else min(LOOK_MS, 1000 * (due - now))
            if self._sent:
                self._receive(client, waits)
            else:
                self._ends.wait(waits / 1000)

    def _submit(self, client: EvaluatorClient) -> None:
        which = self._random.randrange(BATCHES)
        late = self._one_in(self._kind.deadlines)
        identity = client.submit(
            self._batches[which],
            priority=self._kind.priority,
            deadline_ms=50.0 if late else None,
            network=self._kind.network or None,
        )
        self._sent[identity] = (time.perf_counter(), which)
        if self._one_in(self._kind.cancels):
            client.cancel(identity)
        with self.lock:
            self.report.sent += 1
            self.report.in_flight = len(self._sent)

    def _one_in(self, number: int) -> bool:
        return number > 0 and self._random.randrange(number) == 0

    def _receive(self, client: EvaluatorClient, waits_ms: float) -> None:
        completed = client.receive(waits_ms)
        if completed is None:
            return
        began, which = self._sent.pop(completed.id)
        with self.lock:
            report = self.report
            report.in_flight = len(self._sent)
            if completed.cancelled:
                report.cancelled += 1
            elif completed.error is not None:
                report.errors[completed.error.code] += 1
            else:
                report.results += 1
                report.latencies.append(1000 * (time.perf_counter() - began))
                expected = self._expected[which] if self._exact else None
                report.wrong += not is_right(completed.result(), self._batches[which], expected)


def is_right(answer: EvaluationBatch, batch: PositionBatch, expected: EvaluationBatch | None) -> bool:
    """Return True if an answer equals the expected one bit by bit or, if None, is plausible."""
    if expected is not None:
        return np.array_equal(answer.logits, expected.logits) and np.array_equal(answer.wdl, expected.wdl)
    sums = answer.wdl.sum(axis=1)
    finite = bool(np.isfinite(answer.logits).all() and np.isfinite(answer.moves_left).all())
    return finite and len(answer.logits) == len(batch.moves) and bool(np.allclose(sums, 1, atol=1e-3))


def as_json(report: Report) -> str:
    """Return a report as one line of JSON."""
    return json.dumps({each.name: getattr(report, each.name) for each in fields(report)})


def total(clients: Sequence[SteadyClient]) -> Report:
    """Return the sum of all clients' reports, and reset their latencies."""
    whole = Report()
    for client in clients:
        with client.lock:
            own = client.report
            for name in ("sent", "results", "cancelled", "unanswered", "broken_off", "wrong", "in_flight"):
                setattr(whole, name, getattr(whole, name) + getattr(own, name))
            whole.errors.update(own.errors)
            whole.losses.update(own.losses)
            whole.latencies += own.latencies
            own.latencies = []
    return whole


def _wait_for_the_end(ends: threading.Event) -> None:
    sys.stdin.read()
    ends.set()


def main() -> None:
    """Run clients until stdin ends, and print reports."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=[*KINDS])
    parser.add_argument("address")
    parser.add_argument("--exact", action="store_true", help="results have to be those of `random`")
    arguments = parser.parse_args()
    kind, ends = KINDS[arguments.kind], threading.Event()
    clients = [
        SteadyClient(kind, arguments.address, arguments.exact, ends, 1 + n) for n in range(kind.clients)
    ]
    threads = [threading.Thread(target=client.run) for client in clients]
    reader = threading.Thread(target=_wait_for_the_end, args=(ends,), daemon=True)
    for thread in [*threads, reader]:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        ended = ends.wait(1.0)
        if ended:
            threads[0].join(1.0)
        print(as_json(total(clients)), flush=True)
    for thread in threads:
        thread.join()
    print(as_json(total(clients)), flush=True)


if __name__ == "__main__":
    main()
