# SPDX-License-Identifier: GPL-3.0-or-later
"""Move generation is right if it counts the right number of move sequences."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine._core import Game, perft, perft_divide
from tests.paths import DATA, shared

pytestmark = pytest.mark.integration


def lines(path: Path) -> Iterator[tuple[str, list[int]]]:
    """FEN and the counts for depth 1, 2, ... of every line of an EPD file."""
    for line in path.read_text("utf-8").splitlines():
        fen, *counts = line.split(" ;")
        yield fen, [int(count.split()[1]) for count in counts]


def check_file(path: Path, *, chess960: bool, most_nodes: int) -> None:
    checked = 0
    for fen, counts in lines(path):
        game = Game(fen, chess960)
        for depth, nodes in enumerate(counts, start=1):
            if nodes <= most_nodes:
                assert perft(game, depth) == nodes, f"{fen} at depth {depth}"
                checked += 1
    assert checked > 500


@pytest.mark.parametrize(("name", "chess960"), [("standard", False), ("chess960", True)])
def test_counts_to_a_small_depth(name: str, chess960: bool) -> None:
    check_file(DATA / "perft" / f"{name}.epd", chess960=chess960, most_nodes=10_000_000)


@pytest.mark.parametrize(("name", "chess960"), [("standard", False), ("chess960", True)])
def test_counts_of_the_shared_sets(name: str, chess960: bool) -> None:
    check_file(shared("perft", f"{name}.epd"), chess960=chess960, most_nodes=200_000_000)


def test_divide_adds_up_and_names_every_move() -> None:
    game = Game("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1")
    counts = dict(perft_divide(game, 3))
    assert sum(counts.values()) == perft(game, 3) == 13744
    assert sorted(counts) == sorted(game.legal_moves())
    game.push_uci("e1c1")
    assert counts["e1c1"] == perft(game, 2)


def test_depth_zero_is_one_sequence() -> None:
    assert perft(Game(), 0) == 1


@pytest.mark.parametrize("depth", [-1, 31])
def test_refuses_depths_out_of_range(depth: int) -> None:
    with pytest.raises(ValueError, match=rf"{depth} is .* 0 to 30"):
        perft(Game(), depth)
    with pytest.raises(ValueError, match=r"1.*30"):
        perft_divide(Game(), depth)


def test_releases_the_gil() -> None:
    game = Game()
    started = threading.Event()
    counts: list[int] = []

    def count() -> None:
        started.set()
        counts.append(perft(game, 6))

    thread = threading.Thread(target=count)
    thread.start()
    started.wait()
    ran_beside = 0
    while thread.is_alive():
        ran_beside += 1
    thread.join()
    assert counts == [119060324]
    assert ran_beside > 0
