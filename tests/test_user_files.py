# SPDX-License-Identifier: GPL-3.0-or-later
"""No command overwrites a file that it reads, or a file that it did not write."""

import gzip
import subprocess
from pathlib import Path

import pytest

from evaluator.network.random_network import random_network
from evaluator.network.writer import write_network
from tests import programs
from tests.programs import ENGINE

pytestmark = pytest.mark.integration

MATCH = """
games = 2
adjudication.max_moves = 4
plot = "{plot}"
output = "{output}"
openings.file = "{openings}"
[defaults]
backend = "random"
nodes = 2
[[player]]
name = "a"
[[player]]
name = "b"
"""
PGN = '[Event "mine"]\n\n1. e4 *\n'


def run(
    folder: Path, program: str, *arguments: str | Path, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder. program: engine, evaluator or training."""
    done = programs.command(*arguments, program=program, status=status, cwd=folder)
    assert "Errno" not in done.stderr
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a network, games, and a file of the user."""
    write_network(random_network("tiny-attention"), tmp_path / "net.pb.gz")
    (tmp_path / "games.pgn").write_text(PGN, "utf-8")
    (tmp_path / "mine.png").write_text("mine", "utf-8")
    for name in ("mine.pgn", "mine.json", "mine.svg"):
        (tmp_path / name).write_text("mine", "utf-8")
    return tmp_path


FOREIGN = [
    ("evaluator", "export", "net.pb.gz", "mine.png"),
    ("evaluator", "random-network", "tiny-attention", "mine.png"),
    ("evaluator", "bench", "--backend", "random", "--batch", "1", "--plot", "mine.png"),
    ("evaluator", "report", "--out", "mine.png"),
    ("engine", "match", "--player", "a", "--player", "b", "--plot", "mine.png"),
    ("engine", "match", "--player", "name=a", "--player", "name=b", "--backend=random", "--output", "mine"),
    ("engine", "evaluate", "games.pgn", "--output", "mine.png"),
    ("training", "init", "mine.png"),
    ("training", "plot", ".", "--output", "mine.png"),
    ("training", "gate", "net.pb.gz", "--promote", "mine.png"),
]


@pytest.mark.parametrize("command", FOREIGN, ids=lambda command: " ".join(command[:2]))
def test_file_of_user_stays_when_a_command_is_to_write_there(folder: Path, command: tuple[str, ...]) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused = run(folder, *command, status=1)
    assert "mine." in refused.stderr and "--overwrite" in refused.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


READ = [
    ("evaluator", "export", "net.pb.gz", "link.pb.gz"),
    ("evaluator", "bench", "--backend", "random", "--network", "net.pb.gz", "--plot", "link.pb.gz"),
    ("evaluator", "report", "--network", "net.pb.gz", "--out", "link.pb.gz"),
    ("training", "init", "link.pb.gz", "--from", "net.pb.gz"),
    ("training", "gate", "net.pb.gz", "--promote", "link.pb.gz"),
    ("engine", "match", "match.toml", "--openings", "mine.pgn"),
    ("engine", "match", "match.toml", "--plot", "mine.jsonl"),
    ("engine", "match", "match.toml", "--plot", "mine.json"),
    ("engine", "selfplay", "--openings", "games.pgn", "--output", ".", "--backend", "random"),
    ("engine", "evaluate", "net.pb.gz", "--output", "link.pb.gz"),
    ("engine", "review", "games.pgn", "--output", ".", "--restart"),
]


@pytest.mark.parametrize("command", READ, ids=lambda command: " ".join(command[:3]))
@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_read_file_stays_even_with_overwrite(folder: Path, command: tuple[str, ...], link: object) -> None:
    assert callable(link)
    if command[1] == "init":
        pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")
    link(folder / "link.pb.gz", folder / "net.pb.gz")
    match = MATCH.format(plot="", output="mine", openings="games.pgn")
    (folder / "match.toml").write_text(match, "utf-8")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused = run(folder, *command, "--overwrite", status=1)
    assert "also read" in refused.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_match_replaces_only_its_own_files_when_restarted(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    (folder / "match.toml").write_text(MATCH.format(plot="p.png", output="m", openings="games.pgn"), "utf-8")
    for _ in range(2):
        run(folder, "engine", "match", "match.toml")
    run(folder, "engine", "match", "match.toml", "--restart")
    for name in ("other.jsonl", "other.pgn"):
        (folder / name).write_text("mine\n", "utf-8")
        refused = run(folder, "engine", "match", "match.toml", "--output", "other", "--restart", status=1)
        assert name in refused.stderr and (folder / name).read_text("utf-8") == "mine\n"
        (folder / "other.jsonl").unlink(missing_ok=True)
    # A journal without games does not make the user's file the match's.
    lines = (folder / "m.jsonl").read_text("utf-8").splitlines(keepends=True)
    (folder / "m.jsonl").write_text(lines[0], "utf-8")
    (folder / "m.pgn").write_text("mine\n", "utf-8")
    for restart in ([], ["--restart"]):
        run(folder, "engine", "match", "match.toml", *restart, status=1)
    assert (folder / "m.pgn").read_text("utf-8") == "mine\n"
    assert (folder / "games.pgn").read_text("utf-8") == PGN


def test_own_plots_and_reports_are_replaced(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    for _ in range(2):
        run(folder, "evaluator", "bench", "--backend", "random", "--batch", "1", "--plot", "p.png")
    run(folder, "evaluator", "random-network", "tiny-attention", "net.pb.gz", "--overwrite")


def test_a_log_is_appended_to_logs_alone(folder: Path) -> None:
    commands = "setoption name LogFile value {}\nisready\nquit\n"
    said = programs.run(*ENGINE, input=commands.format("mine.png"), cwd=folder).stdout
    assert "LogFile" in said and (folder / "mine.png").read_text("utf-8") == "mine"
    for count in (1, 2):
        programs.run(*ENGINE, input=commands.format("log.txt"), cwd=folder)
        assert (folder / "log.txt").read_text("utf-8").count("> quit") == count


@pytest.mark.parametrize("command", ["import", "label"])
def test_shards_without_a_journal_stay(folder: Path, command: str) -> None:
    shard = folder / "000000.shard"
    shard.write_bytes(b"mine")
    arguments = {"import": [gzip.__file__], "label": ["--engine", "none", "--games", "1"]}[command]
    refused = run(folder, "training", command, *arguments, "--output", ".", status=1)
    assert "000000.shard" in refused.stderr and shard.read_bytes() == b"mine"
