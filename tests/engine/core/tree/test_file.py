# SPDX-License-Identifier: GPL-3.0-or-later
"""Saved trees: what a file brings back, and which files are refused."""

from pathlib import Path

import pytest

from engine._core import Game, SearchParams, Tree, tree_file_header
from engine.search.player.tree_file import PARAMETERS, tree_settings
from tests.engine.core.tree.search_helpers import MIDDLEGAME, game, new_tree, params, search

SETTINGS = [("network", "one"), ("PolicyTemperature", "1.359")]


def searched(position: Game, visits: int, **settings: object) -> Tree:
    tree = new_tree(position, **settings)
    search(tree, visits, batch_size=1)
    return tree


def state(tree: Tree) -> list[object]:
    """All that a search reports of its root."""
    info = tree.root_info()
    lines = [
        (line.moves, line.move_visits, line.visits, line.prior, line.evaluation.q, line.evaluation.m)
        for line in tree.lines(50)
    ]
    return [info.visits, info.evaluation.q, info.evaluation.d, info.evaluation.m, lines]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    searched(game(MIDDLEGAME), 300).save(path, SETTINGS, "a note")
    return path


@pytest.mark.parametrize(
    ("fen", "moves", "chess960"),
    [
        (MIDDLEGAME, ["e1g1", "d7d6"], False),
        (None, ["g1f3", "g8f6", "f3g1", "f6g8"], False),
        ("bqnb1rkr/pp3ppp/3ppn2/2p5/5P2/P2P4/NPP1P1PP/BQ1BNRKR w HFhf - 2 9", [], True),
        ("6k1/5ppp/8/8/8/8/5PPP/R3R1K1 w - - 0 1", [], False),
    ],
)
def test_a_loaded_tree_has_the_visits_and_the_game(
    tmp_path: Path, fen: str | None, moves: list[str], chess960: bool
) -> None:
    position = game(fen, moves, chess960)
    tree = searched(position, 2000)
    size = tree.save(tmp_path / "tree", SETTINGS, "a note")
    loaded = new_tree()
    again = loaded.load(tmp_path / "tree", SETTINGS)
    assert (again.visits, again.nodes, again.bytes) == (size.visits, size.nodes, size.bytes)
    assert size.visits == tree.root_info().visits
    assert size.bytes == (tmp_path / "tree").stat().st_size
    assert state(loaded) == state(tree)
    found, note = tree_file_header(tmp_path / "tree")
    assert (found.start_fen(), found.moves(), note) == (position.start_fen(), position.moves(), "a note")
    assert loaded.set_position(position) == size.visits


@pytest.mark.parametrize(
    "settings",
    [{}, {"known_draws": "proven", "transposition_visits": 16, "value_choice_deviations": 2.0},
     {"known_draws": "repetition", "value_choice_deviations": 0.5}],
)  # fmt: skip
def test_a_search_continues_after_loading_as_without_it(tmp_path: Path, settings: dict[str, object]) -> None:
    position = game("8/8/4k3/8/8/4p3/4K3/8 w - - 40 60")
    tree = searched(position, 1500, **settings)
    tree.save(tmp_path / "tree", SETTINGS)
    loaded = new_tree(None, **settings)
    loaded.load(tmp_path / "tree", SETTINGS)
    for each in (tree, loaded):
        each.clear_cache()  # The cache is not saved.
        each.set_position(position)
        search(each, 4000, batch_size=1)
    assert state(loaded) == state(tree)


def test_a_later_position_of_the_game_has_its_visits(saved: Path) -> None:
    tree = new_tree()
    tree.load(saved, SETTINGS)
    best = tree.children()[0]
    assert tree.set_position(game(MIDDLEGAME, [best.move])) == best.visits > 0


def test_noise_is_not_mixed_in_twice(tmp_path: Path) -> None:
    tree = new_tree(game(MIDDLEGAME))
    tree.add_root_noise(0.25, 0.3, 1)
    search(tree, 500, batch_size=1)
    tree.save(tmp_path / "tree", SETTINGS)
    loaded = new_tree()
    loaded.load(tmp_path / "tree", SETTINGS)
    loaded.add_root_noise(0.25, 0.3, 2)
    assert [(each.prior, each.policy) for each in loaded.children()] == [
        (each.prior, each.policy) for each in tree.children()
    ]


def test_a_pruned_tree_is_loaded_into_the_same_memory(tmp_path: Path) -> None:
    tree = searched(game(MIDDLEGAME), 30_000, tree_bytes=2 << 20)
    assert tree.root_info().full
    tree.save(tmp_path / "tree", SETTINGS)
    loaded = new_tree(tree_bytes=2 << 20)
    loaded.load(tmp_path / "tree", SETTINGS)
    assert state(loaded) == state(tree)
    search(loaded, 40_000)
    assert loaded.root_info().memory_bytes <= 2 << 20


def test_other_settings_are_refused_with_what_differs(saved: Path) -> None:
    tree = searched(game(), 50)
    before = state(tree)
    other = [("network", "two"), ("PolicyTemperature", "1.5")]
    with pytest.raises(ValueError, match=r"PolicyTemp.*1\.5"):
        tree.load(saved, other)
    with pytest.raises(ValueError, match=r"Contempt: \(none\) in the file, 3 here"):
        tree.load(saved, [*SETTINGS, ("Contempt", "3")])
    with pytest.raises(ValueError, match="network: one in the file"):
        tree.load(saved, SETTINGS[1:])
    assert state(tree) == before


def test_the_settings_are_those_whose_change_clears_the_tree() -> None:
    plain = params()
    others = {"input_format": 3, "known_draws": "proven", "history_fill": "always"}
    for name in dir(SearchParams):
        if name.startswith("_") or name in ("tablebases", "cache_bytes", "tree_bytes"):
            continue
        value = getattr(plain, name)
        other = not value if isinstance(value, bool) else others.get(name) or value + 1
        changed = params(**{name: other})
        tree = searched(game(), 50)
        tree.set_params(changed)
        cleared = tree.root_info().visits == 0
        assert (tree_settings(changed, "", "") != tree_settings(plain, "", "")) == cleared, name
        assert cleared or name not in PARAMETERS


def test_tree_is_refused_when_larger_than_the_memory(tmp_path: Path) -> None:
    searched(game(MIDDLEGAME), 20_000).save(tmp_path / "tree", SETTINGS)
    tree = searched(game(), 50, tree_bytes=1 << 20)
    before = state(tree), tree.root_info().memory_bytes
    with pytest.raises(ValueError, match=r"RamLimitMb .*1"):
        tree.load(tmp_path / "tree", SETTINGS)
    assert (state(tree), tree.root_info().memory_bytes) == before


@pytest.mark.parametrize("contents", [b"", b"[Event]", b"\x89WFTREE", b"x" * 5000])
def test_a_foreign_file_is_refused(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "tree").write_bytes(contents)
    with pytest.raises(ValueError, match="not a tree of Wavefront"):
        new_tree().load(tmp_path / "tree", SETTINGS)


def test_another_version_is_refused(saved: Path) -> None:
    contents = bytearray(saved.read_bytes())
    contents[8] = 1
    saved.write_bytes(contents)
    with pytest.raises(ValueError, match=r"1,.*2"):
        new_tree().load(saved, SETTINGS)


def test_a_truncated_longer_or_changed_file_is_refused(saved: Path) -> None:
    """Random damage, also with the right checksum, is tried by fuzz_file.cc."""
    contents = saved.read_bytes()
    for length in [*range(200), *range(200, len(contents), 997), len(contents) - 1]:
        saved.write_bytes(contents[:length])
        with pytest.raises(ValueError, match=r"damaged|not a tree"):
            new_tree(tree_bytes=1 << 20).load(saved, SETTINGS)
    changed = (contents[:at] + bytes([contents[at] ^ 1]) + contents[at + 1 :] for at in range(12, 400, 7))
    for damaged in (contents + b"\0", *changed):
        saved.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            new_tree(tree_bytes=1 << 20).load(saved, SETTINGS)


def test_a_tree_in_use_is_neither_saved_nor_loaded(saved: Path) -> None:
    from engine._core import Batch

    tree, batch = new_tree(game()), Batch(8)
    tree.collect(batch, 4)
    with pytest.raises(RuntimeError, match="in flight"):
        tree.save(saved, SETTINGS)
    with pytest.raises(RuntimeError, match="in flight"):
        tree.load(saved, SETTINGS)
    tree.cancel(batch)
    tree.set_move_rules([(True, ["e2e4"], 3, False)])
    with pytest.raises(ValueError, match="restricted moves"):
        tree.save(saved, SETTINGS)
