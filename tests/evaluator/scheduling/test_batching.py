# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch policy's decisions, one situation each, and its comparison with other policies."""

import statistics

import pytest

from benchmarks.batching.policies import POLICIES
from benchmarks.batching.simulation import Load, Outcome, curve_model, patterns, simulate
from evaluator.scheduling.batching import BatchPolicy, LatencyTargets, LaunchNow, Pending, Wait
from evaluator.scheduling.latency import LatencyModel

SMOOTH = {1: 1.463, 8: 1.581, 32: 2.317, 64: 3.31, 128: 5.569, 256: 9.501, 512: 17.53, 1024: 33.66}
STEPS = {1: 1.0, 32: 2.0, 64: 6.0, 128: 9.0}


def policy(points: dict[int, float], padded: bool = False, **targets: float) -> BatchPolicy:
    model = LatencyModel(points, max(points), points if padded else ())
    return BatchPolicy(model, LatencyTargets(**targets))


@pytest.mark.parametrize(
    ("sizes", "padded", "positions"),
    [([3], False, 3), ([30, 3], False, 33), ([30, 3], True, 32)],
    ids=["at once", "together", "up to a cliff"],
)
def test_an_idle_device_takes_what_there_is(sizes: list[int], padded: bool, positions: int) -> None:
    queued = [Pending(size, 0, 0.0) for size in sizes]
    assert policy(STEPS if padded else SMOOTH, padded).decide(queued, 0.0) == LaunchNow(positions)


def test_a_batch_never_exceeds_what_the_device_takes() -> None:
    decision = policy(SMOOTH).decide([Pending(3000, 2, 0.0)], 0.0)
    assert isinstance(decision, LaunchNow)
    assert decision.positions <= 1024


def test_concurrent_batches_leave_work_for_each_other() -> None:
    # As a CPU measures it: beyond 32 its caches overflow.
    model = LatencyModel({8: 4.6, 16: 9.0, 32: 17.5, 64: 38.0}, 128, launch_ms=0.5)
    queued = [Pending(32, 2, 0.0) for _ in range(4)]
    assert BatchPolicy(model, side_by_side=True).decide(queued, 0.0) == LaunchNow(32)
    assert BatchPolicy(model, side_by_side=True).decide([Pending(48, 2, 0.0)], 0.0) == LaunchNow(32)


def test_a_few_positions_of_play_do_not_ride_with_a_mass_of_selfplay() -> None:
    queued = [Pending(8, 0, 0.0), *(Pending(4, 2, 0.0) for _ in range(254))]
    assert policy(SMOOTH).decide(queued, 0.0) == LaunchNow(8)


def test_selfplay_leaves_the_device_to_play_that_is_about_to_come() -> None:
    batching = policy(SMOOTH, play=20.0)
    queued = [Pending(4, 2, 0.0) for _ in range(256)]
    alone = batching.decide(queued, 0.0)
    batching.arrived("engine", 8, 0, 0.0)
    beside_play = batching.decide(queued, 1.0)
    assert isinstance(alone, LaunchNow)
    assert isinstance(beside_play, LaunchNow)
    assert beside_play.positions < alone.positions


def test_second_batch_waits_until_the_first_is_about_to_end() -> None:
    batching = policy(SMOOTH)
    queued = [Pending(16, 0, 0.0)]
    decision = batching.decide(queued, 0.0, busy_until_ms=10.0)
    assert isinstance(decision, Wait)
    assert 5.0 < decision.until_ms < 10.0
    assert batching.decide(queued, decision.until_ms, busy_until_ms=10.0) == LaunchNow(16)


def test_a_full_second_batch_is_queued_behind_the_first() -> None:
    assert policy(SMOOTH).decide([Pending(512, 0, 0.0)], 0.0, busy_until_ms=10.0) == LaunchNow(512)


def test_full_selfplay_batch_is_not_queued_early_during_play() -> None:
    batching = policy(SMOOTH)
    batching.arrived("engine", 8, 0, 0.0)
    decision = batching.decide([Pending(512, 2, 0.0)], 1.0, busy_until_ms=20.0)
    assert isinstance(decision, Wait)
    assert 10.0 < decision.until_ms < 20.0


def test_batches_do_not_grow_for_late_selfplay_during_play() -> None:
    batching = policy(SMOOTH)
    batching.arrived("engine", 8, 0, 5000.0)
    queued = [Pending(8, 0, 5000.0), *(Pending(64, 2, 0.0) for _ in range(16))]
    assert batching.decide(queued, 5001.0) == LaunchNow(8)


def returning(batching: BatchPolicy, clients: int, gap_ms: float) -> float:
    """Let clients come back `gap_ms` after an answer, several times; ends with all answered."""
    now = 0.0
    for _ in range(8):
        for client in range(clients):
            batching.arrived(client, 1, 2, now)
        now += 5.0
        for client in range(clients):
            batching.replied(client, now)
        now += gap_ms
    return now - gap_ms


def test_clients_that_always_come_right_back_are_waited_for() -> None:
    batching = policy(SMOOTH)
    now = returning(batching, 32, gap_ms=0.1)
    batching.arrived(0, 1, 2, now + 0.05)
    decision = batching.decide([Pending(1, 2, now + 0.05)], now + 0.05)
    assert isinstance(decision, Wait)
    assert decision.until_ms < now + 1.0


def test_clients_that_take_their_time_are_not_waited_for() -> None:
    batching = policy(SMOOTH)
    now = returning(batching, 32, gap_ms=50.0)
    batching.arrived(0, 1, 2, now + 0.05)
    assert batching.decide([Pending(1, 2, now + 0.05)], now + 0.05) == LaunchNow(1)


def test_a_wait_that_was_in_vain_ends() -> None:
    batching = policy(SMOOTH)
    now = returning(batching, 32, gap_ms=0.1)
    batching.arrived(0, 1, 2, now + 0.05)
    for client in range(1, 32):
        batching.forget(client)
    assert batching.decide([Pending(1, 2, now + 0.05)], now + 0.05) == LaunchNow(1)


def test_waits_are_bounded_by_the_oldest_request() -> None:
    batching = policy(SMOOTH)
    now = returning(batching, 32, gap_ms=0.1)
    assert isinstance(batching.decide([Pending(1, 2, now - 5.0)], now), LaunchNow)


Outcomes = dict[tuple[str, bool, str], dict[str, Outcome]]
"""By curve, whether it is padded, and load, then by policy."""


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    """Every policy under every load, on a GPU's and a CPU's curve, smooth and in steps."""
    table = {}
    for curve in ("h200-t82", "cpu2-attention"):
        for padded in (False, True):
            model = curve_model(curve, padded=padded)
            for pattern, loads in patterns(model).items():
                table[curve, padded, pattern] = {
                    name: simulate(model, make(model), loads, duration_ms=1500.0)
                    for name, make in POLICIES.items()
                }
    return table


def shares(outcomes: Outcomes, name: str) -> list[float]:
    """A policy's throughput relative to the best policy's, for each situation."""
    return [
        row[name].positions_per_second / max(other.positions_per_second for other in row.values())
        for row in outcomes.values()
    ]


@pytest.mark.integration
def test_no_other_policy_is_much_faster_anywhere(outcomes: Outcomes) -> None:
    assert min(shares(outcomes, "wavefront")) > 0.85
    assert statistics.fmean(shares(outcomes, "wavefront")) > 0.97


def test_batching_is_not_slower_than_taking_all_without_play(outcomes: Outcomes) -> None:
    for row in outcomes.values():
        ours, other = row["wavefront"], row["take-queued"]
        if ours.positions_per_second < 0.98 * other.positions_per_second:
            assert ours.positions_per_second > 0.9 * other.positions_per_second
            assert ours.mean_ms(0) < 0.7 * other.mean_ms(0)


def test_batching_answers_play_sooner_than_taking_all(outcomes: Outcomes) -> None:
    rows = [
        row
        for (curve, _, pattern), row in outcomes.items()
        if pattern == "engine + self-play" and curve.startswith("cpu")
    ]
    assert rows
    for row in rows:
        assert row["wavefront"].mean_ms(0) < 0.5 * row["take-queued"].mean_ms(0)
        assert row["wavefront"].positions_per_second > 0.98 * row["take-queued"].positions_per_second


def test_deep_queue_uses_batches_of_the_knee_when_requests_hurry() -> None:
    queued = [Pending(256, 0, 0.0) for _ in range(8)]
    hurried = policy(SMOOTH)
    hurried.hurry(10.0, 0.0)
    assert hurried.model.knee == 512
    assert hurried.decide(queued, 0.0) == LaunchNow(512)
    assert policy(SMOOTH).decide(queued, 0.0) == LaunchNow(1024)


def test_a_second_batch_waits_while_requests_hurry() -> None:
    queued = [Pending(512, 0, 0.0) for _ in range(4)]
    hurried = policy(SMOOTH)
    hurried.hurry(10.0, 0.0)
    assert policy(SMOOTH).decide(queued, 0.0, 30.0) == LaunchNow(1024)
    assert isinstance(hurried.decide(queued, 0.0, 30.0), Wait)


def test_requests_hurry_no_longer_than_they_come() -> None:
    queued = [Pending(256, 0, 5000.0) for _ in range(8)]
    hurried = policy(SMOOTH)
    hurried.hurry(10.0, 0.0)
    assert hurried.decide(queued, 5000.0) == LaunchNow(1024)


def bullet_among(slow: int, target_ms: float | None, curve: str) -> Outcome:
    """Simulate one client of small requests among others of large ones."""
    model = curve_model(curve)
    pause_ms = 0.3 * model.milliseconds(model.knee)
    loads = [
        Load(1, 0, max(1, model.knee // 8), 2, 1.0, target_ms=target_ms),
        Load(slow, 0, model.knee, 2, pause_ms),
    ]
    return simulate(model, BatchPolicy(model), loads, duration_ms=6000.0)


@pytest.mark.parametrize("curve", ["h200-t82", "cpu2-attention"])
def test_a_hurried_client_is_answered_sooner_at_little_cost(curve: str) -> None:
    before, after = (bullet_among(19, target_ms, curve) for target_ms in (None, 12.0))
    first, second = (statistics.fmean(each.load_latencies_ms[0]) for each in (before, after))
    assert second < 0.6 * first
    assert after.positions_per_second > 0.95 * before.positions_per_second
    others = [statistics.fmean(each.load_latencies_ms[1]) for each in (before, after)]
    assert others[1] < 1.2 * others[0]
