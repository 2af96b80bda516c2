# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront review`, run as users run it, on strange games too."""

import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import chess.pgn
import pytest

from tests.engine.evaluation.evaluators import shared_evaluator
from tests.programs import ENGINE, command, started

pytestmark = pytest.mark.integration

GAMES = """[Event "with <tags> & clocks"]
[White "A <b>"]
[Black "B"]
[Result "0-1"]

1. f3 {[%clk 0:05:00] a comment} e5 2. g4 $3 (2. e4 Nf6 {a variation}) Qh4# 0-1

[Event "broken"]
[White "C"]
[Black "D"]
[Result "*"]
[SetUp "1"]
[FEN "8/8/8/8/8/8/8/8 w - - 0 1"]

1. e4 *

[Event "960"]
[White "E"]
[Black "F"]
[Variant "Chess960"]
[SetUp "1"]
[FEN "nrbknbqr/pppppppp/8/8/8/8/PPPPPPPP/NRBKNBQR w KQkq - 0 1"]
[Result "1/2-1/2"]

1. e4 e5 2. d4 1/2-1/2

[Event "no moves"]
[White "G"]
[Black "H"]
[Result "1-0"]

1-0
"""


REVIEW = ("review", "--backend", "random")


def review(
    tmp_path: Path, *arguments: str, status: int = 0, file: str = "games.pgn", text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Review a file in tmp_path. text: standard input."""
    with shared_evaluator() as address:  # as a flag, with which no network is chosen
        flags = ("--nodes", "20", "--evaluator", address, *arguments)
    return command(*REVIEW, file, *flags, status=status, input=text, cwd=tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "games.pgn").write_text(GAMES, "utf-8")
    return tmp_path


Finished = tuple[Path, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A folder with a review of the games, and what the program said."""
    made = tmp_path_factory.mktemp("finished")
    (made / "games.pgn").write_text(GAMES, "utf-8")
    return made, review(made, "--json")


@pytest.fixture
def reviewed(finished: Finished, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)


def test_review_refuses_a_player_without_games_and_lists_the_names(folder: Path) -> None:
    done = review(folder, "--player", "b\x1b[2J", status=2)
    assert "--player" in done.stderr
    assert r"'b\x1b[2J'" in done.stderr
    assert all(repr(name) in done.stderr for name in ["A <b>", *"BCDEFGH"])
    many = "".join(f'[White "player {index}"]\n[Black "Me"]\n\n1. e4 *\n\n' for index in range(100))
    done = review(folder, "--player", "me", status=2, file="-", text=many)
    assert "'Me', 'player 0'" in done.stderr
    assert "91 more" in done.stderr
    assert not (folder / "review").exists()


def test_games_are_annotated_and_broken_ones_named(finished: Finished) -> None:
    folder, done = finished
    assert "games.pgn:8: game 2 (C – D) skipped" in done.stderr and "king" in done.stderr
    stream = io.StringIO((folder / "review" / "games.pgn").read_text("utf-8"))
    games = []
    while game := chess.pgn.read_game(stream):
        assert not game.errors
        games.append(game)
    assert [game.headers["White"] for game in games] == ["A <b>", "E", "G"]
    first = games[0].next()
    assert first is not None and first.clock() == 300.0 and "a comment" in first.comment
    assert all(node.eval() is not None for node in list(games[0].mainline())[:-1])
    second = list(games[0].mainline())[1]
    assert any("a variation" in node.comment for line in second.variations[1:] for node in line.mainline())
    assert 3 in list(games[0].mainline())[2].nags  # A mark of the author.
    assert games[1].board().chess960


def test_pages_load_nothing_and_escape_names(finished: Finished) -> None:
    pages = sorted((finished[0] / "review").glob("*.html"))
    assert [page.name for page in pages] == ["game-1.html", "game-3.html", "game-4.html", "index.html"]
    for page in pages:
        text = page.read_text("utf-8")
        assert "A <b>" not in text
        links = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\')\s>]+)', text)
        assert not [link for link in links if re.match(r"(https?:)?//", link)]
    assert "A &lt;b&gt;" in pages[0].read_text("utf-8")


def test_a_review_resumes_and_refuses_other_settings(finished: Finished, reviewed: Path) -> None:
    folder, first = reviewed, [json.loads(line) for line in finished[1].stdout.splitlines()]
    assert sorted(entry["number"] for entry in first) == [1, 2, 3, 4]
    journal = folder / "review" / "review.jsonl"
    lines = journal.read_text("utf-8").splitlines(keepends=True)
    journal.write_text("".join(lines[:3]) + lines[3][:20], "utf-8")  # As kill -9 may leave it.
    again = [json.loads(line) for line in review(folder, "--json").stdout.splitlines()]
    assert sorted(entry["number"] for entry in again) == [1, 2, 3, 4]
    assert journal.read_text("utf-8").splitlines()[:3] == [line.rstrip() for line in lines[:3]]
    refused = review(folder, "--nodes", "30", status=1)
    assert "other settings" in refused.stderr
    review(folder, "--nodes", "30", "--restart")


def test_old_review_is_kept_when_the_setup_differs(reviewed: Path) -> None:
    folder = reviewed
    before = {path: path.read_bytes() for path in (folder / "review").iterdir()}
    for change in (["--backend", "onnx"], ["--syzygy-path", "."], ["--history-fill", "always"]):
        refused = review(folder, *change, status=1)
        assert change[0].strip("-").replace("-", "_") in refused.stderr and "--restart" in refused.stderr
    assert {path: path.read_bytes() for path in (folder / "review").iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "weights"),
    [
        (("--nodes", "400"), "wavefront-gpu"),
        (("--nodes", "399"), ""),
        (("--nodes", "400", "--weights", "wavefront-cpu"), "wavefront-cpu"),
    ],
)
def test_careful_reviews_use_the_larger_network_when_none_is_named(
    folder: Path, arguments: tuple[str, ...], weights: str
) -> None:
    review(folder, "--evaluator", "", "--backend", "random", *arguments)
    head = json.loads((folder / "review" / "review.jsonl").read_text("utf-8").splitlines()[0])
    assert head["identity"].get("weights", "") == weights


def test_second_file_is_refused_and_more_games_are_added(reviewed: Path) -> None:
    folder = reviewed
    (folder / "other.pgn").write_text('[White "X"]\n\n1. d4 *\n', "utf-8")
    refused = review(folder, file="other.pgn", status=1)
    assert "games.pgn:1" in refused.stderr and "3 other games" in refused.stderr
    (folder / "games.pgn").write_text('[White "New"]\n\n1. c4 *\n\n' + GAMES, "utf-8")
    added = review(folder)
    assert "resuming: 3 of 5" in added.stderr and "4 games reviewed" in added.stdout
    pages = (folder / "review").glob("game-*.html")
    assert sorted(page.name for page in pages) == [f"game-{number}.html" for number in (1, 2, 4, 5)]
    assert "New" in (folder / "review" / "game-1.html").read_text("utf-8")


@pytest.mark.parametrize("name", ["games.pgn", "index.html", "game-7.html", "review.jsonl"])
def test_a_foreign_file_in_the_folder_stays_without_overwrite(folder: Path, name: str) -> None:
    (folder / "review").mkdir()
    foreign = folder / "review" / name
    foreign.write_text("mine\n", "utf-8")
    refused = review(folder, "--restart", status=1)
    assert name in refused.stderr and foreign.read_text("utf-8") == "mine\n"
    assert [path.name for path in (folder / "review").iterdir()] == [name]
    if name == "index.html":
        review(folder, "--overwrite")


def test_annotated_games_that_the_user_edited_stay(reviewed: Path) -> None:
    folder = reviewed
    games = folder / "review" / "games.pgn"
    games.write_text(games.read_text("utf-8") + "% mine\n", "utf-8")
    for arguments in ([], ["--restart"]):
        assert "--overwrite" in review(folder, *arguments, status=1).stderr
    assert games.read_text("utf-8").endswith("% mine\n")
    assert "resuming: 3 of 4" in review(folder, "--overwrite").stderr


def test_each_game_is_counted_in_a_line_when_there_is_no_terminal(finished: Finished) -> None:
    lines = finished[1].stderr
    assert [f"{done} of 4 games" in lines for done in range(1, 5)] == [True] * 4
    assert "%" not in lines and "resuming" not in lines


def test_page_of_the_first_game_precedes_the_second(folder: Path) -> None:
    (folder / "games.pgn").write_text("1. e4 *\n\n1. d4 d5 *\n" + "1. c4 c5 2. Nf3 Nf6 *\n" * 300, "utf-8")
    with started(*ENGINE, *REVIEW, "games.pgn", "--nodes", "100", "--json", cwd=folder) as done:
        assert done.stdout is not None
        first = json.loads(done.stdout.readline())
        page = f"game-{first['number']}.html"
        assert (folder / "review" / page).exists()
        assert f'"n":{first["number"]},' in (folder / "review" / "index.html").read_text("utf-8")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for another process")
def test_an_interrupted_review_says_how_to_resume(folder: Path) -> None:
    (folder / "games.pgn").write_text("1. e4 *\n\n" + "1. d4 d5 2. c4 *\n" * 200, "utf-8")
    with started(*ENGINE, *REVIEW, "games.pgn", "--nodes", "300", cwd=folder) as process:
        assert process.stderr is not None
        assert "games done" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert "resumes" in process.communicate(timeout=60)[1]
    assert process.returncode == 130


@pytest.mark.parametrize("nodes", ["0", "-1", "1000000000000"])
def test_nodes_outside_the_range_are_refused(folder: Path, nodes: str) -> None:
    refused = review(folder, f"--nodes={nodes}", status=2)
    assert nodes in refused.stderr and "1 to" in refused.stderr


def test_games_are_read_from_standard_input_and_gzip(folder: Path) -> None:
    assert "3 games reviewed, 1 skipped" in review(folder, file="-", text=GAMES).stdout
    (folder / "games.pgn.gz").write_bytes(gzip.compress(GAMES.encode("utf-16")))
    done = review(folder, "--output", "other", file="games.pgn.gz")
    assert "3 games reviewed" in done.stdout and "utf-16" in done.stderr


def test_a_clock_of_hundreds_of_digits_is_ignored(folder: Path) -> None:
    clocks = (f"{'9' * 400}:00:00", f"0:00:{'9' * 400}", f"{'9' * 5000}:00:00")
    text = "\n\n".join(f"1. e4 {{[%clk {clock}]}} e5 *" for clock in clocks)
    (folder / "games.pgn").write_text(text, "utf-8")
    assert "3 games reviewed, 0 skipped" in review(folder).stdout


def test_an_error_of_the_disk_is_named_in_words(folder: Path) -> None:
    (folder / "no").write_text("a file", "utf-8")
    done = review(folder, "--output", "no/review", status=1)
    assert "no/review" in done.stderr and "Errno" not in done.stderr


def test_review_names_unreadable_games(tmp_path: Path) -> None:
    assert "cannot read games.pgn" in review(tmp_path, status=1).stderr
    for text in ("no game at all", "[a](b) and [c](d)\n"):
        (tmp_path / "games.pgn").write_text(text, "utf-8")
        done = review(tmp_path, status=1)
        assert "no games to review in games.pgn" in done.stderr and "games.pgn:1" in done.stderr


def test_quotes_and_backslashes_of_tags_stay_in_the_annotated_games(folder: Path) -> None:
    (folder / "games.pgn").write_text('[White "A \\"B\\" \\\\ C"]\n[Black "D "E""]\n\n1. e4 *\n', "utf-8")
    review(folder)
    pgn = (folder / "review" / "games.pgn").read_text("utf-8")
    assert '[White "A \\"B\\" \\\\ C"]' in pgn and '[Black "D \\"E\\""]' in pgn
    assert "A &quot;B&quot; \\ C" in (folder / "review" / "game-1.html").read_text("utf-8")
