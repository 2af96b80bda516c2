"""Real networks in a real evaluator process: served, loaded beside, with the heads asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from evaluator.backends import open_backend
from evaluator.backends.probe import probe_batch
from evaluator.network import load_network
from evaluator.scheduling.loading import parse_backend
from protocol import EvaluatorClient
from protocol.errors import LoadFailed
from tests.paths import DATA, REPOSITORY

NETWORKS = sorted((DATA / "lc0" / "nets").glob("*.pb.gz"))

SERVE = [sys.executable, "-m", "evaluator", "serve", "--embedded"]


def test_networks_are_served_side_by_side_and_loaded_while_serving(tmp_path: Path) -> None:
    first, second = NETWORKS[0], NETWORKS[1]
    process = subprocess.Popen(
        [*SERVE, "--network", str(first), "--backend", "onnx", "--threads", "1", "--calibration-s", "0.05"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "XDG_CACHE_HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        with EvaluatorClient(address, timeout=60.0) as client:
            loaded = client.load(str(second))
            with pytest.raises(LoadFailed):
                client.load(__file__)
            batch = probe_batch(7)
            for path, name in ((first, client.networks[0].name), (second, loaded.name)):
                with open_backend("reference", load_network(path)) as reference:
                    wanted = reference.evaluate(batch)
                got = client.evaluate(batch, network=name)
                np.testing.assert_allclose(got.logits, wanted.logits, atol=1e-3)
                np.testing.assert_allclose(got.wdl, wanted.wdl, atol=1e-3)
            client.unload(loaded.name)
            assert [network.name for network in client.status().networks] == [client.networks[0].name]
    finally:
        process.kill()
        process.communicate()


def test_backends_are_written_with_their_options() -> None:
    assert parse_backend("onnx") == ("onnx", {})
    assert parse_backend("onnx:int8=true,device=1,scale=0.5,kind=a") == (
        "onnx",
        {"int8": True, "device": 1, "scale": 0.5, "kind": "a"},
    )
    with pytest.raises(ValueError, match="key=value"):
        parse_backend("onnx:int8")
