# SPDX-License-Identifier: GPL-3.0-or-later
"""What the device expands is what the core encodes; a mirrored sample is the sample of the mirrored game."""

import numpy as np
import pytest

from engine._core import Game, encode
from engine.apps.shards.move_codes import move_code
from evaluator.backends.common.batches import expand_planes
from protocol.batch import POSITION_DTYPE
from tests.training.data.test_packed import encoded
from tests.training.labels import NONE, encode_line, random_game
from training.data.packed import HISTORY, pack_positions

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")

from training.model.planes import cut_history, expand, mirrored, mirrored_policy  # noqa: E402

Positions = np.ndarray[tuple[int], np.dtype[np.void]]


def expanded(positions: Positions) -> np.ndarray[tuple[int, int, int], np.dtype[np.float32]]:
    packed = pack_positions(positions)
    tokens = expand(
        torch.from_numpy(packed.boards.view(np.int64)),
        torch.from_numpy(packed.masks.view(np.int64)),
        torch.from_numpy(packed.repetitions),
        torch.from_numpy(packed.rule50),
        torch.float32,
    )
    return np.asarray(tokens.numpy())


@pytest.mark.parametrize("input_format", [1, 2, 3, 4, 5, 132, 133])
def test_the_device_expands_random_games_as_the_core_encodes_them(input_format: int) -> None:
    positions = encoded(input_format, "fen_only", games=8)
    assert np.array_equal(expanded(positions), expand_planes(positions).transpose(0, 2, 1))


def test_mirroring_a_sample_is_encoding_the_mirrored_game() -> None:
    files = str.maketrans("abcdefgh", "hgfedcba")
    fen = "4k3/pppq4/2n5/8/3N4/8/PPP5/R3K3 w - - 0 1"
    rows = "/".join(row[::-1] for row in fen.split()[0].split("/"))
    other = Game(f"{rows} w - - 0 1")
    game = Game(fen)
    for move in random_game(3, 30, fen).moves():
        ours, theirs = (encode([one], 1, "fen_only") for one in (game, other))
        tokens = torch.from_numpy(expanded(ours[0].view(POSITION_DTYPE).reshape(-1)))
        seen = mirrored(tokens, torch.tensor([True]))
        assert np.array_equal(seen.numpy(), expanded(theirs[0].view(POSITION_DTYPE).reshape(-1)))
        assert set(mirrored_policy()[ours[3]]) == set(theirs[3])
        game.push_uci(move)
        other.push_uci(move[:4].translate(files) + move[4:])


@pytest.mark.parametrize("plies", range(HISTORY))
def test_a_cut_history_is_that_of_a_game_from_a_fen(plies: int) -> None:
    game = random_game(5, 20, "4k3/pppq4/2n5/8/3N4/8/PPP5/R3K3 w - - 0 1")
    moves = game.moves()
    whole = pack_positions(encode([game], 1, "fen_only")[0].view(POSITION_DTYPE).reshape(-1))
    earlier = game.copy()
    for _ in range(plies):
        earlier.pop()
    begun = Game(earlier.fen())
    line = np.array([move_code(move) for move in moves[len(moves) - plies :]], np.uint16)
    last = move_code(game.legal_moves()[0])
    asked = np.zeros((plies + 1, 0), np.uint16)
    expected = encode_line(begun, np.append(line, last).astype(np.uint16), *NONE, asked, 1, "fen_only")[0]
    wanted = pack_positions(expected.view(POSITION_DTYPE).reshape(-1)[-1:])
    boards, repetitions = cut_history(
        torch.from_numpy(whole.boards.view(np.int64)),
        torch.from_numpy(whole.repetitions),
        torch.tensor([plies]),
    )
    assert np.array_equal(boards.numpy().view(np.uint64), wanted.boards)
    assert np.array_equal(repetitions.numpy(), wanted.repetitions)
