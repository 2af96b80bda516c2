# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels are held against deep ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.selfplay.shard import write_shard
from tests.paths import REPOSITORY
from tests.training.labels import labelled_shard

pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")
from benchmarks.strength.label_quality import Depth, depth_of


@pytest.mark.parametrize(
    ("text", "nodes", "line_nodes", "warm"),
    [("40", 40, 0, False), ("4000:1500:warm", 4000, 1500, True), ("9:warm", 9, 0, True)],
)
def test_depth_is_read_from_the_command_line(text: str, nodes: int, line_nodes: int, warm: bool) -> None:
    assert depth_of(text) == Depth(text, nodes, line_nodes, warm)


@pytest.mark.integration
def test_labels_of_the_same_engine_are_perfect(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.shard", labelled_shard(2, 10))
    engine = f"{sys.executable} -m tests.training.label.scripted_engine"
    command = [sys.executable, "-m", "benchmarks.strength.label_quality", str(tmp_path), "--engine", engine]
    done = subprocess.run(
        [
            *command,
            "--labels",
            "10",
            "10:5:warm",
            "--prior",
            "wavefront-cpu",
            "--keep",
            str(tmp_path),
            "--json",
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    prior, *labels = json.loads(done.stdout)
    assert len(labels) == 8
    assert prior["all"]["top1"] < 0.5
    for report in labels:
        if "prior" not in report["network"]:
            assert report["all"]["top1"] == 1
        assert report["all"]["log_loss_best"] < prior["all"]["log_loss_best"]
    assert (tmp_path / "10-5-warm.json").exists()
