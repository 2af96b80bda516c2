# SPDX-License-Identifier: GPL-3.0-or-later
"""lichess-bot plays with the engine: its own program from its source, against a stand-in for Lichess.

LICHESS_BOT names the folder of its source, LICHESS_BOT_PYTHON a Python with its requirements (default: this
one). Without them the tests are skipped.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import REPOSITORY
from tests.peers.lichess_server import GAME, LichessServer

pytestmark = pytest.mark.integration

PYTHON = os.environ.get("LICHESS_BOT_PYTHON", sys.executable)
GAME_SECONDS, END_SECONDS = 150.0, 20.0


@pytest.fixture(scope="module")
def source() -> Path:
    """The folder of lichess-bot's source."""
    named = os.environ.get("LICHESS_BOT", "")
    if not named or not Path(named, "lichess-bot.py").is_file():
        pytest.skip("LICHESS_BOT does not name a folder with lichess-bot.py")
    needs = subprocess.run([PYTHON, "-c", "import backoff, chess, requests, rich, yaml"], capture_output=True)
    if needs.returncode:
        pytest.skip(f"{PYTHON} has no requirements of lichess-bot: {needs.stderr.decode()[-200:]}")
    return Path(named)


def written(folder: Path, configuration: dict[str, Any], url: str) -> Path:
    """Write a configuration with this checkout as the engine."""
    program = {"dir": str(REPOSITORY), "name": "run_engine.py", "interpreter": sys.executable}
    engine = configuration["engine"] | program | {"working_dir": str(folder)}
    path = folder / "config.yml"
    path.write_text(yaml.safe_dump(configuration | {"url": url, "token": "none", "engine": engine}))
    return path


@contextmanager
def lichess_bot(source: Path, configuration: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run lichess-bot; at the end it and what it started are ended."""
    flags = ["--config", str(configuration), "--disable_auto_logging", "-v"]
    log = configuration.with_name("log.txt")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [PYTHON, str(source / "lichess-bot.py"), *flags],
            cwd=configuration.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "COLUMNS": "200", "PYTHONPATH": str(source)},
        )
        try:
            yield process
        finally:
            for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
                if process.poll() is None:
                    os.killpg(process.pid, sent)
                    try:
                        process.wait(END_SECONDS)
                    except subprocess.TimeoutExpired:
                        continue


@pytest.mark.parametrize("documented", [False, True])
def test_it_plays_a_whole_game(source: Path, tmp_path: Path, documented: bool) -> None:
    """Challenge, game, chat and end, with a clock of 40 seconds. lichess-bot reserves some of them.

    With the file that its manual says to copy, as White, and with that of deploy/, as Black."""
    bot_is_white = not documented
    given = REPOSITORY / "deploy" / "lichess-bot.yml" if documented else source / "config.yml.default"
    with LichessServer(base_s=40.0, bot_is_white=bot_is_white) as server:
        path = written(tmp_path, yaml.safe_load(given.read_text("utf-8")), server.url)
        with lichess_bot(source, path):
            finished = server.finished.wait(GAME_SECONDS)
        log = (tmp_path / "log.txt").read_text("utf-8", "replace")
        assert finished, log[-4000:]
        assert not server.errors, log[-4000:]
        assert f"/api/challenge/{GAME}/accept" in server.posts
        assert server.status in ("mate", "draw", "resign")
        assert server.winner == ("white" if bot_is_white else "black"), server.board.fen()
        assert "Traceback" not in log, log[-6000:]
        for shown in ("Source", "Evaluation", "Winrate", "Depth", "Nodes", "Speed"):
            assert f"INFO     {shown}: " in log
