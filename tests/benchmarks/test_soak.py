"""benchmarks/service/soak.py: a short one, of which every request is answered."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evaluator.service.connections import gate
from tests.paths import REPOSITORY


@pytest.mark.slow
@pytest.mark.skipif(not gate.AVAILABLE, reason="this system has no gate to keep attackers off")
@pytest.mark.timeout(240)
def test_a_short_soak_leaves_nothing_unanswered() -> None:
    command = [sys.executable, "-m", "benchmarks.service.soak", "--minutes", "0.2"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("passed")
