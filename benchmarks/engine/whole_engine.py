# SPDX-License-Identifier: GPL-3.0-or-later
"""All stages on one device: bare backend, evaluator service, one search, many games, cold start.

    python -m benchmarks.engine.whole_engine [--shape t82 | --weights FILE] [--backend gpu] [--games 64]

- bare: `Backend.evaluate` from as many threads as it accepts batches in flight.
- service: the evaluator process over ZeroMQ, saturated by several clients.
- search: one engine, nodes/s and evaluations/s.
- games: many concurrent games on one evaluator, as in match and selfplay.
- cold start: from starting the engine to `readyok`, the second time (caches are warm).

The peer is lc0 v0.33-dev, cuda-fp16, on one H200: 35,000 to 37,500 nodes/s with a T82 network.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from time import perf_counter

from benchmarks.common.figures import Figure, print_figures
from benchmarks.common.installation import REPOSITORY
from benchmarks.common.tuned import tuned
from benchmarks.engine.cold_start import start
from engine import Engine
from engine._core import Game
from engine.options import Options
from engine.search.limits import Limits
from engine.search.pool import SearchPool
from evaluator.backends import open_backend
from evaluator.backends.common.probe import probe_batch
from evaluator.network import SHIPPED_NETWORK, load_network
from protocol import EvaluatorClient
from protocol.batch import PositionBatch


def bare_rate(weights: str, name: str, sizes: list[int], seconds: float) -> dict[int, float]:
    """Return positions per second of the backend alone, for each batch size."""
    rates = {}
    with open_backend(name, load_network(weights)) as backend:
        for size in sizes:
            done = [0] * backend.max_in_flight
            batches = [probe_batch(size, seed) for seed in range(len(done))]
            stop_at = perf_counter() + seconds

            def work(
                index: int,
                batches: list[PositionBatch] = batches,
                done: list[int] = done,
                stop_at: float = stop_at,
            ) -> None:
                while perf_counter() < stop_at:
                    backend.evaluate(batches[index])
                    done[index] += 1

            backend.evaluate(batches[0])
            began = perf_counter()
            threads = [threading.Thread(target=work, args=(index,)) for index in range(len(done))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rates[size] = sum(done) * size / (perf_counter() - began)
    return rates


def service_rate(address: str, size: int, clients: int, seconds: float) -> float:
    """Return positions per second of several clients, each with two batches in flight."""
    code = (
        "import sys, time\n"
        "from evaluator.backends.common.probe import probe_batch\n"
        "from protocol import EvaluatorClient\n"
        "address, size, seconds, seed = sys.argv[1], *map(int, sys.argv[2:])\n"
        "batch = probe_batch(size, seed)\n"
        "with EvaluatorClient(address) as client:\n"
        "    client.submit(batch); client.submit(batch)\n"
        "    client.receive(); client.submit(batch)\n"
        "    began, done = time.perf_counter(), 0\n"
        "    while time.perf_counter() - began < seconds:\n"
        "        client.receive().result(); client.submit(batch); done += 1\n"
        "    print(done * size / (time.perf_counter() - began))\n"
    )
    command = [sys.executable, "-c", code, address, str(size), str(round(seconds))]
    running = [
        subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        for seed in range(clients)
    ]
    return sum(float(process.communicate()[0]) for process in running)


def games_rate(options: Options, games: int, nodes: int, seconds: float) -> tuple[float, float]:
    """Return positions per second and mean device batch of many concurrent games."""
    limits = Limits(nodes=nodes)
    with SearchPool() as pool:
        players = [pool.player(options) for _ in range(games)]
        running = {player.search(Game(), limits): (player, Game()) for player in players}
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        before, began = pool.statistics().evaluations, perf_counter()
        while perf_counter() - began < seconds:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                player, game = running.pop(future)
                move = future.result().best_move
                if move is None or game.ply > 200:
                    player.new_game()
                    game = Game()
                else:
                    game.push_uci(move)
                running[player.search(game, limits)] = (player, game)
        statistics = pool.statistics()
        return (statistics.evaluations - before) / (perf_counter() - began), statistics.mean_batch


def made_up(shape: str, folder: Path) -> str:
    """Write a network file with random weights of a shape, or return the shipped one for "shipped"."""
    if shape == "shipped":
        return str(SHIPPED_NETWORK)
    path = folder / f"{shape}.pb.gz"
    subprocess.run(
        [sys.executable, "-m", "evaluator", "random-network", shape, str(path)], check=True, cwd=REPOSITORY
    )
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="t82", help="of the random network (default t82), or `shipped`")
    parser.add_argument("--weights", default="", help="a network file instead")
    parser.add_argument("--backend", default="gpu")
    parser.add_argument("--sizes", default="128,256,512,1024", help="batch sizes of the bare backend")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--games", type=int, default=64)
    parser.add_argument("--nodes", type=int, default=800, help="for each move of the games (default 800)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (default 4)")
    parser.add_argument("--start", default="bt4", help="shape whose cold start is measured; empty for none")
    arguments = parser.parse_args()
    seconds, backend = arguments.seconds, arguments.backend
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        weights = arguments.weights or made_up(arguments.shape, Path(folder))
        bare = bare_rate(weights, backend, [int(size) for size in arguments.sizes.split(",")], seconds / 2)
        for size, rate in bare.items():
            print(f"bare, batch {size}: {rate:,.0f} positions/s", flush=True)
        best_size = max(bare, key=lambda size: bare[size])
        with Engine(weights=weights, backend=tuned(backend), tree_memory=8192) as engine:
            served = service_rate(engine.evaluator_address, best_size, arguments.clients, seconds)
            figures.append(
                Figure("service over ZeroMQ, % of the bare backend", 100 * served / bare[best_size], 95)
            )
            print(
                f"service, {arguments.clients} clients, batch {best_size}: {served:,.0f} positions/s",
                flush=True,
            )
            with EvaluatorClient(engine.evaluator_address) as client:
                print(f"recommended batch {client.recommended_batch}, curve {client.curve}", flush=True)
            engine.analyse(movetime=seconds * 500)
            report = engine.analyse(movetime=seconds * 2000).report
            rate = report.evaluations / report.seconds
            print(
                f"search: {report.nodes_per_second:,} nodes/s, {rate:,.0f} evaluations/s, "
                f"mean batch {report.mean_batch:.0f}",
                flush=True,
            )
            figures.append(
                Figure("search, nodes/s", report.nodes_per_second, 45_000, peer="lc0 35,000-37,500 (T82)")
            )
        options = Options(weights=weights, backend=tuned(backend), smart_pruning_factor=0.0)
        rate, mean_batch = games_rate(options, arguments.games, arguments.nodes, 2 * seconds)
        print(f"{arguments.games} games: {rate:,.0f} positions/s, mean batch {mean_batch:.0f}", flush=True)
        figures.append(
            Figure(f"{arguments.games} games, % of the best bare rate", 100 * rate / max(bare.values()), 90)
        )
        if arguments.start:
            big = made_up(arguments.start, Path(folder))
            flags = ["--weights", big, "--backend", backend]
            first, again = (start(flags).readyok for _ in range(2))
            print(f"cold start {arguments.start}: first {first:.1f} s, again {again:.1f} s", flush=True)
            figures.append(
                Figure(f"seconds to ready, {arguments.start}, warm caches", again, 6, at_least=False)
            )
    print_figures(figures)


if __name__ == "__main__":
    main()
