# SPDX-License-Identifier: GPL-3.0-or-later
"""The training record: layout, fields, and that what it says can be read back, also from a chunk file."""

import gzip
from math import isnan, log
from pathlib import Path

import numpy as np
import pytest

from engine._core import Batch, Game, SearchParams, Tree, policy_index
from engine.apps.shards.chunk import chunk_bytes
from engine.apps.shards.training_record import (
    RECORD_BYTES,
    RECORD_DTYPE,
    Encoding,
    GameEnd,
    Info,
    Records,
    finish_game,
    make_record,
    reverse_ranks,
)
from engine.evaluation.link.encoding import encode_games
from tests.engine.apps.selfplay.checking import check_file, check_records, game_of
from tests.engine.apps.selfplay.games import played_game, random_game

FORMATS = (1, 2, 3, 4, 5, 132, 133)
OFFSETS = {
    "probabilities": 8,
    "planes": 7440,
    "castling_us_ooo": 8272,
    "side_to_move_or_enpassant": 8276,
    "rule50_count": 8277,
    "invariance_info": 8278,
    "root_q": 8280,
    "plies_left": 8304,
    "result_q": 8308,
    "played_q": 8316,
    "orig_q": 8328,
    "visits": 8340,
    "played_idx": 8344,
    "best_idx": 8346,
    "policy_kld": 8348,
    "q_st": 8352,
}


def searched(game: Game, visits: int, **settings: float) -> Tree:
    params = SearchParams()
    params.tree_bytes, params.cache_bytes = 16 << 20, 1 << 20
    for name, value in settings.items():
        setattr(params, name, value)
    tree, batch = Tree(params), Batch(1)
    tree.set_position(game)
    while (missing := visits - tree.root_info().visits) > 0:
        tree.collect(batch, 1, missing)
        tree.apply_random(batch)
    return tree


def record_of(
    game: Game, visits: int = 50, input_format: int = 1, played: str | None = None
) -> tuple[Records, Tree]:
    tree = searched(game, visits)
    children = tree.children()
    encoding = Encoding(input_format)
    return make_record(game, encoding, tree.root_info(), children, played or children[0].move), tree


def test_the_layout_is_that_of_version_6() -> None:
    assert RECORD_DTYPE.itemsize == RECORD_BYTES == 8356
    fields = RECORD_DTYPE.fields
    assert fields is not None
    assert {name: fields[name][1] for name in OFFSETS} == OFFSETS


def test_planes_are_stored_with_the_bits_of_each_rank_reversed() -> None:
    record, _ = record_of(Game())
    planes = record["planes"][0]
    assert planes[0] == 0x000000000000FF00
    assert planes[1] == 0x42  # Knights on b1 and g1: the same either way round.
    assert planes[4] == 1 << 4  # The queen, on d1, is bit 3 of its byte.
    assert planes[5] == 1 << 3
    assert (reverse_ranks(reverse_ranks(planes)) == planes).all()


@pytest.mark.parametrize("input_format", FORMATS)
@pytest.mark.parametrize("seed", range(3))
def test_any_position_can_be_read_back(input_format: int, seed: int) -> None:
    game = random_game(seed, plies=20 + 30 * seed)
    for _ in range(8):
        record, _ = record_of(game, 5, input_format)
        decoded = game_of(record[0])
        standard = Game(game.fen(), True)  # Castling in the letters of Chess960.
        assert decoded.fen().split()[:5] == standard.fen().split()[:5]
        game = random_game(seed + 100, plies=len(game.moves()) + 1, start=game)


@pytest.mark.parametrize("input_format", FORMATS)
def test_chess960_castling_rights_name_the_rook_s_file(input_format: int) -> None:
    game = Game("nrk2rnb/pp3ppp/2p5/8/8/2P5/PP3PPP/NRK2RNB w FBfb - 0 8", True)
    record, _ = record_of(game, 5, input_format)
    rights = [int(record[f"castling_{name}"][0]) for name in ("us_ooo", "us_oo", "them_ooo", "them_oo")]
    assert rights == ([1, 1, 1, 1] if input_format == 1 else [1 << 1, 1 << 5, 1 << 1, 1 << 5])
    assert game_of(record[0]).fen() == game.fen().replace(" 0 8", " 0 1")


@pytest.mark.parametrize(
    ("fen", "transform", "mask"),
    [("4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 2", 0, 1 << 3), ("4k3/8/8/3pP3/8/8/8/2K5 w - d6 0 2", 1, 1 << 4)],
)
def test_en_passant_in_canonical_formats(fen: str, transform: int, mask: int) -> None:
    record, _ = record_of(Game(fen), 5, 3)
    assert record["side_to_move_or_enpassant"][0] == mask
    assert record["invariance_info"][0] & 7 == transform
    assert "e5d6" in game_of(record[0]).legal_moves()


def test_en_passant_is_read_from_the_history_in_the_other_formats() -> None:
    game = Game()
    for move in ("e2e4", "a7a6", "e4e5", "d7d5"):
        game.push_uci(move)
    record, _ = record_of(game, 5, 1)
    assert record["side_to_move_or_enpassant"][0] == 0
    assert game_of(record[0]).fen().split()[3] == "d6"


def test_the_side_to_move_is_where_the_format_puts_it() -> None:
    game = Game()
    game.push_uci("e2e4")
    classical, _ = record_of(game, 5, 1)
    canonical, _ = record_of(game, 5, 3)
    assert classical["side_to_move_or_enpassant"][0] == 1
    assert classical["invariance_info"][0] & Info.BLACK_TO_MOVE == 0
    assert canonical["side_to_move_or_enpassant"][0] == 0
    assert canonical["invariance_info"][0] & Info.BLACK_TO_MOVE


def test_probabilities_are_visit_shares_or_minus_one() -> None:
    game = Game()
    record, tree = record_of(game, 60, played="g2g4")
    shares = record["probabilities"][0]
    assert (shares >= 0).sum() == 20
    for child in tree.children():
        assert shares[policy_index(game, child.move)] == pytest.approx(child.visits / 59)
    assert record["visits"][0] == 60
    assert record["played_idx"][0] == policy_index(game, "g2g4")
    assert record["best_idx"][0] == policy_index(game, tree.children()[0].move)


def test_legal_moves_that_tablebases_exclude_have_the_share_zero() -> None:
    game = Game("8/8/8/8/2k5/8/8/K2R4 w - - 0 1")
    tree = searched(game, 20, solves_endings=True)
    children = tree.children()
    assert len(children) < len(game.legal_moves())
    record = make_record(game, Encoding(1), tree.root_info(), children, children[0].move)
    probabilities = record["probabilities"][0]
    assert (probabilities >= 0).sum() == len(game.legal_moves())
    assert probabilities[probabilities >= 0].sum() == pytest.approx(1, abs=1e-5)


def test_values_are_those_of_root_best_played_and_the_network() -> None:
    record, tree = record_of(Game(), 60, played="g2g4")
    root, children = tree.root_info(), {child.move: child for child in tree.children()}
    assert record["root_q"][0] == pytest.approx(root.evaluation.q)
    assert record["root_m"][0] == pytest.approx(root.evaluation.m)
    assert record["best_q"][0] == pytest.approx(tree.children()[0].evaluation.q)
    assert record["played_d"][0] == pytest.approx(children["g2g4"].evaluation.d)
    assert root.own_evaluation is not None
    assert record["orig_q"][0] == pytest.approx(root.own_evaluation.q)
    assert record["orig_m"][0] == pytest.approx(root.own_evaluation.m)
    assert record["q_st"][0] == pytest.approx(root.q_deviation)


def test_own_evaluation_is_nan_when_not_cached() -> None:
    game = Game()
    tree = searched(game, 20)
    tree.clear_cache()
    record = make_record(game, Encoding(1), tree.root_info(), tree.children(), "e2e4")
    assert not isnan(record["orig_q"][0])
    assert isnan(record["orig_d"][0])
    assert isnan(record["orig_m"][0])


def test_the_divergence_is_from_the_policy_at_temperature_one() -> None:
    game = Game()
    tree = searched(game, 100, policy_temperature=2.0)
    children = tree.children()
    squares = [child.prior**2 for child in children]
    expected = sum(
        child.visits / 99 * log(child.visits / 99 / (square / sum(squares)))
        for child, square in zip(children, squares, strict=True)
        if child.visits
    )
    record = make_record(game, Encoding(1), tree.root_info(), children, "e2e4")
    assert record["policy_kld"][0] == pytest.approx(expected, rel=1e-5)


def test_noise_does_not_count_as_policy() -> None:
    game = Game()
    tree = searched(game, 1)
    plain = make_record(game, Encoding(1), tree.root_info(), tree.children(), "e2e4")
    tree.add_root_noise(0.9, 0.3, 1)
    noisy = make_record(game, Encoding(1), tree.root_info(), tree.children(), "e2e4")
    usual, changed = (np.sort(each["probabilities"][0]) for each in (plain, noisy))
    np.testing.assert_allclose(usual, changed, rtol=1e-5)


def test_a_search_of_one_node_leaves_the_raw_policy() -> None:
    record, _ = record_of(Game(), 1)
    shares = record["probabilities"][0]
    assert shares[shares >= 0].sum() == pytest.approx(1.0, abs=1e-5)
    assert record["policy_kld"][0] == 0.0
    assert record["best_q"][0] == record["root_q"][0]


def test_a_proven_best_move_is_marked() -> None:
    record, _ = record_of(Game("6k1/5ppp/8/8/8/8/8/K2R4 w - - 0 1"), 100)
    assert record["invariance_info"][0] & Info.BEST_IS_PROVEN
    assert record["best_q"][0] == 1.0
    assert record["best_m"][0] == 1.0


def test_results_are_for_the_side_to_move_and_plies_count_down() -> None:
    game = Game()
    records, turns = [], []
    for move in ("f2f3", "e7e5", "g2g4", "d8h4"):
        records.append(record_of(game, 5, played=move)[0])
        turns.append(game.turn == "white")
        game.push_uci(move)
    finished = finish_game(records, turns, GameEnd(-1))
    assert finished["result_q"].tolist() == [-1, 1, -1, 1]
    assert finished["result_d"].tolist() == [0, 0, 0, 0]
    assert finished["plies_left"].tolist() == [4, 3, 2, 1]
    assert not (finished["invariance_info"] & (Info.ADJUDICATED | Info.LENGTH_LIMIT)).any()
    assert check_records(finished).result == -1

    resigned = finish_game(records[:2], turns[:2], GameEnd(1, adjudicated=True))
    assert (resigned["invariance_info"] & Info.ADJUDICATED).all()
    assert resigned["plies_left"][1] == max(1.0, records[1]["best_m"][0])
    assert resigned["plies_left"][0] == resigned["plies_left"][1] + 1


@pytest.mark.parametrize("input_format", FORMATS)
def test_the_reader_agrees_with_the_writer_on_whole_games(input_format: int) -> None:
    records = played_game(input_format, start=random_game(3, 6), seed=input_format, noise=0.25)
    checked = check_records(records)
    assert len(checked.records) == len(records)


def test_planes_are_what_the_network_was_shown() -> None:
    game = random_game(5, 30)
    batch, _ = encode_games([game], input_format=1)
    record, _ = record_of(game, 3)
    assert (reverse_ranks(record["planes"][0]) == batch.positions["planes"][0][:104]).all()


def test_a_chunk_is_read_back_and_has_the_same_bytes_again(tmp_path: Path) -> None:
    records, path = played_game(3, seed=4), tmp_path / "game_000000.gz"
    path.write_bytes(chunk_bytes(records))
    assert gzip.decompress(path.read_bytes()) == records.tobytes()
    assert (check_file(path).records == records).all()
    assert path.read_bytes() == chunk_bytes(records.copy())
