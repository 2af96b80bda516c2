# SPDX-License-Identifier: GPL-3.0-or-later
"""Compressed batches: what goes in comes out, nothing that lies about its size is decompressed, and each side
does without where the other cannot."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from engine._core import Game
from engine.evaluation.link.encoding import encode_games
from engine.evaluation.link.link import EvaluatorLink
from engine.evaluation.link.process import EvaluatorSettings
from engine.options import Options
from protocol import EvaluatorClient
from protocol.batch import PositionBatch
from protocol.connections.address_list import is_near
from protocol.errors import BadRequest, TooLarge
from protocol.wire import compression
from protocol.wire.codec import decode_request, encode_evaluate
from protocol.wire.compression import MAX_WINDOW_LOG, Compressor
from protocol.wire.messages import Evaluate
from tests.backends.batches import varied_batch
from tests.engine.evaluation.evaluators import RunningEvaluator

zstd: Any = pytest.importorskip("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")

BATCH = varied_batch(12, 1)
ARRAYS = BATCH.positions.tobytes() + BATCH.move_offsets.tobytes() + BATCH.moves.tobytes()


def header(**fields: object) -> bytes:
    packed: bytes = msgpack.packb(
        {"type": "evaluate", "id": 1, "count": len(BATCH), "compression": "zstd"} | fields
    )
    return packed


def frame(content: bytes, **parameters: int) -> bytes:
    names = {getattr(zstd.CompressionParameter, name): value for name, value in parameters.items()}
    whole: bytes = zstd.compress(content, options=names or None)
    return whole


def declaring(size: int, whole: bytes) -> bytes:
    """The frame with another size of its content in its header (RFC 8878, 3.1.1.1)."""
    begin = 5 if whole[4] & 0x20 else 6
    length, stored = {0x40: (2, size - 256), 0x80: (4, size)}[whole[4] & 0xC0]
    return whole[:begin] + stored.to_bytes(length, "little") + whole[begin + length :]


@pytest.mark.parametrize("count", [1, 12, 300])
def test_compression_round_trip_is_exact(count: int) -> None:
    batch = varied_batch(count, 2)
    compressor = Compressor()
    for identity in (1, 2):  # It is used again.
        frames = encode_evaluate(identity, batch, "selfplay", 250.0, "net", compressor)
        assert len(frames) == 2
        decoded = decode_request(frames)
        assert isinstance(decoded, Evaluate)
        assert (decoded.id, decoded.priority) == (identity, "selfplay")
        assert (decoded.deadline_ms, decoded.network) == (250.0, "net")
        assert decoded.batch.positions.tobytes() == batch.positions.tobytes()
        assert np.array_equal(decoded.batch.move_offsets, batch.move_offsets)
        assert np.array_equal(decoded.batch.moves, batch.moves)


def test_positions_of_games_shrink_to_a_ninth() -> None:
    game, games = Game(), []
    moves = "e2e4 e7e5 g1f3 b8c6 f1b5 a7a6 b5a4 g8f6 e1h1 f8e7 f1e1 b7b5 a4b3 d7d6 c2c3 e8h8"
    for move in moves.split():
        game.push_uci(move)
        games.append(game.copy())
    batch, _ = encode_games(games * 4, input_format=1)
    plain = sum(array.nbytes for array in (batch.positions, batch.move_offsets, batch.moves))
    assert len(Compressor().compressed((batch.positions, batch.move_offsets, batch.moves))) < plain / 9


GOOD = frame(ARRAYS)
LARGE = frame(bytes(64 << 20))


@pytest.mark.parametrize(
    ("frames", "complaint"),
    [
        ([header(compression="lz4"), GOOD], "expected 4, or 2 with compression 'zstd'"),
        ([header(compression=None), GOOD], "2 frames, expected 4"),
        ([header(), b""], "no frame of Zstandard"),
        ([header(), b"\x00" * 500], "no frame of Zstandard"),
        ([header(), GOOD[:4]], "no frame of Zstandard"),
        ([header(), GOOD[:-1]], "does not have the"),
        ([header(), GOOD[: len(GOOD) // 2]], "does not have the"),
        ([header(), GOOD + b"x"], "more follows"),
        ([header(), GOOD + GOOD], "more follows"),
        ([header(), frame(ARRAYS[:-1])], "moves: .* multiple of 2"),
        ([header(), frame(ARRAYS[:10000])], "a content of 10000 bytes, expected 10900"),
        ([header(count=1), GOOD], "a content of"),
        ([header(count=13), GOOD], "a content of"),
        ([header(), LARGE], f"a content of {64 << 20} bytes"),
        ([header(), declaring(len(ARRAYS) + 2, GOOD)], "compression: "),
        ([header(), declaring(len(ARRAYS) - 2, GOOD)], "compression: "),
        ([header(), declaring(len(ARRAYS), LARGE)], "compression: "),
        ([header(), GOOD, b""], "3 frames, expected 4"),
    ],
)  # fmt: skip
def test_compressed_array_is_rejected_by_name_when_invalid(frames: list[bytes], complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        decode_request(frames)


def test_a_frame_that_does_not_say_its_size_is_refused() -> None:
    compressor = zstd.ZstdCompressor()
    whole = compressor.compress(ARRAYS) + compressor.flush()
    with pytest.raises(BadRequest, match="must say how long"):
        decode_request([header(), whole])


def test_a_frame_that_asks_for_much_memory_is_refused() -> None:
    batch = PositionBatch.concatenate([varied_batch(300, 1)] * 40)
    arrays = batch.positions.tobytes() + batch.move_offsets.tobytes() + batch.moves.tobytes()
    assert len(arrays) > 1 << MAX_WINDOW_LOG
    frames = [header(count=len(batch)), frame(arrays, window_log=MAX_WINDOW_LOG + 1)]
    with pytest.raises(BadRequest, match="too much memory"):
        decode_request(frames)
    assert isinstance(decode_request([frames[0], frame(arrays, window_log=MAX_WINDOW_LOG)]), Evaluate)


def test_a_frame_with_a_dictionary_is_refused() -> None:
    dictionary = zstd.ZstdDict(ARRAYS, is_raw=True)
    trained = zstd.train_dict([ARRAYS[start : start + 904] for start in range(0, 9000, 90)], 2000)
    assert len(zstd.compress(ARRAYS, zstd_dict=dictionary)) > 0
    with pytest.raises(BadRequest, match="dictionary"):
        decode_request([header(), zstd.compress(ARRAYS, zstd_dict=trained)])


def test_a_bomb_costs_no_memory() -> None:
    resource = pytest.importorskip("resource", reason="Windows does not measure the peak of the memory so")
    unit = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss
    bomb = frame(bytes(1 << 28))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for declared in (len(ARRAYS), 1 << 28):
        with pytest.raises(BadRequest):
            decode_request([header(), declaring(declared, bomb)])
    with pytest.raises(TooLarge):
        decode_request([header(count=4097), bomb], 4096)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < (32 << 20) // unit


@pytest.mark.parametrize("seed", range(40))
def test_damaged_frames_are_refused_or_mean_something(seed: int) -> None:
    random = np.random.default_rng(seed)
    damaged = bytearray(GOOD)
    for _ in range(int(random.integers(1, 6))):
        damaged[int(random.integers(len(damaged)))] = int(random.integers(256))
    try:
        decoded = decode_request([header(), bytes(damaged)])
    except BadRequest:
        return
    assert isinstance(decoded, Evaluate) and len(decoded.batch) == len(BATCH)


@pytest.mark.parametrize(
    ("address", "near"),
    [
        ("ipc:///run/x", True),
        ("tcp://127.0.0.1:5577", True),
        ("tcp://127.8.0.1:5577#key", True),
        ("tcp://localhost:5577", True),
        ("tcp://[::1]:5577", True),
        ("tcp://[::ffff:127.0.0.1]:5577", True),
        ("tcp://10.0.0.7:5577", False),
        ("tcp://gpu1:5577", False),
        ("tcp://[fe80::1%eth0]:5577", False),
    ],
)
def test_only_what_goes_to_another_machine_is_compressed_unasked(address: str, near: bool) -> None:
    assert is_near(address) is near


@pytest.fixture
def evaluator(tmp_path: Path) -> Iterator[RunningEvaluator]:
    with RunningEvaluator(tmp_path, "a") as running:
        yield running


def test_answers_are_the_same_either_way(evaluator: RunningEvaluator) -> None:
    with (
        EvaluatorClient(evaluator.address) as plain,
        EvaluatorClient(evaluator.address, compress=True) as short,
    ):
        assert not plain.compresses and short.compresses
        batch = varied_batch(200, 5)
        assert np.array_equal(plain.evaluate(batch).logits, short.evaluate(batch).logits)
        assert np.array_equal(plain.evaluate(batch).wdl, short.evaluate(batch).wdl)


def test_a_broken_one_harms_nobody(evaluator: RunningEvaluator) -> None:
    with EvaluatorClient(evaluator.address, compress=True) as client:
        first = client.submit(BATCH)
        client._connected().send([header(id=first + 1), GOOD[:-4]])
        client._in_flight[first + 1] = (1, 1, None)
        client.next_id += 1
        last = client.submit(BATCH)
        done = {each.id: each for _ in range(3) if (each := client.receive(60_000)) is not None}
        assert done[first].error is None and done[last].error is None
        assert isinstance(done[first + 1].error, BadRequest)


@pytest.mark.parametrize(
    ("setting", "installed", "compresses"),
    [("auto", True, False), ("on", True, True), ("off", True, False), ("on", False, False)],
)
def test_the_option_decides_if_it_is_installed(
    evaluator: RunningEvaluator,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    installed: bool,
    compresses: bool,
) -> None:
    if not installed:
        monkeypatch.setattr(compression, "zstd", lambda: None)
    options = Options().changed(evaluator=evaluator.address, evaluator_compression=setting)
    said: list[str] = []
    with closing(EvaluatorLink(EvaluatorSettings.of(options), said.append)) as link:
        link.start()
        client = link.wait(60)
        assert client is not None and client.compresses is compresses
        assert len(client.evaluate(BATCH)) == len(BATCH)
        assert ["compression off" in line for line in said] == [True] * (not installed)
    if not installed:
        with pytest.raises(BadRequest, match="did not offer"):
            decode_request([header(), GOOD])
