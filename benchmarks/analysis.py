"""How much of the evaluator's speed `wavefront analysis` gets: evaluations per second of whole games, sent as
JSON lines, over the evaluator's own.

    python benchmarks/analysis.py [--weights FILE] [--backend NAME] [--nodes N] [--searches N] [--seconds S]
                                  [--rounds N]

The evaluator's own rate is that of the bare backend, without service and sockets, in batches of the size with
most positions per second. Analysis and backend take turns of a few seconds, because other work on the machine
changes both; the figure is the median of the rounds' ratios. Evaluations are those that the evaluator counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
from itertools import count
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import checkout  # noqa: F401 -- this checkout is measured, whatever is installed
from figures import Figure, print_figures
from installation import REPOSITORY
from plain_backend import best_rate, best_sizes

from engine import Engine
from engine.games.openings import OpeningSettings, read_openings
from evaluator.backends import open_backend
from evaluator.network import SHIPPED_NETWORK, load_network
from protocol import EvaluatorClient

QUEUED = 2000
"""Positions that wait while it is measured: more than are ever searched at a time."""

SETTLE_SECONDS = 2.0
"""Until searches are of all ages."""


class Analysis:
    """`wavefront analysis` on a running evaluator, kept busy with games while it is `fed`."""

    def __init__(self, address: str, *flags: str) -> None:
        command = [
            sys.executable,
            str(REPOSITORY / "run_engine.py"),
            "analysis",
            "--evaluator",
            address,
            *flags,
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._games = [opening.moves for opening in read_openings(OpeningSettings(), 200, seed=1)]
        self._numbers = count()
        self._queued = 0
        self._feeding = False
        self._idle = threading.Event()
        self.answers = 0
        threading.Thread(target=self._read, daemon=True).start()

    def feed(self) -> None:
        """Begin to send games, and go on as they are answered."""
        self._feeding = True
        self._idle.clear()
        self._top_up()

    def rest(self) -> None:
        """Drop what is queued and wait until nothing is searched."""
        self._feeding = False
        self._say({"id": "rest", "action": "terminate_all"})
        self._idle.wait()

    def _top_up(self) -> None:
        while self._queued < QUEUED:
            number = next(self._numbers)
            moves = self._games[number % len(self._games)]
            turns = list(range(len(moves) + 1))
            self._queued += len(turns)
            self._say({"id": str(number), "moves": moves, "analyze_turns": turns, "multipv": 3})

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if b'"turn"' not in line:
                continue
            if b'"error"' in line:
                raise SystemExit(line.decode())
            self.answers += 1
            self._queued -= 1
            if self._feeding:
                self._top_up()
            elif not self._queued:
                self._idle.set()

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()


def analysis_rate(analysis: Analysis, client: EvaluatorClient, seconds: float) -> tuple[float, float]:
    """Evaluations and finished positions per second of an analysis that has left its beginning behind."""
    analysis.feed()
    threading.Event().wait(SETTLE_SECONDS)
    began, before, answers = perf_counter(), _evaluated(client), analysis.answers
    threading.Event().wait(seconds)
    evaluated, passed = _evaluated(client) - before, perf_counter() - began
    answered = analysis.answers - answers
    analysis.rest()
    return evaluated / passed, answered / passed


def _evaluated(client: EvaluatorClient) -> int:
    return int(client.status().metrics["positions"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--weights", default=str(SHIPPED_NETWORK), help="network file (default: the shipped one)"
    )
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--nodes", type=int, default=800, help="per position (default 800)")
    parser.add_argument("--searches", type=int, default=0, help="at a time (default 0, which chooses)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each turn (default 6)")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    ratios = []
    with (
        Engine(weights=arguments.weights, backend=arguments.backend) as engine,
        EvaluatorClient(engine.evaluator_address) as client,
        open_backend(arguments.backend, load_network(arguments.weights)) as backend,
        Analysis(
            engine.evaluator_address,
            *("--nodes", str(arguments.nodes), "--searches", str(arguments.searches)),
        ) as analysis,
    ):
        sizes = best_sizes(backend, 0.8)
        print(f"{backend.name} on {backend.device}, fastest in batches of {', '.join(map(str, sizes))}")
        own = best_rate(backend, sizes, arguments.seconds / 2)
        for _ in range(arguments.rounds):
            evaluated, answered = analysis_rate(analysis, client, arguments.seconds)
            before, own = own, best_rate(backend, sizes, arguments.seconds / 2)
            ratios.append(200 * evaluated / (before + own))
            print(
                f"evaluator {before:8,.0f}/s and {own:8,.0f}/s   analysis {evaluated:8,.0f}/s   "
                f"{answered:6,.1f} positions/s   {ratios[-1]:5.1f} %",
                flush=True,
            )
    print_figures([Figure("% of the evaluator's best", statistics.median(ratios), 95)])


if __name__ == "__main__":
    main()
