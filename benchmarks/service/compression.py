# SPDX-License-Identifier: GPL-3.0-or-later
"""What compression of batches saves and costs: bytes a position, and microseconds a request at either end.

    python -m benchmarks.service.compression

The batches are those of searches on the shipped network: of one, and of games that share requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from unittest.mock import patch

from engine._core import Game
from engine.options import Options
from engine.pool.pool import SearchPool
from engine.search.limits import Limits
from engine.session import Session
from protocol.batch import PositionBatch
from protocol.client import EvaluatorClient
from protocol.codec import decode_request, encode_evaluate
from protocol.compression import Compressor, offered

OPTIONS = Options(tree_memory=64, smart_pruning_factor=0.0)
GAMES, GAME_NODES = 32, 60
SIZES = (1, 8, 64, 256)
REPEATS = 100


def sent_by(search: Callable[[], None]) -> list[PositionBatch]:
    """Copies of the batches that are sent meanwhile."""
    sent: list[PositionBatch] = []
    submit = EvaluatorClient.submit

    def note(client: EvaluatorClient, batch: PositionBatch, **arguments: Any) -> int:
        sent.append(PositionBatch(batch.positions.copy(), batch.move_offsets.copy(), batch.moves.copy()))
        return submit(client, batch, **arguments)

    with patch.object(EvaluatorClient, "submit", note):
        search()
    return sent


def random_game(random: Random) -> Game:
    """A game after some random moves."""
    game = Game()
    plies = random.randrange(8, 90)
    while len(game.moves()) < plies and game.result()[0] == "undecided":
        game.push_uci(random.choice(game.legal_moves()))
    if game.result()[0] != "undecided":
        game.pop()
    return game


def of_one_search() -> None:
    """Search a position of a game."""
    session = Session(OPTIONS.changed(minibatch_size=max(SIZES)))
    try:
        session.game = random_game(Random(1))
        session.search(Limits(nodes=3000))
    finally:
        session.close()


def of_games() -> None:
    """Search positions of many games at once."""
    random = Random(2)
    with SearchPool() as pool:
        begun = [
            pool.player(OPTIONS).search(random_game(random), Limits(nodes=GAME_NODES)) for _ in range(GAMES)
        ]
        for future in begun:
            future.result()


def figures(batch: PositionBatch, compressor: Compressor | None) -> tuple[float, float, float]:
    """Bytes a position, and the microseconds that it takes to encode and to decode a request, at least."""
    encoding, decoding, size = float("inf"), float("inf"), 0
    for _ in range(REPEATS):
        began = time.perf_counter()
        frames: Sequence[Any] = encode_evaluate(1, batch, "play", None, "net", compressor)
        encoded = time.perf_counter()
        frames = [frame if isinstance(frame, bytes) else frame.tobytes() for frame in frames]
        received = time.perf_counter()
        decode_request(frames, check=lambda batch: None)
        decoding = min(decoding, time.perf_counter() - received)
        encoding = min(encoding, encoded - began)
        size = sum(map(len, frames))
    return size / len(batch), 1e6 * encoding, 1e6 * decoding


def main() -> None:
    """Measure and print a table."""
    if not offered():
        raise SystemExit("there is no Zstandard here: pip install '.[compression]'")
    print("| positions in a request | bytes a position, plain | compressed | engine, µs | evaluator, µs |")
    print("|---|---|---|---|---|")
    alone = max(sent_by(of_one_search), key=len)
    shared = [batch for batch in sent_by(of_games) if len(batch) > 4]
    batches = [(f"{size}, of one search", alone.slice(0, size)) for size in SIZES if size <= len(alone)]
    batches += [
        (f"{len(batch)}, of {GAMES} games", batch)
        for batch in (
            shared[len(shared) // 2],
            PositionBatch.concatenate(shared[:10]),
            PositionBatch.concatenate(shared),
        )
    ]
    compressor = Compressor()
    for name, batch in batches:
        plain, short = figures(batch, None), figures(batch, compressor)
        more = [f"{with_ - without:+.0f}" for with_, without in zip(short[1:], plain[1:], strict=True)]
        print(f"| {name} | {plain[0]:,.0f} | {short[0]:,.0f} | {more[0]} | {more[1]} |", flush=True)


if __name__ == "__main__":
    main()
