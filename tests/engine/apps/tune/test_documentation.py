# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/how-to/tune-search.md: its options, columns and keys exist."""

import io
import re
from pathlib import Path

from rich.console import Console

from engine.apps.campaign.display import PlainView
from engine.apps.tune.display import DISPLAY, values_table
from tests.engine.apps.tune.tunings import tune, tuning
from tests.paths import REPOSITORY

TEXT = (REPOSITORY / "docs" / "how-to" / "tune-search.md").read_text("utf-8")
ROWS = re.findall(r"^\| (?:(.+), )?`(\w+)` \|", TEXT.split("## Read the result")[1], re.MULTILINE)


def test_documented_columns_and_keys_are_shown_and_logged(tmp_path: Path) -> None:
    config = tuning(tmp_path, "iterations = 45\npairs_per_iteration = 1")
    _, campaign, _ = tune(config)
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    console.print(values_table(campaign))
    assert isinstance(console.file, io.StringIO)
    table = console.file.getvalue()
    (parameter, _) = (campaign.summary() or {})["parameters"]
    assert len(ROWS) == 5
    for column, key in ROWS:
        assert column in table
        assert key in parameter
    assert "fpu_value" in table
    stream = io.StringIO()
    view = PlainView(DISPLAY, stream)
    view.game_over(campaign, None)  # type: ignore[arg-type]  # The record is not shown.
    first, cpuct, _ = stream.getvalue().splitlines()
    assert first.startswith("iteration 45 of 45, 90 of 90 games; ")
    assert re.fullmatch(
        r"  cpuct: [\d.]+ ± [\d.]+, last [\d.]+, start 1.745, Elo per c_end [+-][\d.]+ ± [\d.]+", cpuct
    )
