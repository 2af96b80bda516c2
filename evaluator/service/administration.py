"""The requests that change the service for everybody, or tell about everybody: who may make them, and the
answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, get_args

from evaluator.service.connections.access import Access
from evaluator.service.draining import SHUTTING_DOWN
from evaluator.service.lifecycle import LifeCycle
from evaluator.service.networks import NetworkToLoad, ReloadedNetwork, ServedNetworks
from evaluator.service.sessions import Sessions
from protocol import messages
from protocol.errors import BadRequest, Draining, LoadFailed, NotAllowed, RemoteError
from protocol.keys.notation import KeysError

log = logging.getLogger("evaluator.service")

Request = (
    messages.Load | messages.Unload | messages.Alias | messages.Reload | messages.Clients | messages.Drain
)


class Administration:
    """Belongs to the I/O thread.

    send, fail: answer a client with a message, or a request of his by its id with an error. drain: begins to
    drain, and has the request answered in the end. reread: reads the list of clients again.
    """

    def __init__(
        self,
        networks: ServedNetworks,
        sessions: Sessions,
        life: LifeCycle,
        send: Callable[[bytes, messages.Reply], None],
        fail: Callable[[bytes, int, RemoteError], None],
        drain: Callable[[bytes, int], None],
        access: Access,
        reread: Callable[[], None],
    ) -> None:
        self._networks = networks
        self._sessions = sessions
        self._life = life
        self._send = send
        self._fail = fail
        self._drain = drain
        self._access = access
        self._reread = reread

    def handle(self, client: bytes, message: Request, user: str) -> None:
        """Do what a client asks for. user: who it was admitted as. Raises RemoteError."""
        if not self._access.may_administer(user):
            name = type(message).__name__.lower()
            raise NotAllowed(f"{name} is not allowed here: {self._access.advice(user)}")
        _HANDLERS[type(message)](self, client, message)

    def _load(self, client: bytes, message: messages.Load) -> None:
        if self._life.draining:
            raise Draining(SHUTTING_DOWN)

        def loaded(info: messages.NetworkInfo) -> None:
            log.info("network %s is loaded", info.name)
            self._send(client, messages.Loaded(message.id, info))

        def failed(error: Exception) -> None:
            reason = _about(message.path, error)
            log.warning("no network was loaded: %s", reason)
            self._fail(client, message.id, LoadFailed(reason))

        wanted = NetworkToLoad(message.path, message.policy_head, message.value_head)
        self._networks.load(wanted, loaded, failed)

    def _reload(self, client: bytes, message: messages.Reload) -> None:
        if self._life.draining:
            raise Draining(SHUTTING_DOWN)
        if not message.network:
            try:
                self._reread()
            except KeysError as error:
                raise LoadFailed(f"the list of clients stays as it is: {error}") from None

        def reloaded(done: list[ReloadedNetwork]) -> None:
            infos = tuple(each.info for each in done)
            changed = tuple(each.info.name for each in done if each.changed)
            self._send(client, messages.Reloaded(message.id, infos, changed))

        def failed(error: Exception) -> None:
            log.warning("not all could be loaded again, what was served before is served on: %s", error)
            self._fail(client, message.id, LoadFailed(str(error)))

        self._networks.reload(message.network, reloaded, failed)

    def _unload(self, client: bytes, message: messages.Unload) -> None:
        def unloaded() -> None:
            log.info("network %s is unloaded", message.network)
            self._send(client, messages.Unloaded(message.id))

        self._networks.unload(message.network, unloaded)

    def _alias(self, client: bytes, message: messages.Alias) -> None:
        if not message.alias:
            raise BadRequest("alias: must not be empty")
        name = self._networks.alias(message.alias, message.network)
        log.info("alias %s %s", message.alias, f"means {name}" if name else "is gone")
        self._send(client, messages.Aliased(message.id, name))

    def _clients(self, client: bytes, message: messages.Clients) -> None:
        self._send(client, messages.ClientsReply(message.id, tuple(self._sessions.descriptions())))

    def _start_drain(self, client: bytes, message: messages.Drain) -> None:
        self._drain(client, message.id)


def _about(path: str, error: Exception) -> str:
    """What is wrong with a file, which readers of files name themselves and backends do not."""
    text = str(error)
    return text if not path or text.startswith(f"{path}:") else f"{path}: {text}"


_HANDLERS: dict[type[Any], Callable[[Administration, bytes, Any], None]] = {
    messages.Load: Administration._load,
    messages.Reload: Administration._reload,
    messages.Unload: Administration._unload,
    messages.Alias: Administration._alias,
    messages.Clients: Administration._clients,
    messages.Drain: Administration._start_drain,
}

assert set(_HANDLERS) == set(get_args(Request)), "every request has a handler"
