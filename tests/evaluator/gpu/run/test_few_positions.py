"""The comparison of all ways to compute a few positions, on the stand-in runtime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.backends import few_positions
from benchmarks.backends.few_positions import MANY, PERSISTENT, EveryWay, measured, print_layer, print_results
from benchmarks.backends.persistent_forms import Result
from evaluator.gpu.driver.compiler import Compiler
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.run.executor import Executor
from evaluator.network.random_network import NetworkShape, random_network
from tests.evaluator.gpu.fibers import ModelTuner, open_amd
from tests.hip_runtime.standin import Runtime

SHAPE = NetworkShape(64, layers=2, heads=2, ffn=96, smolgen=(8, 32, 32), policy_width=32)


@pytest.mark.kernels
def test_ways_are_compared(
    runtime: Runtime, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(few_positions, "TURNS", 1)
    monkeypatch.setattr(few_positions, "RUNS", 1)
    monkeypatch.setattr(few_positions, "PERSISTENT", {"one launch": PERSISTENT["one launch"]})
    runtime.reset("gfx1100")
    device = open_amd()
    tuner = ModelTuner(device, Precision.FP16)
    network = random_network(SHAPE, seed=1)
    plan = EveryWay(network, device.info.target, Precision.FP16, tuner.choose, blocks=4)
    executor = Executor(device, Compiler(device, cache_folder=kernel_cache), plan, (1, 4), in_flight=1)
    found = measured(executor, plan, (1, 4), network)
    assert {way: [*results] for way, results in found.items()} == {MANY: [1, 4], "one launch": [1]}
    assert print_results("shape", found, (1, 4))
    print_layer(executor, plan, 1)
    printed = capsys.readouterr().out
    assert "WRONG" not in printed
    assert "one launch at 1:" in printed and "attention" in printed
    executor.close()


def test_what_is_wrong_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"way": {1: Result(1.0, 0.0, [0.4, 0.5, 3.0])}}
    assert not print_results("shape", found, (1, 2))
    line = capsys.readouterr().out.splitlines()[-1]
    assert "0.500 (1.0000) WRONG" in line and line.endswith("-")


def test_forms_are_what_they_are_called() -> None:
    assert PERSISTENT["one launch"] == replace(PERSISTENT["one, pairs"], pairs=False, most_positions=2)
