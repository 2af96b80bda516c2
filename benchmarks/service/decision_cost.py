# SPDX-License-Identifier: GPL-3.0-or-later
"""What it costs to decide the next batch of a long queue, and to take it off the queue: processor time.

Queues of requests of one position, from as many clients as asked for, on an H200's curve. A decision is what
the dispatcher does under its lock before a batch: whose turn it is, what is queued, how much of it to run.
"""

from __future__ import annotations

import argparse
import time

from evaluator.backends.probe import probe_batch
from evaluator.scheduling.batching import BatchPolicy, Launch
from evaluator.scheduling.requests import Request
from evaluator.scheduling.scheduler import Scheduler
from evaluator.scheduling.simulation import curve_model

TARGET_MS = 0.5
"""A decision with 65,536 queued requests."""


def cost_ms(queued: int, clients: int, repeats: int) -> tuple[float, float, float]:
    """Milliseconds of a decision, of taking its batch, and of queueing one request; the least of each, since
    others use the machine, too."""
    model = curve_model("h200-t82")
    policy = BatchPolicy(model)
    scheduler = Scheduler()
    one = probe_batch(1)
    serial = 0

    def fill() -> float:
        nonlocal serial
        begin = time.process_time()
        missing = queued - len(scheduler)
        for _ in range(missing):
            serial += 1
            scheduler.add(Request(serial % clients, serial, one, 0, 0.0))
        return (time.process_time() - begin) * 1000 / max(1, missing)

    fill()
    decisions, takes, fills = [], [], []
    for _ in range(repeats):
        begin = time.process_time()
        scheduler.urgency()
        decision = policy.decide(scheduler.pending(policy.largest_batch), 1.0)
        decided = time.process_time()
        assert isinstance(decision, Launch)
        segments = scheduler.take(decision.positions, 1.0)
        scheduler.ran(model.milliseconds(decision.positions), segments)
        takes.append((time.process_time() - decided) * 1000)
        decisions.append((decided - begin) * 1000)
        fills.append(fill())
    return min(decisions), min(takes), min(fills)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 64, 65536], help="clients of the queue")
    parser.add_argument("--repeats", type=int, default=50, help="decisions of each queue")
    arguments = parser.parse_args()
    print(f"{'queued':>8} {'clients':>8} {'decision ms':>12} {'take ms':>8} {'queue one ms':>13}")
    for queued in (64, 1024, 8192, 65536):
        for clients in arguments.clients:
            decision, take, fill = cost_ms(queued, clients, arguments.repeats)
            print(f"{queued:8} {clients:8} {decision:12.3f} {take:8.3f} {fill:13.4f}")
    print(f"to reach: {TARGET_MS} ms for a decision with 65536 requests queued")


if __name__ == "__main__":
    main()
