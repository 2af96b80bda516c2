"""How much of the evaluator's speed many games of self-play get: their evaluations per second over its best.

    python benchmarks/selfplay_efficiency.py [--games N] [--nodes N] [--weights FILE] [--backend NAME]
                                             [--seconds S] [--rounds N]

The evaluator's own rate is that of the bare backend, without service and sockets, in batches of the size with
most positions per second. Games and backend take turns of a few seconds, because other work on the machine
changes both; the figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from figures import Figure, print_figures
from plain_backend import best_rate, best_sizes

from engine import Engine
from engine.match.openings import OpeningSettings, read_openings
from engine.pool import PoolStatistics, SearchPool
from engine.selfplay.config import SELFPLAY_OPTIONS, SelfPlayConfig
from engine.selfplay.game import play_game
from evaluator.backends import open_backend
from evaluator.network import SHIPPED_NETWORK, load_network

SETTLE_SECONDS = 1.5
"""Until the games have left their first moves behind."""


async def play(
    config: SelfPlayConfig, pool: SearchPool, games: int, seconds: float
) -> tuple[float, float, float]:
    """Let games be played for a while: evaluations per second, positions per batch, and the processor seconds
    that this process took per second."""
    openings = read_openings(OpeningSettings(), games, seed=config.seed)

    async def one_after_the_other(number: int) -> None:
        while True:
            await play_game(number, openings[number % games], config, pool)
            number += games

    tasks = [asyncio.create_task(one_after_the_other(number)) for number in range(games)]
    await asyncio.sleep(SETTLE_SECONDS)
    began, processor, before = time.perf_counter(), time.process_time(), pool.statistics()
    await asyncio.sleep(seconds)
    passed, spent, after = time.perf_counter() - began, time.process_time() - processor, pool.statistics()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    evaluations = after.evaluations - before.evaluations
    batches = _batches(after) - _batches(before)
    return evaluations / passed, evaluations / max(1.0, batches), spent / passed


def _batches(total: PoolStatistics) -> float:
    return total.evaluations / total.mean_batch if total.mean_batch else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=64, help="at once (default 64)")
    parser.add_argument("--nodes", type=int, default=400, help="per move (default 400)")
    parser.add_argument(
        "--weights", default=str(SHIPPED_NETWORK), help="network file (default: the shipped one)"
    )
    parser.add_argument("--backend", default="auto")
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="of each turn, half as many for the backend (default 6)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    ratios = []
    with (
        Engine(weights=arguments.weights, backend=arguments.backend) as engine,
        open_backend(arguments.backend, load_network(arguments.weights)) as backend,
        SearchPool() as pool,
    ):
        sizes = best_sizes(backend, 0.5)
        print(f"{backend.name} on {backend.device}, fastest in batches of {', '.join(map(str, sizes))}")
        options = SELFPLAY_OPTIONS.changed(evaluator=engine.evaluator_address)
        config = SelfPlayConfig(options=options, nodes=arguments.nodes)
        own = best_rate(backend, sizes, arguments.seconds / 2)
        for _ in range(arguments.rounds):
            played, mean_batch, processor = asyncio.run(
                play(config, pool, arguments.games, arguments.seconds)
            )
            before, own = own, best_rate(backend, sizes, arguments.seconds / 2)
            ratios.append(2 * played / (before + own))
            print(
                f"evaluator {before:7,.0f}/s and {own:7,.0f}/s   {arguments.games} games {played:7,.0f}/s   "
                f"mean batch {mean_batch:5.1f}   {100 * processor:4.1f} % of a core   "
                f"{100 * ratios[-1]:5.1f} %",
                flush=True,
            )
    print_figures([Figure("% of the evaluator's best", 100 * statistics.median(ratios), 90)])


if __name__ == "__main__":
    main()
