# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront web --token-file`: nobody who reads logs or lists processes learns the token."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.engine.apps.web.serving import COMMAND, Web

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


@pytest.mark.integration
@pytest.mark.skipif(sys.platform == "win32", reason="command lines and files as POSIX has them")
def test_the_token_is_in_no_output_no_log_and_no_command_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(TALKATIVE)
    file, log, errors = tmp_path / "secret", tmp_path / "log", tmp_path / "stderr"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    command = [*COMMAND, "--private", "--listen", "127.0.0.1:0", "--token-file", str(file)]
    command += ["--backend", "random", "--max-message-bytes", "5000"]
    command += ["--LogFile", str(log), "--LogLiveStats", "true"]
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONASYNCIODEBUG": "1"}
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, env=environment, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            output = process.stdout.readline()
            server, known = Web(output.split()[4], process), {"Authorization": f"Bearer {TOKEN}"}
            queries = [{"moves": ["e2e4"], "analyze_turns": [0, 1], "nodes": 50}, {"fen": "x" * 6000}]
            told = server.post("analyse", {"queries": queries}, **known).data["answers"]
            assert sum("error" in answer for answer in told) == 1
            refused = server.post("analyse", {}, Authorization=f"Bearer {MISTYPED}")
            everybody = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            lines = [" ".join(each.cmdline()) for each in everybody]
            surroundings = [value for each in everybody for value in each.environ().values()]
            process.terminate()
            output += process.stdout.read()
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert refused.status == 403
    assert any("evaluator" in line for line in lines)
    logged = errors.read_text()
    assert "DEBUG:root:talkative" in logged
    assert "DEBUG:asyncio:" in logged
    places = {
        "standard output": output,
        "standard error": logged,
        "LogFile": log.read_text() if log.exists() else "",
        "command lines": "\n".join(lines),
        "environment": "\n".join(surroundings),
        "refusal": refused.body.decode(),
    }
    shown = {where for where, text in places.items() if any(piece in text for piece in pieces(TOKEN))}
    assert shown == set()
