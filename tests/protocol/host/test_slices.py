"""Threads that ask for short time slices have them, and pass them on to nobody."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import threading
from pathlib import Path

import psutil
import pytest

from protocol.host.slices import SLICE_NS, take_short_slices
from tests.engine.uci.uci_process import UciProcess, eventually

_GETATTR = {"x86_64": 315, "aarch64": 275}


def slice_of(thread: int) -> int:
    """Nanoseconds of a thread's time slice, 0 if it is the usual one."""
    attributes = ctypes.create_string_buffer(56)
    number = _GETATTR[platform.machine()]
    return (
        0
        if ctypes.CDLL(None).syscall(number, thread, attributes, 56, 0)
        else int(struct.unpack("=IIQiIQQQII", attributes.raw)[5])
    )


def granted() -> bool:
    """Whether this system has short slices."""
    found: list[int] = []

    def ask() -> None:
        take_short_slices()
        found.append(slice_of(0))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found == [SLICE_NS]


pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in _GETATTR or not granted(),
    reason="Linux before 6.12 has slices of one length",
)


def test_what_the_thread_starts_has_usual_slices() -> None:
    found: list[tuple[int, int]] = []

    def ask() -> None:
        assert take_short_slices()
        heir = threading.Thread(target=lambda: found.append((own, slice_of(0))))
        own = slice_of(0)
        heir.start()
        heir.join()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    ((own, inherited),) = found
    assert own == SLICE_NS and inherited != SLICE_NS


def test_a_thread_that_there_is_not_has_none() -> None:
    assert not take_short_slices(1 << 30)


def short_slices(pid: int) -> int:
    """Threads of a process with short slices."""
    return sum(slice_of(int(task.name)) == SLICE_NS for task in Path(f"/proc/{pid}/task").iterdir())


def test_the_threads_that_answer_have_short_slices() -> None:
    """Of the engine those that read, obey and search; of the evaluator the two that take turns at its
    sockets."""
    with UciProcess() as engine:
        engine.sync()
        assert short_slices(engine.pid) == 2
        engine.send("go infinite")
        eventually(lambda: short_slices(engine.pid) == 3)
        (evaluator,) = psutil.Process(engine.pid).children()
        eventually(lambda: short_slices(evaluator.pid) == 2)
        engine.ask("stop", "bestmove")
        assert os.getpriority(os.PRIO_PROCESS, engine.pid) == os.getpriority(os.PRIO_PROCESS, 0)
