# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys with real processes: what becomes of secrets, the list read again, an engine, files of no use."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from zmq.utils import z85

from protocol import EvaluatorClient
from protocol.common.keys.clients import AllowedClient, allow, revoke
from protocol.common.keys.files import CLIENT_PAIR, CLIENTS, SERVICE_PAIR
from protocol.common.keys.pairs import KeyPair, make_pair, read_pair
from protocol.errors import EvaluatorLost
from tests.engine.uci.uci_process import UciProcess
from tests.paths import CACHE, REPOSITORY
from tests.programs import ENGINE, run

pytestmark = pytest.mark.integration

WAIT_S = 60.0

needs_posix = pytest.mark.skipif(os.name != "posix", reason="signals and modes of files are POSIX's")


def client_keys(folder: Path, name: str, *, allowed: bool) -> Path:
    """The folder of a client; the service's is folder/service."""
    pair = make_pair(folder / name / CLIENT_PAIR)
    if allowed:
        allow(folder / "service" / CLIENTS, AllowedClient(name, "play", pair.public))
    return folder / name


class Service:
    """A process that demands keys on loopback. said: the lines of its log."""

    def __init__(self, folder: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "evaluator", "serve", "--backend", "random", "--address"]
        command += ["tcp://127.0.0.1:0", "--keys", str(folder / "service"), "--keys-on-loopback", *flags]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), CACHE: str(folder / "cache")}
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    @property
    def address(self) -> str:
        return self.line("listening on ").rpartition(" ")[2]

    def line(self, text: str) -> str:
        """The first line with that text, once it is there."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(text in line for line in self.said), WAIT_S), self.said
            return next(line for line in self.said if text in line)

    def end(self) -> int:
        """The exit status, once it has ended and all that it has said is there."""
        status = self.process.wait(WAIT_S)
        self._thread.join(WAIT_S)
        return status

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.said.append(line.strip())
                self._changed.notify_all()


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Service]:
    service = Service(folder, *flags)
    try:
        yield service
    finally:
        with contextlib.suppress(ProcessLookupError):
            service.process.kill()
        service.end()
        assert service.process.stderr is not None
        service.process.stderr.close()


def command_lines(pid: int) -> bytes:
    """Command line and environment of a process and its descendants, as others may see them."""
    seen = b""
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        seen += "\n".join([*process.cmdline(), *process.environ().values()]).encode()
    return seen


def spellings(pair: KeyPair) -> list[bytes]:
    """A secret key as it may be written."""
    text = pair.secret.hex()
    return [
        pair.secret,
        text.encode(),
        text.upper().encode(),
        z85.encode(pair.secret),
        repr(pair.secret).encode(),
    ]


def test_no_secret_is_in_a_log_or_a_command_line(tmp_path: Path) -> None:
    player = client_keys(tmp_path, "player", allowed=True)
    log = tmp_path / "engine.log"
    with serving(tmp_path, "--log-level", "debug") as service:
        options = (f"Evaluator {service.address}", f"EvaluatorKeys {player}", f"LogFile {log}")
        with UciProcess(*options) as engine:
            engine.send("position startpos")
            assert engine.best_move("go nodes 50")
            seen = command_lines(engine.pid) + command_lines(service.process.pid)
            heard = "\n".join(engine.heard).encode()
        seen += heard + log.read_bytes() + "\n".join(service.said).encode()
        public = read_pair(tmp_path / "service" / SERVICE_PAIR).public.hex()
    assert f"{service.address.partition('#')[0]}#{public}".encode() in seen
    for file in (player / CLIENT_PAIR, tmp_path / "service" / SERVICE_PAIR):
        for spelling in spellings(read_pair(file)):
            assert spelling not in seen


@needs_posix
def test_the_list_of_clients_is_read_again_at_sighup(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        service.line("no client has a key that is let in yet")
        late = client_keys(tmp_path, "late", allowed=True)
        with pytest.raises(EvaluatorLost, match="does not know this client's key"):
            EvaluatorClient(service.address, timeout=WAIT_S, keys=late)
        service.process.send_signal(signal.SIGHUP)
        service.line("1 client is let in")
        with EvaluatorClient(service.address, timeout=WAIT_S, keys=late) as client:
            assert client.status().ready
            revoke(tmp_path / "service" / CLIENTS, "late")
            service.process.send_signal(signal.SIGHUP)
            service.line("0 clients are let in")
            with pytest.raises(EvaluatorLost, match="gone"):
                client.status()


def test_an_engine_says_why_it_is_not_let_in_and_plays_on_its_own(tmp_path: Path) -> None:
    client_keys(tmp_path, "player", allowed=True)
    stranger = client_keys(tmp_path, "stranger", allowed=False)
    with serving(tmp_path) as service:
        options = (f"Evaluator {service.address}", f"EvaluatorKeys {stranger}", "Backend random")
        with UciProcess(*options) as engine:
            said = engine.sync()
            key = read_pair(stranger / CLIENT_PAIR).public.hex()
            assert any(f"keys allow NAME {key}" in line for line in said)
            assert any("of its own" in line for line in said)
            engine.send("position startpos")
            assert engine.best_move("go nodes 10")


def test_a_match_in_several_processes_plays_with_keys(tmp_path: Path) -> None:
    player = client_keys(tmp_path, "player", allowed=True)
    with serving(tmp_path) as service:
        done = run(
            *(
                *ENGINE,
                "match",
                "--json",
                "--workers",
                "2",
                "--nodes",
                "8",
                "--games",
                "4",
                "--max-moves",
                "30",
            ),
            *("--player", "name=low,cpuct=1", "--player", "name=high,cpuct=3"),
            *("--each", f"evaluator={service.address},evaluator_keys={player}"),
            cwd=tmp_path,
            timeout=3 * WAIT_S,
        )
        assert json.loads(done.stdout)["games"] == 4
