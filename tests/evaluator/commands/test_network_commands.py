# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator describe`, `export` and `random-network`, run as users run them."""

import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

from evaluator.backends.common.batches import expand_planes
from evaluator.backends.common.probe import probe_batch
from evaluator.backends.onnx.runtime import onnxruntime as ort
from evaluator.backends.reference.backend import forward
from evaluator.network import SHIPPED_NETWORK, load_network
from tests.programs import command


def evaluator(*arguments: object) -> subprocess.CompletedProcess[str]:
    return command(*arguments, program="evaluator", status=None)


def test_describes_the_shipped_network_by_default() -> None:
    result = evaluator("describe", "--json")
    assert result.returncode == 0, result.stderr
    description = json.loads(result.stdout)
    assert description["name"] == "wavefront-cpu"
    assert description["cost"]["parameters"] == 3_928_748
    assert description["cost"]["gflop_per_position"] == pytest.approx(0.193, abs=0.001)
    assert description["body"]["encoder_layers"] == 8
    assert description["heads"]["policy_heads"] == ["vanilla"]


def test_describes_in_words_too() -> None:
    result = evaluator("describe")
    assert result.returncode == 0, result.stderr
    for words in ("3,928,748", "encoder layers", "CC0", "LINEAR16"):
        assert words in result.stdout


@pytest.mark.parametrize("name", ["describe", "export"])
def test_a_missing_file_is_one_line_of_error(name: str, tmp_path: Path) -> None:
    arguments: list[object] = [name, tmp_path / "nothing.pb.gz"]
    if name == "export":
        arguments.append(tmp_path / "out.onnx")
    result = evaluator(*arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.strip().endswith("there is no such file; check the path")
    assert result.stderr.count("\n") == 1


@pytest.mark.integration
def test_an_exported_network_computes_the_same_elsewhere(tmp_path: Path) -> None:
    out = tmp_path / "shipped.onnx"
    result = evaluator("export", out)
    assert result.returncode == 0, result.stderr
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} == {""}  # standard operators only
    assert "input_format" in {entry.key for entry in model.metadata_props}

    planes = expand_planes(probe_batch(3).positions)
    session = ort.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    policy, wdl, moves_left = session.run(
        ["policy", "wdl", "moves_left"], {"planes": planes.reshape(3, 112, 8, 8)}
    )
    expected = forward(load_network(SHIPPED_NETWORK), planes)
    assert np.abs(policy - expected.policy).max() < 1e-4
    assert np.abs(wdl - expected.value).max() < 1e-5
    assert expected.moves_left is not None
    assert np.abs(moves_left - expected.moves_left).max() < 1e-3


def test_export_to_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    result = evaluator("export", tmp_path / "no" / "such" / "folder.onnx")
    assert result.returncode == 1
    assert "cannot write" in result.stderr


def test_a_made_up_network_is_a_network(tmp_path: Path) -> None:
    out = tmp_path / "tiny.pb.gz"
    result = evaluator("random-network", "tiny-attention", out, "--seed", "3", "--encoding", "float16")
    assert result.returncode == 0, result.stderr
    assert load_network(out).info.encodings == ("FLOAT16",)


def test_an_unknown_shape_lists_the_known(tmp_path: Path) -> None:
    result = evaluator("random-network", "enormous", tmp_path / "x.pb.gz")
    assert result.returncode == 1
    assert "known are tiny-resnet, " in result.stderr
