# SPDX-License-Identifier: GPL-3.0-or-later
"""The evaluator's life beside the engine: started, lost, got back, shared, and never left behind."""

import os
import queue
import signal
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import chess
import psutil
import pytest
import zmq

from engine._core import Game
from engine.evaluation.errors import EvaluatorRefusalError
from engine.evaluation.link.encoding import encode_games
from engine.evaluation.link.link import MAX_IDLE_RESTARTS, EvaluatorLink, served_network
from engine.evaluation.link.process import EvaluatorSettings
from engine.evaluation.link.requests import Requests
from engine.options import Options
from evaluator.network import SHIPPED_NETWORK
from protocol.errors import UnknownNetwork
from protocol.wire.codec import decode_request, encode
from protocol.wire.messages import Error, Hello, NetworkInfo, Reply, Welcome
from tests.engine.uci.uci_process import UciProcess, eventually, sockets_of
from tests.paths import REPOSITORY
from tests.programs import run, suspend

pytestmark = pytest.mark.integration

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient

RANDOM = Options().changed(backend="random")


def evaluators_of(pid: int) -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process(pid).children(recursive=True)
        if "evaluator" in " ".join(child.cmdline())
    ]


def test_the_embedded_evaluator_ends_with_quit() -> None:
    with UciProcess() as engine:
        engine.sync()
        (evaluator,) = evaluators_of(engine.pid)
        engine.quit()
        assert not psutil.pid_exists(evaluator.pid)
        assert sockets_of(evaluator.pid) == []


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_nothing_is_left_when_the_engine_is_killed() -> None:
    with UciProcess() as engine:
        engine.send("position startpos")
        engine.send("go infinite")
        engine.until("info depth")
        (evaluator,) = evaluators_of(engine.pid)
        engine.process.kill()
        engine.process.wait()
        psutil.wait_procs([evaluator], timeout=60)
        assert not evaluator.is_running()
        assert sockets_of(evaluator.pid) == []


def test_move_comes_when_the_evaluator_dies_repeatedly() -> None:
    with UciProcess() as engine:
        engine.sync()
        board = chess.Board()
        for _move in range(4):
            for evaluator in evaluators_of(engine.pid):
                evaluator.kill()
            engine.send("position startpos moves " + " ".join(move.uci() for move in board.move_stack))
            board.push_uci(engine.best_move("go wtime 3000 btime 3000"))


def test_a_frozen_evaluator_does_not_hold_up_the_move() -> None:
    with UciProcess() as engine:
        engine.send("position startpos")
        assert engine.best_move("go nodes 200")
        (evaluator,) = evaluators_of(engine.pid)
        suspend(evaluator)
        try:
            engine.send("setoption name ClearTree")
            # No search has evaluated it before.
            board = chess.Board("7r/4k3/3p4/8/2R5/4P3/4K3/8 w - - 0 1")
            engine.send(f"position fen {board.fen()}")
            best = engine.best_move("go wtime 5000 btime 5000")
            assert chess.Move.from_uci(best) in board.legal_moves
            assert any("no evaluation came in time" in line for line in engine.heard)
        finally:
            evaluator.resume()


def test_move_comes_when_a_frozen_evaluator_is_given_up() -> None:
    with UciProcess() as engine:
        engine.sync()
        (evaluator,) = evaluators_of(engine.pid)
        suspend(evaluator)
        engine.send("setoption name Threads value 1")
        engine.best_move("go wtime 3000 btime 3000")
        assert evaluator.is_running()  # It is ended by force some seconds later.
        engine.quit()
        assert not evaluator.is_running()


def test_a_bad_network_is_explained_and_another_one_taken(tmp_path: Path) -> None:
    network = tmp_path / "broken.pb.gz"
    network.write_bytes(b"this is no network")
    with UciProcess(f"WeightsFile {network}") as engine:
        for _time in range(2):  # The reason is remembered.
            said = engine.sync()
            assert any(
                line.startswith("info string error: evaluator:") and "broken.pb.gz" in line for line in said
            )
        engine.send("setoption name WeightsFile value <empty>")
        engine.send("setoption name Backend value random")
        assert engine.sync() == []
        engine.send("position startpos")
        assert " score " in engine.ask("go nodes 10", "bestmove")[-2]


def test_missing_package_is_named_and_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "zmq.py").write_text("import no_such_package\n", encoding="utf-8")
    with UciProcess(environment={"PYTHONPATH": str(tmp_path)}) as engine:
        said = engine.sync()
        assert any("no_such_package" in line and "pip install" in line for line in said)


def test_refused_network_is_retried_only_by_an_option(tmp_path: Path) -> None:
    network = tmp_path / "late.pb.gz"
    with closing(EvaluatorLink(EvaluatorSettings.of(Options().changed(weights=str(network))), print)) as link:
        link.start()
        with pytest.raises(EvaluatorRefusalError, match="no such file"):
            link.wait(60)
        network.write_bytes(SHIPPED_NETWORK.read_bytes())
        link.start()
        with pytest.raises(EvaluatorRefusalError, match="no such file"):
            link.wait(60)


def kill_evaluator(link: EvaluatorLink) -> None:
    pid = link.pid
    assert pid is not None
    psutil.Process(pid).kill()


def test_evaluators_that_nobody_uses_are_not_replaced_for_ever() -> None:
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    with closing(EvaluatorLink(EvaluatorSettings.of(RANDOM), said.put)) as link:
        link.start()
        assert link.wait(60) is not None
        for _death in range(MAX_IDLE_RESTARTS):
            eventually(lambda: link.client)
            kill_evaluator(link)
            assert "lost" in said.get(timeout=60)
        eventually(lambda: link.client)
        kill_evaluator(link)
        eventually(lambda: link.pid is None)
        assert said.empty()
        client = link.client
        assert client is not None
        link.lost(client, "nobody is there")  # what a search finds out
        assert link.wait(60) is not client


class Refusing:
    """An evaluator that welcomes everybody and refuses every request."""

    def __init__(self) -> None:
        self.hellos = 0
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self.address = f"tcp://127.0.0.1:{self._router.bind_to_random_port('tcp://127.0.0.1')}"

    def answer(self) -> str:
        """Answer the next message; returns its type."""
        client, *frames = self._router.recv_multipart()
        request = decode_request(frames)
        reply: Reply
        if isinstance(request, Hello):
            self.hellos += 1
            reply = Welcome(request.id, 1, "refusing", 64, (NetworkInfo("none", "none", 1),))
        else:
            reply = Error(request.id, "draining", "this evaluator is shutting down")
        header = encode(reply)[0]
        assert isinstance(header, bytes)
        self._router.send_multipart([client, header])
        return type(request).__name__

    def close(self) -> None:
        self._router.close(linger=0)
        self._context.term()


def test_refusing_evaluator_is_asked_after_growing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    pause = EvaluatorLink._pause

    def note(link: EvaluatorLink, attempt: int, enough: object = None) -> None:
        waits.append(attempt)
        pause(link, 0)

    monkeypatch.setattr(EvaluatorLink, "_pause", note)
    evaluator = Refusing()
    link = EvaluatorLink(
        EvaluatorSettings.of(Options().changed(evaluator=evaluator.address)), lambda text: None
    )
    batch, _ = encode_games([Game()], input_format=1)
    again: list[str] = []
    requests: Requests[str] = Requests(link, "play", again.append)
    try:
        for round_ in range(4):
            link.start()
            while evaluator.answer() != "Hello":
                pass
            assert link.wait(60) is not None
            assert requests.connect() is not None
            assert requests.send(batch, "a")
            evaluator.answer()
            assert requests.receive(60_000) is not None
            assert len(again) == round_ + 1
        assert evaluator.hellos == 4
        assert waits[:3] == [0, 1, 2]
    finally:
        link.close()
        evaluator.close()


@pytest.mark.skipif(os.name != "posix", reason="there are no such signals")
def test_crash_is_named_when_its_connection_broke_first() -> None:
    said: queue.Queue[str] = queue.Queue()
    with closing(EvaluatorLink(EvaluatorSettings.of(RANDOM), said.put)) as link:
        link.start()
        client = link.wait(60)
        assert client is not None and link.pid is not None
        process = psutil.Process(link.pid)
        suspend(process)  # It cannot end by itself when its connection is closed.
        link.lost(client, "the connection is broken")
        process.send_signal(signal.SIGABRT)
        process.resume()
        assert "the connection is broken" in said.get(timeout=60)
        assert "crashed (SIGABRT)" in said.get(timeout=60)
        assert link.wait(60) is not None


def test_the_evaluator_is_found_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "evaluator").mkdir()
    (tmp_path / "evaluator" / "__main__.py").write_text("raise SystemExit('the wrong one')")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from engine import Engine\n"
        "with Engine(backend='random') as engine: print(engine.play(nodes=10).best_move)\n"
    )
    done = run(sys.executable, "-P", "-c", script, REPOSITORY, cwd=tmp_path)
    assert chess.Move.from_uci(done.stdout.strip()) in chess.Board().legal_moves


@dataclass
class TwoHeads:
    """An evaluator's client that serves one file with two policy heads, and loads whatever it is asked to."""

    networks: tuple[NetworkInfo, ...] = tuple(
        NetworkInfo(name, "hash", 1, policy_head=head, policy_heads=("vanilla", "optimistic"))
        for name, head in [("net", "vanilla"), ("net-2", "optimistic")]
    )

    def load(self, path: str, *, policy_head: str, value_head: str, timeout: float) -> NetworkInfo:
        return NetworkInfo(f"loaded {Path(path).name} {policy_head}", "other", 1)


@pytest.mark.parametrize(
    ("weights", "head", "found"),
    [
        ("hash", "", "net"),
        ("hash", "vanilla", "net"),
        ("hash", "optimistic", "net-2"),
        ("net-2", "", "net-2"),
        ("other.pb.gz", "optimistic", "loaded other.pb.gz optimistic"),
    ],
)
def test_served_network_is_taken_with_its_heads(weights: str, head: str, found: str) -> None:
    client = cast("EvaluatorClient", TwoHeads())
    assert served_network(client, (weights, head, "")).name == found


def test_a_network_that_is_served_with_other_heads_is_refused() -> None:
    client = cast("EvaluatorClient", TwoHeads())
    with pytest.raises(UnknownNetwork, match="'net' is served with the heads vanilla"):
        served_network(client, ("net", "optimistic", ""))
