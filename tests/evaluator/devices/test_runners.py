"""What a network on a device learns of its own speed."""

from __future__ import annotations

import pytest

from evaluator.backends.random import RandomBackend
from evaluator.devices.runners import Device, new_runner
from evaluator.scheduling.batching import LatencyTargets
from evaluator.scheduling.latency import LatencyModel


class BesideEachOther(RandomBackend):
    """Batches of up to 64 positions may compute at the same time."""

    def computes_beside(self, positions: int) -> bool:
        return positions <= 64


@pytest.mark.parametrize(
    ("positions", "alone", "learns"), [(64, True, True), (64, False, False), (65, False, True)]
)
def test_a_batch_that_had_to_share_the_device_says_nothing(positions: int, alone: bool, learns: bool) -> None:
    model = LatencyModel({1: 1.0, 256: 1.0}, 256)
    runner = new_runner(Device("a device"), BesideEachOther(), model, LatencyTargets(), lambda: None)
    runner.learn(positions, 1.5, alone=alone)
    assert model.observations == int(learns)
