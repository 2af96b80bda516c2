# SPDX-License-Identifier: GPL-3.0-or-later
"""A TCP proxy between clients and a service, which keeps all that goes by."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

WAIT_S = 60.0


class Proxy:
    """Passes on what comes to `address`. seen: all bytes, of both directions."""

    def __init__(self, port: int) -> None:
        """port: of 127.0.0.1, where it passes it on to."""
        self.seen = bytearray()
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self._server.getsockname()[1]}"

    def close(self) -> None:
        for each in (self._server, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        for each in (self._server, *self._sockets):
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                service = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += (client, service)
                for source, target in ((client, service), (service, client)):
                    self._threads.append(threading.Thread(target=self._pass_on, args=(source, target)))
                    self._threads[-1].start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.seen += data
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def proxy_to(address: str) -> Iterator[Proxy]:
    """A proxy to a tcp address of this machine."""
    with closing(Proxy(int(address.partition("#")[0].rpartition(":")[2]))) as proxy:
        yield proxy
