# SPDX-License-Identifier: GPL-3.0-or-later
"""SaveTree and LoadTree: trees survive the engine's process."""

from pathlib import Path

import pytest

from tests.engine.uci.uci_process import UciProcess, shared_engine, word_after

pytestmark = pytest.mark.integration

POSITION = "position startpos moves e2e4"
FULL_SEARCH = "SmartPruningFactor 0"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The tree of a searched position, and what the engine said when it saved it."""
    path = tmp_path_factory.mktemp("saved") / "my tree"
    with UciProcess(FULL_SEARCH) as engine:
        engine.send(POSITION)
        engine.ask("go nodes 2000", "bestmove")
        engine.send(f"setoption name SaveTree value {path}")
        (said,) = engine.sync()
        return path, said


def load(engine: UciProcess, path: Path) -> str:
    engine.send(f"setoption name LoadTree value {path}")
    (said,) = engine.sync()
    return said


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("Contempt value 100", "Contempt"),
        ("UCI_Chess960 value true", "rules"),
        ("PolicyTemperature value 1", ""),
    ],
)
def test_tree_that_the_search_cannot_use_is_named(saved: tuple[Path, str], option: str, reason: str) -> None:
    with shared_engine(FULL_SEARCH) as engine:
        load(engine, saved[0])
        engine.send(f"setoption name {option}")
        engine.send(POSITION)
        lines = engine.ask("go nodes 20", "bestmove")
        (said,) = (line for line in lines if "tree" in line)
        assert "not used" in said and reason in said


def test_a_tree_of_an_included_network_is_loaded(tmp_path: Path) -> None:
    options, path = ("WeightsFile wavefront-cpu", "Backend onnx", FULL_SEARCH), tmp_path / "tree"
    for _process in "saves", "loads, searches on, and saves":
        with UciProcess(*options) as engine:
            if path.exists():
                assert "tree loaded" in load(engine, path)
            engine.send(POSITION)
            assert int(word_after(engine.ask("go nodes 60", "bestmove")[-2], "nodes")) >= 60
            engine.send(f"setoption name SaveTree value {path}")
            assert "tree saved" in engine.sync()[0]


def test_errors_are_reported_and_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with shared_engine(FULL_SEARCH) as engine:
        engine.send(f"setoption name SaveTree value {tmp_path / 'tree'}")
        assert "there is no tree: search a position first" in engine.sync()[0]
        engine.send("setoption name SaveTree value <empty>")
        engine.send("setoption name LoadTree value ")
        assert engine.sync() == []
        engine.send(POSITION)
        engine.ask("go nodes 500", "bestmove")
        for name, reason in (("notes", "not a tree of Wavefront"), ("nowhere/tree", "No such file")):
            engine.send(f"setoption name SaveTree value {tmp_path / name}")
            assert reason in engine.sync()[0]
        assert "this is not a file" in load(engine, tmp_path)
        engine.send(POSITION)
        assert int(word_after(engine.ask("go nodes 501", "bestmove")[-2], "nodes")) >= 500
    assert (tmp_path / "notes").read_text() == "mine"


def test_saving_waits_for_a_limited_search_or_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    with shared_engine(FULL_SEARCH) as engine:
        engine.send(POSITION)
        engine.send("go infinite")
        engine.send(f"setoption name SaveTree value {path}")
        said = [line for line in engine.sync() if "error" in line]
        assert "SaveTree: a search is running; send stop first" in said[0] and not path.exists()
        engine.ask("stop", "bestmove")
        engine.send("go nodes 3000")
        engine.send(f"setoption name SaveTree value {path}")
        assert engine.until("info string tree saved")[-2].startswith("bestmove")
