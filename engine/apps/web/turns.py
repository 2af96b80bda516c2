# SPDX-License-Identifier: GPL-3.0-or-later
"""Threads for the work of the API, in which clients take turns."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

Result = TypeVar("Result")


class Lane:
    """Limits how much work runs at a time. Only the event loop may use it.

    most: maximum pieces at a time. of_one: the same of one client.
    """

    def __init__(self, most: int, of_one: int) -> None:
        self._most, self._of_one = most, of_one
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By client; the client whose turn is next comes first."""
        self._threads = ThreadPoolExecutor(most, "api")

    async def run(self, client: str, call: Callable[[], Result]) -> Result:
        """Return the result of a call in a thread. It is not made if the coroutine is cancelled before."""
        async with self.turn(client):
            future = asyncio.get_running_loop().run_in_executor(self._threads, call)
            try:
                return await asyncio.shield(future)
            finally:
                await asyncio.wait([future])  # The thread is busy until then.

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Context manager of a piece of work."""
        entry = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(entry)
        self._admit()
        try:
            await entry
            yield
        finally:
            if entry.done() and not entry.cancelled():
                self._held[client] -= 1
                self._held += Counter()  # Removes clients that hold nothing.
                self._admit()

    def close(self) -> None:
        """Let the threads end after their work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _admit(self) -> None:
        for client, entries in list(self._waiting.items()):
            while entries and entries[0].done():  # Cancelled.
                entries.popleft()
            if not entries:
                del self._waiting[client]
            elif self._held.total() < self._most and self._held[client] < self._of_one:
                self._held[client] += 1
                entries.popleft().set_result(None)
                del self._waiting[client]
                if entries:
                    self._waiting[client] = entries  # Behind the others.
