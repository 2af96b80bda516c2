# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures are drawn of the metrics of runs, also of one that was killed while it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.errors import TrainingError
from training.plots import PANELS, plot_runs, read_metrics


def run_folder(folder: Path, end: str = "") -> Path:
    folder.mkdir()
    lines = [
        json.dumps({"kind": kind, "positions": 1000 * n, **{name: 1 / n for name, _ in PANELS}})
        for n in (1, 2, 3)
        for kind in ("step", "held_out")
    ]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n" + end, "utf-8")
    return folder


def test_runs_are_drawn_beside_each_other(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install '.[plot]'")
    picture = tmp_path / "runs.png"
    plot_runs([run_folder(tmp_path / "a"), run_folder(tmp_path / "b", end='{"kind": "st')], picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_unfinished_last_line_is_skipped_and_any_other_is_named(tmp_path: Path) -> None:
    assert len(read_metrics(run_folder(tmp_path / "a", end='{"kind": "st'))) == 6
    with pytest.raises(TrainingError, match="line 7 is damaged"):
        read_metrics(run_folder(tmp_path / "b", end="{\n{}\n"))
    with pytest.raises(TrainingError, match="cannot read"):
        read_metrics(tmp_path / "c")
