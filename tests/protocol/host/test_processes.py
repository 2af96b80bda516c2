"""How processes end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from protocol.host.processes import group_of_its_own

WITH_THREAD = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"


@pytest.mark.parametrize(
    ("thread", "said"),
    [(WITH_THREAD, "something\n"), ("pass", "something\nshut down\n")],
    ids=["a thread is left", "no thread is left"],
)
def test_a_process_with_threads_is_left_without_shutting_down(thread: str, said: str) -> None:
    code = (
        "import atexit, threading, time\nfrom protocol.host.processes import leave\n"
        f"atexit.register(print, 'shut down')\n{thread}\nprint('something')\nleave(7)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, said, "")


@pytest.mark.skipif(os.name == "nt", reason="process groups of terminals are POSIX's")
def test_a_process_in_a_group_of_its_own_hears_no_ctrl_c() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, **group_of_its_own())
    with process:
        assert os.getpgid(process.pid) == process.pid
        process.communicate(b"\n", timeout=60)
    assert process.returncode == 0
