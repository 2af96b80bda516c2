# SPDX-License-Identifier: GPL-3.0-or-later
"""Time that a search is without an evaluator when its evaluator drains or is killed.

    python -m benchmarks.service.failover [--rounds 10] [--json]

Uses real processes on this machine, with the backend `random`. A search runs while its evaluator is drained
or killed. The engine either knows another evaluator, or none and starts one. The time ends when the search
has another connection; reported are median and maximum of all rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.common.command_line import count
from engine.evaluation.connection.process import EvaluatorProcess, EvaluatorSettings, evaluator_command
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Limits
from engine.session import Session
from protocol import EvaluatorClient

HOPELESS_S = 60.0
"""Timeout for finding another evaluator."""


class Running:
    """An evaluator at an address."""

    def __init__(self, address: str) -> None:
        self.address = address
        settings = EvaluatorSettings.of(Options(backend="random"))
        self._process = EvaluatorProcess([*evaluator_command(settings), "--address", address])
        self._process.await_ready()

    def drain(self) -> None:
        """Make it reject new requests, finish, and exit."""
        with EvaluatorClient(self.address, handshake=False) as client:
            client.drain()

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.kill()

    def close(self) -> None:
        """Wait until it has ended."""
        self._process.close()


def gap_s(folder: Path, end: Callable[[Running], None], *, other: bool) -> float:
    """Return seconds from the end of a search's evaluator to the next. other: a second one is running."""
    running = [Running(f"ipc://{folder / name}") for name in ("ab" if other else "a")]
    addresses = ",".join(each.address for each in running)
    session = Session(Options(evaluator=addresses, backend="random"), fallback=True)
    control = SearchControl()
    try:
        session.ready(HOPELESS_S)
        link = session.start_evaluator()
        search = threading.Thread(
            target=session.search, args=(Limits(infinite=True),), kwargs={"control": control}, daemon=True
        )
        first = link.client
        assert first is not None
        search.start()
        began = time.monotonic()
        end(running[0])
        while link.client in (None, first):
            if time.monotonic() > began + HOPELESS_S:
                raise SystemExit("the search has found no other evaluator")
            time.sleep(0.0005)
        took = time.monotonic() - began
        control.stop()
        search.join()
    finally:
        session.close()
        for each in running:
            each.close()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=count, default=10, metavar="N", help="default 10")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    found: dict[str, list[float]] = {}
    for what, end in (("drained", Running.drain), ("killed", Running.kill)):
        for where, other in (("another", True), ("one of its own", False)):
            with tempfile.TemporaryDirectory() as folder:
                gaps = [gap_s(Path(folder), end, other=other) for _ in range(arguments.rounds)]
            found[f"{what}, then {where}"] = gaps
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"{'its evaluator is':30} {'median':>9} {'longest':>9}")
    for name, gaps in found.items():
        print(f"{name:30} {1000 * statistics.median(gaps):6.0f} ms {1000 * max(gaps):6.0f} ms")


if __name__ == "__main__":
    main()
