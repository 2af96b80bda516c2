# SPDX-License-Identifier: GPL-3.0-or-later
"""Bots that share one service, each with a clock of its own.

    python -m benchmarks.service.bots [--backend onnx] [--seconds 30] [--bots 20]
                                      [--fast 15+0] [--slow 600+5]

Bot 0 has the fast clock, all others the slow one. Each bot is an engine process that plays both sides of its
games, so all of them think all the time. The referee measures the clocks as a server does. Printed for the
fast bot and the slow ones: moves, nodes per move, nodes per second of thinking, time beyond the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import chess
import chess.engine
import numpy as np

from benchmarks.common.installation import CHECKOUT
from benchmarks.service.service_scale import service

OPENING_PLIES = 6
"""Random plies before each game, so that bots do not share positions."""

LOWEST_CLOCK_S = 1.0
"""A game ends here and the next one starts, so that measured moves have time to search."""

BATCHES = re.compile(r"evaluations (\d+) mean batch ([\d.]+)")
"""What `debug on` adds to a search."""


@dataclass(frozen=True, slots=True)
class TimeControl:
    """Seconds for a game and seconds added for each move."""

    base: float
    increment: float

    @classmethod
    def parse(cls, text: str) -> TimeControl:
        """Return the clock of a text like `60+1`."""
        base, _, increment = text.partition("+")
        return cls(float(base), float(increment or 0))


@dataclass(slots=True)
class Record:
    """What one bot did. seconds: thought per move, by the referee's clock. batches: requests per move.
    forfeits: moves that came after the flag fell. games: number finished or broken off."""

    seconds: list[float] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)
    forfeits: int = 0
    games: int = 0

    @property
    def moves(self) -> int:
        return len(self.seconds)


def opening(source: random.Random) -> chess.Board:
    """Return a position after some random moves that is not the end of a game."""
    while True:
        board = chess.Board()
        for _ in range(OPENING_PLIES):
            board.push(source.choice(list(board.legal_moves)))
        if not board.is_game_over():
            return board


async def play(
    engine: chess.engine.UciProtocol, control: TimeControl, record: Record, source: random.Random
) -> None:
    """Play games against oneself until cancelled. python-chess raises for illegal moves."""
    while True:
        board, clocks = opening(source), dict.fromkeys(chess.COLORS, control.base)
        game = object()
        await engine.ping()
        while not board.is_game_over(claim_draw=True):
            if min(clocks.values()) < LOWEST_CLOCK_S:
                break
            limit = chess.engine.Limit(
                white_clock=clocks[chess.WHITE],
                black_clock=clocks[chess.BLACK],
                white_inc=control.increment,
                black_inc=control.increment,
            )
            began = time.perf_counter()
            result = await engine.play(board, limit, game=game, info=chess.engine.INFO_ALL)
            spent = time.perf_counter() - began
            clocks[board.turn] -= spent
            record.forfeits += clocks[board.turn] < 0
            clocks[board.turn] += control.increment
            record.seconds.append(spent)
            record.nodes.append(result.info.get("nodes", 0))
            if sent := BATCHES.search(str(result.info.get("string", ""))):
                record.batches.append(int(sent[1]) / max(1.0, float(sent[2])))
            assert result.move is not None
            board.push(result.move)
        record.games += 1


async def tournament(
    address: str,
    controls: Sequence[TimeControl],
    seconds: float,
    options: Mapping[str, str | int | bool] | None = None,
) -> list[Record]:
    """Let one engine process per clock play concurrently with a service at `address`.

    seconds: of play; moves that have begun then are broken off. options: further ones of all engines.
    """
    engines: list[chess.engine.UciProtocol] = []
    # Not by an option: if it comes late, the engine has started an evaluator of its own.
    environment = CHECKOUT.environment(WAVEFRONT_EVALUATOR=address)
    # An engine that cannot connect within three seconds starts its own evaluator.
    processors = asyncio.Semaphore(os.cpu_count() or 1)

    async def start() -> None:
        async with processors:
            _, engine = await chess.engine.popen_uci(
                list(CHECKOUT.engine), cwd=CHECKOUT.folder, env=environment
            )
            engines.append(engine)
            await engine.configure(options or {})
            engine.send_line("debug on")
            await engine.ping()

    try:
        await asyncio.gather(*(start() for _ in controls))
        records = [Record() for _ in controls]
        games = [
            asyncio.create_task(play(engine, control, record, random.Random(number)))
            for number, (engine, control, record) in enumerate(zip(engines, controls, records, strict=True))
        ]
        ended, playing = await asyncio.wait(games, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for game in playing:
            game.cancel()
        await asyncio.wait(games)
        for game in ended:
            game.result()
        return records
    finally:
        await asyncio.gather(*(engine.quit() for engine in engines))


def summary(name: str, records: Sequence[Record]) -> str:
    """Return one line of text about some bots."""
    seconds = [spent for record in records for spent in record.seconds]
    nodes = [count for record in records for count in record.nodes]
    batches = [count for record in records for count in record.batches]
    per_request = 1000 * sum(seconds) / max(1.0, sum(batches))
    return (
        f"{name:5} {len(seconds):5} moves {np.mean(seconds):6.2f} s/move {np.mean(nodes):7.0f} nodes/move "
        f"{sum(nodes) / sum(seconds):6.0f} nodes/s {per_request:6.1f} ms/request "
        f"{sum(record.forfeits for record in records)} forfeits"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--backend", default="onnx", help="of the service (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of play (default: %(default)s)")
    parser.add_argument("--bots", type=int, default=20, help="number of bots (default: %(default)s)")
    parser.add_argument("--fast", type=TimeControl.parse, default="15+0", help="clock (default: %(default)s)")
    parser.add_argument(
        "--slow", type=TimeControl.parse, default="600+5", help="clock (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    controls = [chosen.fast] + [chosen.slow] * (chosen.bots - 1)
    with tempfile.TemporaryDirectory() as folder, service([chosen.backend], Path(folder)) as address:
        records = asyncio.run(tournament(address, controls, chosen.seconds))
    print(summary("fast", records[:1]))
    if records[1:]:
        print(summary("slow", records[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
