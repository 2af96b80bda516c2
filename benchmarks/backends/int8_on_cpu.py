# SPDX-License-Identifier: GPL-3.0-or-later
"""Accuracy and speed of the onnx backend's int8, compared with its float32.

    python -m benchmarks.backends.int8_on_cpu SHARD... [--networks shipped,a.pb.gz] [--positions N]
        [--batches 1,8]

Shards are files of `python -m training label` or `import`. The positions for comparison come from them, and
differ from those that calibrate int8's ranges. Speed is measured on one thread, alternating with float32, as
its minimum CPU time: other programs only ever make a run slower.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine._core import Game
from engine.evaluation.encoding import encode_games
from engine.selfplay.shard import read_shard
from evaluator.backends.onnx.backend import OnnxBackend
from evaluator.network import SHIPPED_NETWORK, NetworkSpec, load_network
from evaluator.network.spec import FloatArray
from protocol.batch import EvaluationBatch, PositionBatch
from training.data.replay import games_at

CHUNK = 128
ROUNDS = 12


def positions(shards: list[Path], count: int, input_format: int, seed: int = 9) -> PositionBatch:
    """Return `count` positions with several legal moves, on and off the games, equally from all shards."""
    choice = random.Random(seed)
    games: list[Game] = []
    for place, path in enumerate(shards):
        wanted = (count - len(games)) // (len(shards) - place)
        shard = read_shard(path)
        rows = choice.sample(range(shard.positions + shard.branches), wanted + wanted // 4 + 8)
        found = [game.copy() for _, game in games_at(shard, set(rows)) if len(game.legal_moves()) > 1]
        games += choice.sample(found, wanted)
    return encode_games(games, input_format=input_format)[0]


def evaluated(backend: OnnxBackend, batch: PositionBatch) -> EvaluationBatch:
    parts = [
        backend.evaluate(batch.slice(start, min(start + CHUNK, len(batch))))
        for start in range(0, len(batch), CHUNK)
    ]
    return EvaluationBatch(
        np.concatenate([part.logits for part in parts]),
        np.concatenate([part.wdl for part in parts]),
        np.concatenate([part.moves_left for part in parts]),
    )


def compared(result: EvaluationBatch, expected: EvaluationBatch, batch: PositionBatch) -> dict[str, float]:
    """Return the differences from float32.
    KL of the policy in nats: mean and 99th percentile. Share of positions with the same best move. Loss
    of float32's policy by the other best move. Error of WDL: mean, 99th percentile, maximum; of q: mean."""
    divergences, same, lost = [], [], []
    for start, end in pairwise(batch.move_offsets):
        right, found = (log_softmax(part.logits[start:end]) for part in (expected, result))
        policy = np.exp(right)
        divergences.append(float((policy * (right - found)).sum()))
        same.append(right.argmax() == found.argmax())
        lost.append(float(policy.max() - policy[found.argmax()]))
    wdl = np.abs(result.wdl - expected.wdl).max(axis=1)
    q = [part.wdl[:, 0] - part.wdl[:, 2] for part in (result, expected)]
    return {
        "kl": float(np.mean(divergences)),
        "kl_99": float(np.quantile(divergences, 0.99)),
        "same_best_move": float(np.mean(same)),
        "policy_lost": float(np.mean(lost)),
        "wdl": float(np.abs(result.wdl - expected.wdl).mean()),
        "wdl_99": float(np.quantile(wdl, 0.99)),
        "wdl_largest": float(wdl.max()),
        "q": float(np.abs(q[0] - q[1]).mean()),
    }


def log_softmax(logits: FloatArray) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max()
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return result


def milliseconds(backends: list[OnnxBackend], batch: PositionBatch) -> list[float]:
    """Return milliseconds of each backend for the batch."""
    best = [float("inf")] * len(backends)
    runs = max(2, 64 // len(batch))
    for _ in range(ROUNDS):
        for place, backend in enumerate(backends):
            for _ in range(runs):
                start = time.thread_time()
                backend.evaluate(batch)
                best[place] = min(best[place], 1000 * (time.thread_time() - start))
    return best


def measure(network: NetworkSpec, batch: PositionBatch, sizes: list[int]) -> dict[str, float]:
    with OnnxBackend(network, threads=1) as exact, OnnxBackend(network, threads=1, int8=True) as rounded:
        figures = compared(evaluated(rounded, batch), evaluated(exact, batch), batch)
        for size in sizes:
            times = milliseconds([exact, rounded], batch.slice(0, size))
            figures |= {f"float32_ms_{size}": times[0], f"int8_ms_{size}": times[1]}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shards", nargs="+", type=Path, metavar="SHARD")
    parser.add_argument("--networks", default="shipped", help="files, or shipped, comma-separated")
    parser.add_argument("--positions", type=int, default=2048)
    parser.add_argument("--batches", default="1,8,24,64", help="sizes, comma-separated")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.batches.split(",")]
    report: dict[str, dict[str, float]] = {}
    for name in arguments.networks.split(","):
        network = load_network(SHIPPED_NETWORK if name == "shipped" else Path(name))
        batch = positions(arguments.shards, arguments.positions, network.input_format.value)
        figures = report[network.name] = measure(network, batch, sizes)
        if arguments.json:
            continue
        print(
            f"{network.name}, {len(batch):,} positions: KL {1000 * figures['kl']:.2f} mnat "
            f"(99 %: {1000 * figures['kl_99']:.1f}), same best move {figures['same_best_move']:.1%}, "
            f"policy lost {figures['policy_lost']:.4f}, W D L {figures['wdl']:.4f} "
            f"(99 %: {figures['wdl_99']:.3f}, largest {figures['wdl_largest']:.3f}), q {figures['q']:.4f}"
        )
        for size in sizes:
            before, after = figures[f"float32_ms_{size}"], figures[f"int8_ms_{size}"]
            print(f"  batch {size:3}: {before:8.2f} ms, int8 {after:8.2f} ms, {before / after:.2f} x")
    if arguments.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
