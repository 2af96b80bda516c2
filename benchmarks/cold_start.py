"""Time from starting the engine to `uciok` and to `readyok`, with the shipped network or another.

    python benchmarks/cold_start.py [--runs N] [--weights FILE] [--backend gpu] [--reach SECONDS]

The median of several runs, each a new process; the files are in the system's cache. `readyok` answers an
`isready` sent at once, and comes when the evaluator process holds the network. One more run starts without
the evaluator's own caches, as on the first day.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence

from figures import RUN_ENGINE, Figure, print_figures


def start(environment: Mapping[str, str], flags: Sequence[str] = ()) -> tuple[float, float]:
    """Seconds to uciok and to readyok. flags: options of the engine."""
    began = time.perf_counter()
    engine = subprocess.Popen(
        [*RUN_ENGINE, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environment)
    )
    assert engine.stdin is not None and engine.stdout is not None
    with engine:
        engine.stdin.write("uci\nisready\n")
        engine.stdin.flush()
        times = {}
        for line in engine.stdout:
            times[line.strip()] = time.perf_counter() - began
            if line.strip() == "readyok":
                break
        engine.stdin.write("quit\n")
        engine.stdin.flush()
        engine.wait(timeout=30)
    return times["uciok"], times["readyok"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--weights", default="", metavar="FILE", help="the network (default: shipped)")
    parser.add_argument("--backend", default="", help="the evaluator's backend (default: the engine's)")
    parser.add_argument("--reach", type=float, default=2.0, metavar="SECONDS", help="to readyok (default 2)")
    arguments = parser.parse_args()
    options = {"--weights": arguments.weights, "--backend": arguments.backend}
    flags = [f"{name}={value}" for name, value in options.items() if value]
    start(os.environ, flags)  # whatever the caches lack is there afterwards
    runs = [start(os.environ, flags) for _ in range(arguments.runs)]
    with tempfile.TemporaryDirectory() as empty:
        first_uciok, first_readyok = start({**os.environ, "XDG_CACHE_HOME": empty}, flags)
    uciok, readyok = (statistics.median(column) for column in zip(*runs, strict=True))
    print_figures(
        [
            Figure("seconds to uciok", uciok, 0.3, at_least=False),
            Figure(
                "seconds to readyok",
                readyok,
                arguments.reach,
                at_least=False,
                peer="lc0 11 s on big networks",
            ),
            Figure("seconds to uciok, empty caches", first_uciok, 0.3, at_least=False),
            Figure("seconds to readyok, empty caches", first_readyok, arguments.reach, at_least=False),
        ]
    )


if __name__ == "__main__":
    main()
