"""A worker in another process of this machine, from both sides of the pipes between.

Frames are a length (8 bytes, little-endian) and a pickle. The starter writes the job and where it is to be
played, then (number, call, arguments), to the worker's standard input, and reads (number, whether it went
well, result or message) from its standard output. The worker ends when its standard input does, which the
operating system sees to however the starter ends; it owns nothing that would have to be put away.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, BinaryIO

from engine.evaluation.process import evaluator_environment
from engine.workers.executor import Job, Site
from engine.workers.supervisor import WorkerLostError
from engine.workers.worker import PlaceWorker, WorkerReport, first_line
from protocol.host.processes import group_of_its_own, how_it_ended, leave

LENGTH_BYTES = 8


class WorkerProcess:
    """The starter's end: a Worker. Belongs to the event loop."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._gone = ""
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, job: Job[Any], site: Site) -> WorkerProcess:
        """Start a worker. Raises WorkerLostError."""
        try:
            # -P: a folder called `engine` where the match happens to be started must not be run.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "engine.workers.child"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=evaluator_environment(),
                **group_of_its_own(),
            )
        except OSError as error:
            raise WorkerLostError(f"cannot start a worker: {error}") from None
        worker = cls(process)
        worker._write((job, site))
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    async def open(self) -> int:
        count: int = await self._ask("open")
        return count

    async def play(self, numbers: Sequence[int]) -> list[Any]:
        games: list[Any] = await self._ask("play", list(numbers))
        return games

    async def report(self) -> WorkerReport:
        report: WorkerReport = await self._ask("report")
        return report

    async def close(self) -> WorkerReport:
        report: WorkerReport = await self._ask("close")
        return report

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._reading
        await self._process.wait()

    async def _ask(self, call: str, *arguments: Any) -> Any:
        if self._gone:
            raise WorkerLostError(self._gone)
        self._number += 1
        answer = self._asked[self._number] = asyncio.get_running_loop().create_future()
        self._write((self._number, call, arguments))
        return await answer

    def _write(self, message: Any) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # That it is gone shows at the other pipe.
            self._process.stdin.write(_frame(message))

    async def _read(self) -> None:
        """Hand out the answers until the worker is gone, and then say so to who still waits."""
        assert self._process.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                length = int.from_bytes(await self._process.stdout.readexactly(LENGTH_BYTES), "little")
                number, good, result = pickle.loads(await self._process.stdout.readexactly(length))
                answer = self._asked.pop(number)
                if answer.done():
                    continue  # Nobody waits for it any more.
                if good:
                    answer.set_result(result)
                else:
                    answer.set_exception(WorkerLostError(result))
        self._gone = f"its process {how_it_ended(await self._process.wait())}"
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(WorkerLostError(self._gone))


def _frame(message: Any) -> bytes:
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(content).to_bytes(LENGTH_BYTES, "little") + content


# -- in the worker -------------------------------------------------------------------------------------------


def main() -> None:
    """Play what the starter asks for until it says close, or is gone."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Whatever else is printed must not come between the answers.
    questions = sys.stdin.buffer
    job, site = _read_frame(questions)
    asyncio.run(_serve(PlaceWorker(job, site), questions, answers))
    leave(0)


async def _serve(worker: PlaceWorker, questions: BinaryIO, answers: BinaryIO) -> None:
    loop = asyncio.get_running_loop()
    asked: asyncio.Queue[tuple[int, str, Any]] = asyncio.Queue()

    def read() -> None:
        while True:
            question = _read_frame(questions)
            loop.call_soon_threadsafe(asked.put_nowait, question)

    threading.Thread(target=read, name="questions", daemon=True).start()
    calls: dict[str, Callable[..., Awaitable[Any]]] = {
        "open": worker.open,
        "play": worker.play,
        "report": worker.report,
        "close": worker.close,
    }
    tasks: set[asyncio.Task[None]] = set()

    async def answer(number: int, call: str, arguments: Any) -> None:
        try:
            result = number, True, await calls[call](*arguments)
        except Exception as error:  # Whatever it is, the starter decides what becomes of it.
            result = number, False, first_line(error)
        try:
            answers.write(_frame(result))
            answers.flush()
        except OSError:
            os._exit(1)

    while True:
        number, call, arguments = await asked.get()
        task = asyncio.create_task(answer(number, call, arguments))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        if call == "close":
            await task
            return


def _read_frame(stream: BinaryIO) -> Any:
    """The next message. Ends the process where there is none: nobody is there for whom to play."""
    head = stream.read(LENGTH_BYTES)
    content = stream.read(int.from_bytes(head, "little")) if len(head) == LENGTH_BYTES else b""
    if not content:
        os._exit(0)
    return pickle.loads(content)


if __name__ == "__main__":
    main()
