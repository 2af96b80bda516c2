"""Ends `match` and `selfplay` in order when they are told to, by Ctrl-C or by SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; both signals cancel it. Raises KeyboardInterrupt if it returns nothing of its own
    then, and at the second Ctrl-C."""

    async def run() -> T:
        task = asyncio.current_task()
        assert task is not None
        with suppress(NotImplementedError):  # On Windows nobody sends that signal.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
