# SPDX-License-Identifier: GPL-3.0-or-later
"""evaluator/devices/running/sensing.py: what is known of power and temperature, and for how long."""

import logging
import threading
from collections.abc import Callable

import pytest

from evaluator.backends.common.sensors import Sensors
from evaluator.backends.reference.uniform import UniformBackend
from evaluator.devices.running.sensing import KEPT_S, Sensing

WAIT_S = 60.0


class Sensed(UniformBackend):
    """A device whose driver says what `answer` gives."""

    def __init__(self, answer: Callable[[], Sensors | None]) -> None:
        super().__init__()
        self.answer = answer

    def sensors(self) -> Sensors | None:
        return self.answer()


def test_sensors_are_reported_by_device() -> None:
    backends = {
        "0:gpu": Sensed(lambda: Sensors(412.5, 61.0)),
        "1:gpu": Sensed(lambda: Sensors(celsius=48.0)),
        "2:gpu": Sensed(Sensors),
        "cpu": UniformBackend(),
    }
    sensing = Sensing(lambda: backends)
    assert sensing.last() == {}
    sensing.read()
    assert sensing.last() == {"0:gpu": {"watts": 412.5, "celsius": 61.0}, "1:gpu": {"celsius": 48.0}}


def test_a_device_that_is_gone_or_tells_no_more_is_forgotten() -> None:
    first, second = Sensed(lambda: Sensors(100.0)), Sensed(lambda: Sensors(200.0))
    backends = {"0:gpu": first, "1:gpu": second}
    sensing = Sensing(lambda: backends)
    sensing.read()
    del backends["0:gpu"]
    sensing.read()
    assert sensing.last() == {"1:gpu": {"watts": 200.0}}
    second.answer = lambda: None
    sensing.read()
    assert sensing.last() == {}


def test_an_old_reading_is_reported_no_more() -> None:
    now = [0.0]
    sensing = Sensing(lambda: {"0:gpu": Sensed(lambda: Sensors(100.0))}, lambda: now[0])
    sensing.read()
    now[0] = KEPT_S
    assert sensing.last() == {"0:gpu": {"watts": 100.0}}
    now[0] = KEPT_S + 0.1
    assert sensing.last() == {}


def test_nobody_waits_for_a_driver_that_hangs() -> None:
    asked, gate = threading.Event(), threading.Event()

    def hang() -> Sensors:
        asked.set()
        assert gate.wait(WAIT_S)
        return Sensors(200.0)

    told = threading.Event()

    def after() -> Sensors:
        told.set()
        return Sensors(300.0)

    sensing = Sensing(
        lambda: {"0:gpu": Sensed(lambda: Sensors(100.0)), "1:gpu": Sensed(hang), "2:gpu": Sensed(after)}
    )
    sensing.start()
    assert asked.wait(WAIT_S)
    assert sensing.last() == {"0:gpu": {"watts": 100.0}}
    sensing.stop()
    gate.set()
    assert told.wait(WAIT_S)
    sensing._thread.join(WAIT_S)
    assert not sensing._thread.is_alive()


def test_a_surprise_is_logged_once_and_costs_the_numbers_alone(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Sensors:
        raise OSError("no such ioctl")

    sensing = Sensing(lambda: {"0:gpu": Sensed(fail)})
    with caplog.at_level(logging.ERROR):
        sensing.start()
        sensing._thread.join(WAIT_S)
    assert "status goes without them" in caplog.text
    assert sensing.last() == {}
