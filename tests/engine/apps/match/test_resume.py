# SPDX-License-Identifier: GPL-3.0-or-later
"""Matches that are killed: the runner, a program, the evaluator, in the middle of games. Every game counts
once."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.apps.games.record import Reason
from engine.apps.match.campaign import MatchCampaign
from engine.apps.match.config import PlayerConfig
from engine.apps.match.players import program as program_module
from engine.apps.match.timecontrol import TimeControl
from tests.engine.apps.games.recorder import Recorder
from tests.engine.apps.match.matches import PROGRAM, engine, match, play, program, replay
from tests.programs import ENGINE, started

pytestmark = pytest.mark.integration

GAMES = 24

FLAGS = (
    *("--player", "name=a,nodes=12", "--player", "name=b,nodes=6"),
    *("--each", "backend=random,hash=1", "--games", str(GAMES), "--concurrency", "4"),
    *("--max-moves", "60", "--output", "out"),
)


def runner_process(folder: Path, *flags: str, **more: Any) -> AbstractContextManager[subprocess.Popen[str]]:
    """`run_engine.py match` as a process, which does not outlive the test."""
    return started(*ENGINE, "match", *flags, cwd=folder, stderr=subprocess.STDOUT, **more)


def read_games(process: subprocess.Popen[str], count: int) -> list[str]:
    """Lines of the output until `count` games are over."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if sum(text.startswith("game ") for text in lines) == count:
            return lines
    raise AssertionError("the match ended early:\n" + "".join(lines))


def journal_numbers(folder: Path) -> list[int]:
    lines = (folder / "out.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["number"] for line in lines[1:]]


def assert_complete(folder: Path, games: int) -> None:
    """Journal, PGN and summary hold every game once."""
    assert sorted(journal_numbers(folder)) == list(range(games))
    in_pgn = [int(game.headers["GameNumber"]) - 1 for game in replay(folder / "out.pgn")]
    assert in_pgn == journal_numbers(folder)
    summary = json.loads((folder / "out.json").read_text("utf-8"))
    assert summary["games"] == games
    assert summary["finished"] is True


def test_a_killed_runner_leaves_nothing_behind_and_continues(tmp_path: Path) -> None:
    with runner_process(tmp_path, *FLAGS) as process:
        read_games(process, 5)
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        assert children and not psutil.wait_procs(children, timeout=60)[1]
    before = journal_numbers(tmp_path)
    assert 5 <= len(before) < GAMES
    # As if it had been killed between the two files: a game in the PGN that the journal does not know.
    with (tmp_path / "out.pgn").open("a", encoding="utf-8") as file:
        file.write('[Event "half a game"]\n\n1. e4')
    with runner_process(tmp_path, *FLAGS) as process:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
    assert f"{len(before)} games are played already" in output
    assert journal_numbers(tmp_path)[: len(before)] == before
    assert_complete(tmp_path, GAMES)
    with runner_process(tmp_path, *FLAGS) as process:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    assert "game " not in output.replace("games", "")
    assert f"a vs b: {GAMES} games" in output


@pytest.mark.skipif(os.name == "nt", reason="needs a shell")
def test_a_program_behind_a_script_is_ended_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "INTERRUPT_SECONDS", 0.3)
    script = tmp_path / "engine.sh"
    script.write_text(f'#!/bin/sh\n"{sys.executable}" "{PROGRAM}" deaf 0 {tmp_path}\necho ended\n', "utf-8")
    script.chmod(0o755)
    deaf = PlayerConfig("deaf", TimeControl(nodes=1), command=(str(script),))
    _, _, recorder = play(match(tmp_path, [deaf, program("good")], stall_seconds=0.5, concurrency=1))
    assert [record.reason for record in recorder.records] == [Reason.STALL] * 2
    assert all("no answer to stop" in record.detail for record in recorder.records)
    alive = [process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"])]
    assert not [words for words in alive if str(tmp_path) in words]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGHUP")
def test_a_closed_terminal_ends_a_match_in_order(tmp_path: Path) -> None:
    flags = (*FLAGS, "--player", f'name=c,nodes=1,program={sys.executable},args="{PROGRAM} deaf 12"')
    with runner_process(tmp_path, *flags) as process:
        read_games(process, 2)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert not psutil.wait_procs(children, timeout=20)[1]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGHUP")
def test_a_match_under_nohup_continues_without_its_terminal(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # As nohup has it; the match inherits it.
    try:
        with runner_process(tmp_path, *FLAGS, "--games", "12") as process:
            read_games(process, 2)
            process.send_signal(signal.SIGHUP)
            process.communicate(timeout=120)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.returncode == 0
    assert_complete(tmp_path, 12)


@pytest.mark.skipif(os.name == "nt", reason="process groups of terminals are POSIX's")
def test_ctrl_c_in_a_terminal_loses_nobody_a_game(tmp_path: Path) -> None:
    """A terminal sends SIGINT to every process of the group, programs and evaluator too."""
    flags = (*FLAGS, "--player", f'name=c,nodes=1,program={sys.executable},args="{PROGRAM} none"')
    with runner_process(tmp_path, *flags, start_new_session=True) as process:
        read_games(process, 5)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    summary = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert not any(player["faults"] for player in summary["players"])


def run_until(campaign: MatchCampaign, recorder: Recorder, enough: Callable[[], bool]) -> None:
    """Cancel a run, which ends its processes, once it has come far enough."""

    async def run_and_cancel() -> str:
        task = asyncio.create_task(campaign.run(recorder))
        while not enough():
            await asyncio.sleep(0.01)
        task.cancel()
        return await task

    assert asyncio.run(run_and_cancel()) == "interrupted"
    assert not psutil.Process().children()


def test_a_cancelled_run_keeps_its_games_and_ends_its_players(tmp_path: Path) -> None:
    config = match(tmp_path, [engine("a"), program("b")], games=200, concurrency=4)
    recorder = Recorder()
    campaign = MatchCampaign(config)
    run_until(campaign, recorder, lambda: len(recorder.records) >= 3)
    kept = campaign.standings.games
    assert kept >= 3
    assert len(replay(config.files.pgn)) == kept


def test_run_ends_when_cancelled_before_readiness(tmp_path: Path) -> None:
    campaign = MatchCampaign(match(tmp_path, [engine("a"), engine("b")]))
    run_until(campaign, Recorder(), lambda: bool(psutil.Process().children()))
