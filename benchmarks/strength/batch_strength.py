# SPDX-License-Identifier: GPL-3.0-or-later
"""Strength cost of batches: matches of batching methods against sequential search, at fixed nodes.

    python -m benchmarks.strength.batch_strength [WAY …] [--nodes N,N,…] [--games N] [--seconds S]
        [--against WAY] [--pool] [--weights FILE] [--backend NAME] [--evaluator ADDRESS]
                                        [--concurrency N] [--json]

WAY is one of those of --list, or options of the engine written Key=Value,Key=Value. Each plays --games games
against --against, both through UCI on one evaluator with the same network. They play pairs of shipped
openings with reversed colours, adjudicated by score, with SmartPruningFactor 0. --pool plays in the match
runner's process, as `match` and `selfplay` do with this engine. Next to the Elo with its 95 % interval are
evaluator calls and evaluations of one search from each of six positions, and its milliseconds on an idle
machine.

The peer is sequential search: 0 Elo means no loss. With --against "program=lc0,…" (options as in `match
--player`) it is another engine.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from statistics import fmean
from typing import Any

from benchmarks.common.installation import REPOSITORY
from benchmarks.common.tuned import tuned
from engine import Engine
from engine.commands.bench import POSITIONS
from engine.options import OPTIONS, Options
from evaluator.network import SHIPPED_NETWORK

WAYS = {
    "default": "",
    "sequential": "MinibatchSize=1,BatchesInFlight=1,LookAhead=0",
    "quarter16": "MinibatchSize=16,BatchesInFlight=2,LookAhead=0",
    "quarter8": "MinibatchSize=8,BatchesInFlight=2,LookAhead=0",
    "quarter1056": "MinibatchSize=1024,BatchesInFlight=2,LookAhead=0",
    "share16": "VisitsPerPosition=16,LookAhead=64",
    "share32": "VisitsPerPosition=32,LookAhead=64",
    "share64": "VisitsPerPosition=64,LookAhead=64",
    "share32ahead128": "VisitsPerPosition=32,LookAhead=128",
}
"""Batching methods, as options of the engine."""

SEARCHES = 6
"""Positions of the benchmark suite that are searched alone to measure calls and time."""

ADJUDICATION = ("--resign", "score=700,moves=3", "--draw", "from_move=35,moves=5,score=15")


@dataclass(frozen=True, slots=True)
class Strength:
    """One way at one number of nodes. elo, low, high: against the other side, with the 95 % interval; None if
    all games had the same result. calls, evaluations, milliseconds: mean per search."""

    way: str
    nodes: int
    games: int
    elo: float | None
    low: float | None
    high: float | None
    calls: float
    evaluations: float
    milliseconds: float


def players(way: str, arguments: argparse.Namespace, address: str, nodes: int) -> list[str]:
    """Return the `--player` values of a way and of its opponent."""

    def ours(name: str, options: str) -> str:
        common = "SmartPruningFactor=0"
        if arguments.pool:
            network = f"weights={arguments.weights},evaluator={address}"
            return ",".join((f"name={name}", network, f"nodes={nodes}", *python_names(common, options)))
        command = f"program={sys.executable},args={REPOSITORY / 'run_engine.py'}"
        network = f"WeightsFile={arguments.weights},Evaluator={address}"
        return ",".join(filter(None, (f"name={name}", command, network, f"nodes={nodes}", common, options)))

    other = arguments.against
    if other.startswith("program="):
        return [ours(way, options_of(way)), f"name=opponent,nodes={nodes},{other}"]
    return [ours(way, options_of(way)), ours(f"{other} (opponent)", options_of(other))]


def python_names(*options: str) -> list[str]:
    """Return options with UCI names as the match runner's in-process players need them."""
    names = {option.title: option.name for option in OPTIONS}
    pairs = (pair.split("=", 1) for text in options for pair in text.split(",") if pair)
    return [f"{names[name]}={value}" for name, value in pairs]


def games(way: str, nodes: int, arguments: argparse.Namespace, address: str) -> dict[str, Any]:
    """Play the games of one way; return its entry in the summary of `match --json`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(REPOSITORY / "run_engine.py"), "match", "--json"]
        for player in players(way, arguments, address, nodes):
            command += ["--player", player]
        command += ["--games", str(arguments.games), "--output", f"{folder}/match", *ADJUDICATION]
        if arguments.concurrency:
            command += ["--concurrency", str(arguments.concurrency)]
        output = interrupted_after(arguments.seconds or None, command)
    summary: dict[str, Any] = json.loads(output)["players"][0]
    return summary


def interrupted_after(seconds: float | None, command: Sequence[str]) -> str:
    """Return a command's output; interrupt it after a time, which ends a match with its finished games."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            return process.communicate()[0]


def cost(way: str, nodes: int, arguments: argparse.Namespace, address: str) -> tuple[float, float, float]:
    """Return mean evaluator calls, evaluations and milliseconds per search on an idle machine."""
    options = in_way(way, Options(weights=arguments.weights, evaluator=address, smart_pruning_factor=0.0))
    searched = {field.name: getattr(options, field.name) for field in fields(options)}
    reports = []
    with Engine(**searched) as engine:
        for fen in POSITIONS[:SEARCHES]:
            engine.new_game()
            engine.position(None if fen == "startpos" else fen)
            reports.append(engine.analyse(nodes=nodes).report)
    return (
        fmean(report.batches for report in reports),
        fmean(report.evaluations for report in reports),
        fmean(1000 * report.seconds for report in reports),
    )


def options_of(way: str) -> str:
    """Return the options of a named way, or those written out."""
    return WAYS.get(way, way)


def in_way(way: str, options: Options) -> Options:
    """Return options with those of a way."""
    for pair in filter(None, options_of(way).split(",")):
        options = options.with_uci(*pair.split("=", 1))
    return options


def measure(way: str, nodes: int, arguments: argparse.Namespace, address: str) -> Strength:
    """Search alone, then play."""
    calls, evaluations, milliseconds = cost(way, nodes, arguments, address)
    played = games(way, nodes, arguments, address)
    elo = played["elo"]
    return Strength(
        way, nodes, played["games"], elo["value"], elo["low"], elo["high"], calls, evaluations, milliseconds
    )


def table(strengths: Sequence[Strength]) -> str:
    """Return a table of 80 columns."""

    def whole(value: float | None) -> str:
        return "-" if value is None else f"{value:+.0f}"

    lines = [
        f"{'way':24} {'nodes':>6} {'games':>6} {'Elo':>5} {'95 %':>13} {'calls':>6} {'eval.':>6} {'ms':>6}"
    ]
    for s in strengths:
        interval = f"{whole(s.low)} to {whole(s.high)}"
        lines.append(
            f"{s.way[:24]:24} {s.nodes:6} {s.games:6} {whole(s.elo):>5} {interval:>13} "
            f"{s.calls:6.0f} {s.evaluations:6.0f} {s.milliseconds:6.0f}"
        )
    return "\n".join(lines)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ways", nargs="*", default=["default"], metavar="WAY", help="(default: default)")
    parser.add_argument("--list", action="store_true", help="list the ways that have names, and end")
    parser.add_argument("--nodes", default="400", metavar="N,N,…", help="of each move (400)")
    parser.add_argument("--games", type=int, default=200, help="of each line of the table (200)")
    parser.add_argument("--seconds", type=float, default=0, help="end each line's games then (no limit)")
    parser.add_argument("--concurrency", type=int, default=0, help="games at once (as `match` chooses)")
    parser.add_argument("--against", default="sequential", metavar="WAY", help="(default: sequential)")
    parser.add_argument("--pool", action="store_true", help="play in the match runner's own process")
    parser.add_argument("--weights", default=str(SHIPPED_NETWORK), help="(default: wavefront-cpu)")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--evaluator", default="", metavar="ADDRESS", help="one that is running already")
    parser.add_argument("--json", action="store_true", help="print a JSON list at the end, and no table")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    if arguments.list:
        for name, options in WAYS.items():
            print(f"{name:18} {options or 'the defaults'}")
        return
    with Engine(
        weights=arguments.weights, backend=tuned(arguments.backend), evaluator=arguments.evaluator
    ) as engine:
        engine.analyse(nodes=1)
        address = engine.evaluator_address
        strengths = []
        for nodes in (int(text) for text in arguments.nodes.split(",")):
            for way in arguments.ways:
                strengths.append(measure(way, nodes, arguments, address))
                print(table(strengths[-1:]), file=sys.stderr, flush=True)
    print(json.dumps([asdict(s) for s in strengths]) if arguments.json else table(strengths))


if __name__ == "__main__":
    main()
