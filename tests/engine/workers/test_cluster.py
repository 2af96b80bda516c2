# SPDX-License-Identifier: GPL-3.0-or-later
"""Games spread over a Ray cluster on this machine with two nodes to work on, one of which is killed."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("ray", reason="needs Ray: pip install '.[cluster]'")

from engine.apps.games.openings import Opening
from engine.apps.selfplay.archive import Folder
from engine.apps.selfplay.campaign import SelfPlayCampaign, SelfPlayJob
from engine.evaluation.link.process import EvaluatorSettings, evaluator_command
from engine.workers.executor import ExecutorError
from engine.workers.ray import RayExecutor, ray_executor
from tests.engine.apps.games.recorder import Recorder
from tests.engine.apps.selfplay.test_selfplay import RANDOM, check_folder, config
from tests.paths import DATA

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

START = Opening("initial position")
FAST_DETECTION = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that does no work, and two nodes that do. It reports to nobody."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": FAST_DETECTION})
    for _ in range(2):
        made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def embedded_evaluators() -> set[int]:
    """Process ids of the evaluators that engines on this machine have started for the random backend."""
    wanted = evaluator_command(EvaluatorSettings.of(RANDOM))[1:]
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        if (process.info["cmdline"] or [])[1:] == wanted:
            found.add(process.pid)
    return found


def kill_a_node(cluster: Any) -> None:
    node = next(node for node in cluster.list_all_nodes() if not node.is_head())
    cluster.remove_node(node, allow_graceful=False)


def test_a_killed_node_s_games_are_played_on_the_other_one(cluster: Any, tmp_path: Path) -> None:
    before = embedded_evaluators()
    games = 16
    view = Recorder(partial(kill_a_node, cluster), after=4)
    campaign = SelfPlayCampaign(config(tmp_path / "run", games=games, nodes=30, max_plies=120, concurrency=8))
    on_cluster = partial(ray_executor, address=cluster.address)
    assert asyncio.run(campaign.run(view, make_executor=on_cluster)) == "finished"
    check_folder(Folder(tmp_path / "run"), games)
    assert sorted(entry.number for entry in view.records) == list(range(games))
    assert any("lost" in note for note in view.notes)
    assert campaign.totals.games == games
    assert campaign.throughput.pool.evaluations > 0
    psutil.wait_procs([psutil.Process(pid) for pid in embedded_evaluators() - before], timeout=60)
    assert embedded_evaluators() <= before


async def test_network_files_travel_to_the_nodes(cluster: Any, tmp_path: Path) -> None:
    network = tmp_path / "net.pb.gz"
    network.write_bytes((DATA / "lc0" / "nets" / "enc_mixed.pb.gz").read_bytes())
    seen: list[str] = []

    job = SelfPlayJob(config(tmp_path, options=RANDOM.changed(weights=str(network))), (START,))
    executor = RayExecutor[Any](cluster.address, job, seen.append)
    try:
        await executor.open()
        network.unlink()
        games: list[Any] = await executor.play([0, 1])
    finally:
        await executor.close()
    assert [game.entry.number for game in games] == [0, 1]


def test_a_network_that_no_node_can_use_is_one_clear_error(cluster: Any, tmp_path: Path) -> None:
    network = tmp_path / "net.pb.gz"
    network.write_bytes(b"no network")
    campaign = SelfPlayCampaign(config(tmp_path / "run", options=RANDOM.changed(weights=str(network))))
    on_cluster = partial(ray_executor, address=cluster.address)
    with pytest.raises(ExecutorError, match="no node of the Ray cluster"):
        asyncio.run(campaign.run(Recorder(), make_executor=on_cluster))
