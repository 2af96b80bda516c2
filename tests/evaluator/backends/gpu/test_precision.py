# SPDX-License-Identifier: GPL-3.0-or-later
"""precision=auto: fp8 where it is faster and its errors are small, fp16 elsewhere; the verdict is kept."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evaluator.backends.common.device_lease import exclusive_lease
from evaluator.backends.common.sample import sample_batch
from evaluator.backends.gpu import precision
from evaluator.backends.gpu.driver.target import nvidia_target
from evaluator.backends.gpu.opening import Wanted
from evaluator.backends.gpu.plan.fp8 import rounded_network
from evaluator.backends.gpu.precision import LIMITS, Fp8Choice, RoundingError, judged, rounding_error
from evaluator.backends.gpu.tuning.when import Tuning
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network.random_network import NetworkShape, random_network
from protocol.batch import EvaluationBatch, PositionBatch
from tests.paths import CACHE

NETWORK = random_network(NetworkShape(32, layers=1, heads=2, ffn=32, policy_width=16), seed=3)
BUCKETS = (1, 16, 64, 256, 512)
NO_ERROR = RoundingError(0.0, 1.0, 0.0, 0.0, 0.0, 0.0)
INFO: Any = SimpleNamespace(name="a card", target=nvidia_target(9, 0))


def ms_of(ratio: dict[int, float]) -> dict[int, tuple[float, float]]:
    return {size: (each, 1.0) for size, each in ratio.items()}


@pytest.mark.parametrize(
    ("ratios", "fp8_from"),
    [
        ({64: 0.8, 256: 0.7, 512: 0.7}, 0),
        ({64: 1.0, 256: 1.3, 512: 1.4}, 256),
        ({64: 1.2, 256: 1.3, 512: 1.4}, 64),
        ({64: 1.2, 256: 1.07, 512: 1.4}, 512),
        ({64: 1.2, 256: 1.3, 512: 1.0}, 0),
    ],
)
def test_fp8_is_chosen_where_it_is_faster(ratios: dict[int, float], fp8_from: int) -> None:
    assert judged(NO_ERROR, ms_of(ratios)).fp8_from == fp8_from


@pytest.mark.parametrize(
    "name", ["kl", "same_move", "value", "largest_value", "moves_left", "largest_moves_left"]
)
def test_one_error_beyond_its_limit_excludes_fp8(name: str) -> None:
    limit = getattr(LIMITS, name)
    fast = ms_of({64: 1.5})
    assert judged(replace(LIMITS, **{name: limit}), fast).fp8_from == 64
    for worse in (limit * (0.9 if name == "same_move" else 1.1), float("nan")):
        verdict = judged(replace(LIMITS, **{name: worse}), fast)
        assert verdict.fp8_from == 0 and name.replace("_", " ") in verdict.text


def test_errors_of_a_rounded_network_are_those_of_a_plain_loop() -> None:
    batch = sample_batch(NETWORK.input_format).slice(0, 40)
    exact = ReferenceBackend(NETWORK).evaluate(batch)
    found = ReferenceBackend(rounded_network(NETWORK)).evaluate(batch)
    divergences, same = [], []
    for start, end in zip(batch.move_offsets[:-1], batch.move_offsets[1:], strict=True):
        if start < end:
            p, q = (np.exp(each.logits[start:end].astype(np.float64)) for each in (exact, found))
            p, q = p / p.sum(), q / q.sum()
            divergences.append((p * np.log(p / q)).sum())
            same.append(p.argmax() == q.argmax())
    error = rounding_error(exact, found, batch)
    assert error.kl == pytest.approx(np.mean(divergences), rel=1e-6) and error.kl > 0
    assert error.same_move == np.mean(same)
    value = np.abs((exact.wdl[:, 0] - exact.wdl[:, 2]) - (found.wdl[:, 0] - found.wdl[:, 2]))
    assert error.value == pytest.approx(value.mean())
    assert error.largest_value == pytest.approx(value.max())
    assert rounding_error(exact, exact, batch) == NO_ERROR


class Card:
    """Opens networks on the reference. faster: how many times as fast fp8 is, by batch size."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, faster: float) -> None:
        self.faster, self.closed = faster, 0
        self.opened: list[int] = []
        few = sample_batch(NETWORK.input_format).slice(0, 20)
        monkeypatch.setattr(precision, "sample_batch", lambda _: few)
        monkeypatch.setattr(precision, "open_on", self.open_on)

    def open_on(self, _info: Any, network: Any, wanted: Wanted, **_: Any) -> Any:
        rounded = wanted.formats.fp8
        reference = ReferenceBackend(rounded_network(network) if rounded else network)

        def evaluate(parts: list[PositionBatch]) -> EvaluationBatch:
            return reference.evaluate(parts[0])

        def time(size: int, _repeats: int = 10) -> float:
            return size / self.faster if rounded else float(size)

        card = self

        class Opened:
            provisional = False
            executor = SimpleNamespace(buckets=wanted.buckets, evaluate=evaluate, time=time)

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                card.closed += 1

        self.opened.append(wanted.formats.fp8)
        return Opened()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))


def choice(**wanted: Any) -> Fp8Choice:
    return Fp8Choice(INFO, NETWORK, Wanted(buckets=BUCKETS, tuning=Tuning.BEHIND, **wanted))


def decide(made: Fp8Choice) -> Any:
    return made.decide(made.open(), exclusive_lease, lambda _: None)


def test_the_verdict_is_kept_for_the_next_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(precision, "LIMITS", RoundingError(9, 0, 9, 9, 9, 9))
    card, first = Card(monkeypatch, 1.5), choice()
    assert first.verdict is None
    assert decide(first) is not None
    assert card.opened == [0, 16, 64] and card.closed == 1  # fp16, the trial, the choice
    again = choice()
    assert again.verdict == first.verdict
    again.open()
    assert card.opened[3:] == [64]
    (file,) = tmp_path.rglob("precision/*.json")
    for damaged in (b"", b"[]", json.dumps({"fp8_from": 64}).encode()):
        file.write_bytes(damaged)
        assert choice().verdict is None


def test_a_network_that_gains_nothing_stays_in_fp16(monkeypatch: pytest.MonkeyPatch) -> None:
    card, first = Card(monkeypatch, 0.9), choice()
    assert decide(first) is None and card.closed == 1
    card.opened.clear()
    choice().open()
    assert card.opened == [0]


def test_nothing_is_measured_where_fp8_is_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch, 2.0)
    assert choice(deterministic=True).verdict is not None
    monkeypatch.setattr(INFO, "target", nvidia_target(8, 0))
    old = choice()
    assert old.verdict is not None and "e4m3" in old.verdict.text
    old.open()
    assert card.opened == [0]
