"""Binding addresses: live sockets are never stolen, stale ones replaced, ours removed at exit."""

from __future__ import annotations

import errno
import re
import secrets
import shutil
import socket
from pathlib import Path

import psutil
import zmq

from protocol.addresses import runtime_directory


class AddressError(Exception):
    """An address cannot be bound. The message says why and what to do."""


def bind(router: zmq.Socket[bytes], address: str) -> str:
    """Bind one address and return it as clients must name it (a port of * or 0 filled in).

    Raises AddressError when it is malformed or somebody listens there already.
    """
    if address.startswith("ipc://"):
        if not zmq.has("ipc"):
            raise AddressError(f"{address}: this platform has no ipc, use tcp://127.0.0.1:PORT")
        _clear_stale_socket(Path(address.removeprefix("ipc://")), address)
    elif not address.startswith("tcp://"):
        raise AddressError(f"{address}: must begin with tcp:// or ipc://")
    else:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        if not host or not (port == "*" or (port.isdecimal() and int(port) < 65536)):
            raise AddressError(
                f"{address}: must be tcp://HOST:PORT or tcp://[IPV6]:PORT with a port from 0 (any) to 65535"
            )
        if port == "0":
            address = f"tcp://{host}:*"
    # IPv4 addresses would be named as IPv6 ones otherwise, which not every client understands.
    router.setsockopt(zmq.IPV6, int("[" in address))
    try:
        router.bind(address)
    except zmq.ZMQError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressError(
                f"{address}: in use. Another evaluator may be running: give another --address, "
                "or use that one"
            ) from None
        raise AddressError(f"{address}: {error}") from None
    bound = router.getsockopt(zmq.LAST_ENDPOINT)
    return bound.decode().rstrip("\0") if isinstance(bound, bytes) else address


def remove_socket(address: str) -> None:
    """Remove the socket file of a bound ipc address: who is connected stays so, and nobody else comes."""
    if address.startswith("ipc://"):
        Path(address.removeprefix("ipc://")).unlink(missing_ok=True)


def private_folder() -> Path:
    """A fresh folder (mode 0700) for an embedded evaluator's socket, named for this process.

    Folders of processes that were killed are removed on the way.
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


def _clear_stale_socket(path: Path, address: str) -> None:
    # ZeroMQ itself would silently take the path away from whoever listens there.
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
            raise AddressError(f"{address}: {error}") from None
    raise AddressError(
        f"{address}: in use. Another evaluator may be running: give another --address, or use that one"
    )
