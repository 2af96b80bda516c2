# SPDX-License-Identifier: GPL-3.0-or-later
"""Games in several processes: each counted once, whoever is killed, and nothing left behind."""

import asyncio
import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from engine import Engine
from engine.apps.match.adjudication import Adjudication
from engine.apps.match.campaign import MatchCampaign
from engine.apps.selfplay.archive import Folder
from engine.apps.selfplay.campaign import SelfPlayCampaign
from engine.workers.executor import ExecutorError
from engine.workers.local import expected_rate, workers_for
from protocol.client import EvaluatorClient
from protocol.wire.messages import Curve
from tests.engine.apps.games.recorder import Recorder
from tests.engine.apps.match.matches import engine, match, play, replay
from tests.engine.apps.match.test_resume import journal_numbers, read_games, runner_process
from tests.engine.apps.selfplay.test_selfplay import check_folder
from tests.engine.apps.selfplay.test_selfplay import config as selfplay
from tests.paths import DATA

pytestmark = pytest.mark.integration

GAMES = 16

FLAGS = (
    *("--player", "name=a,nodes=12", "--player", "name=b,nodes=6", "--workers", "2"),
    *("--each", "backend=random,hash=1", "--games", str(GAMES), "--concurrency", "4"),
    *("--max-moves", "40", "--output", "out"),
)

CPU: Curve = ((1, 4.0), (32, 40.0), (64, 76.0))
H200: Curve = ((1, 0.2), (256, 0.6), (1024, 1.6))


def children(kind: str) -> list[psutil.Process]:
    """Processes of this one: "engine.workers.child" or "evaluator"."""
    return [child for child in psutil.Process().children() if kind in child.cmdline()]


def workers() -> list[psutil.Process]:
    return children("engine.workers.child")


def own_processes() -> list[psutil.Process]:
    return workers() + children("evaluator")


class Kills(Recorder):
    """Kills a process when some games are over."""

    def __init__(self, kind: str, after: int) -> None:
        super().__init__(self._kill, after=after)
        self._kind = kind
        self.killed: list[psutil.Process] = []

    def _kill(self) -> None:
        self.killed = children(self._kind)[:1]
        for process in self.killed:
            process.kill()


@pytest.mark.parametrize(
    ("curves", "games", "cores", "expected"),
    [
        ([CPU], 64, 64, 1),
        ([], 64, 64, 1),
        ([((1, 0.2), (1024, 20.0))], 256, 64, 2),  # a large network on a fast device
        ([H200], 64, 64, 16),
        ([H200], 64, 8, 6),
        ([H200], 6, 64, 3),
        ([H200], 1, 64, 1),
        ([H200], 64, 1, 1),
        ([H200, H200], 64, 64, 32),
    ],
)
def test_processes_follow_from_the_evaluators_curves(
    curves: list[Curve], games: int, cores: int, expected: int
) -> None:
    assert workers_for([expected_rate(curve, curve[-1][0]) for curve in curves], games, cores) == expected


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        (((1, 0.3), (64, 0.42), (96, 0.5)), 350_000),  # a GPU in its first second: 192,000 so far
        (((1, 0.3), (512, 1.58), (1024, 2.91)), 352_000),
        (((8, 10.0), (16, 20.0)), 800),  # a processor
        (((8, 10.0), (16, 9.0)), 6600),
        (((1, 1.0),), 1000),
        ((), 0),
    ],
)
def test_rate_of_a_device_is_foreseen_when_its_curve_is_short(curve: Curve, expected: float) -> None:
    assert expected_rate(curve, 1024) == pytest.approx(expected, rel=0.05)


def test_match_in_processes_has_each_game_once(tmp_path: Path) -> None:
    class Looks(Recorder):
        processes = (0, 0)

        def started(self, state: MatchCampaign) -> None:
            super().started(state)
            self.processes = (len(workers()), len(children("evaluator")))

    few, many = engine("few", nodes=2), engine("many", nodes=30)
    config = match(
        tmp_path, [few, many], games=12, concurrency=6, workers=3, adjudication=Adjudication(max_moves=40)
    )
    ending, campaign, view = play(config, Looks())
    assert ending == "finished"
    assert isinstance(view, Looks)
    assert view.processes == (3, 1)
    assert sorted(record.number for record in view.records) == list(range(12))
    standings, speed = campaign.standings, campaign.throughput
    assert standings.tally(0, 1).finished_pairs == 6
    by_pair = {record.pair: record.opening for record in view.records}
    assert all(by_pair[record.pair] == record.opening for record in view.records)
    assert len(replay(config.files.pgn)) == 12
    assert speed.concurrency == 6
    assert speed.pool.moves == sum(len(record.moves) for record in view.records)
    assert speed.pool.evaluations > speed.pool.moves
    assert speed.pool.positions_per_second > 0
    assert speed.pool.mean_batch >= 1
    assert own_processes() == []


def test_all_processes_serve_other_networks_and_backends(tmp_path: Path) -> None:
    network = str(DATA / "lc0" / "nets" / "attn_128x4_smolgen.pb.gz")
    players = [engine("a"), engine("b", threads=2), engine("c", weights=network)]
    config = match(tmp_path, players, games=2, concurrency=4, workers=2)
    ending, _, view = play(config)
    assert ending == "finished", view.notes
    assert len(view.records) == 6
    assert own_processes() == []


def test_running_evaluator_is_shared_and_loads_networks_once(tmp_path: Path) -> None:
    nets = [str(DATA / "lc0" / "nets" / name) for name in ("enc_mixed.pb.gz", "attn_128x4_smolgen.pb.gz")]
    with Engine(backend="random") as running:
        address = running.evaluator_address
        players = [engine(name, weights=net, evaluator=address) for name, net in zip("ab", nets, strict=True)]
        config = match(tmp_path, players, games=4, concurrency=4, workers=2)
        ending, _, view = play(config)
        assert ending == "finished", view.notes
        with EvaluatorClient(address) as client:
            assert len(client.networks) == 3  # its own, and two for the match


def play_all(tmp_path: Path, view: Kills) -> None:
    """Play a match that something is killed in: each game is to be counted once, and nobody left behind."""
    config = match(
        tmp_path,
        [engine("a", nodes=12), engine("b", nodes=6)],
        games=GAMES,
        concurrency=4,
        workers=2,
        adjudication=Adjudication(max_moves=40),
    )
    ending, _, _ = play(config, view)
    assert ending == "finished"
    assert sorted(record.number for record in view.records) == list(range(GAMES))
    assert not any(record.reason.is_failure for record in view.records)
    assert own_processes() == []


def test_a_killed_worker_s_games_are_played_again(tmp_path: Path) -> None:
    view = Kills("engine.workers.child", after=3)
    play_all(tmp_path, view)
    assert len(view.killed) == 1
    assert any("lost: its process" in note for note in view.notes)


def test_a_killed_evaluator_is_started_again_for_all_workers(tmp_path: Path) -> None:
    view = Kills("evaluator", after=3)
    play_all(tmp_path, view)
    assert any("evaluator lost" in note for note in view.notes)


def test_self_play_in_processes_writes_each_game_once(tmp_path: Path) -> None:
    view = Recorder()
    campaign = SelfPlayCampaign(selfplay(tmp_path / "run", games=8, concurrency=4, workers=2))
    assert asyncio.run(campaign.run(view)) == "finished"
    check_folder(Folder(tmp_path / "run"), 8)
    assert campaign.throughput.pool.evaluations > campaign.positions > 0
    assert own_processes() == []


@pytest.mark.skipif(os.name != "posix", reason="sends the signal of Ctrl-C")
def test_ctrl_c_ends_workers_and_evaluator_and_keeps_the_games(tmp_path: Path) -> None:
    with runner_process(tmp_path, *FLAGS, start_new_session=True) as process:
        read_games(process, 3)
        left = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 130
        assert "a vs b:" in output and "the same command resumes" in output
        assert "Traceback" not in output
        assert not any(child.is_running() for child in left)
    summary = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert summary["games"] == len(journal_numbers(tmp_path)) >= 3
    assert summary["finished"] is False


def test_a_cluster_s_nodes_have_no_workers_of_this_machine(tmp_path: Path) -> None:
    with runner_process(tmp_path, *FLAGS, "--ray", "auto") as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "with --ray leave them out" in output


def test_a_network_that_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    weights = str(tmp_path / "nothing.pb.gz")
    config = match(tmp_path, [engine("a", weights=weights), engine("b")], concurrency=4, workers=2)
    with pytest.raises(ExecutorError, match=r"nothing\.pb\.gz"):
        asyncio.run(MatchCampaign(config).run(Recorder()))
    assert own_processes() == []
