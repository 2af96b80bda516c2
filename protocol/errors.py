# SPDX-License-Identifier: GPL-3.0-or-later
"""Exceptions for all failures of a request to an evaluator.

`RemoteError` and its subclasses are answers of the evaluator, sent as `error` messages. Each has a `code`,
fixed by the protocol, and a message with the cause and the remedy. The client itself raises `EvaluatorLost`
and `EvaluatorTimeout`.
"""

from __future__ import annotations

from typing import ClassVar


class EvaluatorFailure(Exception):
    """Base class of failures between a client and an evaluator."""


class EvaluatorLost(EvaluatorFailure):
    """The connection broke or could not be made. Requests in flight stay unanswered."""


class EvaluatorTimeout(EvaluatorFailure):
    """The evaluator did not answer within the caller's timeout. It may still answer later."""


class RemoteError(EvaluatorFailure):
    """The evaluator rejected or failed a request. code: the protocol's name of the reason."""

    code: ClassVar[str] = "error"

    @property
    def message(self) -> str:
        """Cause and remedy."""
        return str(self)


class BadRequest(RemoteError):
    """The message breaks the protocol. Sending it again would fail again."""

    code = "bad_request"


class NotAllowed(RemoteError):
    """The client lacks the right for this request; use a key with that right, or another address."""

    code = "not_allowed"


class UnsupportedVersion(RemoteError):
    """Client and evaluator have no protocol version in common."""

    code = "unsupported_version"


class UnknownNetwork(RemoteError):
    """The evaluator serves no network of that name or content hash."""

    code = "unknown_network"


class NotReady(RemoteError):
    """The evaluator is still loading its networks. It answers a hello once they are loaded."""

    code = "not_ready"


class DuplicateId(RemoteError):
    """Another request in flight has the same id. That request is not affected."""

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
    """The evaluator finishes its queue and rejects new requests."""

    code = "draining"


class DeviceFailed(RemoteError):
    """All devices and the fallback failed on this request."""

    code = "device_failed"


class LoadFailed(RemoteError):
    """A network could not be loaded; the message names the file and the reason."""

    code = "load_failed"


class RequestCancelled(RemoteError):
    """The client cancelled the request. Never sent as an `error`: it travels as `cancelled`."""

    code = "cancelled"


class NetworkChanged(RemoteError):
    """Another network has replaced the one that the request was for. Never sent as an `error`: the client
    derives it from the evaluator's notice."""

    code = "network_changed"


ERRORS: dict[str, type[RemoteError]] = {
    error.code: error for error in RemoteError.__subclasses__() if error is not NetworkChanged
}
"""Protocol code -> type."""


def remote_error(code: str, message: str) -> RemoteError:
    """Return the error for a protocol code; unknown codes of newer evaluators become a RemoteError."""
    return ERRORS.get(code, RemoteError)(message)
