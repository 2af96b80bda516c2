"""Who is a client of the service: from the first message of a connection until it ends, or until the client
has lost its right to be here."""

from __future__ import annotations

import logging

from evaluator.devices.dispatcher import Dispatcher
from evaluator.service.connections.access import Access
from evaluator.service.connections.transport import GONE, Arrived, Sockets
from evaluator.service.sessions import Session, Sessions
from protocol.errors import NotAllowed, Overloaded

log = logging.getLogger("evaluator.service")


class Membership:
    """Begins and ends the sessions of a service. Belongs to the I/O thread."""

    def __init__(self, access: Access, sessions: Sessions, sockets: Sockets, dispatcher: Dispatcher) -> None:
        self._access = access
        self._sessions = sessions
        self._sockets = sockets
        self._dispatcher = dispatcher

    def begin(self, arrived: Arrived, *, of_the_gone: bool) -> Session | None:
        """A session for who has sent its first message.

        of_the_gone: also for one that has left since. Otherwise None: nobody waits for the answer, and
        thousands may come of one who has left. Raises NotAllowed for one that has lost its right since it
        came, and Overloaded if there are too many clients.
        """
        self.forget_the_gone()  # whose descriptor may be this one's now
        origin = self._sockets.origin(arrived)
        if origin.address == GONE and not of_the_gone:
            return None
        user = self._sockets.user(arrived)
        if not self._access.may_use(user):
            self._sockets.hang_up(origin.descriptor)
            raise NotAllowed("the key of this client was revoked")
        if origin.link is not None and not origin.link.establish(
            administrator=self._access.may_administer(user)
        ):
            raise Overloaded("too many connections (max_connections): try again later")
        return self._sessions.add(arrived.client, *origin, user=user, key=self._access.name(user))

    def forget_the_gone(self) -> None:
        """End the sessions of connections that have ended."""
        for descriptor in self._sockets.connections():
            session = self._sessions.on(descriptor)
            if session is not None:
                self.forget(session.client)

    def forget(self, client: bytes) -> None:
        """End the session of a client, whom nothing can be sent to any more, and drop its requests."""
        self._sessions.forget(client)
        self._dispatcher.remove_client(client)

    def reread_keys(self) -> None:
        """Read the list of clients again, and disconnect removed clients. Raises KeysError."""
        self._access.reload()
        for session in self._sessions:
            if self._access.may_use(session.user):
                session.key = self._access.name(session.user)
                continue
            log.warning("the key of %s (%s) was revoked: it is disconnected", session.key, session.name)
            self._sockets.hang_up(session.descriptor)
            self.forget(session.client)
