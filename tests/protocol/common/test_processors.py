# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that share a machine get CPUs of their own."""

import os
import subprocess
import sys

import pytest

from protocol.common.processors import share_of_processors, usable_processors

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="the system binds no processes to processors"
)

SAY = "import os; print(*sorted(os.sched_getaffinity(0)))"


def processors_of_a_child() -> set[int]:
    output = subprocess.run([sys.executable, "-c", SAY], capture_output=True, check=True, text=True).stdout
    return set(map(int, output.split()))


def test_shares_of_processors_are_disjoint_when_there_are_enough() -> None:
    own = os.sched_getaffinity(0)
    if len(own) < 2:
        pytest.skip("there is one processor")
    found = []
    for number in range(2):
        with share_of_processors(number, 2):
            assert usable_processors() < len(own)
            found.append(processors_of_a_child())
    assert not found[0] & found[1]
    assert found[0] | found[1] == own == os.sched_getaffinity(0)


def test_processors_stay_shared_when_there_are_too_few() -> None:
    own = os.sched_getaffinity(0)
    with share_of_processors(1, len(own) + 1):
        assert processors_of_a_child() == own
