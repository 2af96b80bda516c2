# SPDX-License-Identifier: GPL-3.0-or-later
"""Time from starting the engine to `uciok` and to `readyok`, with the shipped network or another.

    python -m benchmarks.engine.cold_start [--runs N] [--weights FILE] [--backend gpu] [--reach SECONDS]
        [--first] [--json]

Reports the median of several runs, each a new process; the files are in the system's cache. `readyok` answers
an `isready` sent at once, and comes when the evaluator process has loaded the network. One more run starts
without the evaluator's caches, like a first start; with `--backend gpu:tuning=before` it waits for
measurements.
With --first all runs are such starts, and no other start is measured.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from benchmarks.common.figures import Figure, print_figures
from benchmarks.common.installation import CHECKOUT, Installation
from benchmarks.common.processes import CommandError, failure, started
from benchmarks.common.tuned import tuned

TIME_LIMIT = 300.0
"""Timeout of a start in seconds; a large network without caches takes 45."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the engine. uciok, readyok: seconds since the process's start. quit: seconds from `quit`
    to its end. engine_bytes, evaluator_bytes: resident memory of engine and descendants at readyok."""

    uciok: float
    readyok: float
    quit: float
    engine_bytes: int
    evaluator_bytes: int


def start(
    flags: Sequence[str] = (), *, installation: Installation = CHECKOUT, cache_folder: str = ""
) -> Start:
    """Start an engine, wait for `readyok` and make it quit.

    flags: options of the engine. cache_folder: replaces the user's cache. Raises CommandError if the engine
    ends early or takes more than five minutes.
    """
    command = [*installation.engine, *flags]
    environment = installation.environment(**({"XDG_CACHE_HOME": cache_folder} if cache_folder else {}))
    times: dict[str, float] = {}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        began = time.perf_counter()
        with started(
            command,
            folder=installation.folder,
            environment=environment,
            stderr=complaints,
            time_limit=TIME_LIMIT,
        ) as engine:
            assert engine.stdin is not None and engine.stdout is not None
            try:
                engine.stdin.write("uci\nisready\n")
                engine.stdin.flush()
                for line in engine.stdout:
                    times[line.strip()] = time.perf_counter() - began
                    if line.strip() == "readyok":
                        memory = _resident_bytes(engine.pid)
                        asked = time.perf_counter()
                        engine.stdin.write("quit\n")
                        engine.stdin.flush()
                        engine.wait(timeout=30)
                        quit_s = time.perf_counter() - asked
                        return Start(times["uciok"], times["readyok"], quit_s, *memory)
            except BrokenPipeError:
                pass  # it ended at once: reported below
            except subprocess.TimeoutExpired:
                raise CommandError(f"{' '.join(command)}\ndid not end within 30 s of quit") from None
            code = engine.wait()
        complaints.seek(0)
        raise CommandError(failure(command, code, complaints.read()) + "\nbefore it said readyok")


def _resident_bytes(pid: int) -> tuple[int, int]:
    """Return the resident memory of a process, and of all its descendants."""
    process = psutil.Process(pid)
    descendants = sum(child.memory_info().rss for child in process.children(recursive=True))
    return process.memory_info().rss, descendants


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--weights", default="", metavar="FILE", help="the network (default: shipped)")
    parser.add_argument("--backend", default="", help="the evaluator's backend (default: the engine's)")
    parser.add_argument("--reach", type=float, default=2.0, metavar="SECONDS", help="to readyok (default 2)")
    parser.add_argument("--first", action="store_true", help="only starts with empty caches")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    options = {"--weights": arguments.weights, "--backend": arguments.backend}
    flags = [f"{name}={value}" for name, value in options.items() if value]
    try:
        figures = _figures("", _warm(flags, arguments), arguments.reach) if not arguments.first else []
        firsts = [_first(flags) for _ in range(arguments.runs if arguments.first else 1)]
    except CommandError as error:
        raise SystemExit(str(error)) from None
    print_figures(figures + _figures(", empty caches", firsts, arguments.reach), as_json=arguments.json)


def _warm(flags: Sequence[str], arguments: argparse.Namespace) -> list[Start]:
    # This start fills the caches.
    start([*flags, f"--backend={tuned(arguments.backend or 'auto')}"])
    return [_print_start(start(flags)) for _ in range(arguments.runs)]


def _first(flags: Sequence[str]) -> Start:
    with tempfile.TemporaryDirectory() as empty:
        return _print_start(start(flags, cache_folder=empty))


def _print_start(one: Start) -> Start:
    text = (
        f"uciok after {one.uciok:.2f} s, readyok after {one.readyok:.2f} s, gone {one.quit:.2f} s after quit"
    )
    print(text, file=sys.stderr, flush=True)
    return one


def _figures(what: str, starts: Sequence[Start], reach: float) -> list[Figure]:
    """Return the medians of some starts."""
    uciok = statistics.median(each.uciok for each in starts)
    readyok = statistics.median(each.readyok for each in starts)
    peer = "lc0 11 s on big networks"
    return [
        Figure(f"seconds to uciok{what}", uciok, 0.3, at_least=False),
        Figure(f"seconds to readyok{what}", readyok, reach, at_least=False, peer=peer),
    ]


if __name__ == "__main__":
    main()
