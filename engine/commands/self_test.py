# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront self-test`: checks an installation, from the native core to each device, in less than a minute.

core        counts positions of a known perft
UCI         starts the engine as a GUI does
networks    compare the included networks with stored answers, on the CPU and on each usable GPU
search      plays a move with the device that a GUI would get
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine._core import Game
    from engine.options import Options

HELP = "check this installation: core, evaluator, included networks and devices"

ANSWERS = Path(__file__).with_name("self_test.json")
"""Outputs of the included networks, made by scripts/generated.py with the float64 reference."""

PERFT = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq -", 3, 97862
"""Position, depth and number of leaves (https://www.chessprogramming.org/Perft_Results, position 2)."""

POSITIONS: tuple[dict[str, Any], ...] = (
    {"fen": "startpos"},
    {"fen": "startpos", "moves": ["e2e4", "c7c5", "g1f3", "d7d6", "d2d4", "c5d4", "f3d4", "g8f6"]},
    {"fen": "startpos", "moves": ["e2e4", "a7a6", "e4e5", "d7d5"]},
    {"fen": "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R b KQkq - 0 1"},
    {"fen": "8/P7/8/8/8/5k2/8/6K1 w - - 0 60"},
    {"fen": "8/8/4kpp1/3p1b2/p6P/2B5/6P1/6K1 b - - 2 47"},
    {"fen": "nrbknbqr/pppppppp/8/8/8/8/PPPPPPPP/NRBKNBQR w KQkq - 0 1", "chess960": True},
)
"""With history, a capture en passant, castling, a promotion, few pieces, and Chess960."""

CPU_LIMIT, INT8_LIMIT, GPU_LIMIT = 0.003, 0.05, 0.03
"""Largest difference of q or of a move's probability. CPUs with VNNI compute in int8 (0.014 measured on
2026-11-27), GPUs in fp16."""

COMMAND_SECONDS = 60.0


class CheckError(Exception):
    """A check failed; the message says what was expected."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    from engine import __version__

    results = []
    if not arguments.json:
        print(f"Wavefront {__version__}, Python {sys.version.split()[0]}, {Path(__file__).parents[2]}")
    for name, check in checks():
        began = perf_counter()
        try:
            ok, detail = True, check()
        except CheckError as error:
            ok, detail = False, str(error)
        except Exception as error:  # Whatever fails here is a result, not an end.
            ok, detail = False, f"{type(error).__name__}: {error}"
        seconds = perf_counter() - began
        results.append({"check": name, "ok": ok, "detail": detail, "seconds": round(seconds, 3)})
        if not arguments.json:
            print(f"{'ok' if ok else 'FAILED':6}  {name:24}  {detail} ({seconds:.1f} s)", flush=True)
    failed = [str(each["check"]) for each in results if not each["ok"]]
    if arguments.json:
        print(json.dumps({"version": __version__, "ok": not failed, "checks": results}))
    elif failed:
        print(f"\nThis installation does not work: {', '.join(failed)}.")
    else:
        print("\nThis installation works.")
    return 1 if failed else 0


def checks() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the name of each check and a function that returns what it found, or raises."""
    yield "core", core
    yield "UCI", uci
    devices: dict[str, Any] = {}

    def list_devices() -> str:
        devices.update(json.loads(output_of("evaluator", "devices", "--json")))
        problems = [f"{vendor}: {problem}" for vendor, problem in devices["problems"].items()]
        found = [f"{each['device']} {each['name']}" for each in devices["devices"]]
        return "; ".join(found + problems) or "no GPU: the CPU computes the network"

    yield "devices", list_devices
    names = list(json.loads(ANSWERS.read_text("utf-8")))
    for network in names:
        yield f"{network} on the CPU", lambda name=network: on_cpu(name)  # type: ignore[misc]
    for device in devices.get("devices", ()):
        if device["device"] in devices["excluded"]:
            continue
        backend = f"gpu:device={device['device']}"
        for network in names:
            yield (
                f"{network} on {device['device']}",
                lambda name=network, backend=backend: compare(name, backend, GPU_LIMIT),  # type: ignore[misc]
            )
    yield "search", search


def core() -> str:
    """Count the leaves of a perft with the native core."""
    from engine._core import Game, perft

    fen, depth, expected = PERFT
    found = perft(Game.read(fen)[0], depth)
    if found != expected:
        raise CheckError(f"perft {depth} of {fen} is {expected}, but the core counts {found}")
    return f"perft {depth} has {found} leaves"


def uci() -> str:
    """Play a move as GUIs do, without arguments and with an open pipe, and measure `uciok` and `readyok`."""
    from protocol.common.processes import child_command

    began = perf_counter()
    process = subprocess.Popen(
        child_command("engine"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    late = threading.Timer(COMMAND_SECONDS, process.kill)
    late.start()
    try:
        assert process.stdin is not None and process.stdout is not None
        options, took = 0, []
        for command, answer in (("uci", "uciok"), ("isready", "readyok"), ("go nodes 1", "bestmove")):
            process.stdin.write(f"{command}\n")
            process.stdin.flush()
            for line in process.stdout:
                options += line.startswith("option ")
                if line.split()[:1] == [answer]:
                    break
            else:
                raise CheckError(f"no {answer} came: {process.communicate()[1].strip() or 'the engine hung'}")
            took.append(perf_counter() - began)
        process.communicate("quit\n", COMMAND_SECONDS)
    finally:
        late.cancel()
        process.kill()
    return f"uciok after {took[0] * 1000:.0f} ms, readyok after {took[1] * 1000:.0f} ms, {options} options"


def output_of(program: str, *arguments: str) -> str:
    """Standard output of one of our programs. Raises CheckError if its exit status is not 0."""
    from protocol.common.processes import child_command

    done = subprocess.run(
        child_command(program, *arguments), capture_output=True, encoding="utf-8", timeout=COMMAND_SECONDS
    )
    if done.returncode:
        raise CheckError(done.stderr.strip() or f"{program} {' '.join(arguments)}: status {done.returncode}")
    return done.stdout


def on_cpu(network: str) -> str:
    """Compare a network's outputs as engines compute them here, in int8 if the CPU has VNNI, and in fp32."""
    fp32 = compare(network, "onnx:int8=false", CPU_LIMIT)
    used = compare(network, "onnx", INT8_LIMIT, precision="int8")
    return f"int8 {used}; fp32 {fp32}" if used else fp32


def compare(network: str, backend: str, limit: float, *, precision: str = "") -> str:
    """Compare a network's outputs with the stored ones. precision: return "" if another one is used."""
    from engine.options import Options

    expected = json.loads(ANSWERS.read_text("utf-8"))[network]
    found, device = evaluated(Options().changed(weights=network, backend=backend))
    if precision not in device:
        return ""
    worst = max(
        max(
            [abs(is_["q"] - should["q"])]
            + [abs(is_["policy"].get(move, 0.0) - share) for move, share in should["policy"].items()]
        )
        for is_, should in zip(found, expected, strict=True)
    )
    if not worst <= limit:
        raise CheckError(f"outputs differ by {worst:.3g} on {device}, and {limit:g} is allowed")
    return f"outputs differ by {worst:.1g} at most"


def evaluated(options: Options) -> tuple[list[dict[str, Any]], str]:
    """Return the network's outputs for POSITIONS, and the device that computed them."""
    from engine.apps.analysis.evaluation import outputs
    from engine.search.pool import SearchPool

    games = [game_of(each) for each in POSITIONS]
    with SearchPool() as pool:
        found = outputs(games, *pool.evaluate(games, options).result(COMMAND_SECONDS))
        clients = [link.client for link in pool.links(options) if link.client is not None]
        return found, ", ".join(client.network.device for client in clients)


def game_of(position: dict[str, Any]) -> Game:
    from engine._core import Game

    fen = position["fen"]
    game = Game(None if fen == "startpos" else fen, position.get("chess960", False))
    for move in position.get("moves", ()):
        game.push_uci(move)
    return game


def search() -> str:
    """Play a move from the initial position with the default options."""
    from engine.api import Engine

    heard: list[str] = []
    with Engine(log=heard.append) as engine:
        result = engine.play(nodes=200)
        if result.best_move not in engine.legal_moves:
            raise CheckError(f"the engine chose {result.best_move}, which is not legal")
    return f"{result.best_move} after {result.info.nodes} nodes"
