# SPDX-License-Identifier: GPL-3.0-or-later
"""Saved trees of a player: what replaces which file, and what a file remembers of limited searches."""

import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine._core import Game
from engine.search.limits import Limits
from engine.search.player.tree import SearchTree
from engine.search.player.tree_file import replace_file
from engine.search.session import Session
from tests.engine.search.player.test_tree import SMALL, prepare, searched
from tests.paths import REPOSITORY
from tests.programs import ENGINE, command, started


def saved(path: Path, limits: Limits | None = None) -> int:
    tree, visits = searched(SMALL, "one", limits)
    assert tree.save(str(path)).visits == visits
    return visits


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def loaded(path: Path) -> SearchTree:
    tree = SearchTree()
    tree.prepared(SMALL, 1, "one")
    tree.load(str(path))
    return tree


def test_another_network_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "tree")
    tree = SearchTree()
    tree.prepared(SMALL, 1, "two")
    with pytest.raises(ValueError, match=r"network: one .*two"):
        tree.load(str(tmp_path / "tree"))


def test_visits_that_favour_moves_are_forgotten(tmp_path: Path) -> None:
    few = Limits(search_moves=("a2a3", "h2h3"))
    visits = saved(tmp_path / "tree", few)
    assert prepare(loaded(tmp_path / "tree"), SMALL, "one", few) == visits
    assert prepare(loaded(tmp_path / "tree"), SMALL, "one") == 0


def test_a_file_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "game.pgn"
    path.write_text("[Event]")
    with pytest.raises(ValueError, match="not a tree of Wavefront: choose another name"):
        saved(path)
    path.write_text("")
    with pytest.raises(ValueError, match="not a tree of Wavefront"):
        saved(path)
    assert names(tmp_path) == ["game.pgn"]


def test_a_tree_is_replaced_also_behind_a_link(tmp_path: Path) -> None:
    saved(tmp_path / "tree")
    (tmp_path / "link").symlink_to(tmp_path / "tree")
    saved(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path) == ["link", "tree"]


def test_a_failure_while_saving_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    saved(path)
    before = path.read_bytes()

    def fail(new: str) -> None:
        Path(new).write_bytes(before[:100])
        raise ValueError("the disk is full")

    with pytest.raises(ValueError, match="the disk is full"):
        replace_file(str(path), fail)  # type: ignore[arg-type]
    assert path.read_bytes() == before and names(tmp_path) == ["tree"]


KILLED = """
import sys, time
from pathlib import Path
from engine.search.player.tree_file import replace_file

def write(new):
    Path(new).write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(60)

replace_file(sys.argv[1], write)
"""


def test_a_kill_while_saving_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    visits = saved(path)
    with started(sys.executable, "-c", KILLED, path, cwd=REPOSITORY) as process:
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
    assert prepare(loaded(path), SMALL, "one") == visits
    assert saved(path) == visits


def test_a_session_continues_a_saved_search(tmp_path: Path) -> None:
    options = SMALL.changed(minibatch_size=1, batches_in_flight=1, smart_pruning_factor=0.0)
    options = replace(options, hash=0)  # The cache is not saved.
    path = str(tmp_path / "tree")
    first, second = Session(options, in_process=True), Session(options, in_process=True)
    nodes = first.search(Limits(nodes=500)).nodes
    assert first.save_tree(path).visits == nodes >= 500
    game, size = second.load_tree(path)
    assert (game.fen(), size.visits) == (Game().fen(), nodes)
    reports = [session.search(Limits(nodes=1500)) for session in (first, second)]
    assert reports[0].lines == reports[1].lines
    assert reports[0].nodes == reports[1].nodes >= 1500


@pytest.mark.integration
def test_analyse_saves_a_tree_and_continues_it(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    words = ("analyse", "--tree", path, "--backend", "random")
    done = command(*words, "--moves", "e2e4", "--nodes", "1000")
    assert f"tree saved to {path}: 1" in done.stderr, done.stderr
    done = command(*words, "--nodes", "1500")  # the position of the file
    assert "tree loaded from" in done.stderr and "4P3" in done.stdout, done.stderr
    before = path.read_bytes()
    done = command(*words, "--moves", "d2d4", "--nodes", "100", status=1)
    assert "no visits of this position" in done.stderr
    done = command(*words, "--nodes", "100", "--policy-temperature", "2", status=1)
    assert "PolicyTemperature: 1.359 in the file, 2.0 here" in done.stderr
    assert path.read_bytes() == before


@pytest.mark.integration
@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent to a process")
def test_analyse_saves_the_tree_after_an_interrupt(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    with started(*ENGINE, "analyse", "--tree", path, "--backend", "random", "--infinite") as process:
        assert process.stdout is not None
        while "nodes" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _output, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and f"tree saved to {path}" in errors, errors
