# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole tunings with simulated games: they find the optimum, and resume where they were."""

import json
import shlex
from math import nan
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from engine.apps.match.config import MatchConfig
from engine.apps.tune.result import match_command, standard_error, tuned_values
from engine.commands import match as match_command_line
from engine.workers.executor import ExecutorError
from tests.engine.apps.tune.tunings import OPTIMUM, SPSA_TOML, tune, tuning
from tests.engine.flags import parser_of

VISITS = "[parameters.transposition_visits]\nmin = 1\nmax = 60\nc_end = 3\nr_end = 0.05\n"


@pytest.mark.integration
def test_the_optimum_is_found(tmp_path: Path) -> None:
    config = tuning(tmp_path, "iterations = 300\npairs_per_iteration = 2", SPSA_TOML.replace("0.02", "0.05"))
    ending, campaign, _ = tune(config)
    assert ending == "finished"
    for value in tuned_values(config, campaign.progress.steps):
        # It starts 5 and 2.6 steps away.
        assert value.mean == pytest.approx(OPTIMUM[value.parameter.name], abs=value.parameter.c_end)
        # The order in which games end differs from run to run, and so does the error: about half a step.
        assert 0 < value.error < 2 * value.parameter.c_end
        assert abs(value.slope.value) < 3 * value.slope.error
    assert not any("±" in str(each.slope) for each in tuned_values(config, campaign.progress.steps[:3]))


@pytest.mark.integration
def test_the_optimum_is_found_against_an_opponent(tmp_path: Path) -> None:
    text = "iterations = 150\npairs_per_iteration = 1"
    config = tuning(tmp_path, text, "[opponent]\nnodes = 3\n" + SPSA_TOML.replace("0.02", "0.1"))
    _, campaign, _ = tune(config)
    assert campaign.standings.finished
    cpuct = tuned_values(config, campaign.progress.steps)[0]
    assert cpuct.mean > 2.1


def test_whole_numbers_are_played_with_whole_numbers(tmp_path: Path) -> None:
    config = tuning(tmp_path, "iterations = 30\npairs_per_iteration = 1", VISITS)
    _, campaign, executor = tune(config)
    played = [values["transposition_visits"] for changes in executor.values for values in changes.values()]
    assert all(isinstance(value, int) for value in played)
    (value,) = tuned_values(config, campaign.progress.steps)
    assert isinstance(value.rounded, int)


def test_a_failed_tuning_resumes_with_the_same_values(tmp_path: Path) -> None:
    text = "iterations = 12\npairs_per_iteration = 1\nconcurrency = 1"
    _, whole, _ = tune(tuning(tmp_path / "whole", text))
    config = tuning(tmp_path / "parts", text)
    for most in (5, 8):  # The first time in the middle of an iteration.
        with pytest.raises(ExecutorError, match="went down"):
            tune(config, most=most)
    ending, resumed, executor = tune(config)
    assert ending == "finished"
    assert resumed.resumed == 13
    assert len(executor.values) == 11
    assert resumed.progress.steps == whole.progress.steps


def test_values_follow_from_the_journal_of_concurrent_games(tmp_path: Path) -> None:
    config = tuning(tmp_path, "iterations = 20\npairs_per_iteration = 1\nconcurrency = 9")
    with pytest.raises(ExecutorError):
        tune(config, most=25)
    (tmp_path / "tune.jsonl").write_bytes((tmp_path / "tune.jsonl").read_bytes() + b'{"number":3')
    entries = [json.loads(line) for line in (tmp_path / "tune.jsonl").read_text("utf-8").splitlines()[1:-1]]
    _, campaign, _ = tune(config)
    _, again, executor = tune(config)
    assert not executor.values
    assert again.progress.steps == campaign.progress.steps
    after = [json.loads(line) for line in (tmp_path / "tune.jsonl").read_text("utf-8").splitlines()[1:]]
    assert after[: len(entries)] == entries
    assert sorted(entry["number"] for entry in after) == list(range(40))


def test_the_result_is_written_as_json_and_svg(tmp_path: Path) -> None:
    config = tuning(tmp_path, "iterations = 60\npairs_per_iteration = 1\nevent = 'a < b'")
    _, campaign, _ = tune(config)
    data = json.loads((tmp_path / "tune.json").read_text("utf-8"))
    assert data["iterations"] == data["iterations_scheduled"] == 60
    assert data["finished"] is True
    cpuct, fpu = data["parameters"]
    assert (cpuct["name"], cpuct["start"], fpu["min"]) == ("cpuct", 1.745, -0.3)
    assert cpuct["standard_error"] > 0
    assert cpuct["mean"] == tuned_values(config, campaign.progress.steps)[0].mean
    drawing = ElementTree.parse(tmp_path / "tune.svg").getroot()
    texts = [text.text or "" for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "a < b: 60 of 60 iterations"
    assert any(text.startswith("fpu_value: ") for text in texts)
    assert len(list(drawing.iter("{http://www.w3.org/2000/svg}polyline"))) == 2


def test_the_command_of_the_test_match_is_valid(tmp_path: Path) -> None:

    from engine.commands.match import config_of_arguments

    rules = "[adjudication]\nmax_moves = 200\nresign.score = 900\ndraw.moves = 6\n"
    defaults = '[defaults]\nnodes = 33\nweights = "a b,c.pb.gz"\nroot_has_own_cpuct = true\n'
    config = tuning(tmp_path, "seed = 7\nchess960 = true", defaults + rules + SPSA_TOML)
    values = tuned_values(config, [])
    words = shlex.split(match_command(config, values))
    assert words[:2] == ["wavefront", "match"]
    match: MatchConfig = config_of_arguments(parser_of(match_command_line).parse_args(words[2:]))
    tuned, default = match.players
    assert tuned.options == default.options == config.match.players[0].options
    assert tuned.time == config.match.players[0].time
    assert (match.games, match.seed, match.chess960) == (4000, 8, True)
    assert match.sprt is not None and (match.sprt.elo0, match.sprt.elo1) == (0, 5)
    assert match.adjudication == config.match.adjudication


def test_standard_error_grows_with_correlation() -> None:
    random = np.random.default_rng(1)
    noise = random.normal(size=(50, 1000))
    errors = [standard_error(sequence) for sequence in noise]
    walks = [standard_error(np.cumsum(sequence)) for sequence in noise]
    assert 1 < np.mean(errors) * np.sqrt(1000) < 2
    assert np.mean(walks) > 300 * np.mean(errors)
    assert standard_error(np.ones(100)) == 0
    assert standard_error(noise[0, :19]) is nan
