# SPDX-License-Identifier: GPL-3.0-or-later
"""Every way in which asking the evaluator can fail, as types.

`RemoteError` and its subclasses are answers of the evaluator and travel as `error` messages: each has a
`code`, fixed by the protocol, and a message that says what is wrong and what to do. `EvaluatorLost` and
`EvaluatorTimeout` are found out by the client itself.
"""

from __future__ import annotations

from typing import ClassVar


class EvaluatorError(Exception):
    """Something went wrong between a client and an evaluator."""


class EvaluatorLost(EvaluatorError):
    """The connection is gone, or never came about. Requests in flight will not be answered; see
    `EvaluatorClient.reconnect`."""


class EvaluatorTimeout(EvaluatorError):
    """The evaluator did not answer within the time the caller allowed. It may still answer later."""


class RemoteError(EvaluatorError):
    """The evaluator refused or failed a request; `code` is the protocol's name of the reason."""

    code: ClassVar[str] = "error"

    @property
    def message(self) -> str:
        """What is wrong and what to do about it."""
        return str(self)


class BadRequest(RemoteError):
    """The message breaks the protocol. Sending it again will fail again."""

    code = "bad_request"


class NotAllowed(RemoteError):
    """The client has no right to ask for this; it needs a key that has, or another address."""

    code = "not_allowed"


class UnsupportedVersion(RemoteError):
    """Client and evaluator have no protocol version in common."""

    code = "unsupported_version"


class UnknownNetwork(RemoteError):
    """The evaluator holds no network of that name or content hash."""

    code = "unknown_network"


class NotReady(RemoteError):
    """The evaluator still loads its networks. A hello is answered when they are there."""

    code = "not_ready"


class DuplicateId(RemoteError):
    """The id is that of another request in flight, which this error does not concern."""

    code = "duplicate_id"


class TooLarge(RemoteError):
    """More positions in one request than the `max_batch` of the welcome."""

    code = "too_large"


class Overloaded(RemoteError):
    """The evaluator's queue is full. Try again later or keep fewer requests in flight."""

    code = "overloaded"


class DeadlineExceeded(RemoteError):
    """The request was still queued when its deadline passed."""

    code = "deadline_exceeded"


class Draining(RemoteError):
    """The evaluator finishes what it has and takes nothing new."""

    code = "draining"


class DeviceFailed(RemoteError):
    """Every device, and the fallback, failed on this request."""

    code = "device_failed"


class LoadFailed(RemoteError):
    """A network could not be loaded; the message names the file and the reason."""

    code = "load_failed"


class Cancelled(RemoteError):
    """The client cancelled the request. Never sent as an `error`: it travels as `cancelled`."""

    code = "cancelled"


class NetworkChanged(RemoteError):
    """Another network has taken the place of the one that the request was for. Never sent as an `error`: the
    client finds it by the evaluator's notice."""

    code = "network_changed"


ERRORS: dict[str, type[RemoteError]] = {
    error.code: error
    for error in (
        BadRequest,
        NotAllowed,
        UnsupportedVersion,
        UnknownNetwork,
        NotReady,
        DuplicateId,
        TooLarge,
        Overloaded,
        DeadlineExceeded,
        Draining,
        DeviceFailed,
        LoadFailed,
        Cancelled,
    )
}
"""Protocol code -> type."""


def remote_error(code: str, message: str) -> RemoteError:
    """The typed error for a protocol code; a code of a newer evaluator becomes a plain RemoteError."""
    return ERRORS.get(code, RemoteError)(message)
