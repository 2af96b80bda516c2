# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks that are loaded into an evaluator that the engine was given by a plain tcp address."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from engine.evaluation.link.link import served_network
from evaluator.network import SHIPPED_NETWORK
from evaluator.service.connections.access import Access
from protocol import EvaluatorClient
from protocol.connections.addresses import runtime_directory
from protocol.errors import LoadFailed, NotAllowed
from tests.evaluator.service.echo import WAIT_S
from tests.evaluator.service.harness import answers, running

pytestmark = pytest.mark.skipif(not zmq.has("ipc"), reason="this platform has no ipc")

PLAIN = "tcp://127.0.0.1:0"
KEY = (str(SHIPPED_NETWORK), "", "")


@pytest.fixture
def own_socket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """This user's well-known ipc address, in a folder for this test."""
    with tempfile.TemporaryDirectory(prefix="wf") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield f"ipc://{runtime_directory() / 'evaluator'}"


def test_own_evaluator_loads_them_over_plain_tcp(tmp_path: Path, own_socket: str) -> None:
    with (
        running(tmp_path, access=Access(), address=own_socket, further=[PLAIN]) as harness,
        EvaluatorClient(harness.others[0], timeout=WAIT_S) as client,
    ):
        network = served_network(client, KEY)
        assert client.use(network.name) == network
        assert answers(client, 3)
        assert served_network(client, (network.name, "", "")) == network


def test_a_shipped_network_is_loaded_by_its_name(tmp_path: Path) -> None:
    with running(tmp_path) as harness, EvaluatorClient(harness.address, timeout=WAIT_S) as client:
        assert served_network(client, ("wavefront-cpu", "", "")).name == "wavefront-cpu"
        with pytest.raises(LoadFailed, match=f"{Path('wavefront.pb').resolve()}: there is no such file"):
            served_network(client, ("wavefront.pb", "", ""))


def test_anothers_evaluator_does_not(tmp_path: Path, own_socket: str) -> None:
    with (
        running(tmp_path, access=Access()) as harness,
        EvaluatorClient(harness.address, timeout=WAIT_S) as client,
    ):
        with pytest.raises(NotAllowed, match="not at an address without keys"):
            served_network(client, KEY)
        with running(tmp_path, access=Access(), address=own_socket) as own:
            with pytest.raises(NotAllowed, match="not at an address without keys"):
                served_network(client, KEY)
            assert len(own.backends) == 1
