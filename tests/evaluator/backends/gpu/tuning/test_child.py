# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process that measures and its parent say to each other."""

import io
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest

from evaluator.backends.common.device_lease import exclusive_lease
from evaluator.backends.gpu.driver.device import DeviceError, DeviceInfo
from evaluator.backends.gpu.driver.target import Precision, amd_target
from evaluator.backends.gpu.plan.needs import Needs
from evaluator.backends.gpu.tuning.child import TuningJob, answer, asked_for, measure_in_child


def answered(lines: bytes) -> tuple[str, bytes, int, list[str]]:
    """How the child ended, what it was written, how many leases it had, what it told."""
    grants, progress, had = io.BytesIO(), list[str](), list[bool]()

    @contextmanager
    def lease() -> Iterator[None]:
        had.append(True)
        yield

    found = answer(grants, io.BytesIO(lines), lease, progress.append, nullcontext())
    return found.last, grants.getvalue(), len(had), progress


def test_each_slice_is_granted_until_the_child_is_done() -> None:
    lines = b"ask\nover\nask\nover\ndid 1 of 2\nask\nover\ndone\n"
    assert answered(lines) == ("done", 3 * b"granted\n", 3, ["1 of 2"])


def test_a_child_that_fails_says_why_and_one_that_is_killed_does_not() -> None:
    assert answered(b"ask\nover\nfailed nothing computes it\n")[0] == "nothing computes it"
    assert answered(b"ask\n")[0] == ""


def test_a_slice_is_given_back_whatever_happens_in_it() -> None:
    said: list[str] = []
    lease = partial(asked_for, said.append, lambda: said.append("granted"))
    with pytest.raises(DeviceError), lease():
        raise DeviceError("clusters do not fit")
    with lease():
        pass
    assert said == 2 * ["ask", "granted", "over"]


def test_a_device_that_is_not_there_is_an_error() -> None:
    nowhere = DeviceInfo("amd", 77, "a GPU", amd_target("gfx1100"), 1, 1, "driver", integrated=False)
    with pytest.raises(DeviceError):
        measure_in_child(TuningJob(nowhere, Precision.FP32, Needs(())), exclusive_lease, lambda text: None)
