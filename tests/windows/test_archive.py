# SPDX-License-Identifier: GPL-3.0-or-later
"""The zip for Windows, unpacked and used as players do, by real Windows programs under Wine.

WAVEFRONT_WINDOWS names a folder that scripts/releasing/wine.py has filled.
"""

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import chess
import chess.engine
import pytest

from scripts.releasing.wine import archive, environment

FOLDER = os.environ.get("WAVEFRONT_WINDOWS", "")

pytestmark = [
    pytest.mark.windows,
    pytest.mark.skipif(not FOLDER, reason="WAVEFRONT_WINDOWS names no folder of scripts/releasing/wine.py"),
    pytest.mark.timeout(600),
]

PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
"""Python for Windows refuses a Linux file as a standard stream."""

GAME = '[White "Müller"]\n[Black "Weiß"]\n[Result "0-1"]\n\n1. f3 e5 2. g4 Qh4# 0-1\n'


def command(program: str, *arguments: str) -> list[str]:
    return ["wine", str(archive(Path(FOLDER)) / f"{program}.exe"), *arguments]


def run(program: str, *arguments: str, folder: Path, data: bytes = b"", status: int = 0) -> str:
    """Standard output and standard error of a program. Files may not be streams there, so all are pipes."""
    done = subprocess.run(
        command(program, *arguments),
        input=data,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=environment(Path(FOLDER)),
        timeout=500,
    )
    shown = done.stdout.decode()
    assert done.returncode == status, shown
    return shown


def left_behind() -> list[str]:
    """Command lines of the archive's processes that still run."""
    mark = f"WINEPREFIX={environment(Path(FOLDER))['WINEPREFIX']}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ")
            if b"python.exe" in line and mark in (process / "environ").read_bytes():
                found.append(line.decode(errors="replace"))
        except OSError:
            continue
    return found


@contextmanager
def running(*words: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    variables = environment(Path(FOLDER))
    with subprocess.Popen(command("wavefront", *words), cwd=folder, env=variables, **PIPES) as process:
        yield process
        process.kill()


def answered(process: subprocess.Popen[bytes], line: bytes, end: str) -> list[str]:
    """The lines up to one that begins with `end`, while the pipe stays open and silent."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    lines = []
    for each in process.stdout:
        lines.append(each.decode().strip())
        if lines[-1].startswith(end):
            return lines
    raise AssertionError(lines)


def test_uci_answers_while_the_gui_says_nothing_more(tmp_path: Path) -> None:
    with running(folder=tmp_path) as process:
        answered(process, b"uci", "uciok")
        assert "wavefront-cpu" in " ".join(answered(process, b"isready", "readyok"))
        assert answered(process, b"go nodes 10", "bestmove")[-1].split()[1] != "0000"


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_a_gui_may_send_paths_in_either_encoding(tmp_path: Path, encoding: str) -> None:
    with running("--backend=random", folder=tmp_path) as process:
        answered(process, b"position startpos\ngo nodes 10", "bestmove")
        saved = "setoption name SaveTree value Bäume.tree".encode(encoding)
        assert "Bäume.tree" in answered(process, saved, "info string tree saved")[-1]
    assert (tmp_path / "Bäume.tree").is_file()


def test_a_killed_launcher_takes_all_processes_along(tmp_path: Path) -> None:
    with running("--backend=random", folder=tmp_path) as process:
        answered(process, b"isready", "readyok")
        assert left_behind()
    run("wavefront", "--version", folder=tmp_path)  # Wine has noticed the end of the first when this ends.
    assert not left_behind()


def test_self_test_says_that_the_installation_works(tmp_path: Path) -> None:
    assert "This installation works." in run("wavefront", "self-test", folder=tmp_path)


def test_python_chess_of_windows_plays_with_it(tmp_path: Path) -> None:
    program = (
        "import chess, chess.engine, sys\n"
        "with chess.engine.SimpleEngine.popen_uci(sys.argv[1], timeout=60) as engine:\n"
        "    print(engine.play(chess.Board(), chess.engine.Limit(nodes=20)).move)\n"
    )
    (tmp_path / "play.py").write_text(program)
    python, engine = (archive(Path(FOLDER)) / name for name in ("python/python.exe", "wavefront.exe"))
    words = ["wine", str(python), "play.py", str(engine)]
    done = subprocess.run(words, cwd=tmp_path, env=environment(Path(FOLDER)), timeout=200, **PIPES)
    assert chess.Move.from_uci(done.stdout.decode().split()[-1]) in chess.Board().legal_moves


def test_pip_of_windows_installs_the_wheel(tmp_path: Path) -> None:
    (wheel,) = Path(FOLDER).glob("wavefront_chess-*-win_amd64.whl")
    python = ["wine", str(Path(FOLDER) / "python" / "python.exe")]
    options = ["--no-deps", "--no-index", "--disable-pip-version-check", "--target", "installed"]
    code = "import sys; sys.path.insert(0, 'installed'); import engine._core as c; print(c.__file__)"
    for words in (["-m", "pip", "install", *options, str(wheel)], ["-P", "-c", code]):
        done = subprocess.run(
            [*python, *words], cwd=tmp_path, env=environment(Path(FOLDER)), timeout=500, **PIPES
        )
        assert done.returncode == 0, done.stdout.decode()
    assert "installed" in done.stdout.decode()


def test_the_board_is_served_until_the_launcher_ends(tmp_path: Path) -> None:
    with running("web", "--backend=random", "--listen=127.0.0.1:0", folder=tmp_path) as process:
        assert process.stdout is not None
        address = next(
            word.decode() for line in process.stdout for word in line.split() if word.startswith(b"http://")
        )
        with urllib.request.urlopen(address, timeout=60) as page:
            assert b"<html" in page.read().lower()


def test_review_match_and_settings_keep_letters_that_ascii_lacks(tmp_path: Path) -> None:
    (tmp_path / "Müller.pgn").write_text(GAME, "utf-8")
    run("wavefront", "review", "Müller.pgn", "--backend=random", "--output=Prüfung", folder=tmp_path)
    assert "Müller" in (tmp_path / "Prüfung" / "games.pgn").read_text("utf-8")
    settings = run("wavefront", "options", folder=tmp_path)
    (tmp_path / "mein.toml").write_text(settings, "utf-8", newline="")
    match = ("match", "--player=name=a,nodes=2,backend=random", "--player=name=ü,nodes=1,backend=random")
    shown = run("wavefront", *match, "--games=2", "--max-moves=4", "--output=Spiele.pgn", folder=tmp_path)
    assert "ü" in shown
    assert "ü" in (tmp_path / "Spiele.pgn").read_text("utf-8")
    moves = run("wavefront", "--config=mein.toml", "--backend=random", folder=tmp_path, data=b"go nodes 1\n")
    assert "bestmove" in moves


def test_names_of_devices_are_refused(tmp_path: Path) -> None:
    player = ("--player", "nodes=1,backend=random")
    match = ("match", *player, *player, "--games=2", "--output=NUL.pgn")
    assert "choose another" in run("wavefront", *match, folder=tmp_path, status=1)


def test_a_folder_that_is_too_deep_for_windows_is_named(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    shutil.copy(archive(Path(FOLDER)) / "wavefront.exe", deep)
    program = ["wine", str(deep / "wavefront.exe")]
    done = subprocess.run(program, env=environment(Path(FOLDER)), timeout=100, **PIPES)
    assert done.returncode == 1 and b"at most 129" in done.stdout


def test_arguments_and_status_pass_through_the_launcher(tmp_path: Path) -> None:
    shown = run("wavefront-evaluator", "describe", "no such büro.pb.gz", folder=tmp_path, status=1)
    assert "no such büro.pb.gz" in shown


def test_the_evaluator_names_why_no_gpu_is_used(tmp_path: Path) -> None:
    shown = run("wavefront-evaluator", "devices", "--json", folder=tmp_path)
    (found,) = (line for line in shown.splitlines() if line.startswith("{"))
    assert set(json.loads(found)["problems"]) == {"amd", "nvidia"}
