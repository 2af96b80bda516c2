# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront lichess` against a stand-in for lichess and its broker."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import chess
import psutil
import pytest

from tests.paths import REPOSITORY
from tests.peers.lichess_broker import ENGINE, Broker, Record
from tests.programs import command, suspend

pytestmark = pytest.mark.integration

WAIT_S = 60.0
TOKEN = "lip_a-token-of-this-test"
ITALIAN = "r1bqk1nr/pppp1ppp/2n5/2b1p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4 4"
ENDLESS = 24 * 3600 * 1000


@contextmanager
def provider(broker: Broker, *flags: str, log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    url = f"http://127.0.0.1:{broker.port}"
    words = [sys.executable, str(REPOSITORY / "run_engine.py"), "lichess", "--backend", "random"]
    environment = {**os.environ, "LICHESS_API_TOKEN": TOKEN}
    with (log or Path(os.devnull)).open("wb") as stderr:
        process = subprocess.Popen(
            [*words, "--lichess", url, "--broker", url, *flags], stderr=stderr, env=environment
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    made = Broker()
    with provider(made):
        yield made
    made.close()


def answered(record: Record) -> Record:
    assert record.done.wait(WAIT_S)
    assert record.error is None
    return record


def begun(record: Record) -> None:
    """Wait for the first block."""
    while not record.blocks:
        assert not record.done.wait(0.01)


@pytest.mark.parametrize(
    "work",
    [
        {"movetime": 300},
        {"nodes": 200, "multiPv": 3, "moves": ("e2e4", "e7e5")},
        {"depth": 2, "multiPv": 5},
        {"movetime": 300, "fen": ITALIAN, "multiPv": 5, "moves": ("e1h1",)},
        {"movetime": 300, "fen": "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", "multiPv": 3},
        {"movetime": 300, "fen": "7k/8/8/8/8/8/5q2/5n1K b - - 0 1", "multiPv": 5, "threads": 8, "hash": 512},
    ],
)
def test_job_is_answered_with_whole_blocks(broker: Broker, work: dict[str, object]) -> None:
    record = answered(broker.ask(f"job-{abs(hash(str(work)))}", session=str(work), **work))  # type: ignore[arg-type]
    assert record.best_move
    assert record.blocks
    board = chess.Board(str(work.get("fen", chess.STARTING_FEN)), chess960=True)
    for move in work.get("moves", ()):  # type: ignore[attr-defined]
        board.push_uci(move)
    assert len(record.blocks[-1]) == min(int(str(work.get("multiPv", 1))), board.legal_moves.count())


@pytest.mark.parametrize("moves", [("e2e5",), "e2e4 e7e5"])
def test_job_that_cannot_be_searched_is_answered(broker: Broker, moves: object) -> None:
    assert answered(broker.ask(f"illegal-{len(str(moves))}", nodes=10, moves=moves)).best_move == "(none)"  # type: ignore[arg-type]


@pytest.mark.parametrize("fen", ["7k/8/8/8/8/8/5q2/7K w - - 0 1", "R5k1/5ppp/8/8/8/8/8/6K1 b - - 0 1"])
def test_position_without_moves_is_answered(broker: Broker, fen: str) -> None:
    assert answered(broker.ask(f"over-{fen[0]}", fen=fen, movetime=1000)).best_move == "(none)"


def test_new_job_of_a_session_replaces_its_running_one(broker: Broker) -> None:
    first = broker.ask("first", session="tab", movetime=ENDLESS)
    begun(first)
    second = broker.ask("second", session="tab", movetime=200, moves=("e2e4",))
    assert answered(first).best_move
    assert answered(second).best_move


def test_session_keeps_its_tree(broker: Broker) -> None:
    answered(broker.ask("before", session="tree", movetime=1000))
    record = answered(broker.ask("after", session="tree", movetime=200, moves=("e2e4",)))
    assert record.blocks[0][0]["nodes"] > 20


def test_twenty_jobs_are_answered_at_once(broker: Broker) -> None:
    records = [broker.ask(f"many-{number}", session=str(number), movetime=ENDLESS) for number in range(20)]
    for record in records:
        begun(record)
    assert not any(record.done.is_set() for record in records)
    for number in range(20):
        broker.ask(f"end-{number}", session=str(number), nodes=1)
    for record in records:
        answered(record)


def test_jobs_continue_when_the_broker_was_gone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    broker, log = Broker(port), tmp_path / "log"
    with provider(broker, log=log) as process:
        answered(broker.ask("one", nodes=10))
        broker.close()
        while b"next attempt" not in log.read_bytes():
            assert process.poll() is None
        broker = Broker(port)
        for number in range(20):
            answered(broker.ask(f"again-{number}", nodes=10))
        endless = broker.ask("endless", movetime=ENDLESS)
        begun(endless)
        process.send_signal(signal.SIGTERM)
        assert answered(endless).best_move
        process.wait(WAIT_S)
        broker.close()
    assert TOKEN.encode() not in log.read_bytes()
    assert b"Traceback" not in log.read_bytes()


def test_lines_keep_coming_while_the_evaluator_does_not_answer() -> None:
    broker = Broker()
    with provider(broker) as process:
        record = broker.ask("silent", movetime=ENDLESS)
        begun(record)
        (evaluator,) = psutil.Process(process.pid).children()
        suspend(evaluator)
        shown = len(record.blocks)
        while len(record.blocks) < shown + 8:
            assert not record.done.wait(0.05)
        assert record.blocks[-1][0]["nodes"] == record.blocks[-2][0]["nodes"]
        broker.ask("next", nodes=1)
        assert answered(record).best_move
        evaluator.resume()
    broker.close()


def test_search_ends_when_the_broker_ends_the_request(broker: Broker) -> None:
    """The stand-in closes the connection when it fails."""
    record = broker.ask("left", session="left", movetime=ENDLESS)
    record.blocks = None  # type: ignore[assignment]  # The stand-in fails on the first block.
    answered(broker.ask("next", session="left", nodes=10))


def test_registration_names_each_network(tmp_path: Path) -> None:
    broker, secret = Broker(), tmp_path / "secret"
    offers = ("--offer", "wavefront-cpu", "--offer", "wavefront-gpu", "--name", "Club")
    with provider(broker, *offers, "--secret-file", str(secret)) as process:
        while len(broker.registered) < 2:
            assert process.poll() is None
        ENGINE["providerData"] = "wavefront-gpu"
        try:
            answered(broker.ask("with a network".replace(" ", "-"), nodes=10))
        finally:
            ENGINE["providerData"] = None
    broker.close()
    assert [each["name"] for each in broker.registered] == ["Club wavefront-cpu", "Club wavefront-gpu"]
    assert {each["providerSecret"] for each in broker.registered} == {secret.read_text()}
    assert secret.stat().st_mode & 0o077 == 0


def test_token_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LICHESS_API_TOKEN", raising=False)
    assert "LICHESS_API_TOKEN" in command("lichess", status=2).stderr
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    said = command("lichess", "--token-file", file, status=2).stderr
    assert "chmod 600" in said and TOKEN not in said
