"""The comparison of both ways to measure, on the stand-in runtime."""

from __future__ import annotations

import pytest

from benchmarks.backends.tuning import Way, compared, measure, report
from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan.needs import Needs
from evaluator.gpu.plan.tiles import Choice, candidates
from evaluator.gpu.tuning.bench import Bench
from evaluator.network.spec import Activation
from tests.evaluator.gpu.fibers import open_amd
from tests.hip_runtime.standin import Runtime


@pytest.mark.kernels
def test_both_ways_are_measured_and_their_choices_compared(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_amd()
    products = [Product(m, 32, 512, Activation.NONE) for m in (8, 16, 24)]

    def looked(bench: Bench, choice: Choice) -> float:
        assert choice.tile is not None
        return choice.splits + choice.tile.block_m / 1000  # no two are alike

    monkeypatch.setattr(Bench, "first_look", looked)
    monkeypatch.setattr(Bench, "second_look", lambda bench, choice, once: once)
    ways = {
        shortlists: measure(device, (), Needs(products), shortlists=shortlists, precision=Precision.FP32)
        for shortlists in (True, False)
    }
    assert ways[True].candidates < ways[False].candidates
    assert set(ways[True].chosen) == set(products)
    assert compared(device, (), ways[False], ways[True], Precision.FP32) == {}

    monkeypatch.setattr(Bench, "in_turns", lambda bench, choices, about_us: [2.0, 3.0])
    other = next(
        choice
        for choice in candidates(products[1], device.info.target, Precision.FP32)
        if choice != ways[False].chosen[products[1]]
    )
    short = Way(1.0, 5, ways[True].chosen | {products[1]: other}, ways[True].microseconds)
    again = compared(device, (), ways[False], short, Precision.FP32)
    assert again == {products[1]: (2.0, 3.0)}
    text = report(ways[False], short, again)
    assert "1 of 3 products have other choices; with shortlists all take +32.81 % longer" in text
    assert f"{other} 3.0 us" in text
