# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/how-to/self-play.md: its options and settings exist."""

import re

from engine.apps.selfplay.config import SelfPlayConfig, selfplay_config
from engine.options import Options
from tests.paths import REPOSITORY

TEXT = (REPOSITORY / "docs" / "how-to" / "self-play.md").read_text("utf-8")


def test_the_options_in_the_table_exist() -> None:
    section = TEXT.split("These options of the engine control exploration")[1].split("Names and meanings")[0]
    names = set(re.findall(r"`([a-z_]+)`", section))
    assert len(names) >= 8
    for name in names:
        Options.setting(name)


def test_the_settings_in_the_table_exist() -> None:
    section = TEXT.split("## What is played")[1].split("These options of the engine control exploration")[0]
    keys = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    named = [key for cell in keys for key in re.findall(r"`(\[?\w+\]?)`", cell)]
    assert len(named) >= 10
    for key in named:
        document = {key.strip("[]"): {}} if key.startswith("[") else {key: getattr(SelfPlayConfig(), key)}
        selfplay_config(document, key)
