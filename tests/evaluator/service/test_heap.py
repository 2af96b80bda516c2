# SPDX-License-Identifier: GPL-3.0-or-later
"""evaluator/service/heap.py: memory that was freed goes back to the system."""

import pytest

from evaluator.service import heap
from tests.paths import REPOSITORY
from tests.programs import python

FRAGMENTS = """
import ctypes, threading
import psutil
from evaluator.service.heap import trimmed

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
size = psutil.Process().memory_info
blocks = [libc.malloc(60_000) for _ in range(2000)]
for block in blocks:
    ctypes.memset(block, 1, 60_000)
for block in blocks[:-1]:  # the last one keeps the heap from ending before it
    libc.free(block)
full = size().rss
assert full > 100_000_000
with trimmed(0.01):
    while size().rss > full - 80_000_000:
        threading.Event().wait(0.01)
assert not [thread for thread in threading.enumerate() if thread.name == "heap"]
"""

BURSTS = """
import ctypes, threading
import psutil
from evaluator import _core

_core.keep_heap_small()
size = psutil.Process().memory_info
together = threading.Barrier(24)

def work():
    together.wait()
    blocks = [b"x" * (50_000 + number) for number in range(60)]
    together.wait()
    blocks.clear()

before = size().rss
threads = [threading.Thread(target=work) for _ in range(24)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.CDLL(None).malloc_trim(0)
kept = size().rss - before
assert kept < 16_000_000, kept
"""


@pytest.mark.skipif(heap._trim() is None, reason="the C library is not glibc")
def test_free_memory_between_used_blocks_is_returned() -> None:
    python(FRAGMENTS, cwd=REPOSITORY)


@pytest.mark.skipif(heap._trim() is None, reason="the C library is not glibc")
def test_threads_that_have_ended_leave_little_behind() -> None:
    """24 threads have 3 MB each at the same time, as threads that load networks have one after the other.
    With an arena for each, twice as much as is allowed stays."""
    python(BURSTS, cwd=REPOSITORY)
