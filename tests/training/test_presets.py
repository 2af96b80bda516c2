# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped settings are what the program would write, and every key in them is read."""

import tomllib

import pytest

from tests.paths import REPOSITORY
from training.config import train_config
from training.presets import PRESETS, config_text


@pytest.mark.parametrize("name", PRESETS)
def test_the_file_of_a_preset_is_up_to_date_and_reads_as_the_preset(name: str) -> None:
    heading, config = PRESETS[name]
    path = REPOSITORY / "configs" / f"train-{name}.toml"
    text = path.read_text("utf-8")
    assert text == config_text(config, heading), f"python -m training init --preset {name} - > {path}"
    assert train_config(tomllib.loads(text), str(path)) == config
