# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront analysis --listen --token-file`: nobody who reads logs or lists processes learns the token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from protocol.http.access import SUBPROTOCOL, TOKEN_PREFIX
from tests.engine.analysis.recording import ANSWER
from tests.paths import REPOSITORY

TOKEN = "Qx7-the-token_of.this~test-9Zk"
MISTYPED = TOKEN[:-1] + "K"
LENGTH = 8
"""No piece of the token that is so long may be found."""

TALKATIVE = """
import asyncio.log, logging
logging.basicConfig(level=logging.DEBUG)
logging.debug("talkative")
"""
"""A sitecustomize.py: every process of the service logs all that its libraries have to say. The command has
no level of its own."""


def pieces(token: str) -> set[str]:
    return {token[start : start + LENGTH] for start in range(len(token) - LENGTH + 1)}


def talk(url: str, **identification: Any) -> None:
    """Have something searched, and make the mistakes that a service may complain of."""
    with connect(url, **identification) as connection:
        connection.send("nonsense")
        ANSWER.validate(json.loads(connection.recv(timeout=60)))
        connection.send(json.dumps({"id": "a", "moves": ["e2e4"], "analyze_turns": [0, 1], "nodes": 50}))
        for _ in range(2):
            assert json.loads(connection.recv(timeout=60))["id"] == "a"
        connection.send(json.dumps({"id": "long", "fen": "x" * 6000}))
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=60)


@pytest.mark.integration
@pytest.mark.skipif(sys.platform == "win32", reason="command lines and files as POSIX has them")
def test_the_token_is_in_no_output_no_log_and_no_command_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(TALKATIVE)
    file, log, errors = tmp_path / "secret", tmp_path / "log", tmp_path / "stderr"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    command = [sys.executable, str(REPOSITORY / "run_engine.py"), "analysis", "--listen", "127.0.0.1:0"]
    command += ["--token-file", str(file), "--backend", "random"]
    command += ["--max-message-bytes", "5000", "--LogFile", str(log), "--LogLiveStats", "true"]
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONASYNCIODEBUG": "1"}
    output = ""
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=environment) as process,
    ):
        try:
            assert process.stdout is not None
            output += process.stdout.readline().decode()
            url = json.loads(output)["address"]
            talk(url, additional_headers={"Authorization": f"Bearer {TOKEN}"})
            talk(url, subprotocols=[Subprotocol(SUBPROTOCOL), Subprotocol(TOKEN_PREFIX + TOKEN)])
            with (
                pytest.raises(InvalidStatus) as refused,
                connect(url, additional_headers={"Authorization": f"Bearer {MISTYPED}"}),
            ):
                pass
            everybody = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            lines = [" ".join(each.cmdline()) for each in everybody]
            surroundings = [value for each in everybody for value in each.environ().values()]
            process.terminate()
            output += process.stdout.read().decode()
            assert process.wait(60) == 0
        finally:
            process.kill()
    body = (refused.value.response.body or b"").decode()
    assert any("evaluator" in line for line in lines)
    logged = errors.read_text()
    assert "DEBUG:root:talkative" in logged
    assert "DEBUG:asyncio:" in logged
    told = {
        "standard output": output,
        "standard error": logged,
        "LogFile": log.read_text() if log.exists() else "",
        "command lines": "\n".join(lines),
        "environment": "\n".join(surroundings),
        "refusal": body,
    }
    shown = {where for where, text in told.items() if any(piece in text for piece in pieces(TOKEN))}
    assert shown == set()
