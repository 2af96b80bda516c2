# SPDX-License-Identifier: GPL-3.0-or-later
"""How processes run and end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.common.processes import group_of_its_own, how_it_ended
from tests.programs import python, run

pytestmark = pytest.mark.integration

posix = pytest.mark.skipif(os.name == "nt", reason="needs signals and process groups of POSIX")

FULL = Path("/dev/full")

WITH_THREAD = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"


@pytest.mark.parametrize(
    ("thread", "said"),
    [(WITH_THREAD, "something\n"), ("pass", "something\nshut down\n")],
    ids=["a thread is left", "no thread is left"],
)
def test_a_process_with_threads_is_left_without_shutting_down(thread: str, said: str) -> None:
    code = (
        "import atexit, threading, time\nfrom protocol.common.processes import leave\n"
        f"atexit.register(print, 'shut down')\n{thread}\nprint('something')\nleave(7)"
    )
    ended = python(code, status=7)
    assert (ended.stdout, ended.stderr) == (said, "")


def run_console(body: str) -> list[str]:
    """The command line of a console script whose `main` is so written."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    imports = "import threading, time\nfrom protocol.common.processes import console, run_interruptible\n"
    return [sys.executable, "-c", f"{imports}def main():\n{lines}console(main)"]


def test_a_console_script_ends_with_the_status_of_its_main() -> None:
    run(*run_console("return 3"), status=3)


@pytest.mark.parametrize("thread", [WITH_THREAD, "pass"], ids=["a thread is left", "no thread is left"])
@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_has_left_is_no_failure(lines: int, thread: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    body = f"{thread}\nfor _ in range({lines}): print('a line')\nreturn 3"
    with os.fdopen(writing, "w") as stdout:
        ended = run(*run_console(body), capture_output=False, stdout=stdout, stderr=subprocess.PIPE)
    assert ended.stderr == ""


@pytest.mark.skipif(not FULL.exists(), reason="this system has no disk that is always full")
@pytest.mark.parametrize("thread", [WITH_THREAD, "pass"], ids=["a thread is left", "no thread is left"])
@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_full_disk_is_reported_in_a_line(lines: int, thread: str) -> None:
    body = f"{thread}\nfor _ in range({lines}): print('a line')\nreturn 0"
    with FULL.open("w", encoding="utf-8") as stdout:
        streams = {"stdout": stdout, "stderr": subprocess.PIPE}
        ended = run(*run_console(body), status=1, capture_output=False, **streams)
    assert ended.stderr == "error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import no_such_package", "No module named 'no_such_package'; install the packages that Wavefront"),
        ("raise ImportError('the compiled core is missing')", "the compiled core is missing"),
    ],
    ids=["of others", "ours"],
)
def test_a_missing_package_is_reported_in_a_line(body: str, said: str) -> None:
    ended = run(*run_console(body), status=1)
    assert ended.stderr.startswith(f"error: {said}") and ended.stderr.count("\n") == 1


def test_any_other_fault_of_the_system_is_not_hidden() -> None:
    ended = run(*run_console("raise OSError(5, 'a fault')"), status=1)
    assert "Traceback" in ended.stderr


@posix
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("print('here', flush=True)\ntime.sleep(60)", signal.SIGINT),
        (
            "import asyncio\n"
            "async def work():\n"
            "    print('here', flush=True)\n"
            "    await asyncio.sleep(60)\n"
            "run_interruptible(work())",
            signal.SIGTERM,
        ),
    ],
    ids=["Ctrl-C", "SIGTERM in a coroutine"],
)
def test_an_interrupted_script_says_so_by_its_status(body: str, told: signal.Signals) -> None:
    with subprocess.Popen(run_console(body), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(told)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


@posix
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_while_a_search_starts_stops_it(name: str) -> None:
    code = (
        "import os, signal, threading\nfrom protocol.common.interruptible import interruptible\n"
        "from protocol.common.processes import interrupted_by_signals\nstopped = threading.Event()\n"
        f"def search():\n    os.kill(os.getpid(), signal.{name})\n    return stopped.wait()\n"
        "with interrupted_by_signals():\n    print(interruptible(search, stopped.set))"
    )
    assert python(code).stdout == "(True, True)\n"


def test_an_engine_that_imports_it_waits_for_nothing_it_does_not_use() -> None:
    code = (  # An editable install first builds, with subprocess.
        "import sys, protocol; built = {'subprocess'} & {*sys.modules}; import protocol.common.processes\n"
        "print({'asyncio', 'logging', 'subprocess'} & {*sys.modules} - built)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


@posix
def test_a_process_in_a_group_of_its_own_hears_no_ctrl_c() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, **group_of_its_own())
    with process:
        assert os.getpgid(process.pid) == process.pid
        process.communicate(b"\n", timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (-300, "was ended by signal 300"),
        ("raise SystemExit(3)", "ended with exit code 3"),
        pytest.param("import os; os.abort()", "was ended by SIGABRT", marks=posix),
    ],
)
def test_the_status_of_a_process_in_words(ending: str | int, words: str) -> None:
    status = ending if isinstance(ending, int) else python(ending, status=None).returncode
    assert how_it_ended(status) == words
