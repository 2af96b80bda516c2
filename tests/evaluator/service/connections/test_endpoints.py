# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses: which can be listened at, which are taken, and what is left of those whose owner was killed."""

import os
from pathlib import Path

import pytest
import zmq

from evaluator.service.connections.endpoints import AddressError, bind, listening_socket, sweep
from protocol import EvaluatorClient
from protocol.errors import EvaluatorLost
from tests.evaluator.service.echo import WAIT_S
from tests.evaluator.service.process import (
    event,
    free_port,
    needs_ipc,
    needs_posix,
    serving,
    sockets,
    wait_for_line,
)


def test_an_address_needs_a_transport_we_speak() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        with pytest.raises(AddressError):
            bind(router, "inproc://x")
        assert bind(router, "tcp://127.0.0.1:0").rpartition(":")[2] != "0"


@pytest.mark.parametrize("native", [True, False])
def test_localhost_is_an_address_to_listen_at(native: bool) -> None:
    if native:
        made, bound = listening_socket("tcp://localhost:0")
        made.close()
    else:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
            bound = bind(router, "tcp://localhost:0")
    assert bound.startswith("tcp://127.0.0.1:")


def test_a_missing_evaluator_is_an_error_at_once() -> None:
    with pytest.raises(EvaluatorLost, match="no evaluator listens"):
        EvaluatorClient(f"tcp://127.0.0.1:{free_port()}", timeout=WAIT_S)
    with pytest.raises(EvaluatorLost, match="not an address"):
        EvaluatorClient("nonsense")


@pytest.mark.integration
@needs_ipc
def test_stale_address_is_replaced_a_live_one_kept(environment: dict[str, str], tmp_path: Path) -> None:
    for address in (f"ipc://{environment['TMPDIR']}/e", f"tcp://127.0.0.1:{free_port()}"):
        flags = ("--backend", "random", "--address", address)
        with serving(environment, *flags) as first:
            wait_for_line(first, "ready")
            with serving(environment, *flags) as second:
                assert "in use" in wait_for_line(second, "error:")
                assert second.wait(WAIT_S) == 1
            with EvaluatorClient(address, timeout=WAIT_S) as client:
                client.ping()
        # Killed: its socket file, if any, is still there.
        with serving(environment, *flags) as third:
            wait_for_line(third, "ready")


@pytest.mark.integration
@needs_posix
@needs_ipc
def test_the_next_evaluator_sweeps_up_after_a_killed_one(environment: dict[str, str]) -> None:
    with serving(environment, "--embedded", "--backend", "random") as killed:
        event(killed, "bound")
        event(killed, "ready")
    left = sockets(environment)
    assert len(left) == 1
    with serving(environment, "--embedded", "--backend", "random") as process:
        event(process, "bound")
        assert left[0] not in sockets(environment)


def test_sweeping_spares_the_living(tmp_path: Path) -> None:
    living, dead = tmp_path / f"embedded-{os.getpid()}-00", tmp_path / f"embedded-{2**22 + 1}-00"
    other = tmp_path / "embedded-notes"
    for folder in (living, dead, other):
        folder.mkdir()
    sweep(tmp_path)
    assert living.exists()
    assert other.exists()
    assert not dead.exists()


@pytest.mark.skipif(not zmq.has("ipc"), reason="this platform has no ipc")
def test_socket_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made, _ = listening_socket(f"ipc://{tmp_path}/a")
    finally:
        os.umask(before)
    with made:
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
