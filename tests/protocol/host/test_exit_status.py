"""How a process ended, in words."""

from __future__ import annotations

import subprocess
import sys

import pytest

from protocol.host.exit_status import how_it_ended


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit(3)", "ended with exit code 3"),
        pytest.param(
            "import os; os.abort()",
            "was ended by SIGABRT",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals"),
        ),
    ],
)
def test_the_status_of_a_process(code: str, words: str) -> None:
    assert how_it_ended(subprocess.run([sys.executable, "-c", code], check=False).returncode) == words


def test_a_signal_without_a_name() -> None:
    assert how_it_ended(-300) == "was ended by signal 300"
