# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of training, with and without PyTorch."""

import os
import tomllib
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.programs import run
from tests.training.run.runs import command, run_training

pytestmark = pytest.mark.integration


def test_settings_to_begin_with_are_written_once(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    run_training("init", path, "--preset", "tiny", "--data", "a", "b", "--output", "runs/mine")
    document = tomllib.loads(path.read_text("utf-8"))
    assert document["data"]["main"] == ["a", "b"]
    assert document["output"] == "runs/mine"
    assert "is there already" in run_training("init", path, status=1).stderr


def test_a_network_to_continue_with_is_tried(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")
    done = run_training("init", "-", "--from", "shipped")
    assert "3,9" in done.stderr
    assert tomllib.loads(done.stdout)["model"]["start"] == "shipped"
    resnet = REPOSITORY / "tests/data/lc0/nets/resnet_se_64x4_convpolicy_wdl_mlh.pb.gz"
    assert "attention body" in run_training("init", tmp_path / "a.toml", "--from", resnet, status=1).stderr


def test_without_pytorch_a_run_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('hidden by a test')\n", "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run(*command("train", "configs/train-tiny.toml"), status=1, cwd=REPOSITORY, env=environment)
    assert "pip install '.[train]' in the checkout" in done.stderr
    assert "Traceback" not in done.stderr
