# SPDX-License-Identifier: GPL-3.0-or-later
"""Play beside queues that are seconds deep, and what these keep when there is too much play; simulated."""

import pytest

from benchmarks.batching.simulation import CURVES, Load, Outcome, curve_model, patterns, queued, simulate
from evaluator.scheduling.batching import BatchPolicy, LatencyTargets
from evaluator.scheduling.scheduler import GUARANTEED_SHARE

PLAYER = Load(1, 0, 1, per_second=25.0)
"""Single positions at random, waiting for no answer: what is not answered is seen."""

WITHOUT_WAITING_PLAY = {
    "one engine": (29156, 72533, 1547),
    "three engines": (30436, 72533, 1556),
    "64 self-play games": (23041, 53467, 1547),
    "400 self-play games": (28444, 67333, 1556),
    "engine + self-play": (28302, 70969, 1540),
    "bursts": (21760, 53049, 897),
    "odd sizes": (28914, 72562, 1547),
}
"""Positions per second on h200-t82 (padded), h200-t80 and cpu2-attention by the policy that bounded no
wait of play and let requests go before it after some seconds."""


def run(curve: str, padded: bool, *loads: Load | tuple[int, float], in_flight: int = 2) -> Outcome:
    """Simulate loads, or queues of (class, seconds), for 8 s."""
    model = curve_model(curve, padded=padded)
    filled = [load if isinstance(load, Load) else queued(model, *load) for load in loads]
    return simulate(model, BatchPolicy(model), filled, duration_ms=8000.0, in_flight=in_flight)


@pytest.mark.integration
@pytest.mark.parametrize("padded", [False, True], ids=["smooth", "padded"])
@pytest.mark.parametrize("curve", CURVES)
def test_a_queue_of_6_s_costs_play_no_answers_and_little_time(curve: str, padded: bool) -> None:
    alone = len(run(curve, padded, PLAYER).latencies_ms[0])
    for rank in (1, 2):
        beside = run(curve, padded, PLAYER, (rank, 6.0))
        assert len(beside.latencies_ms[0]) >= 0.95 * alone
        assert beside.p99_ms(0) <= 1.5 * LatencyTargets().play
        assert beside.positions_per_second > 0.9 * run(curve, padded, (rank, 6.0)).positions_per_second


@pytest.mark.integration
@pytest.mark.parametrize("pattern", WITHOUT_WAITING_PLAY)
def test_bounded_waits_cost_no_throughput_when_no_play_waits(pattern: str) -> None:
    curves = ("h200-t82", True), ("h200-t80", False), ("cpu2-attention", False)
    for (curve, padded), before in zip(curves, WITHOUT_WAITING_PLAY[pattern], strict=True):
        model = curve_model(curve, padded=padded)
        now = simulate(model, BatchPolicy(model), patterns(model)[pattern])
        assert now.positions_per_second > 0.97 * before


@pytest.mark.parametrize("curve", CURVES)
def test_play_that_never_ends_leaves_each_other_class_its_share(curve: str) -> None:
    outcome = run(curve, False, (0, 1.0), (1, 3.0), (2, 6.0))
    for rank in (1, 2):
        assert outcome.class_rates[rank] == pytest.approx(
            GUARANTEED_SHARE * outcome.positions_per_second, rel=0.15
        )
    assert outcome.class_rates[0] > 0.88 * outcome.positions_per_second


@pytest.mark.parametrize("in_flight", [1, 2])
def test_player_with_pauses_is_answered_between_batches(in_flight: int) -> None:
    player = Load(1, 0, 1, think_ms=200.0)
    alone = len(run("h200-t82", False, player, in_flight=in_flight).latencies_ms[0])
    beside = len(run("h200-t82", False, player, (2, 6.0), in_flight=in_flight).latencies_ms[0])
    assert beside >= 0.9 * alone


def test_random_arrivals_are_served_as_far_as_the_device_goes() -> None:
    model = curve_model("h200-bt4", padded=True)
    load = Load(1, 0, 8, per_second=0.85 * model.throughput(1024) / 8)
    outcome = simulate(model, BatchPolicy(model), [load], duration_ms=8000.0)
    assert outcome.p99_ms(0) <= LatencyTargets().play
