# SPDX-License-Identifier: GPL-3.0-or-later
"""Efficiency of `wavefront analysis`: evaluations per second, relative to the evaluator's rate.

    python -m benchmarks.engine.analysis [--weights FILE] [--backend NAME] [--nodes N] [--searches N]
        [--workers N,…] [--seconds S] [--rounds N]

Whole games are sent as JSON lines. The evaluator's rate is that of the bare backend, without a service,
in batches of the fastest size. Analyses and backend alternate every few seconds, because other work on the
machine changes both; the figure is the median of the rounds' ratios. The evaluator counts the evaluations.
Each number of worker processes is a separate analysis; auto lets the program choose. CPU time is shown in
cores, for the process that talks to the client, all its workers, and the evaluator. It is also shown in
microseconds: the client process per answered position, a search per evaluation.

`--backend sleeping:base=0.35,each=0.0031` simulates an H200 with the shipped network by sleeping. Then the
CPUs of a small machine are the limit, as the microseconds show.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import psutil

from benchmarks.common import sleeping_devices
from benchmarks.common.figures import Figure, print_figures
from benchmarks.common.installation import REPOSITORY
from benchmarks.common.plain_backend import best_rate, best_sizes
from benchmarks.common.tuned import tuned
from engine import Engine
from engine.games.openings import OpeningSettings, read_openings
from evaluator.backends import open_backend
from evaluator.devices.loading import parse_backend
from evaluator.network import SHIPPED_NETWORK, load_network
from protocol import EvaluatorClient

QUEUED = 2000
"""Queued positions during the measurement: more than are ever searched concurrently."""

SETTLE_SECONDS = 2.0
"""Seconds until searches of all ages are running."""


class Analysis:
    """`wavefront analysis` on a running evaluator, kept busy with games after `feed`."""

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

    def processor_seconds(self) -> tuple[float, float]:
        """Return CPU seconds of the process that talks to us, and of its workers."""
        front = psutil.Process(self._process.pid)
        workers = [child for child in front.children() if "engine.workers.child" in child.cmdline()]
        return _processor_seconds([front]), _processor_seconds(workers)

    def feed(self) -> None:
        """Start sending games, and send more as they are answered."""
        self._feeding = True
        self._idle.clear()
        self._top_up()

    def rest(self) -> None:
        """Cancel queued positions and wait until no search is running."""
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


@dataclass(frozen=True)
class Rates:
    """Rates of an analysis per second. evaluated: evaluations. answered: finished positions. front, workers,
    evaluator: cores used by the process that talks to the client, by its workers, by the evaluator."""

    evaluated: float
    answered: float
    front: float
    workers: float
    evaluator: float

    def told(self) -> str:
        """Return the rates as part of a line."""
        searching = self.workers or self.front
        return (
            f"analysis {self.evaluated:8,.0f}/s  {self.answered:6,.1f} positions/s  cores: front "
            f"{self.front:.2f}, workers {self.workers:.2f}, evaluator {self.evaluator:.2f}  µs: front "
            f"{1e6 * self.front / max(1, self.answered):6,.0f} a position, searches "
            f"{1e6 * searching / max(1, self.evaluated):5.1f} an evaluation"
        )


def analysis_rate(analysis: Analysis, client: EvaluatorClient, seconds: float) -> Rates:
    """Measure an analysis after its warm-up."""
    evaluator = [
        child for child in psutil.Process().children() if {"evaluator", "serve"} <= set(child.cmdline())
    ]
    analysis.feed()
    threading.Event().wait(SETTLE_SECONDS)

    def counts() -> tuple[float, ...]:
        own = _processor_seconds(evaluator)
        return _evaluated(client), analysis.answers, *analysis.processor_seconds(), own

    began, before = perf_counter(), counts()
    threading.Event().wait(seconds)
    after, passed = counts(), perf_counter() - began
    analysis.rest()
    return Rates(*((late - early) / passed for late, early in zip(after, before, strict=True)))


def _processor_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _evaluated(client: EvaluatorClient) -> int:
    return int(client.status().metrics["positions"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--weights", default=str(SHIPPED_NETWORK), help="network file (default: wavefront-cpu)"
    )
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--nodes", type=int, default=800, help="per position (default 800)")
    parser.add_argument("--searches", type=int, default=0, help="at a time (default 0, which chooses)")
    parser.add_argument("--workers", type=_numbers, default=[0], help="processes, auto or N,… (default auto)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each turn (default 6)")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    kind, options = parse_backend(arguments.backend)
    ratios: dict[int, list[float]] = {}
    with (
        _plugins(),
        Engine(weights=arguments.weights, backend=tuned(arguments.backend)) as engine,
        EvaluatorClient(engine.evaluator_address) as client,
        open_backend(kind, load_network(arguments.weights), **options) as backend,
        ExitStack() as stack,
    ):
        flags = ("--nodes", str(arguments.nodes), "--searches", str(arguments.searches))
        analyses = {
            workers: stack.enter_context(
                Analysis(engine.evaluator_address, *flags, "--workers", str(workers))
            )
            for workers in arguments.workers
        }
        sizes = best_sizes(backend, 0.8)
        print(f"{backend.name} on {backend.device}, fastest in batches of {', '.join(map(str, sizes))}")
        own = best_rate(backend, sizes, arguments.seconds / 2)
        for workers, analysis in list(analyses.items()) * arguments.rounds:
            rates = analysis_rate(analysis, client, arguments.seconds)
            before, own = own, best_rate(backend, sizes, arguments.seconds / 2)
            found = ratios.setdefault(workers, [])
            found.append(200 * rates.evaluated / (before + own))
            print(
                f"evaluator {before:8,.0f}/s and {own:8,.0f}/s  {_case(workers):12}  {rates.told()}  "
                f"{found[-1]:5.1f} %",
                flush=True,
            )
    print_figures(
        [
            Figure(f"% of the evaluator's best, {_case(workers)}", statistics.median(found), 95)
            for workers, found in ratios.items()
        ]
    )


@contextlib.contextmanager
def _plugins() -> Iterator[None]:
    """Install the sleeping device for this process and its children."""
    with tempfile.TemporaryDirectory() as name:
        sleeping_devices.install(Path(name))
        sys.path.insert(0, name)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [name, os.environ.get("PYTHONPATH", "")]))
        yield


def _numbers(text: str) -> list[int]:
    return [0 if word == "auto" else int(word) for word in text.split(",")]


def _case(workers: int) -> str:
    return f"{workers or 'auto'} workers"


if __name__ == "__main__":
    main()
