# SPDX-License-Identifier: GPL-3.0-or-later
"""Key pairs, the list of clients, the services known, and files that others may read or change."""

import os
import threading
from pathlib import Path

import platformdirs
import pytest
import zmq
from zmq.utils import z85

from protocol.common.keys.clients import AllowedClient, allow, read_clients, revoke
from protocol.common.keys.credentials import credentials_for
from protocol.common.keys.files import CLIENT_PAIR, MOST_BYTES, SERVICES, keys_folder
from protocol.common.keys.notation import KeysError, read_key, show_key, split_address
from protocol.common.keys.pairs import make_pair, new_pair, pair_at, read_pair
from protocol.common.keys.services import forget, read_services, service_key, trust

needs_modes = pytest.mark.skipif(os.name != "posix", reason="files have no modes here")


def test_a_key_is_read_as_it_is_shown_and_as_zeromq_writes_it() -> None:
    public = new_pair().public
    assert read_key(show_key(public)) == public
    assert read_key(show_key(public).upper()) == public
    assert read_key(z85.encode(public).decode()) == public
    assert z85.decode(zmq.curve_public(z85.encode(b"\1" * 32))) == read_key(
        zmq.curve_public(z85.encode(b"\1" * 32)).decode()
    )


@pytest.mark.parametrize("text", ["", "ab" * 31, "ab" * 33, "xy" * 32, "~" * 40, "#" * 40])
def test_invalid_key_is_rejected_without_being_shown(text: str) -> None:
    with pytest.raises(KeysError, match="64 hexadecimal digits") as refused:
        read_key(text)
    assert not text or text not in str(refused.value)


def test_a_key_follows_its_address() -> None:
    key = new_pair().public
    assert split_address("tcp://gpu:5577") == ("tcp://gpu:5577", None)
    for path in ("ipc:///run/a", "ipc:///run/a#1", f"ipc:///run/a#{show_key(key)}"):
        assert split_address(path) == (path, None)
    assert split_address(f"tcp://[::1]:5577#{show_key(key)}") == ("tcp://[::1]:5577", key)
    with pytest.raises(KeysError, match=r"tcp://gpu:5577#…"):
        split_address("tcp://gpu:5577#nonsense")


def test_a_pair_is_kept_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.key"
    pair = make_pair(path)
    assert read_pair(path) == pair == pair_at(path)
    assert z85.decode(zmq.curve_public(z85.encode(pair.secret))) == pair.public
    assert repr(pair.secret) not in repr(pair) + str(pair)
    assert show_key(pair.secret) not in repr(pair)
    with pytest.raises(FileExistsError):
        make_pair(path)
    assert read_pair(path) == pair
    assert make_pair(path, replace=True) == read_pair(path) != pair
    assert [each.name for each in path.parent.iterdir()] == ["a.key"]


@needs_modes
def test_secret_files_are_for_their_owner_at_once(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = tmp_path / "folder" / "a.key"
        make_pair(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(KeysError, match=f"chmod 600 {path}"):
            read_pair(path)
        with pytest.raises(KeysError, match="chmod 600"):
            pair_at(path)


def test_of_several_that_need_a_pair_at_once_one_makes_it(tmp_path: Path) -> None:
    start = threading.Barrier(8)
    pairs = []

    def need() -> None:
        start.wait()
        pairs.append(pair_at(tmp_path / "a.key"))

    threads = [threading.Thread(target=need) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pairs) == 8
    assert set(pairs) == {read_pair(tmp_path / "a.key")}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no secret key"),
        ("# only a comment\n", "holds no secret key"),
        ("ab" * 32 + "\n" + "cd" * 32, "holds no secret key"),
        ("something else", "64 hexadecimal digits"),
        ("\udcff", "not text"),
    ],
)
def test_a_file_without_a_pair_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "a.key"
    path.write_bytes(text.encode(errors="surrogateescape"))
    path.chmod(0o600)
    with pytest.raises(KeysError, match=complaint) as refused:
        read_pair(path)
    assert str(path) in str(refused.value)
    with pytest.raises(KeysError, match="cannot read"):
        read_pair(tmp_path)


def test_clients_are_allowed_changed_and_revoked(tmp_path: Path) -> None:
    path = tmp_path / "clients"
    assert read_clients(path) == {}
    laptop = AllowedClient("laptop", "play", new_pair().public)
    desk = AllowedClient("desk@home.example", "admin", new_pair().public)
    allow(path, laptop)
    path.write_text(path.read_text() + "\n# a remark\n")
    allow(path, desk)
    assert list(read_clients(path).values()) == [laptop, desk]
    assert [client.is_admin for client in read_clients(path).values()] == [False, True]
    promoted = AllowedClient("laptop", "admin", laptop.key)
    allow(path, promoted)
    assert read_clients(path)[laptop.key] == promoted
    with pytest.raises(KeysError, match=r"desk@home\.example has this key"):
        allow(path, AllowedClient("other", "play", desk.key))
    revoke(path, "laptop")
    assert list(read_clients(path).values()) == [desk]
    assert "# a remark" in path.read_text()
    with pytest.raises(KeysError, match=r"'laptop'"):
        revoke(path, "laptop")
    for name in ("", "two words", "#comment", "-flag", "x" * 65, "line\nfeed"):
        with pytest.raises(KeysError, match="name of a client"):
            allow(path, AllowedClient(name, "play", laptop.key))
    with pytest.raises(KeysError, match="play or admin"):
        allow(path, AllowedClient("laptop", "root", laptop.key))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("laptop play", "a client is a name"),
        (f"laptop root {'ab' * 32}", "a client is a name"),
        (f"laptop play {'ab' * 31}", "a key is 64 hexadecimal digits"),
        (f"other play {'01' * 32}", "first has this key"),
    ],
)
def test_the_line_that_is_no_client_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "clients"
    path.write_text(f"first play {'01' * 32}\n{line}\n")
    with pytest.raises(KeysError, match=f"clients, line 2: {complaint}"):
        read_clients(path)


@needs_modes
def test_lists_that_others_may_change_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "clients"
    allow(path, AllowedClient("laptop", "play", new_pair().public))
    assert path.stat().st_mode & 0o777 == 0o644
    for mode in (0o664, 0o646):
        path.chmod(mode)
        with pytest.raises(KeysError, match=f"chmod go-w {path}"):
            read_clients(path)


def test_services_are_known_by_their_addresses(tmp_path: Path) -> None:
    path = tmp_path / SERVICES
    first, second = new_pair().public, new_pair().public
    trust(path, "tcp://GPU.example:5577", first)
    trust(path, "tcp://[fe80::1]:5577", first)
    assert service_key(path, "tcp://gpu.example:5577") == first
    assert service_key(path, "tcp://gpu.example:5578") is None
    trust(path, "tcp://gpu.example:5577", second)
    assert list(read_services(path).values()) == [first, second]
    forget(path, "tcp://gpu.EXAMPLE:5577")
    with pytest.raises(KeysError, match=r"tcp://gpu.example:5577; .*tcp://\[fe80::1\]"):
        forget(path, "tcp://gpu.example:5577")
    for address in ("gpu:5577", "tcp://gpu", "ipc:///a:5"):
        with pytest.raises(KeysError, match="tcp://HOST:PORT"):
            trust(path, address, first)
    path.write_text("tcp://gpu:5577\n")
    with pytest.raises(KeysError, match="evaluators, line 1: "):
        read_services(path)


def test_a_client_has_keys_where_those_of_the_service_are_known(tmp_path: Path) -> None:
    assert credentials_for("ipc:///run/a", tmp_path) == ("ipc:///run/a", None)
    assert credentials_for("tcp://gpu:5577", tmp_path) == ("tcp://gpu:5577", None)
    assert list(tmp_path.iterdir()) == []
    service, other = new_pair().public, new_pair().public
    trust(tmp_path / SERVICES, "tcp://gpu:5577", service)
    endpoint, credentials = credentials_for("tcp://gpu:5577", tmp_path)
    assert credentials is not None
    assert (endpoint, credentials.service) == ("tcp://gpu:5577", service)
    assert credentials.own == read_pair(tmp_path / CLIENT_PAIR)
    endpoint, credentials = credentials_for(f"tcp://gpu:5577#{show_key(other)}", tmp_path)
    assert credentials is not None
    assert (endpoint, credentials.service) == ("tcp://gpu:5577", other)
    assert show_key(credentials.own.secret) not in repr(credentials)


def test_keys_are_in_the_users_configuration_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "user_config_dir", lambda *_: str(tmp_path / "config"))
    assert keys_folder() == tmp_path / "config"
    assert keys_folder(tmp_path) == tmp_path
    assert keys_folder("~/keys") == Path.home() / "keys"


@needs_modes
def test_private_file_is_refused_when_others_can_replace_it(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    path = folder / "client.key"
    make_pair(path)
    for mode, refused in ((0o770, True), (0o777, True), (0o1777, False), (0o755, False)):
        folder.chmod(mode)
        if refused:
            with pytest.raises(KeysError, match=f"chmod go-w {folder}"):
                read_pair(path)
        else:
            read_pair(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_file_is_refused_when_another_user_owns_it_or_its_folder(tmp_path: Path, what: str) -> None:
    path = tmp_path / "keys" / "clients"
    allow(path, AllowedClient("laptop", "play", bytes(range(32))))
    owned = path if what == "file" else path.parent
    os.chown(owned, 65534, -1)
    with pytest.raises(KeysError, match=f"{owned}: user 65534"):
        read_clients(path)


def test_long_list_of_clients_is_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "clients"
    count = 20_001
    path.write_text("".join(f"client{n} play {n:064x}\n" for n in range(1, count + 1)), "utf-8")
    path.chmod(0o600)
    allow(path, AllowedClient("laptop", "play", bytes(range(32))))
    assert len(read_clients(path)) == count + 1


def test_list_is_refused_when_it_is_too_long_to_read(tmp_path: Path) -> None:
    path = tmp_path / "clients"
    path.write_bytes(b"#" * (MOST_BYTES + 1))
    path.chmod(0o600)
    with pytest.raises(KeysError, match=str(path)):
        allow(path, AllowedClient("laptop", "play", bytes(range(32))))
    assert path.stat().st_size == MOST_BYTES + 1
