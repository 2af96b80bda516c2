# SPDX-License-Identifier: GPL-3.0-or-later
"""Administrative requests: permission checks, handlers and replies."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, get_args

from evaluator.service.connections.transport import Client
from evaluator.service.lifecycle import SHUTTING_DOWN
from evaluator.service.networks import NetworkToLoad, ReloadedNetwork
from evaluator.service.record import ServiceParts
from protocol.common.keys.notation import KeysError
from protocol.common.printing import printable
from protocol.errors import BadRequest, Draining, LoadFailed, NotAllowed
from protocol.wire import messages

log = logging.getLogger("evaluator.service")

Request = (
    messages.Load | messages.Unload | messages.Alias | messages.Reload | messages.Clients | messages.Drain
)


class Administration:
    """Handles administrative requests. Belongs to the I/O thread."""

    def __init__(self, service: ServiceParts) -> None:
        self._service = service

    def handle(self, client: Client, message: Request, user: str) -> None:
        """Handle a request. user: identity under which the client was admitted. Raises RemoteError."""
        access = self._service.access
        if not access.may_administer(user):
            name = type(message).__name__.lower()
            raise NotAllowed(f"{name} is not allowed here: {access.advice(user)}")
        if not isinstance(message, messages.Clients):
            self._note(client, message)
        _HANDLERS[type(message)](self, client, message)

    def _note(self, client: Client, message: Request) -> None:
        """Log who changes the service, and how."""
        session = self._service.sessions.of(client)
        who = "a client that has left" if session is None else session.who
        what = {"load": "path", "unload": "network", "alias": "alias", "reload": "network"}
        kind = type(message).__name__.lower()
        about = getattr(message, what[kind]) if kind in what else ""
        log.info(
            "%s asks for %s%s",
            who,
            kind,
            f" {about}" if about else "",
            extra={"client": who, "request": message.id, "network": getattr(message, "network", "")},
        )

    def _load(self, client: Client, message: messages.Load) -> None:
        if self._service.life.draining:
            raise Draining(SHUTTING_DOWN)

        def loaded(info: messages.NetworkInfo) -> None:
            log.info("network %s is loaded", info.name)
            self._service.replies.send(client, messages.Loaded(message.id, info))

        def failed(error: Exception) -> None:
            reason = _about(message.path, error)
            log.warning("no network was loaded: %s", reason)
            self._service.replies.send_error(client, message.id, LoadFailed(reason))

        wanted = NetworkToLoad(message.path, message.policy_head, message.value_head)
        self._service.networks.load(wanted, loaded, failed)

    def _reload(self, client: Client, message: messages.Reload) -> None:
        if self._service.life.draining:
            raise Draining(SHUTTING_DOWN)
        if not message.network:
            try:
                self._service.sessions.reload_keys()
            except KeysError as error:
                raise LoadFailed(f"the list of clients stays as it is: {error}") from None

        def reloaded(done: list[ReloadedNetwork]) -> None:
            infos = tuple(each.info for each in done)
            changed = tuple(each.info.name for each in done if each.changed)
            self._service.replies.send(client, messages.Reloaded(message.id, infos, changed))

        def failed(error: Exception) -> None:
            log.warning("a file was not loaded again, so its former network is still served: %s", error)
            self._service.replies.send_error(client, message.id, LoadFailed(str(error)))

        self._service.networks.reload(message.network, reloaded, failed)

    def _unload(self, client: Client, message: messages.Unload) -> None:
        def unloaded() -> None:
            log.info("network %s is unloaded", message.network)
            self._service.replies.send(client, messages.Unloaded(message.id))

        self._service.networks.unload(message.network, unloaded)

    def _alias(self, client: Client, message: messages.Alias) -> None:
        if not message.alias:
            raise BadRequest("alias: must not be empty")
        if not message.alias.isprintable():
            raise BadRequest(f"alias: {printable(message.alias)} has characters that cannot be printed")
        name = self._service.networks.alias(message.alias, message.network)
        log.info("alias %s %s", message.alias, f"means {name}" if name else "is gone")
        self._service.replies.send(client, messages.Aliased(message.id, name))

    def _clients(self, client: Client, message: messages.Clients) -> None:
        clients = tuple(session.description(self._service.sockets) for session in self._service.sessions)
        self._service.replies.send(client, messages.ClientsReply(message.id, clients))

    def _start_drain(self, client: Client, message: messages.Drain) -> None:
        self._service.life.drain_for(client, message.id)


def _about(path: str, error: Exception) -> str:
    """Return the error with the file's path in front. Readers of files already name it, backends do not."""
    text = str(error)
    return text if not path or text.startswith(f"{path}:") else f"{path}: {text}"


_HANDLERS: dict[type[Any], Callable[[Administration, Client, Any], None]] = {
    messages.Load: Administration._load,
    messages.Reload: Administration._reload,
    messages.Unload: Administration._unload,
    messages.Alias: Administration._alias,
    messages.Clients: Administration._clients,
    messages.Drain: Administration._start_drain,
}

assert set(_HANDLERS) == set(get_args(Request)), "every request has a handler"
