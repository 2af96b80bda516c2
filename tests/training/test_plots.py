# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures are drawn of the metrics of runs, also of one that was killed while it wrote."""

import json
from pathlib import Path

import pytest

from training.errors import TrainingError
from training.plots import METRICS, PANELS, plot_loop, plot_runs, read_entries


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
    assert len(read_entries(run_folder(tmp_path / "a", end='{"kind": "st') / METRICS)) == 6
    with pytest.raises(TrainingError, match="line 7 is damaged"):
        read_entries(run_folder(tmp_path / "b", end="{\n{}\n") / METRICS)
    with pytest.raises(TrainingError, match="cannot read"):
        read_entries(tmp_path / "c" / METRICS)


def test_a_loop_is_drawn_with_both_of_its_gates(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install '.[plot]'")
    gates = [{"value": 20.0, "low": 5.0, "high": 35.0}, {"value": 10.0, "low": -5.0, "high": 25.0}]
    ends = [(True, gates), (False, gates[:1]), (True, gates)]
    lines: list[dict[str, object]] = [{"journal": "wavefront training loop"}]
    lines += [
        {"generation": n, "step": "promote", "accepted": won, "elo": elo} for n, (won, elo) in enumerate(ends)
    ]
    journal = tmp_path / "journal.jsonl"
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    picture = tmp_path / "loop.svg"
    plot_loop(journal, picture)
    drawn = picture.read_text("utf-8")
    assert drawn.startswith("<?xml") and "at equal nodes" in drawn and "under a clock" in drawn
