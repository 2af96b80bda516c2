"""The comparison of the persistent kernel's forms, on the stand-in runtime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.backends import persistent_forms
from benchmarks.backends.persistent_forms import (
    FORMS,
    MANY,
    PHASES,
    Comparison,
    Result,
    phase_cycles,
    print_results,
    read_stamps,
)
from evaluator.gpu.driver.compiler import Compiler
from evaluator.gpu.plan.persistent_form import EVENTS
from evaluator.network.random_network import NetworkShape, random_network
from tests.evaluator.gpu.fibers import ModelTuner, open_amd
from tests.hip_runtime.standin import Runtime

SHAPE = NetworkShape(64, layers=2, heads=2, ffn=96, smolgen=(8, 32, 32), policy_width=32)


@pytest.mark.kernels
def test_forms_are_compared_and_their_phases_noted(
    runtime: Runtime, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(persistent_forms, "TURNS", 1)
    monkeypatch.setattr(persistent_forms, "RUNS", 1)
    runtime.reset("gfx1100")
    device = open_amd()
    device.info = replace(device.info, cooperative=True)
    compiler = Compiler(device, cache_folder=kernel_cache)
    tuner = ModelTuner(device, persistent_forms.PRECISION)
    forms = {name: replace(FORMS[name], stamps=True) for name in ("as it is", "all")}
    comparison = Comparison(random_network(SHAPE, seed=1), device, compiler, forms, [1], tuner)
    found = comparison.results()
    assert [*found] == [MANY, "as it is", "all"]
    assert all(result.right and result.ms > 0 for results in found.values() for result in results.values())
    assert print_results("shape", found, [1, 2])
    assert "WRONG" not in capsys.readouterr().out
    spans = {name: phase_cycles(read_stamps(device, each, 1)) for name, each in comparison.executors.items()}
    assert [*spans["as it is"]] == [*PHASES]
    assert [*spans["all"]] == [name for name in PHASES if name != "generate"]
    for of in spans.values():
        assert all(span >= 0 for phase in of.values() for span in phase)
        assert sum(of["ffn1"]) > 0
    comparison.close()


def test_what_is_wrong_is_named_and_what_is_missing_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    assert not print_results("shape", {"form": {1: Result(1.0, 0.0, [0.4, 0.5, 3.0])}}, [1, 2])
    line = capsys.readouterr().out.splitlines()[-1]
    assert "0.500 (1.0000) WRONG" in line and line.endswith("-")


def test_cycles_of_a_phase_are_means_over_blocks_that_have_a_tile() -> None:
    stamps = np.zeros((3, 3, len(PHASES), EVENTS), np.uint64)
    stamps[0, 1:, 1] = [100, 110, 130, 160, 200]
    stamps[1, 1:, 1] = [500, 530, 530, 540, 540]
    stamps[2, 1:, 1, 0] = 7  # this block has no tile
    stamps[0, 0, 1] = [1, 1000, 2000, 3000, 4000]  # the first layer does not count
    stamps[0, 1:, 0] = [10, 20, 0, 0, 50]  # squeezing notes less
    assert phase_cycles(stamps) == {"squeeze": [10, 0, 0, 30], "q, k, v": [20, 10, 20, 20]}
