# SPDX-License-Identifier: GPL-3.0-or-later
"""`run_engine.py tune` as a process with real games on the `random` backend, killed and resumed."""

import json
from pathlib import Path

import pytest

from tests.programs import ENGINE, command, started

pytestmark = pytest.mark.integration

CONFIG = """
iterations = 6
pairs_per_iteration = 2
concurrency = 4
workers = 2
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


def entries(folder: Path) -> list[dict[str, object]]:
    """The complete games of the journal; none before it is there."""
    path = folder / "t.jsonl"
    lines = path.read_text("utf-8").split("\n")[1:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def test_a_killed_tuning_continues_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(CONFIG, "utf-8")
    with started(*ENGINE, "tune", "t.toml", cwd=tmp_path) as process:
        assert process.stdout is not None
        assert any(line.startswith("iteration ") for line in process.stdout)
    before = entries(tmp_path)
    assert 4 <= len(before) < 24
    done = command("tune", "t.toml", "--json", cwd=tmp_path)
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
