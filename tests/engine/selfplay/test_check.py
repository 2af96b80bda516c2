# SPDX-License-Identifier: GPL-3.0-or-later
"""The checker of training data: faults are named, and nothing that a file holds makes it crash."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from math import nan
from pathlib import Path
from random import Random

import numpy as np
import pytest

from engine._core import Game
from engine.selfplay.check import Statistics, check_file, check_records, training_files
from engine.selfplay.chunk import MAX_RECORDS, TrainingDataError, read_chunk, write_chunk
from engine.selfplay.training_record import RECORD_BYTES, Info, Records
from protocol.host.files import UNFINISHED
from tests.engine.selfplay.games import played_game

SEED = 4


@pytest.fixture(scope="module")
def canonical() -> Records:
    """A game that ends by the rules, in input format 3."""
    return played_game(3, seed=SEED)


@pytest.fixture(scope="module")
def classical() -> Records:
    return played_game(1, seed=SEED)


def test_a_written_file_is_read_back(tmp_path: Path, canonical: Records) -> None:
    path = tmp_path / "game_000000.gz"
    write_chunk(path, canonical)
    assert (read_chunk(path) == canonical).all()
    assert gzip.decompress(path.read_bytes()) == canonical.tobytes()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    checked = check_file(path)
    assert not checked.adjudicated


def test_the_same_game_gives_the_same_bytes(tmp_path: Path, canonical: Records) -> None:
    for name in ("a.gz", "b.gz"):
        write_chunk(tmp_path / name, canonical)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: b"not gzip", "not gzip"),
        (lambda data: data[: len(data) // 2], "does not end"),
        (lambda data: data[:200] + bytes([data[200] ^ 0xFF]) + data[201:], "damaged"),
        (lambda data: gzip.compress(gzip.decompress(data)[:-1]), "not a whole number of records"),
        (lambda data: gzip.compress(b""), "no records"),
        (lambda data: gzip.compress(bytes(RECORD_BYTES * (MAX_RECORDS + 1)), 1), "no game is that long"),
    ],
)
def test_a_damaged_file_is_refused(
    tmp_path: Path, canonical: Records, spoil: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "game.gz"
    write_chunk(path, canonical)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(TrainingDataError, match=message):
        check_file(path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("version", 5, "version 5, not 6"),
        ("input_format", 77, "unknown input format 77"),
        ("input_format", 4, "several input formats"),
        ("dummy", 1, "dummy is 1"),
        ("root_q", nan, "root_q nan"),
        ("best_q", 1.5, "best_q 1.5000"),
        ("played_d", -0.5, "played_d -0.5000"),
        ("root_m", -1.0, "root_m is -1"),
        ("orig_q", 3.0, "orig_q 3"),
        ("result_q", 0.5, "result_q is 0.5"),
        ("result_q", nan, "result_q is nan"),
        ("result_d", 0.25, "result_d 0.25 contradicts"),
        ("visits", 0, "no visits"),
        ("plies_left", -1, "plies_left is -1"),
        ("plies_left", 7.5, "does not count down"),
        ("policy_kld", nan, "policy_kld is nan"),
        ("q_st", -1, "q_st is -1"),
        ("played_idx", 5000, "played_idx 5000 is illegal"),
        ("castling_us_oo", 3, "one rook's file"),
        ("side_to_move_or_enpassant", 5, "en passant is on one file"),
        ("rule50_count", 99, "the moves so far lead to"),
    ],
)
def test_a_wrong_field_is_named(canonical: Records, field: str, value: float, message: str) -> None:
    spoilt = canonical.copy()
    spoilt[field][5] = value
    with pytest.raises(TrainingDataError, match=message):
        check_records(spoilt)


def test_unknown_network_values_are_allowed(canonical: Records) -> None:
    unknown = canonical.copy()
    for name in ("orig_q", "orig_d", "orig_m"):
        unknown[name] = nan
    check_records(unknown)


def spoil_policy(records: Records, kind: str) -> str:
    shares = records["probabilities"][5]
    legal, illegal = np.flatnonzero(shares >= 0), np.flatnonzero(shares < 0)
    if kind == "sum":
        shares[legal] *= 0.5
        return "record 6: probabilities add up to 0.5"
    if kind == "illegal":
        shares[illegal[0]] = 0.0
        return f"record 6: policy entry {illegal[0]} is illegal"
    if kind == "missing":
        unplayed = next(i for i in legal if shares[i] == 0 and i != records["played_idx"][5])
        shares[unplayed] = -1.0
        return f"record 6: policy entry {unplayed} is missing"
    shares[legal[0]] = nan
    return f"record 6: probability nan of move {legal[0]}"


@pytest.mark.parametrize("kind", ["sum", "illegal", "missing", "nan"])
def test_a_wrong_policy_is_named(canonical: Records, kind: str) -> None:
    spoilt = canonical.copy()
    message = spoil_policy(spoilt, kind)
    with pytest.raises(TrainingDataError, match=message):
        check_records(spoilt)


def test_the_moves_must_lead_from_record_to_record(canonical: Records) -> None:
    thinned = np.delete(canonical, 10)
    thinned["plies_left"] = np.arange(len(thinned), 0, -1)
    with pytest.raises(TrainingDataError, match="record 11: the moves so far lead to"):
        check_records(thinned)


def test_results_must_agree(canonical: Records, classical: Records) -> None:
    for records in (canonical, classical):
        spoilt = records.copy()
        spoilt["result_q"][3], spoilt["result_d"][3] = (1, 0) if records["result_q"][3] == 0 else (0, 1)
        with pytest.raises(TrainingDataError, match="disagree on the result"):
            check_records(spoilt)


def test_the_result_must_be_the_game_s(canonical: Records) -> None:
    spoilt = canonical.copy()
    if canonical["result_q"][0] == 0:
        spoilt["result_q"] = np.where(canonical["invariance_info"] & Info.BLACK_TO_MOVE, -1, 1)
        spoilt["result_d"] = 0
    else:
        spoilt["result_q"], spoilt["result_d"] = 0, 1
    with pytest.raises(TrainingDataError, match="the game ended by"):
        check_records(spoilt)
    spoilt["invariance_info"] |= np.uint8(Info.ADJUDICATED)
    assert check_records(spoilt).adjudicated


def test_a_game_that_stops_must_be_adjudicated(canonical: Records) -> None:
    stopped = canonical[:20].copy()
    with pytest.raises(TrainingDataError, match="not adjudicated, but the game is not over"):
        check_records(stopped)
    stopped["invariance_info"] |= np.uint8(Info.ADJUDICATED | Info.LENGTH_LIMIT)
    assert check_records(stopped).length_limit
    stopped["invariance_info"][3] &= np.uint8(~Info.ADJUDICATED & 0xFF)
    with pytest.raises(TrainingDataError, match="disagree on whether"):
        check_records(stopped)


@pytest.mark.parametrize("plane", [0, 11, 13 * 3, 13 * 7 + 5])
def test_planes_must_show_the_position_and_its_history(classical: Records, plane: int) -> None:
    spoilt = classical.copy()
    spoilt["planes"][12, plane] ^= np.uint64(1 << 20)
    with pytest.raises(TrainingDataError, match=r"record 13: "):
        check_records(spoilt)


def test_the_transform_must_fit_the_position() -> None:
    records = played_game(3, start=Game("8/8/8/3k4/8/8/6P1/K7 w - - 0 1"), seed=1, max_plies=4)
    spoilt = records.copy()
    spoilt["invariance_info"] |= np.uint8(4)  # With a pawn on the board there are no diagonals to mirror at.
    with pytest.raises(TrainingDataError, match="board transform 5, but this position has 1"):
        check_records(spoilt)


def test_games_with_deleted_positions_are_not_replayed(canonical: Records) -> None:
    thinned = np.delete(canonical, 10)
    with pytest.raises(TrainingDataError):
        check_records(thinned)
    thinned["invariance_info"][4] |= np.uint8(Info.DELETED)
    assert len(check_records(thinned).records) == len(canonical) - 1


def test_random_damage_is_only_ever_an_error(canonical: Records) -> None:
    random = Random(1)
    head = canonical[:12].copy()
    head["invariance_info"] |= np.uint8(Info.ADJUDICATED)
    refused = 0
    for _ in range(300):
        data = bytearray(head.tobytes())
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        try:
            check_records(np.frombuffer(bytes(data), head.dtype))
        except TrainingDataError:
            refused += 1
    assert refused > 250


def test_files_are_found_in_folders(tmp_path: Path, canonical: Records) -> None:
    for name in ("b.gz", "a.gz", "deeper/c.gz", f"d.gz{UNFINISHED}", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    found = [path.relative_to(tmp_path).as_posix() for path in training_files([tmp_path])]
    assert found == ["a.gz", "b.gz", "deeper/c.gz"]
    assert list(training_files([tmp_path / "notes.txt"])) == [tmp_path / "notes.txt"]


def test_statistics_add_up(canonical: Records, classical: Records) -> None:
    statistics = Statistics()
    for records in (canonical, classical):
        statistics.add(check_records(records))
    data = statistics.data()
    assert data["games"] == 2
    assert data["positions"] == len(canonical) + len(classical)
    assert statistics.white_wins + statistics.draws + statistics.black_wins == 2
    assert data["mean_visits"] == 6.0
    assert data["input_formats"] == [1, 3]
    shares = np.concatenate([canonical["probabilities"], classical["probabilities"]])
    entropy = -np.where(shares > 0, shares * np.log(np.maximum(shares, 1e-9)), 0).sum() / len(shares)
    assert data["mean_policy_entropy"] == pytest.approx(entropy, rel=1e-4)
