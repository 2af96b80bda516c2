"""benchmarks/common/processes.py: output, errors, and that nothing outlives the benchmark."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.common import processes
from benchmarks.common.processes import CommandError, output_of, processor_seconds, started

FAMILY = """\
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; print(1, flush=True); signal.pause()"],
                         stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
signal.pause()
"""
"""A process that starts another, says its number and waits."""


def run(code: str, *, time_limit: float = 60) -> str:
    command = [sys.executable, "-c", code]
    return output_of(command, folder=Path.cwd(), environment=os.environ, time_limit=time_limit)


def test_the_output_is_returned_and_input_is_given() -> None:
    command = [sys.executable, "-c", "print(input().upper())"]
    assert output_of(command, folder=Path.cwd(), environment=os.environ, given="word\n") == "WORD\n"


def test_a_failed_command_is_reported_with_the_end_of_its_complaints() -> None:
    code = "import sys; print(*range(100), sep='\\n', file=sys.stderr); sys.exit(3)"
    with pytest.raises(CommandError, match=r"(?s)exit code 3:\n88\n.*99$"):
        run(code)


def test_a_command_that_is_not_there_is_an_error() -> None:
    with pytest.raises(CommandError, match="no-such-program\ncannot be started"):
        output_of(["no-such-program"], folder=Path.cwd(), environment=os.environ)


def test_a_command_that_hangs_is_ended() -> None:
    with pytest.raises(CommandError, match=r"did not end within 0\.2 s"):
        run("import signal; signal.pause()", time_limit=0.2)


def test_an_interrupt_ends_a_command_and_what_it_started() -> None:
    command = [sys.executable, "-c", FAMILY]
    with (
        pytest.raises(KeyboardInterrupt),
        started(command, folder=Path.cwd(), environment=os.environ) as parent,
    ):
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        raise KeyboardInterrupt
    assert parent.returncode != 0
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_command_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "END_WITHIN", 0.1)
    code = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    command = [sys.executable, "-c", code]
    with started(command, folder=Path.cwd(), environment=os.environ) as process:
        assert process.stdout is not None
        process.stdout.readline()
    assert process.returncode == -9


def test_processor_time_is_that_of_ended_processes() -> None:
    before = processor_seconds()
    run("import time\nwhile time.process_time() < 0.2: pass")
    assert processor_seconds() - before >= 0.2
