# SPDX-License-Identifier: GPL-3.0-or-later
"""From which batches a network on a device learns what they take."""

import pytest

from evaluator.backends.reference.random import RandomBackend
from evaluator.devices.runners import Device, new_runner
from evaluator.scheduling.batching import LatencyTargets
from evaluator.scheduling.latency import LatencyModel


class BesideEachOther(RandomBackend):
    """Batches of up to 64 positions may compute at the same time as others."""

    def computes_beside(self, positions: int) -> bool:
        return positions <= 64


@pytest.mark.parametrize(
    ("batches", "shared"), [([64, 64], True), ([64, 1000], True), ([65, 1000], False), ([], False)]
)
def test_batches_share_a_device_when_one_runs_beside_others(batches: list[int], shared: bool) -> None:
    model = LatencyModel({1: 1.0, 256: 1.0}, 256)
    runner = new_runner(Device("a device"), BesideEachOther(), model, LatencyTargets(), lambda: None)
    assert runner.may_share(batches) == shared
