# SPDX-License-Identifier: GPL-3.0-or-later
"""`run_engine.py tune` as a process with real games on the `random` backend, killed and resumed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

pytestmark = pytest.mark.integration

CONFIG = """
iterations = 6
pairs_per_iteration = 2
concurrency = 4
workers = {workers}
[defaults]
backend = "random"
hash = 1
nodes = 8
[adjudication]
max_moves = 40
[parameters.cpuct]
min = 0.5
max = 4
c_end = 0.5
r_end = 0.1
[parameters.policy_temperature]
min = 0.5
max = 3
c_end = 0.3
"""


def command(folder: Path, *flags: str) -> list[str]:
    return [sys.executable, str(REPOSITORY / "run_engine.py"), "tune", str(folder / "t.toml"), *flags]


def entries(folder: Path) -> list[dict[str, object]]:
    """The complete games of the journal; none before it is there."""
    path = folder / "t.jsonl"
    lines = path.read_text("utf-8").split("\n")[1:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_tuning_continues_where_it_was(tmp_path: Path, workers: int) -> None:
    (tmp_path / "t.toml").write_text(CONFIG.format(workers=workers), "utf-8")
    process = subprocess.Popen(command(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("iteration "):
                break
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    before = entries(tmp_path)
    assert 4 <= len(before) < 24
    done = subprocess.run(
        command(tmp_path, "--json"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    after = entries(tmp_path)
    assert after[: len(before)] == before
    assert sorted(int(str(entry["number"])) for entry in after) == list(range(24))
    result = json.loads(done.stdout)
    assert (result["iterations"], result["games"], result["finished"]) == (6, 24, True)
    assert [each["name"] for each in result["parameters"]] == ["cpuct", "policy_temperature"]
    assert result["test"].startswith("wavefront match --player name=tuned,cpuct=")
    assert (tmp_path / "t.svg").read_text("utf-8").startswith("<svg ")
    # Games of one iteration have the same values.
    for number in range(6):
        thetas = [entry["theta"] for entry in after if int(str(entry["number"])) // 4 == number]
        assert len(thetas) == 4
        assert all(theta == thetas[0] for theta in thetas)
