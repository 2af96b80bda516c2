# SPDX-License-Identifier: GPL-3.0-or-later
"""Binding of addresses: keeps live sockets of others, replaces stale ones, and removes its own at exit."""

from __future__ import annotations

import errno
import re
import secrets
import shutil
import socket
from pathlib import Path
from typing import Any

import psutil
import zmq

from protocol.common.printing import reason
from protocol.connections.addresses import runtime_directory

BACKLOG = 512
"""Connections that may wait to be accepted."""


class AddressError(Exception):
    """An address cannot be bound. The message has the reason and a remedy."""


def bind(router: zmq.Socket[bytes], address: str) -> str:
    """Bind an address and return it as clients must name it (a port of * or 0 filled in).

    Raises AddressError if it is malformed or in use.
    """
    address = _checked(address)
    if address.startswith("tcp://") and address.endswith(":0"):
        address = address.removesuffix("0") + "*"
    # With IPV6 set, IPv4 addresses would be reported as IPv6 ones, which not every client understands.
    router.setsockopt(zmq.IPV6, int("[" in address))
    try:
        router.bind(address)
    except zmq.ZMQError as error:
        raise _unbound(address, error) from None
    bound = router.getsockopt(zmq.LAST_ENDPOINT)
    return bound.decode().rstrip("\0") if isinstance(bound, bytes) else address


def listening_socket(address: str) -> tuple[socket.socket, str]:
    """Return a listening socket, and its address as clients must name it. For systems with ipc.

    Raises AddressError as `bind` does.
    """
    address = _checked(address)
    try:
        if address.startswith("ipc://"):
            return _listening(socket.AF_UNIX, _unix_path(address)), address
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        family, place = _place(host, 0 if port == "*" else int(port))
        made = _listening(family, place)
    except OSError as error:
        raise _unbound(address, error) from None
    name, number = made.getsockname()[:2]
    return made, f"tcp://[{name}]:{number}" if family == socket.AF_INET6 else f"tcp://{name}:{number}"


def _checked(address: str) -> str:
    """Return the address with localhost replaced by 127.0.0.1, and remove a stale socket. Raises AddressError
    for a malformed address."""
    if address == "ipc://":
        raise AddressError(f"{address}: it names no path: ipc://PATH")
    if address.startswith("ipc://"):
        if not zmq.has("ipc"):
            raise AddressError(f"{address}: this platform has no ipc, use tcp://127.0.0.1:PORT")
        _clear_stale_socket(_unix_path(address), address)
    elif not address.startswith("tcp://"):
        raise AddressError(f"{address}: must begin with tcp:// or ipc://")
    else:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        if not host or not (port == "*" or (port.isdecimal() and int(port) < 65536)):
            raise AddressError(
                f"{address}: must be tcp://HOST:PORT or tcp://[IPV6]:PORT with a port from 0 (any) to 65535"
            )
        if host == "localhost":  # the name may resolve to several addresses
            return f"tcp://127.0.0.1:{port}"
    return address


def _unbound(address: str, error: OSError | zmq.ZMQError) -> AddressError:
    if error.errno == errno.EADDRINUSE:
        return AddressError(
            f"{address}: in use. Another evaluator may be running: give another --address, or use that one"
        )
    if isinstance(error, socket.gaierror) or error.errno == errno.ENODEV:
        return AddressError(
            f"{address}: to listen at, a host is an IP address of this machine, localhost, * or the name of "
            "a network interface"
        )
    return AddressError(f"{address}: {reason(error)}{advice(error, '--address')}")


def advice(error: OSError | zmq.ZMQError, flags: str) -> str:
    """Return a remedy to append to the reason why an address cannot be bound; empty if the reason suffices.
    flags: the options that set the address."""
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f": this machine has no such address; give another {flags}, 0.0.0.0 for all that it has"
    if error.errno == errno.EADDRINUSE:
        return f": another program listens there; give another {flags}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f": ports below 1024 and folders of others are not for this user; give another {flags}"
    return ""


def _unix_path(address: str) -> str:
    """Return the path of an ipc address, or its abstract name with a zero byte instead of @."""
    path = address.removeprefix("ipc://")
    return "\0" + path[1:] if path.startswith("@") else path


def _place(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Return the family and address of a tcp endpoint. host: number, * or network interface. Raises
    OSError."""
    if host == "*":
        host = "0.0.0.0"
    for found in psutil.net_if_addrs().get(host, []):
        if found.family == socket.AF_INET:
            host = found.address
    found_places = socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
    )
    return found_places[0][0], found_places[0][4]


def _listening(family: socket.AddressFamily, place: Any) -> socket.socket:
    """Return a listening socket. Raises OSError."""
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(place)
        if family == socket.AF_UNIX and not place.startswith("\0"):
            Path(place).chmod(0o600)  # Whatever the umask. Before `listen` nobody can connect.
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def remove_socket(address: str) -> None:
    """Remove the socket file of a bound ipc address. Connected clients stay connected."""
    if address.startswith("ipc://"):
        Path(address.removeprefix("ipc://")).unlink(missing_ok=True)


def private_folder() -> Path:
    """Create a folder (mode 0700) for private sockets, named after this process.

    Folders of killed processes are removed.
    """
    base = runtime_directory()
    sweep(base)
    folder = base / f"embedded-{psutil.Process().pid}-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    return folder


def sweep(base: Path) -> None:
    """Remove the private folders of processes that no longer exist."""
    for folder in base.glob("embedded-*"):
        match = re.fullmatch(r"embedded-(\d+)-[0-9a-f]+", folder.name)
        if match and not psutil.pid_exists(int(match[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _clear_stale_socket(name: str, address: str) -> None:
    # ZeroMQ itself would silently replace the socket of another listener.
    if name.startswith("\0"):
        return
    path = Path(name)
    if not path.parent.is_dir():
        raise AddressError(f"{address}: the folder {path.parent} does not exist")
    if not path.exists():
        return
    if not path.is_socket():
        raise AddressError(f"{address}: {path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise AddressError(f"{address}: {reason(error)}") from None
    raise AddressError(
        f"{address}: in use. Another evaluator may be running: give another --address, or use that one"
    )
