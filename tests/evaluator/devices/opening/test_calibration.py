# SPDX-License-Identifier: GPL-3.0-or-later
"""Measuring a latency curve and keeping it."""

import itertools
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

import platformdirs
import pytest

from evaluator.devices.machine import others_share
from evaluator.devices.opening import calibration
from evaluator.devices.opening.calibration import MIN_OBSERVATIONS, latency_model, time_batches
from evaluator.scheduling.latency import LatencyModel, steps_to
from evaluator.settings import DeviceSettings
from protocol.batch import EvaluationBatch, PositionBatch
from tests.evaluator.service.echo import EchoBackend

QUICK = DeviceSettings(calibration_s=0.05)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of cached curves, one of our own."""
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_: str(tmp_path))
    monkeypatch.setattr(calibration, "MAX_OTHERS_SHARE", inf)  # Whatever else this machine does.
    return tmp_path / "latency"


class TimedBackend(EchoBackend):
    """Computes in the time that `milliseconds` gives for a batch of so many, by a clock of its own."""

    def __init__(self, milliseconds: Callable[[int], float] = lambda size: 1.0 + size / 10) -> None:
        super().__init__(max_batch=256)
        self.milliseconds = milliseconds
        self.now = 1000.0

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        self.now += self.milliseconds(len(batch)) / 1000
        return super().evaluate(batch)

    def clock(self) -> float:
        return self.now


def measured(backend: TimedBackend) -> tuple[LatencyModel, Callable[[], None]]:
    """The model of a backend with a clock of its own, and what caches what it has learnt."""
    return latency_model(backend, "hash", DeviceSettings(calibration_s=60.0), clock=backend.clock)


def test_the_best_run_of_each_size_counts_after_one_to_warm_up() -> None:
    times = iter([9.0, 3.0, 2.0, 2.5, 1.0, 4.0, 5.0, 4.5])
    backend = TimedBackend(lambda size: next(times))
    assert time_batches(backend, [1, 2], 60.0, clock=backend.clock) == pytest.approx({1: 2.0, 2: 4.0})
    assert backend.sizes == [1, 1, 1, 1, 2, 2, 2, 2]


def test_a_size_that_seems_disturbed_is_measured_once_more() -> None:
    times = iter([2.0] * 4 + [8.0] * 4 + [3.0] * 3)
    backend = TimedBackend(lambda size: next(times))
    assert time_batches(backend, [1, 2], 60.0, clock=backend.clock) == pytest.approx({1: 2.0, 2: 3.0})


def test_measuring_keeps_to_its_budget() -> None:
    backend = TimedBackend(lambda size: 10.0 * size)
    assert list(time_batches(backend, [1, 2, 4, 8], 0.15, clock=backend.clock)) == [1, 2]
    assert backend.now - 1000.0 <= 0.15


def test_curve_is_the_same_when_most_runs_wait_for_a_processor() -> None:
    waits = itertools.cycle([20.0, 20.0, 20.0, 0.0, 20.0])
    idle, busy = TimedBackend(), TimedBackend(lambda size: 1.0 + size / 10 + next(waits))
    curves = [time_batches(each, steps_to(256), 2.0, clock=each.clock) for each in (idle, busy)]
    assert curves[1] == pytest.approx(curves[0])
    assert max(curves[1]) == 256


def test_waiting_for_a_busy_device_is_no_part_of_the_budget() -> None:
    backend = TimedBackend()

    @contextmanager
    def lease() -> Iterator[None]:
        backend.now += 10.0
        yield

    sizes = [1, 2, 4, 8, 16, 32, 64, 128]
    assert list(time_batches(backend, sizes, 2.0, clock=backend.clock, lease=lease)) == sizes


def test_measuring_ends_after_three_sizes_without_growth() -> None:
    backend = TimedBackend(lambda size: max(1.0, size / 8))
    sizes = [1, 2, 4, 8, 16, 32, 64, 128]
    assert list(time_batches(backend, sizes, 60.0, clock=backend.clock)) == [1, 2, 4, 8, 16, 32, 64]


def test_the_first_size_is_measured_whatever_the_budget() -> None:
    assert list(time_batches(EchoBackend(), [1, 2, 4], 1e-9)) == [1]


def test_batches_that_are_computed_side_by_side_are_measured_so() -> None:
    backend = EchoBackend()
    backend.max_in_flight, backend.side_by_side = 2, True
    meeting = threading.Barrier(2, timeout=60)
    answer = backend.answer

    def wait_for_company(batch: PositionBatch) -> EvaluationBatch:
        meeting.wait()
        return answer(batch)

    backend.answer = wait_for_company
    assert list(time_batches(backend, [1, 2], 60.0)) == [1, 2]


def test_sizes_beyond_the_device_are_omitted() -> None:
    assert max(time_batches(EchoBackend(max_batch=16), [1, 8, 16, 32], 5.0, stop_when_flat=False)) == 16


def test_a_measured_curve_is_used_again(cache: Path) -> None:
    backend = EchoBackend()
    model, _ = latency_model(backend, "hash", DeviceSettings(threads=2, calibration_s=0.05))
    backend.sizes.clear()
    again, _ = latency_model(backend, "hash", DeviceSettings(threads=2, calibration_s=0.05))
    assert backend.sizes == []
    assert again.curve() == model.curve()
    latency_model(backend, "another network", DeviceSettings(threads=2, calibration_s=0.05))
    assert backend.sizes != []


@pytest.mark.parametrize(("buckets", "next_size"), [((), 48), ((1, 32, 80, 256), 80)], ids=["any", "padded"])
def test_unfinished_cached_curve_continues(cache: Path, buckets: tuple[int, ...], next_size: int) -> None:
    backend = EchoBackend(max_batch=256)
    latency_model(backend, "hash", QUICK)
    (file,) = cache.iterdir()
    file.write_text(json.dumps({"curve": [[1, 1.0], [32, 10.0]]}))
    backend.buckets = buckets
    model, _ = latency_model(backend, "hash", QUICK)
    assert (model.measured, model.max_batch, model.largest) == (32, next_size, 256)
    assert not model.known
    # Where the throughput had stopped growing, not beyond them at all.
    flat = [[1, 1.0], [32, 10.0], [80, 26.0], [160, 52.0], [256, 90.0]]
    file.write_text(json.dumps({"curve": flat if not buckets else [flat[0], flat[1], flat[2]]}))
    model, _ = latency_model(backend, "hash", QUICK)
    assert model.max_batch == 256


def test_calibration_caches_sizes_tried_later(cache: Path) -> None:
    backend = TimedBackend()
    model, save = latency_model(backend, "hash", DeviceSettings(calibration_s=0.02), clock=backend.clock)
    while (size := model.trial) is not None:
        model.observe(size, backend.milliseconds(size))
    assert model.measured == 256
    save()
    again, _ = measured(backend)
    assert again.curve() == model.curve()


def test_no_size_is_measured_that_is_padded_to_another(cache: Path) -> None:
    backend = EchoBackend(max_batch=30)
    backend.buckets = (1, 8, 30)
    latency_model(backend, "hash", DeviceSettings(calibration_s=60.0, latency_cache=False))
    assert set(backend.sizes) == {1, 8, 30}


def test_without_a_cache_nothing_is_written(cache: Path) -> None:
    latency_model(EchoBackend(), "hash", DeviceSettings(calibration_s=0.05, latency_cache=False))
    assert not cache.exists()


def test_unwritable_cache_is_reported(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache.write_text("no folder")
    latency_model(EchoBackend(), "hash", QUICK)
    (record,) = caplog.records
    assert str(cache) in record.getMessage()


@pytest.mark.parametrize("text", ["", "{}", '{"curve": 5}', '{"curve": [[1, -1]]}', '{"curve": [[0, "x"]]}'])
def test_a_damaged_cache_counts_as_missing(cache: Path, text: str) -> None:
    latency_model(EchoBackend(), "hash", QUICK)
    (file,) = cache.iterdir()
    file.write_text(text)
    backend = EchoBackend()
    latency_model(backend, "hash", QUICK)
    assert backend.sizes != []
    assert json.loads(file.read_text())["curve"]


def test_times_shorter_than_measured_are_kept(cache: Path) -> None:
    backend = TimedBackend()
    model, save = measured(backend)
    save()
    for _ in range(MIN_OBSERVATIONS + 64):
        model.observe(1, 0.5 * backend.milliseconds(1))
    save()
    again, _ = measured(backend)
    assert again.milliseconds(1) == pytest.approx(0.5 * backend.milliseconds(1), rel=0.05)
    assert again.milliseconds(64) == pytest.approx(backend.milliseconds(64), rel=1e-3)


def test_longer_times_are_forgotten(cache: Path) -> None:
    backend = TimedBackend()
    model, save = measured(backend)
    before = model.curve()
    for _ in range(MIN_OBSERVATIONS + 64):
        model.observe(8, 10 * backend.milliseconds(8))
    assert model.curve() != before
    save()
    again, _ = measured(backend)
    assert again.curve() == before


def test_curve_of_a_busy_machine_is_kept_once_confirmed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "MAX_OTHERS_SHARE", -1.0)
    model, save = latency_model(EchoBackend(), "hash", QUICK)
    for _ in range(MIN_OBSERVATIONS + 64):
        model.observe(1, model.milliseconds(1) / 2, busy=True)
    save()
    assert not cache.exists()
    assert model.growth is not None
    while (size := model.growth.idle_trial()) is not None:
        model.observe(size, 1.0 + size / 10)
    save()
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize(("busy", "own", "share"), [(1.0, 1.0, 0.0), (3.0, 1.0, 0.5), (0.9, 1.0, 0.0)])
def test_share_of_other_work(monkeypatch: pytest.MonkeyPatch, busy: float, own: float, share: float) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert others_share((5.0, 10.0, 2.0), (6.0, 10.0 + busy, 2.0 + own)) == pytest.approx(share)


def test_a_backend_that_fails_while_measured_is_reported() -> None:
    backend = EchoBackend()

    def failing(batch: PositionBatch) -> EvaluationBatch:
        raise RuntimeError("broken")

    backend.answer = failing
    with pytest.raises(RuntimeError, match="broken"):
        time_batches(backend, [1], 1.0)
