# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker process on this machine: both ends of its connection.

The supervisor sends the job and its context, then calls of GameWorker: (number, method, arguments). The
worker answers each with (number, success, result or message). The worker ends when the connection closes,
which happens however the supervisor's process ends. It owns nothing that needs cleaning up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any

from engine.workers.executor import GameJob, WorkerContext, WorkerLostError, first_line
from engine.workers.game_worker import GameWorker
from protocol.common.printing import reason
from protocol.common.processes import child_command, group_of_its_own, how_it_ended, leave

if TYPE_CHECKING:
    Channel = Connection[Any, Any]


def worker_command(connection: Channel) -> list[str]:
    """Return the command line of a worker that inherits and serves this end of a connection."""
    return child_command("engine.workers.child", str(connection.fileno()))


def inheritance(connection: Channel) -> dict[str, Any]:
    """Return arguments of subprocess.Popen that let a child inherit this connection only."""
    handle = connection.fileno()
    if sys.platform == "win32":
        os.set_handle_inheritable(handle, True)
        return {"startupinfo": subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]})}
    return {"pass_fds": (handle,)}


def inherited(handle: int) -> Channel:
    """Return the inherited connection with this handle."""
    if sys.platform == "win32":
        from multiprocessing.connection import PipeConnection

        return PipeConnection(handle)
    return Connection(handle)


class WorkerProcess:
    """The supervisor's WorkerHandle of a worker process. Only the event loop may use it.

    Two threads read and write the connection, so that a hung worker does not block the loop.
    """

    def __init__(self, process: asyncio.subprocess.Process, connection: Channel) -> None:
        self._process = process
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._unanswered: dict[int, asyncio.Future[Any]] = {}
        self._calls = 0
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._disconnected = asyncio.Event()
        self._lost = ""
        self._watching = asyncio.create_task(self._watch())
        for target in (self._send, self._receive):
            threading.Thread(target=target, name="worker-connection", daemon=True).start()

    @classmethod
    async def start(cls, job: GameJob[Any], context: WorkerContext) -> WorkerProcess:
        """Start a worker. Raises WorkerLostError."""
        ours, theirs = Pipe()
        try:
            program, *arguments = worker_command(theirs)
            process = await asyncio.create_subprocess_exec(
                program,
                *arguments,
                stdin=subprocess.DEVNULL,
                stdout=2,  # Keeps the output of libraries out of the match's output.
                **inheritance(theirs),
                **group_of_its_own(),
            )
        except OSError as error:
            ours.close()
            raise WorkerLostError(f"cannot start a worker: {reason(error)}") from None
        finally:
            theirs.close()  # The worker has a copy; the connection closes with it.
        worker = cls(process, ours)
        worker._outgoing.put(pickle.dumps((job, context)))
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._watching

    async def call(self, method: str, *arguments: Any) -> Any:
        if self._lost:
            raise WorkerLostError(self._lost)
        self._calls += 1
        answer = self._unanswered[self._calls] = self._loop.create_future()
        self._outgoing.put(pickle.dumps((self._calls, method, arguments)))
        return await answer

    def _answered(self, number: int, good: bool, result: Any) -> None:
        answer = self._unanswered.pop(number)
        if answer.done():
            return  # The caller no longer waits.
        if good:
            answer.set_result(result)
        else:
            answer.set_exception(WorkerLostError(result))

    async def _watch(self) -> None:
        """Wait until the worker is gone, and then fail all unanswered calls."""
        await self._disconnected.wait()
        self._lost = f"its process {how_it_ended(await self._process.wait())}"
        for answer in self._unanswered.values():
            if not answer.done():
                answer.set_exception(WorkerLostError(self._lost))

    # -- threads -----------------------------------------------------------------------------------------

    def _send(self) -> None:
        while (message := self._outgoing.get()) is not None:
            with contextlib.suppress(OSError):  # `_receive` notices that the worker is gone.
                self._connection.send_bytes(message)
        self._connection.close()

    def _receive(self) -> None:
        try:
            while True:
                self._in_loop(self._answered, *self._connection.recv())
        except (EOFError, OSError):
            pass
        finally:
            self._in_loop(self._disconnected.set)
            self._outgoing.put(None)

    def _in_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: no one waits.
            self._loop.call_soon_threadsafe(call, *arguments)


# -- in the worker -------------------------------------------------------------------------------------------


def receive(connection: Channel) -> Any:
    """Return the supervisor's next message. Exit this process if the supervisor is gone."""
    try:
        return connection.recv()
    except (EOFError, OSError):
        os._exit(0)


async def serve(connection: Channel) -> None:
    """Execute the supervisor's calls until `close`."""
    worker = GameWorker(*receive(connection))
    loop = asyncio.get_running_loop()
    calls: asyncio.Queue[tuple[int, str, Any]] = asyncio.Queue()

    def receive_calls() -> None:
        while True:
            loop.call_soon_threadsafe(calls.put_nowait, receive(connection))

    threading.Thread(target=receive_calls, name="worker-connection", daemon=True).start()
    tasks: set[asyncio.Task[None]] = set()

    async def answer(number: int, method: str, arguments: Any) -> None:
        try:
            result = number, True, await getattr(worker, method)(*arguments)
        except Exception as error:  # The supervisor handles all errors.
            result = number, False, first_line(error)
        try:
            connection.send(result)
        except OSError:
            os._exit(1)

    while True:
        number, method, arguments = await calls.get()
        task = asyncio.create_task(answer(number, method, arguments))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        if method == "close":
            await task
            return


def main() -> None:
    """Serve the connection given on the command line."""
    asyncio.run(serve(inherited(int(sys.argv[1]))))
    leave(0)
