# SPDX-License-Identifier: GPL-3.0-or-later
"""Measuring in a child process, next to a service on the same device.

A faulty kernel or library ends only the child, its compilers have the lowest priority, and its Python code
does not hold the service's GIL. It requests the device for each measurement, for a few milliseconds. At its
end the results are in the cache.

The parent writes a pickled job to the child's standard input, then a line for each granted lease. The child
writes the lines "ask", "over" at the end of a lease, "did N of M", "try CANDIDATE" before it runs one, "found
DATA" with a product's measurements, "failed WHY", "done". The child exits at the end of its standard input.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import IO

from evaluator.backends.common import crashes
from evaluator.backends.common.crashes import Phase
from evaluator.backends.common.device_lease import DeviceLease
from evaluator.backends.gpu.blas.discovery import library_subject, open_libraries
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.device import DeviceError, DeviceInfo
from evaluator.backends.gpu.driver.discovery import open_device, subject_of
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan.needs import Needs
from evaluator.backends.gpu.plan.tiles import Measured
from evaluator.backends.gpu.tuning.tune import Tuner, library_of_key
from protocol.common.printing import reason
from protocol.common.processes import child_command, crash_signal, group_of_its_own, how_it_ended, own_input

log = logging.getLogger(__name__)

_LOWEST_PRIORITY = 19
_ENDS_WITHIN_S = 5.0

_SLICE_S = 2.0
"""Maximum duration of a lease, normally some milliseconds. Beyond it, the device or its user hangs."""


MOST_CRASHES = 3
"""Candidates of a library that may crash a child before the library is excluded; for our own kernels, before
measuring is given up."""


@dataclass(frozen=True, slots=True)
class TuningJob:
    """What to measure on which device.

    known: measurements so far. given_up: candidates that crashed a child, as `candidate_key` values. rebuild:
    measure also what is in the cache. libraries: measure the vendor's, too.
    """

    device: DeviceInfo
    precision: Precision
    needs: Needs
    known: Mapping[Product, Sequence[Measured]] = field(default_factory=dict)
    given_up: frozenset[str] = frozenset()
    rebuild: bool = False
    libraries: bool = True


@dataclass(slots=True)
class ChildResult:
    """Results of one child. last: "done", or the failure; empty if it crashed. trying: its current
    candidate."""

    last: str = ""
    trying: str = ""
    measured: dict[Product, list[Measured]] = field(default_factory=dict)


# -- the parent ------------------------------------------------------------------------------------------


def measure_in_child(
    job: TuningJob, lease: DeviceLease, progress: Callable[[str], None]
) -> dict[Product, list[Measured]]:
    """Measure, in child processes, the products that are not in the cache.

    A candidate that crashes the child is excluded, and another child measures the rest. Raises DeviceError if
    the child fails otherwise, and the exceptions of `lease`.
    """
    measured: dict[Product, list[Measured]] = {}
    given_up: list[str] = []
    while True:
        found, status = _one_child(
            replace(job, known={**job.known, **measured}, given_up=frozenset(given_up)), lease, progress
        )
        measured |= found.measured
        if found.last == "done":
            return measured
        crash = crash_signal(status)
        library = library_of_key(found.trying)
        of_library = sum(library_of_key(each) == library for each in given_up) + 1
        # A crash of our own kernels means a broken device; a crashing library is excluded.
        hopeless = not found.trying or of_library > MOST_CRASHES - (not library)
        if crash is not None and hopeless:
            crashes.add(subject_of(job.device), Phase.TUNING, crash)
        if found.last or crash is None or hopeless:
            raise DeviceError(found.last or f"the process that measured {how_it_ended(status)}")
        given_up.append(found.trying)
        log.warning("%s is not used: the process that measured it %s", found.trying, how_it_ended(status))
        if library and of_library == MOST_CRASHES:
            crashes.add(library_subject(job.device, library), Phase.TRYING, crash)


def _one_child(
    job: TuningJob, lease: DeviceLease, progress: Callable[[str], None]
) -> tuple[ChildResult, int]:
    """Return the results of one child, and its exit status. Raises as `measure_in_child` does."""
    try:
        child = subprocess.Popen(
            child_command("evaluator.backends.gpu.tuning.child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **group_of_its_own(),
        )
    except OSError as error:
        raise DeviceError(f"no process to measure in: {reason(error)}") from error
    assert child.stdin is not None
    assert child.stdout is not None
    limit = _Limit(child)
    try:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(pickle.dumps(job))
            child.stdin.flush()
        found = answer(child.stdin, child.stdout, lease, progress, limit)
    finally:
        limit.stop()
        with contextlib.suppress(OSError):
            child.stdin.close()
        status = _ended(child)
        child.stdout.close()
    return found, status


class _Limit(AbstractContextManager[None]):
    """Context manager for each lease. Kills a child that does not return the device."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._until = math.inf
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="tuning's limit", daemon=True).start()

    def __enter__(self) -> None:
        self._until = time.perf_counter() + _SLICE_S

    def __exit__(self, *_: object) -> None:
        self._until = math.inf

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(_SLICE_S / 4):
            if time.perf_counter() > self._until:
                log.warning("the tuning process held the device for more than %g s", _SLICE_S)
                self._child.kill()
                return


def answer(
    answers: IO[bytes],
    lines: IO[bytes],
    lease: DeviceLease,
    progress: Callable[[str], None],
    limit: AbstractContextManager[None],
) -> ChildResult:
    """Grant leases until the child ends. limit: entered for each lease."""
    found = ChildResult()
    while line := lines.readline().decode(errors="replace").strip():
        word, _, rest = line.partition(" ")
        if word == "ask":
            with lease(), limit, contextlib.suppress(BrokenPipeError):
                answers.write(b"granted\n")
                answers.flush()
                lines.readline()  # "over", or the end
        elif word == "did":
            progress(rest)
        elif word == "try":
            found.trying = rest
        elif word == "found":
            product, measured = pickle.loads(base64.b64decode(rest))
            found.measured[product], found.trying = measured, ""
        else:
            found.last = rest if word == "failed" else word
            break
    return found


def _ended(child: subprocess.Popen[bytes]) -> int:
    """Return the exit status of a child whose standard input was closed."""
    try:
        return child.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


# -- the child -------------------------------------------------------------------------------------------


def main() -> None:
    """Measure the job on standard input."""
    if hasattr(os, "nice"):
        os.nice(_LOWEST_PRIORITY)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    # Output of a library must not mix with the lines.
    lines = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    parent = os.fdopen(own_input(), "rb")
    job: TuningJob = pickle.load(parent)

    def send_line(text: str) -> None:
        try:
            lines.write(text.encode() + b"\n")
        except OSError:
            os._exit(1)  # compilers and measurements may still run, but nobody needs them

    def granted() -> None:
        if not parent.readline():
            os._exit(1)

    try:
        _measure(job, partial(asked_for, send_line, granted), send_line)
    except DeviceError as error:
        send_line("failed " + " ".join(str(error).split()))
    else:
        send_line("done")
    sys.stderr.flush()
    os._exit(0)  # do not wait for a library that does not return


@contextlib.contextmanager
def asked_for(send_line: Callable[[str], None], granted: Callable[[], None]) -> Iterator[None]:
    """Context manager for a lease. send_line: writes to the parent. granted: waits for its answer."""
    send_line("ask")
    granted()
    try:
        yield
    finally:  # after a failed measurement, others follow
        send_line("over")


def _measure(job: TuningJob, lease: DeviceLease, send_line: Callable[[str], None]) -> None:
    device = open_device(job.device)
    libraries, _ = open_libraries(job.device, job.precision) if job.libraries else ((), {})
    compiler = Compiler(device)
    done = 0

    def progress(_: str) -> None:
        nonlocal done
        done += 1
        send_line(f"did {done} of {len(job.needs.products)}")

    def found(product: Product, measured: list[Measured]) -> None:
        send_line(f"found {base64.b64encode(pickle.dumps((product, measured))).decode()}")

    tuner = Tuner(
        device,
        compiler,
        job.precision,
        libraries,
        progress=progress,
        lease=lease,
        known=job.known,
        given_up=job.given_up,
        trying=lambda candidate: send_line(f"try {candidate}"),
        found=found,
    )
    if job.rebuild:
        tuner.known = {product: [*measured] for product, measured in job.known.items()}
    for product in job.needs.products:
        if product in tuner.known and product not in job.known:
            found(product, tuner.known[product])
    tuner.measured_products(job.needs, rebuild=False)
    compiler.load(list(job.needs.kernels))
    device.close()
