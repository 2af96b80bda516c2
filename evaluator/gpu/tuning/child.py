"""Measuring in a process of its own, beside one that serves requests on the same device.

What a kernel or a library does wrong ends the child alone, its compilers have the lowest priority, and its
Python takes no time from the service's threads. It asks for the device each time that it is going to measure,
and has it for a few milliseconds. What it finds is in the cache when it ends.

The parent writes a pickled Job to the child's standard input, and then a line for each slice it grants; the
child writes lines: "ask", "over" when a slice has ended, "did N of M", "failed WHY", "done". A child whose
standard input ends, ends.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from evaluator.gpu.blas.discovery import open_libraries
from evaluator.gpu.driver.compiler import Compiler
from evaluator.gpu.driver.device import DeviceError, DeviceInfo
from evaluator.gpu.driver.discovery import open_device
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan.needs import Needs
from evaluator.gpu.tuning.tune import Tuner
from evaluator.slices import Slice
from protocol.host.processes import group_of_its_own, how_it_ended

log = logging.getLogger(__name__)

_LOWEST_PRIORITY = 19
_ENDS_WITHIN_S = 5.0

_SLICE_S = 2.0
"""A slice is some milliseconds; after so long the device hangs, or what uses it."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to measure, and where."""

    device: DeviceInfo
    precision: Precision
    needs: Needs


# -- the parent ------------------------------------------------------------------------------------------


def measure_in_child(job: Job, slices: Slice, progress: Callable[[str], None]) -> None:
    """Have everything measured that is not in the cache. Raises DeviceError where the child fails, and
    whatever `slices` raises."""
    command = [sys.executable, "-P", "-m", "evaluator.gpu.tuning.child"]
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            **group_of_its_own(),
        )
    except OSError as error:
        raise DeviceError(f"no process to measure in: {error}") from error
    assert child.stdin is not None
    assert child.stdout is not None
    limit = _Limit(child)
    try:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(pickle.dumps(job))
            child.stdin.flush()
        last = answer(child.stdin, child.stdout, slices, progress, limit)
    finally:
        limit.stop()
        with contextlib.suppress(OSError):
            child.stdin.close()
        status = _ended(child)
        child.stdout.close()
    if last != "done":
        raise DeviceError(last or f"the process that measured {how_it_ended(status)}")


class _Limit(AbstractContextManager[None]):
    """Ends a child that does not give the device back: a context for each slice."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._until = math.inf
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="tuning's limit", daemon=True).start()

    def __enter__(self) -> None:
        self._until = time.monotonic() + _SLICE_S

    def __exit__(self, *_: object) -> None:
        self._until = math.inf

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(_SLICE_S / 4):
            if time.monotonic() > self._until:
                log.warning("what measures on a device has not given it back within %g s", _SLICE_S)
                self._child.kill()
                return


def answer(
    answers: IO[bytes],
    lines: IO[bytes],
    slices: Slice,
    progress: Callable[[str], None],
    limit: AbstractContextManager[None],
) -> str:
    """Grant slices until the child says how it ended, which is returned: "done", or what failed; empty if it
    did not say. limit: entered with each slice."""
    while line := lines.readline().decode(errors="replace").strip():
        word, _, rest = line.partition(" ")
        if word == "ask":
            with slices(), limit, contextlib.suppress(BrokenPipeError):
                answers.write(b"granted\n")
                answers.flush()
                lines.readline()  # "over", or the end
        elif word == "did":
            progress(rest)
        else:
            return rest if word == "failed" else word
    return ""


def _ended(child: subprocess.Popen[bytes]) -> int:
    """The exit status of a child whose standard input was closed."""
    try:
        return child.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _environment() -> dict[str, str]:
    """Of a process that has to find the package which this module is of."""
    root = str(Path(__file__).resolve().parents[3])
    if root.endswith(("site-packages", "dist-packages")):
        return dict(os.environ)
    paths = [root, os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


# -- the child -------------------------------------------------------------------------------------------


def main() -> None:
    """Measure what standard input says."""
    if hasattr(os, "nice"):
        os.nice(_LOWEST_PRIORITY)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    # What a library prints must not come between the lines.
    lines = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    job: Job = pickle.load(sys.stdin.buffer)

    def tell(text: str) -> None:
        try:
            lines.write(text.encode() + b"\n")
        except OSError:
            os._exit(1)  # compilers and measurements may be under way, and are for nobody

    def granted() -> None:
        if not sys.stdin.buffer.readline():
            os._exit(1)

    try:
        _measure(job, partial(asked_for, tell, granted), tell)
    except DeviceError as error:
        tell("failed " + " ".join(str(error).split()))
    else:
        tell("done")
    sys.stderr.flush()
    os._exit(0)  # nothing waits for a library that does not return


@contextlib.contextmanager
def asked_for(tell: Callable[[str], None], granted: Callable[[], None]) -> Iterator[None]:
    """A slice. tell: writes a line to the parent; granted: waits for its answer."""
    tell("ask")
    granted()
    try:
        yield
    finally:  # what is measured may fail, and others are measured afterwards
        tell("over")


def _measure(job: Job, slices: Slice, tell: Callable[[str], None]) -> None:
    device = open_device(job.device)
    libraries, _ = open_libraries(job.device, job.precision)
    compiler = Compiler(device)
    done = 0

    def progress(_: str) -> None:
        nonlocal done
        done += 1
        tell(f"did {done} of {len(job.needs.products)}")

    tuner = Tuner(device, compiler, job.precision, libraries, progress=progress, slices=slices)
    tuner.measured_products(job.needs, rebuild=False)
    compiler.load(list(job.needs.kernels))
    device.close()


if __name__ == "__main__":
    main()
