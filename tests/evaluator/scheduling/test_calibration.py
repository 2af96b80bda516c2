"""Measuring a latency curve and keeping it."""

from __future__ import annotations

import json
import threading
from math import inf
from pathlib import Path

import pytest

from evaluator.scheduling import calibration
from evaluator.scheduling.calibration import MIN_OBSERVATIONS, latency_model, time_batches
from protocol.batch import EvaluationBatch, PositionBatch
from tests.evaluator.service.harness import EchoBackend


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of cached curves, one of our own."""
    monkeypatch.setattr(calibration.platformdirs, "user_cache_dir", lambda *_: str(tmp_path))
    monkeypatch.setattr(calibration, "MAX_OTHERS_SHARE", inf)  # Whatever else this machine does.
    return tmp_path / "latency"


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


def test_sizes_beyond_the_device_are_left_out() -> None:
    assert max(time_batches(EchoBackend(max_batch=16), [1, 8, 16, 32], 5.0, stop_when_flat=False)) == 16


def test_a_measured_curve_is_used_again(cache: Path) -> None:
    backend = EchoBackend()
    model, _ = latency_model(backend, "hash", 2, budget_s=0.05, use_cache=True)
    backend.sizes.clear()
    again, _ = latency_model(backend, "hash", 2, budget_s=0.05, use_cache=True)
    assert backend.sizes == []
    assert again.curve() == model.curve()
    latency_model(backend, "another network", 2, budget_s=0.05, use_cache=True)
    assert backend.sizes != []


@pytest.mark.parametrize(
    ("buckets", "largest"), [((), 64), ((1, 16, 48, 256), 48)], ids=["any size", "padding"]
)
def test_no_batch_is_run_far_beyond_the_measured_ones(
    cache: Path, buckets: tuple[int, ...], largest: int
) -> None:
    backend = EchoBackend(max_batch=256)
    latency_model(backend, "hash", None, budget_s=0.05, use_cache=True)
    (file,) = cache.iterdir()
    file.write_text(json.dumps({"curve": [[1, 1.0], [32, 10.0]]}))
    backend.buckets = buckets
    model, _ = latency_model(backend, "hash", None, budget_s=0.05, use_cache=True)
    assert model.max_batch == largest
    # Where the throughput had stopped growing, not beyond them at all.
    file.write_text(json.dumps({"curve": [[1, 1.0], [4, 2.0], [8, 4.0], [16, 8.0], [32, 17.0]]}))
    model, _ = latency_model(backend, "hash", None, budget_s=0.05, use_cache=True)
    assert model.max_batch == (16 if buckets else 32)


def test_no_size_is_measured_that_is_padded_to_another(cache: Path) -> None:
    backend = EchoBackend(max_batch=30)
    backend.buckets = (1, 8, 30)
    latency_model(backend, "hash", None, budget_s=60.0, use_cache=False)
    assert set(backend.sizes) == {1, 8, 30}


def test_without_a_cache_nothing_is_written(cache: Path) -> None:
    latency_model(EchoBackend(), "hash", None, budget_s=0.05, use_cache=False)
    assert not cache.exists()


@pytest.mark.parametrize("text", ["", "{}", '{"curve": 5}', '{"curve": [[1, -1]]}', '{"curve": [[0, "x"]]}'])
def test_a_damaged_cache_counts_as_missing(cache: Path, text: str) -> None:
    latency_model(EchoBackend(), "hash", None, budget_s=0.05, use_cache=True)
    (file,) = cache.iterdir()
    file.write_text(text)
    backend = EchoBackend()
    latency_model(backend, "hash", None, budget_s=0.05, use_cache=True)
    assert backend.sizes != []
    assert json.loads(file.read_text())["curve"]


def test_times_shorter_than_measured_are_kept(cache: Path) -> None:
    model, save = latency_model(EchoBackend(), "hash", None, budget_s=0.05, use_cache=True)
    before = model.milliseconds(1)
    save()
    for _ in range(MIN_OBSERVATIONS + 64):
        model.observe(1, before / 2)
    save()
    again, _ = latency_model(EchoBackend(), "hash", None, budget_s=0.05, use_cache=True)
    assert again.milliseconds(1) < 0.7 * before


def test_longer_times_are_forgotten(cache: Path) -> None:
    model, save = latency_model(EchoBackend(), "hash", None, budget_s=0.05, use_cache=True)
    measured = model.curve()
    for _ in range(MIN_OBSERVATIONS + 64):
        model.observe(8, 10 * model.milliseconds(8))
    save()
    again, _ = latency_model(EchoBackend(), "hash", None, budget_s=0.05, use_cache=True)
    assert again.curve() == measured


def test_a_curve_that_was_measured_on_a_busy_machine_is_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "MAX_OTHERS_SHARE", -1.0)
    model, save = latency_model(EchoBackend(), "hash", None, budget_s=0.05, use_cache=True)
    for _ in range(MIN_OBSERVATIONS + 64):
        model.observe(1, model.milliseconds(1) / 2)
    save()
    assert not cache.exists()


@pytest.mark.parametrize(("busy", "own", "share"), [(1.0, 1.0, 0.0), (3.0, 1.0, 0.5), (0.9, 1.0, 0.0)])
def test_the_share_of_other_programs(
    monkeypatch: pytest.MonkeyPatch, busy: float, own: float, share: float
) -> None:
    monkeypatch.setattr(calibration.os, "cpu_count", lambda: 4)
    assert calibration._others_share((5.0, 10.0, 2.0), (6.0, 10.0 + busy, 2.0 + own)) == pytest.approx(share)


def test_a_backend_that_fails_while_measured_is_reported() -> None:
    backend = EchoBackend()

    def failing(batch: PositionBatch) -> EvaluationBatch:
        raise RuntimeError("broken")

    backend.answer = failing
    with pytest.raises(RuntimeError, match="broken"):
        time_batches(backend, [1], 1.0)
