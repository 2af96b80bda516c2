# SPDX-License-Identifier: GPL-3.0-or-later
"""Small runs for tests: settings, shards and processes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from engine.apps.shards.shard import write_shard
from tests import programs
from tests.paths import REPOSITORY
from tests.training.labels import labelled_shard

SETTINGS: dict[str, dict[str, Any]] = {
    "data": {"holdout": 0.1, "won_share": 1.0, "decided_share": 1.0},
    "targets": {"prior": "", "score_cp": 5.0},
    "model": {
        "width": 32,
        "layers": 2,
        "heads": 2,
        "ffn": 48,
        "dense_embedding": 0,
        "smolgen_hidden": 4,
        "smolgen_dense": 16,
        "smolgen_gen": 8,
        "policy_width": 32,
        "value_channels": 4,
        "value_hidden": 16,
    },
    "optimiser": {"batch": 64, "ema": 0.99},
    "schedule": {"positions": 2560, "warmup_steps": 10},
    "run": {"device": "cpu", "threads": 1, "report_s": 1.0, "validate_s": 1000.0},
}


def write_run(folder: Path, *, games: int = 12, plies: int = 40, **changed: dict[str, Any]) -> Path:
    """A configuration in a folder with a shard of random games; changed: tables with other settings."""
    shard = folder / "data" / "0.shard"
    if not shard.exists():
        write_shard(shard, labelled_shard(games, plies))
    tables = {name: values | changed.get(name, {}) for name, values in SETTINGS.items()}
    tables["data"]["main"] = [str(shard.parent)]
    lines = [f'output = "{folder / "run"}"']
    for name, values in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
    path = folder / "run.toml"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def _toml(value: Any) -> str:
    import json

    return json.dumps(value)


def command(*arguments: object) -> list[str]:
    """`python -m training` with arguments."""
    return [sys.executable, "-m", "training", *map(str, arguments)]


def run_training(*arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command of training in this process, as to import PyTorch takes seconds."""
    return programs.command(*arguments, program="training", status=status)


def start_training(*arguments: object) -> subprocess.Popen[str]:
    """Start `python -m training`; its standard output is to be read line by line."""
    return subprocess.Popen(
        command(*arguments), cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Read a process's output up to the first line with the text in it."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return
    raise AssertionError(f"{text!r} is not in {''.join(lines)}")
