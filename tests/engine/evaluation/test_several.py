# SPDX-License-Identifier: GPL-3.0-or-later
"""Several evaluators that a pool of searches uses together: real processes, some of which are killed."""

from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path

import pytest

from benchmarks.common import sleeping_devices
from engine._core import Game
from engine.evaluation.errors import NoEvaluatorError
from engine.options import Options
from engine.search.limits import Limits
from engine.search.pool import SearchPool
from engine.search.report import Report
from protocol import EvaluatorClient
from tests.engine.evaluation.evaluators import RunningEvaluator
from tests.engine.evaluation.test_failover import ONNX, addresses, network_file
from tests.engine.uci.uci_process import eventually

pytestmark = pytest.mark.integration

RANDOM = Options(backend="random", hash=1, tree_memory=16, smart_pruning_factor=0.0)


@pytest.fixture
def said() -> list[str]:
    """What a pool tells the user."""
    return []


@pytest.fixture
def pool(said: list[str]) -> Iterator[SearchPool]:
    with SearchPool(log=said.append) as made:
        yield made


def positions(evaluator: RunningEvaluator) -> int:
    """How many an evaluator has evaluated."""
    with EvaluatorClient(evaluator.address, handshake=False) as client:
        counted = client.status().metrics["positions"]
    assert isinstance(counted, int)
    return counted


def searches(pool: SearchPool, options: Options, count: int, nodes: int) -> list[Future[Report]]:
    """So many searches of different positions, begun."""
    started = []
    for number in range(count):
        game = Game()
        for move in ("a2a3", "a7a6", "h2h3", "h7h6")[: number % 5]:
            game.push_uci(move)
        game.push_uci(game.legal_moves()[number % 17])
        started.append(pool.player(options).search(game, Limits(nodes=nodes)))
    return started


def all_connected(pool: SearchPool, options: Options) -> bool:
    return all(link.client is not None for link in pool.links(options))


def test_the_faster_one_does_more(pool: SearchPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeping_devices.install(tmp_path / "plugins")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "plugins"))
    flags = [["--backend", f"sleeping:base=1,each={each}", "--no-latency-cache"] for each in (0.2, 4)]
    with (
        RunningEvaluator(tmp_path, "fast", *flags[0]) as fast,
        RunningEvaluator(tmp_path, "slow", *flags[1]) as slow,
    ):
        options = RANDOM.changed(evaluator=addresses(slow, fast))
        eventually(lambda: all_connected(pool, options))
        before = positions(fast), positions(slow)
        wait(searches(pool, options, 24, 300), timeout=120)
        assert positions(fast) - before[0] > 3 * (positions(slow) - before[1]) > 0


def test_other_evaluators_answer_when_one_is_killed(
    pool: SearchPool, three: list[RunningEvaluator], said: list[str]
) -> None:
    options = RANDOM.changed(evaluator=addresses(*three))
    eventually(lambda: all_connected(pool, options))
    begun = searches(pool, options, 24, 5_000)
    three[1].kill()
    reports = [future.result(120) for future in begun]
    assert all(report.nodes >= 5_000 and not report.ended_early for report in reports)
    assert any(f"evaluator lost: the evaluator at {three[1].address}" in line for line in said)


def test_one_that_comes_back_works_again(pool: SearchPool, three: list[RunningEvaluator]) -> None:
    options = RANDOM.changed(evaluator=addresses(*three))
    eventually(lambda: all_connected(pool, options))
    endless = [pool.player(options) for _ in range(16)]
    begun = [player.search(Game(), Limits(infinite=True)) for player in endless]
    three[2].kill()
    three[2].start()
    eventually(lambda: positions(three[2]) > 2000)
    for player in endless:
        player.stop()
    assert not any(future.result(60).ended_early for future in begun)


def test_searches_end_when_last_one_is_gone_for_good(pool: SearchPool, three: list[RunningEvaluator]) -> None:
    options = RANDOM.changed(evaluator=addresses(*three))
    eventually(lambda: all_connected(pool, options))
    future = pool.player(options).search(Game(), Limits(infinite=True))
    for evaluator in three:
        evaluator.kill()
    assert all(evaluator.address in future.result(60).ended_early for evaluator in three)


def test_one_with_another_network_is_omitted(pool: SearchPool, tmp_path: Path, said: list[str]) -> None:
    networks = [network_file(tmp_path, seed) for seed in (1, 2)]
    with (
        RunningEvaluator(tmp_path, "a", *ONNX, networks[0]) as first,
        RunningEvaluator(tmp_path, "b", *ONNX, networks[1]) as second,
    ):
        options = RANDOM.changed(evaluator=addresses(first, second), backend="auto")
        eventually(lambda: all_connected(pool, options))
        reports = [future.result(120) for future in searches(pool, options, 8, 60)]
        assert all(report.nodes >= 60 for report in reports)
        (line,) = (line for line in said if line.endswith("it is not used"))
        assert line.startswith(f"the evaluator at {second.address} cannot serve the network: it serves 2 (")
        served = [positions(evaluator) for evaluator in (first, second)]
    assert served[0] > 0 == served[1]


def test_a_network_that_a_file_names_is_loaded_at_each(pool: SearchPool, tmp_path: Path) -> None:
    network = network_file(tmp_path, 1)
    flags = [*ONNX, network_file(tmp_path, 2)]
    with RunningEvaluator(tmp_path, "a", *flags) as first, RunningEvaluator(tmp_path, "b", *flags) as second:
        options = RANDOM.changed(evaluator=addresses(first, second), backend="auto", weights=network)
        eventually(lambda: all_connected(pool, options))
        assert all(future.result(120).nodes >= 60 for future in searches(pool, options, 12, 60))
        for evaluator in (first, second):
            with EvaluatorClient(evaluator.address) as client:
                assert [each.name for each in client.networks] == ["2", "1"]
            assert positions(evaluator) > 0


def test_none_at_all_is_an_error_that_names_each(pool: SearchPool) -> None:
    options = RANDOM.changed(evaluator="tcp://127.0.0.1:9,tcp://127.0.0.1:11")
    with pytest.raises(NoEvaluatorError, match=r"127\.0\.0\.1:9; .*127\.0\.0\.1:11"):
        pool.recommended_games(options)
    with pytest.raises(NoEvaluatorError, match=r"127\.0\.0\.1:9; .*127\.0\.0\.1:11"):
        pool.player(options).search(Game(), Limits(nodes=10)).result(60)
