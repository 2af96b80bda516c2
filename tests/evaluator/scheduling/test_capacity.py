# SPDX-License-Identifier: GPL-3.0-or-later
"""Several devices described as one: rate, recommended batch, curve."""

import pytest

from benchmarks.batching.simulation import CURVES, curve_model
from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.placement import together
from protocol.wire.messages import best_rate


def model(curve: str = "h200-t82", padded: bool = False) -> LatencyModel:
    return curve_model(curve, padded=padded)


@pytest.mark.parametrize("curve", CURVES)
def test_one_device_is_described_as_it_is(curve: str) -> None:
    one = model(curve)
    assert together([one]) == (one.knee, one.curve())


@pytest.mark.parametrize("padded", [False, True], ids=["smooth", "padded"])
@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("devices", [2, 4])
def test_like_devices_have_the_sum_of_their_rates(curve: str, padded: bool, devices: int) -> None:
    one = model(curve, padded)
    batch, whole = together([model(curve, padded) for _ in range(devices)])
    assert batch == devices * one.knee
    assert best_rate(whole) == pytest.approx(devices * best_rate(one.curve()), rel=0.1)
    times = dict(whole)
    assert times[batch] <= 1.1 * one.milliseconds(one.knee) + 0.2
    assert [size for size, _ in whole] == sorted(times)
    assert [ms for _, ms in whole] == sorted(times.values())


def test_a_slow_device_adds_what_it_can_whichever_comes_first() -> None:
    fast = LatencyModel({1: 1.03, 1024: 1 + 0.03 * 1024}, 1024)
    slow = LatencyModel({1: 22.0, 1024: 20 + 2 * 1024.0}, 1024)
    first, second = together([fast, slow]), together([slow, fast])
    assert first == second
    assert fast.knee <= first[0] <= fast.knee + 10
    assert dict(first[1])[1] == pytest.approx(1.03)


def test_a_curve_is_not_worse_for_another_device() -> None:
    one = model()
    _, whole = together([model(), model("cpu2-attention")])
    for size, ms in whole:
        assert ms <= one.drain_ms(size) + 1e-3
