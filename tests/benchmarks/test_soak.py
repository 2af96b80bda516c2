# SPDX-License-Identifier: GPL-3.0-or-later
"""benchmarks/service/soak.py: a minute of it, with all that it has, and its verdict."""

import re
import sys

import pytest

from evaluator.service.connections import hub_sockets
from tests.paths import REPOSITORY
from tests.programs import run

MOST_MB = 600
"""Of the service, eight attackers' worst (64 MB each) among them; 120 on a quiet machine."""


@pytest.mark.soak
@pytest.mark.skipif(not hub_sockets.AVAILABLE, reason="this system has no limits to keep attackers off")
@pytest.mark.timeout(400)
def test_minute_of_everything_leaves_nothing_unanswered() -> None:
    command = (sys.executable, "-m", "benchmarks.service.soak", "--minutes", "1")
    done = run(*command, cwd=REPOSITORY, timeout=None)
    assert done.stdout.rstrip().endswith("passed")
    # And it did happen: each trouble has done what it is for, and a device was left out for a time.
    for trouble, step in (
        ("Attacks", "never_ends"),
        ("Administration", "SIGHUP"),
        ("Page", "/ready"),
        ("KilledEngines", "killed while searching"),
        ("Web", "left"),
        ("Lichess", "job"),
    ):
        assert re.search(rf"^{trouble}: .*'{step}': [1-9]", done.stdout, re.M), done.stdout
    assert "network first is run elsewhere" in done.stdout, done.stdout
    (peak,) = re.findall(r"^memory: .* at most (\d+) MB$", done.stdout, re.M)
    assert int(peak) < MOST_MB
