# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys on real sockets: who is let in, who may administer, what others on the way see, and what clients that
are not let in are told."""

import contextlib
import logging
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from evaluator.commands.serve import access_of
from evaluator.service.connections.access import Access, Domain, is_loopback
from evaluator.service.connections.endpoints import AddressError
from evaluator.settings import Settings
from protocol import EvaluatorClient
from protocol.common.keys.clients import AllowedClient, allow, revoke
from protocol.common.keys.credentials import Credentials
from protocol.common.keys.files import CLIENT_PAIR, CLIENTS, SERVICE_PAIR, SERVICES
from protocol.common.keys.notation import show_key
from protocol.common.keys.pairs import new_pair, pair_at, read_pair
from protocol.common.keys.services import trust
from protocol.connections.handshake import mechanism_of
from protocol.errors import EvaluatorLost, LoadFailed, NotAllowed
from protocol.wire.codec import decode_reply, encode
from protocol.wire.messages import Clients, Error, Ping
from tests.evaluator.service.echo import WAIT_S, expected, numbered_batch, same
from tests.evaluator.service.harness import Harness, running, serving
from tests.evaluator.service.proxy import proxy_to
from tests.evaluator.zmtp import GREETING, READY, command, exactly, message

needs_ipc = pytest.mark.skipif(not zmq.has("ipc"), reason="this platform has no ipc")
needs_posix = pytest.mark.skipif(os.name != "posix", reason="files have no modes here")

ADMINISTRATION: dict[str, Callable[[EvaluatorClient], object]] = {
    "load": lambda client: client.load("/nowhere"),
    "unload": lambda client: client.unload("echo"),
    "alias": lambda client: client.alias("best", "echo"),
    "reload": lambda client: client.reload(),
    "clients": lambda client: client.clients(),
    "drain": lambda client: client.drain(),
}


class Keys:
    """The folders of an operator (`service`), and of clients by their names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.service = folder / "service"
        self.list = self.service / CLIENTS

    def of(self, name: str, rights: str = "") -> Path:
        """A client's folder. It is let in, if it is given rights, once the service reads its list."""
        pair = pair_at(self.folder / name / CLIENT_PAIR)
        if rights:
            allow(self.list, AllowedClient(name, rights, pair.public))
        return self.folder / name

    def public(self, name: str) -> str:
        """A client's public key."""
        return show_key(read_pair(self.folder / name / CLIENT_PAIR).public)

    def access(self, **options: Any) -> Access:
        return Access(str(self.service), **{"keys_on_loopback": True, **options})


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """A `player` and an `admin` who are let in, and a `stranger`."""
    keys = Keys(tmp_path / "keys")
    keys.of("player", "play")
    keys.of("admin", "admin")
    keys.of("stranger")
    return keys


@pytest.fixture
def guarded(tmp_path: Path, keys: Keys) -> Iterator[Harness]:
    """A service that demands keys; its address has its own."""
    with running(tmp_path, access=keys.access(), networks=2) as harness:
        yield harness


def endpoint_of(harness: Harness) -> str:
    return harness.address.partition("#")[0]


def refusal(address: str, keys: Path) -> str:
    """What a client that is not let in is told."""
    with pytest.raises(EvaluatorLost) as refused:
        EvaluatorClient(address, timeout=WAIT_S, keys=keys)
    return str(refused.value)


# -- who is let in -------------------------------------------------------------------------------------


def test_a_client_without_an_allowed_key_gets_a_remedy(
    guarded: Harness, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    told = refusal(guarded.address, keys.of("stranger"))
    assert "does not know this client's key" in told
    assert f"evaluator keys allow NAME {keys.public('stranger')}" in told
    assert f"a client with the key {keys.public('stranger')} was refused" in caplog.text
    player = guarded.client(keys=keys.of("player"))
    assert player.status().metrics["errors"]["not_allowed"] >= 1


def test_another_service_is_not_taken_for_the_one_that_is_meant(guarded: Harness, keys: Keys) -> None:
    wrong = show_key(new_pair().public)
    assert f"does not have the key {wrong}" in refusal(f"{endpoint_of(guarded)}#{wrong}", keys.of("player"))


def test_a_client_without_keys_gets_the_reason(guarded: Harness, keys: Keys) -> None:
    told = refusal(endpoint_of(guarded), keys.of("player"))
    assert "lets in clients with keys only" in told
    assert f"evaluator keys trust {endpoint_of(guarded)} KEY" in told


def test_a_client_with_keys_does_not_speak_to_a_service_without(tmp_path: Path, keys: Keys) -> None:
    with running(tmp_path) as harness:
        told = refusal(f"{harness.address}#{show_key(new_pair().public)}", keys.of("player"))
    assert "has no keys, so that nothing would be encrypted" in told
    assert "without #KEY" in told


def test_another_program_at_the_address_is_recognised(keys: Keys) -> None:
    def answer() -> None:
        for _ in range(2):  # to the client's connection, and to its question who that was
            with server.accept()[0] as peer, contextlib.suppress(OSError):
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(4096):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert "is not an evaluator" in refusal(f"{address}#{'ab' * 32}", keys.of("player"))
        with contextlib.suppress(OSError):
            socket.create_connection(server.getsockname()).close()  # if the client has not asked
        thread.join(WAIT_S)


def test_the_mechanism_is_asked_of_who_listens(guarded: Harness, tmp_path: Path) -> None:
    assert mechanism_of(endpoint_of(guarded)) == "CURVE"
    with running(tmp_path) as plain:
        assert mechanism_of(plain.address) == "NULL"
    assert mechanism_of(plain.address) == ""
    assert mechanism_of("ipc:///run/a") == ""
    assert mechanism_of("tcp://127.0.0.1:99999") == ""


def test_keys_of_services_that_are_kept_need_not_be_in_the_address(guarded: Harness, keys: Keys) -> None:
    player = keys.of("player")
    trust(player / SERVICES, endpoint_of(guarded), read_pair(keys.service / SERVICE_PAIR).public)
    with EvaluatorClient(endpoint_of(guarded), timeout=WAIT_S, keys=player) as client:
        assert client.network.name == "echo"


@needs_posix
def test_a_secret_that_others_may_read_is_not_used(guarded: Harness, keys: Keys, tmp_path: Path) -> None:
    (keys.of("player") / CLIENT_PAIR).chmod(0o644)
    assert f"chmod 600 {keys.folder / 'player' / CLIENT_PAIR}" in refusal(
        guarded.address, keys.folder / "player"
    )
    for file, mode, remedy in ((SERVICE_PAIR, 0o640, "chmod 600"), (CLIENTS, 0o666, "chmod go-w")):
        before = (keys.service / file).stat().st_mode
        (keys.service / file).chmod(mode)
        with (
            pytest.raises(AddressError, match=f"{remedy} {keys.service / file}"),
            running(tmp_path, access=keys.access()),
        ):
            pass
        (keys.service / file).chmod(before)


# -- rights --------------------------------------------------------------------------------------------


def test_rights_are_those_of_the_key(guarded: Harness, keys: Keys) -> None:
    player = guarded.client(keys=keys.of("player"), name="an engine")
    admin = guarded.client(keys=keys.of("admin"))
    for name, attempt in ADMINISTRATION.items():
        with pytest.raises(NotAllowed, match=f"{name} is not allowed here: the key of player is for play"):
            attempt(player)
    assert player.status().metrics["errors"]["not_allowed"] == len(ADMINISTRATION)
    assert {each["name"]: each["key"] for each in admin.clients()} == {"an engine": "player", "": "admin"}
    admin.alias("best", "echo")
    admin.unload("echo-2")
    with pytest.raises(LoadFailed):
        admin.load("/nowhere")
    admin.drain()
    guarded.thread.join(WAIT_S)
    assert not guarded.thread.is_alive()


def test_plain_tcp_gives_no_right_to_administer(tmp_path: Path) -> None:
    with serving(tmp_path, access=Access()) as (_, client):
        for name, attempt in ADMINISTRATION.items():
            with pytest.raises(NotAllowed, match=f"{name} is not allowed here: not at .* without keys"):
                attempt(client)
        assert same(client.evaluate(numbered_batch(3)), expected(numbered_batch(3)))


@needs_ipc
def test_ipc_socket_gives_rights_by_the_file_system(tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="wf") as folder,
        running(
            tmp_path, access=Access(), address=f"ipc://{folder}/e", further=["tcp://127.0.0.1:0"]
        ) as harness,
        EvaluatorClient(harness.others[0], timeout=WAIT_S) as plain,
    ):
        harness.client().alias("best", "echo")
        with pytest.raises(NotAllowed, match=f"connect to ipc://{folder}/e, or with a key"):
            plain.alias("best", "echo")


def test_nobody_waits_when_a_connection_ends_during_its_check(tmp_path: Path) -> None:
    with running(tmp_path, access=Access()) as harness:
        host, _, port = harness.address.removeprefix("tcp://").partition(":")
        for number in range(200):
            peer = socket.create_connection((host, int(port)), WAIT_S)
            if number % 2:  # at once, without a word
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.sendall(GREETING + command(READY))
            peer.close()
        for _ in range(3):
            with EvaluatorClient(harness.address, timeout=WAIT_S) as client:
                assert same(client.evaluate(numbered_batch(3)), expected(numbered_batch(3)))


def test_a_client_cannot_say_itself_who_it_is(guarded: Harness, tmp_path: Path, keys: Keys) -> None:
    with running(tmp_path, access=Access()) as harness:
        for user in (Domain.FILES.value, Domain.KEYS.value, keys.public("admin")):
            host, _, port = harness.address.removeprefix("tcp://").partition(":")
            with socket.create_connection((host, int(port)), WAIT_S) as peer:
                said = b"\x07User-Id" + struct.pack(">I", len(user)) + user.encode()
                peer.sendall(GREETING + command(READY + said) + message([bytes(encode(Clients(7))[0])]))
                exactly(peer, exactly(peer, len(GREETING) + 2)[-1])  # the service's own READY
                assert b"not_allowed" in exactly(peer, exactly(peer, 2)[1])


# -- proxies -------------------------------------------------------------------------------------------


def test_a_proxy_sees_nothing_and_gives_no_rights(guarded: Harness, keys: Keys) -> None:
    key = guarded.address.partition("#")[2]
    with proxy_to(guarded.address) as proxy:
        address = f"{proxy.address}#{key}"
        player = keys.of("player")
        with EvaluatorClient(address, timeout=WAIT_S, keys=player, name="a name to hide") as client:
            batch = numbered_batch(64)
            assert same(client.evaluate(batch), expected(batch))
            for name, attempt in ADMINISTRATION.items():
                with pytest.raises(NotAllowed, match=name):
                    attempt(client)
        with EvaluatorClient(address, timeout=WAIT_S, keys=keys.of("admin")) as admin:
            admin.alias("an alias to hide", "echo")
        assert "does not know" in refusal(address, keys.of("stranger"))
        seen = bytes(proxy.seen)
    assert len(seen) > 64 * 904
    secrets = (b"a name to hide", b"an alias to hide", b"echo", b"evaluate", b"welcome", b"hello")
    for plain in (*secrets, batch.positions[5:6].tobytes()[:64], batch.moves[:16].tobytes()):
        assert plain not in seen
    for pair in (keys.service / SERVICE_PAIR, keys.folder / "player" / CLIENT_PAIR):
        assert read_pair(pair).secret not in seen


# -- the list, read again ------------------------------------------------------------------------------


def test_clients_come_and_go(guarded: Harness, keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    admin = guarded.client(keys=keys.of("admin"))
    player = guarded.client(keys=keys.of("player"), name="an engine")
    allow(keys.list, AllowedClient("late", "play", read_pair(keys.of("stranger") / CLIENT_PAIR).public))
    revoke(keys.list, "player")
    assert player.status().ready
    admin.reload()
    with pytest.raises(EvaluatorLost, match="gone"):
        player.status()
    assert "the key of player (an engine) was revoked" in caplog.text
    assert "does not know" in refusal(guarded.address, keys.of("player"))
    late = guarded.client(keys=keys.of("stranger"))
    assert same(late.evaluate(numbered_batch(3)), expected(numbered_batch(3)))
    assert [each["key"] for each in admin.clients()] == ["admin", "late"]
    keys.of("admin", "play")
    admin.reload()
    with pytest.raises(NotAllowed):
        admin.reload()


def test_a_connection_that_has_said_nothing_yet_is_revoked_as_well(guarded: Harness, keys: Keys) -> None:
    credentials = Credentials(
        read_pair(keys.service / SERVICE_PAIR).public, read_pair(keys.of("player") / CLIENT_PAIR)
    )
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        credentials.secure(dealer)
        dealer.linger = 0
        events = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
        with dealer.get_monitor_socket(int(events)) as monitor:
            dealer.connect(endpoint_of(guarded))
            assert monitor.poll(int(WAIT_S * 1000))
            assert recv_monitor_message(monitor)["event"] == zmq.Event.HANDSHAKE_SUCCEEDED
            revoke(keys.list, "player")
            guarded.client(keys=keys.of("admin")).reload()
            dealer.send(bytes(encode(Ping(1))[0]))
            assert monitor.poll(int(WAIT_S * 1000)), "it was not cut off"
            assert recv_monitor_message(monitor)["event"] == zmq.Event.DISCONNECTED
            if dealer.poll(0):
                reply = decode_reply(dealer.recv_multipart(copy=False))
                assert isinstance(reply, Error)
                assert reply.code == "not_allowed"
            dealer.disable_monitor()


@pytest.mark.parametrize(("content", "reason"), [("nonsense\n", "clients, line 1"), (None, "it is no file")])
@pytest.mark.timeout(60)
def test_bad_list_changes_nothing(guarded: Harness, keys: Keys, content: str | None, reason: str) -> None:
    """Nobody waits for somebody to write into a list that is a pipe."""
    if content is None and os.name != "posix":
        pytest.skip("there are no such pipes")
    player = guarded.client(keys=keys.of("player"))
    admin = guarded.client(keys=keys.of("admin"))
    keys.list.unlink()
    os.mkfifo(keys.list) if content is None else keys.list.write_text(content)
    with pytest.raises(LoadFailed, match=f"the list of clients stays as it is: .*{reason}"):
        admin.reload()
    assert same(player.evaluate(numbered_batch(3)), expected(numbered_batch(3)))
    assert guarded.client(keys=keys.of("player")).status().ready


# -- addresses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("tcp://127.0.0.1:5577", True),
        ("tcp://127.8.9.1:*", True),
        ("tcp://localhost:0", True),
        ("tcp://[::1]:5577", True),
        ("tcp://0.0.0.0:5577", False),
        ("tcp://*:5577", False),
        ("tcp://[::]:5577", False),
        ("tcp://192.168.1.7:5577", False),
        ("tcp://[::ffff:10.0.0.1]:5577", False),
        ("tcp://127.0.0.1.example:5577", False),
        ("tcp://eth0:5577", False),
    ],
)
def test_addresses_of_others_demand_keys(address: str, local: bool, caplog: pytest.LogCaptureFixture) -> None:
    assert is_loopback(address) is local
    assert Access().domain(address) is (Domain.PLAIN if local else Domain.KEYS)
    assert Access(keys_on_loopback=True).domain(address) is Domain.KEYS
    Access().bound(address)
    assert caplog.text == ""
    assert Access(unencrypted=True).domain(address) is Domain.PLAIN
    Access(unencrypted=True).bound(address)
    assert ("can use this service" in caplog.text) is not local
    assert Access(keys_on_loopback=True).domain("ipc:///run/a") is Domain.FILES
    assert Access().domain("ipc://@abstract") is Domain.PLAIN


def test_one_service_has_addresses_of_all_kinds(tmp_path: Path, keys: Keys) -> None:
    addresses = ("tcp://0.0.0.0:0", "tcp://127.0.0.1:0")
    with running(tmp_path, access=Access(str(keys.service)), further=addresses) as harness:
        everywhere, again = harness.others
        port = everywhere.partition("#")[0].rpartition(":")[2]
        assert mechanism_of(f"tcp://127.0.0.1:{port}") == "CURVE"
        address = f"tcp://127.0.0.1:{port}#{everywhere.partition('#')[2]}"
        with EvaluatorClient(address, timeout=WAIT_S, keys=keys.of("admin")) as admin:
            admin.alias("best", "echo")
        for plain in (harness.address, again):
            assert mechanism_of(plain) == "NULL"
            with EvaluatorClient(plain, timeout=WAIT_S) as client:
                assert client.aliases["best"] == "echo"
                with pytest.raises(NotAllowed):
                    client.alias("best", "")


def test_a_flood_of_strangers_is_one_line_a_second(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    now = [1000.0]
    access = keys.access(clock=lambda: now[0])
    access.pair()
    with caplog.at_level(logging.WARNING):
        for _ in range(500):
            assert access.admit(Domain.KEYS.value, new_pair().public) is None
        assert access.admit(Domain.KEYS.value, None) is None
        assert len(caplog.records) == 1
        now[0] += 1.5
        assert access.admit(Domain.KEYS.value, b"\7" * 32) is None
    assert len(caplog.records) == 2
    assert "07" * 32 in caplog.text
    assert "and 500 others before" in caplog.text


@pytest.mark.parametrize(
    ("embedded", "ipc", "may"),
    [(True, False, True), (True, True, False), (False, False, False), (False, True, False)],
)
def test_plain_tcp_has_rights_only_when_engines_lack_others(
    embedded: bool, ipc: bool, may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmq, "has", lambda feature: ipc)
    assert access_of(Settings(), embedded).may_administer(Domain.PLAIN.value) is may
    assert access_of(Settings(plain_admin=True), embedded).may_administer(Domain.PLAIN.value)
