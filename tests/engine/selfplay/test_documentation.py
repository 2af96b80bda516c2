# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/how-to/self-play.md and cluster.md: their commands parse and their options exist."""

from __future__ import annotations

import argparse
import re
import shlex
from importlib import import_module

import pytest

from engine.options import Options
from engine.selfplay.config import SelfPlayConfig, selfplay_config
from tests.paths import REPOSITORY

HOW_TO = REPOSITORY / "docs" / "how-to"
TEXTS = {name: (HOW_TO / name).read_text("utf-8") for name in ("self-play.md", "cluster.md")}
COMMANDS = [
    line.split("#")[0].strip()
    for text in TEXTS.values()
    for line in text.splitlines()
    if line.startswith("wavefront ")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command: str) -> None:
    _, name, *words = shlex.split(command)
    module = import_module(f"engine.commands.{name}")
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    words = [str(REPOSITORY / word) if word.startswith("configs/") else word for word in words]
    arguments = parser.parse_args(words)
    if name == "selfplay":
        assert isinstance(module.config_of_arguments(arguments), SelfPlayConfig)


def test_the_options_in_the_table_exist() -> None:
    section = (
        TEXTS["self-play.md"]
        .split("These options of the engine control exploration")[1]
        .split("Names and meanings")[0]
    )
    names = set(re.findall(r"`([a-z_]+)`", section))
    assert len(names) >= 8
    for name in names:
        Options.setting(name)


def test_the_settings_in_the_table_exist() -> None:
    section = (
        TEXTS["self-play.md"]
        .split("## What is played")[1]
        .split("These options of the engine control exploration")[0]
    )
    keys = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    named = [key for cell in keys for key in re.findall(r"`(\[?\w+\]?)`", cell)]
    assert len(named) >= 10
    for key in named:
        document = {key.strip("[]"): {}} if key.startswith("[") else {key: getattr(SelfPlayConfig(), key)}
        selfplay_config(document, key)
