# SPDX-License-Identifier: GPL-3.0-or-later
"""Several evaluators for one pool of searches: positions/s with 1, 2 and 3, also if one is killed.

    python -m benchmarks.service.evaluator_pool [--seconds 5] [--evaluators 1 2 3] [--backend NAME:OPTIONS …]

By default the devices sleep. Each evaluator is a process; several --backend flags are assigned in order.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

import psutil

from benchmarks.common import sleeping_devices
from benchmarks.common.processes import CommandError
from benchmarks.service.service_scale import service
from engine._core import Game
from engine.options import Options
from engine.pool.pool import PoolPlayer, SearchPool
from engine.search.limits import Limits

SLOW = "sleeping:base=4,each=1"
NODES = 200
PLIES = 10


class Searches:
    """Many players that search positions after random moves, each one after the other, until `stop`."""

    def __init__(self, pool: SearchPool, options: Options, count: int) -> None:
        self.done = self.cut_short = 0
        self._stopped = threading.Event()
        self._random = Random(1)
        players = [pool.player(options) for _ in range(count)]
        self._threads = [threading.Thread(target=self._search, args=(player,)) for player in players]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and wait until all searches have ended."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _search(self, player: PoolPlayer) -> None:
        while not self._stopped.is_set():
            game = Game()
            for _ in range(PLIES):
                game.push_uci(self._random.choice(game.legal_moves()))
            player.new_game()
            report = player.search(game, Limits(nodes=NODES)).result()
            self.done += 1
            self.cut_short += bool(report.ended_early)


def measure(addresses: Sequence[str], seconds: float, kill: str = "") -> tuple[float, int, int, int]:
    """Measure as many searches as the evaluators recommend games.
    Return positions/s, the number of searches, of finished ones, and of those that ended early without an
    evaluator. kill: address of an evaluator to kill half-way."""
    options = Options(evaluator=",".join(addresses), hash=1, tree_memory=16, smart_pruning_factor=0.0)
    with SearchPool() as pool:
        while len(pool.connections(options)) < len(addresses):
            time.sleep(0.1)
        games = pool.recommended_games(options)
        searches = Searches(pool, options, games)
        time.sleep(seconds / 5)
        before, began = pool.statistics().evaluations, time.perf_counter()
        time.sleep(seconds / 2)
        if kill:
            _process_at(kill).kill()
        time.sleep(seconds / 2)
        rate = (pool.statistics().evaluations - before) / (time.perf_counter() - began)
        searches.stop()
        return rate, games, searches.done, searches.cut_short


def _process_at(address: str) -> psutil.Process:
    """Return the evaluator process that was started with this address."""
    for child in psutil.Process().children():
        if address in child.cmdline():
            return child
    raise CommandError(f"no evaluator was started at {address}")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="for each figure (default: 5)")
    parser.add_argument(
        "--evaluators", type=int, nargs="+", default=[1, 2, 3], help="how many (default: 1 2 3)"
    )
    parser.add_argument("--backend", action="append", help=f"the evaluators' devices (default: {SLOW})")
    arguments = parser.parse_args()
    backends = arguments.backend or [SLOW]
    most = max(arguments.evaluators)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        addresses = []
        for index in range(most):
            folder = Path(name, str(index))
            sleeping_devices.install(folder / "plugins")
            try:
                addresses.append(stack.enter_context(service([backends[index % len(backends)]], folder)))
            except CommandError as error:
                raise SystemExit(str(error)) from None
        print(
            "| evaluators | searches | positions/s | of the first | searches that ended, of these cut short |"
        )
        print("|---|---|---|---|---|")
        alone = 0.0
        for count in arguments.evaluators:
            rate, games, done, cut_short = measure(addresses[:count], arguments.seconds)
            alone = alone or rate
            print(
                f"| {count} | {games} | {rate:,.0f} | {rate / alone:.2f} | {done}, {cut_short} |", flush=True
            )
        rate, games, done, cut_short = measure(addresses, arguments.seconds, kill=addresses[-1])
        row = f"| {most}, one killed half way | {games} | {rate:,.0f}"
        print(f"{row} | {rate / alone:.2f} | {done}, {cut_short} |")


if __name__ == "__main__":
    main()
