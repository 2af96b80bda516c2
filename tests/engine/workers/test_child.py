# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection between a supervisor and a worker process."""

import asyncio
import subprocess
from multiprocessing.connection import Pipe
from pathlib import Path

import psutil
import pytest

from engine.workers.child import WorkerProcess, inheritance, worker_command
from engine.workers.executor import WorkerContext, WorkerLostError
from tests.engine.workers.scripted_job import ScriptedJob


@pytest.mark.parametrize("has_its_job", [False, True])
def test_a_worker_whose_supervisor_is_gone_ends(tmp_path: Path, has_its_job: bool) -> None:
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(worker_command(theirs), stdin=subprocess.DEVNULL, **inheritance(theirs))
    if has_its_job:
        ours.send((ScriptedJob(str(tmp_path)), WorkerContext()))
        ours.send((1, "open", ()))
        assert ours.recv() == (1, True, 8)
    ours.close()
    assert process.wait(30) == 0


async def test_worker_answers_are_intact_when_libraries_print(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = await WorkerProcess.start(ScriptedJob(str(tmp_path)), WorkerContext())
    try:
        assert await worker.call("open") == 8  # Prints.
        assert await worker.call("play", [5, 6]) == [(5, worker.pid), (6, worker.pid)]
    finally:
        await worker.kill()
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "what a library prints" in printed.err


async def test_calls_to_a_worker_that_is_killed_fail_with_the_reason(tmp_path: Path) -> None:
    worker = await WorkerProcess.start(ScriptedJob(str(tmp_path), waits=True), WorkerContext())
    await worker.call("open")
    game = asyncio.ensure_future(worker.call("play", [0]))
    await worker.call("report")  # The game is under way.
    psutil.Process(worker.pid).kill()
    with pytest.raises(WorkerLostError, match="its process"):
        await game
    with pytest.raises(WorkerLostError, match="its process"):
        await worker.call("report")
    await worker.kill()
    await worker.kill()


async def test_a_large_job_reaches_its_worker(tmp_path: Path) -> None:
    """More than the operating system takes before the worker reads."""
    job = ScriptedJob(str(tmp_path), refuses_to_play="x" * 10_000_000)
    worker = await WorkerProcess.start(job, WorkerContext())
    await worker.call("open")
    with pytest.raises(WorkerLostError, match=r"^x{10000000}$"):
        await worker.call("play", [0])
    await worker.kill()
