# SPDX-License-Identifier: GPL-3.0-or-later
"""A tuning's configuration: what a file means, and the errors for its mistakes."""

import tomllib
from pathlib import Path

import pytest

from engine.apps.games.identity import differences
from engine.apps.tune.config import tune_config
from protocol.common.settings.sources import read_document
from protocol.common.settings.spec import SettingsError
from tests.engine.apps.tune.tunings import tuning
from tests.paths import REPOSITORY

CPUCT = "[parameters.cpuct]\nmin = 1\nmax = 3\nc_end = 0.2\n"


def test_a_parameter_starts_at_the_players_value(tmp_path: Path) -> None:
    config = tuning(tmp_path, "", "[defaults]\ncpuct = 2.5\nnodes = 7\n" + CPUCT)
    (parameter,) = config.parameters
    assert (parameter.start, parameter.low, parameter.high, parameter.r_end) == (2.5, 1, 3, 0.002)
    assert [str(player.time) for player in config.match.players] == ["7 nodes", "7 nodes"]


def test_both_sides_meet_an_opponent_with_the_same_openings(tmp_path: Path) -> None:
    config = tuning(tmp_path, "iterations = 2\npairs_per_iteration = 3", "[opponent]\nnodes = 50\n" + CPUCT)
    assert [player.name for player in config.match.players] == ["opponent", "theta+", "theta-"]
    assert config.games_per_iteration == 12
    schedule = config.match.schedule
    assert len(schedule) == 24
    assert {(game.white, game.black) for game in schedule} == {(0, 1), (1, 0), (0, 2), (2, 0)}
    assert [game.round for game in schedule][:12] == [0] * 4 + [1] * 4 + [2] * 4


def test_the_file_in_configs_is_valid() -> None:
    config = tune_config(read_document(REPOSITORY / "configs" / "tune.toml"), "configs/tune.toml")
    assert len(config.parameters) == 13
    assert len(config.match.schedule) == 20_000


def test_another_parameter_or_number_of_iterations_is_another_tuning(tmp_path: Path) -> None:
    plain = tuning(tmp_path, "", CPUCT).identity()
    assert differences(plain, tuning(tmp_path, "iterations = 2000", CPUCT).identity())
    assert differences(plain, tuning(tmp_path, "", CPUCT + "start = 2").identity())
    assert not differences(plain, tuning(tmp_path, "concurrency = 3", CPUCT).identity())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"nothing to tune: add a table \[parameters.NAME\]"),
        (CPUCT.replace("cpuct", "cpukt"), r"\[parameters.cpukt\]: no such option: 'cpukt'; did you mean 'cp"),
        (CPUCT.replace("cpuct", "weights"), "weights is not a number.*set it in"),
        (CPUCT.replace("cpuct", "sticky_endgames"), "sticky_endgames is not a number"),
        (CPUCT.replace("cpuct", "threads"), "threads belongs to the evaluator.*set it in"),
        (CPUCT.replace("cpuct", "cpuct_at_root"), "no effect: set root_has_own_cpuct = true in"),
        (CPUCT.replace("cpuct", "fpu_value_at_root"), "fpu_strategy_at_root = reduction or absolute"),
        (CPUCT.replace("min = 1", "min = 5"), "min 5 is not below max 3: exchange them"),
        (CPUCT.replace("min = 1", "min = -1"), r"min: CPuct is a number from 0 to 100, not -1"),
        (CPUCT.replace("max = 3", "max = 300"), "max: CPuct is a number from 0 to 100, not 300"),
        (CPUCT.replace("max = 3", ""), "max is missing: write max = NUMBER"),
        (CPUCT + "start = 4", "start 4 is not in 1 to 3: change start, or min and max"),
        (CPUCT.replace("min = 1", "min = 2"), "start 1.745 is not in 2 to 3"),
        (CPUCT.replace("0.2", "0"), "c_end 0 is not above 0 to 1, half of the range"),
        (CPUCT.replace("0.2", "1.5"), "c_end 1.5 is not above 0 to 1, half of the range"),
        (CPUCT.replace("cpuct", "transposition_visits"), "start 16 is not in 1 to 3"),
        (CPUCT.replace("cpuct", "transposition_visits") + "start = 2", "c_end 0.2 is not 0.5 to 1"),
        (CPUCT + "r_end = 0", "r_end is 0.*try 0.002"),
        (CPUCT + "c = 1", "no such key: 'c'"),
        ("games = 10\n" + CPUCT, "games is a setting of `wavefront match`: remove it"),
        ("[[player]]\n" + CPUCT, "player is a setting of `wavefront match`"),
        ("iterations = 0\n" + CPUCT, "iterations is a whole number from 1"),
        ("iterations = 1000000\npairs_per_iteration = 10000\n" + CPUCT, "times pairs_per_iteration is over"),
        ("[defaults]\ncpukt = 1\n" + CPUCT, r"\[defaults\]: no such option: 'cpukt'"),
        ("[opponent]\ncpukt = 1\n" + CPUCT, r"\[opponent\]: no such option: 'cpukt'"),
        ("parameters = 3", r"\[parameters\] is a table"),
        ("parameters.cpuct = 3", r"\[parameters.cpuct\] is a table"),
        ("[openings]\nfiles = 1\n" + CPUCT, "did you mean 'file'"),
    ],
)
def test_mistakes_are_named_with_a_remedy(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        tune_config(tomllib.loads(text), "tune.toml")
    assert str(caught.value).startswith("tune.toml: ")
