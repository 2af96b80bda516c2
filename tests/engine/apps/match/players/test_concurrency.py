# SPDX-License-Identifier: GPL-3.0-or-later
"""How many games a match plays at once by itself."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from engine.apps.match.players.cache import suggested_concurrency
from engine.apps.match.timecontrol import TimeControl
from tests.engine.apps.match.matches import engine, match, program

CLOCK, MOVETIME = TimeControl(base_ms=3000, increment_ms=30), TimeControl(movetime_ms=100)


@pytest.mark.parametrize("time", [CLOCK, MOVETIME])
def test_timed_games_of_this_engine_do_not_share_the_device(tmp_path: Path, time: TimeControl) -> None:
    players = [replace(engine("a"), time=time), program("b")]
    assert suggested_concurrency(match(tmp_path, players, games=100), None) == 1
    assert suggested_concurrency(match(tmp_path, players[::-1], games=100), None) == 1


def test_programs_have_a_core_each_with_a_clock_or_without(tmp_path: Path) -> None:
    for time in (CLOCK, TimeControl(nodes=5)):
        players = [replace(program(name), time=time) for name in ("a", "b")]
        found = suggested_concurrency(match(tmp_path, players, games=1000), None)
        assert found == min(1000, os.cpu_count() or 1)
