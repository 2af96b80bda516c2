# SPDX-License-Identifier: GPL-3.0-or-later
"""Explains in words why a ZeroMQ handshake failed.

The transport gives a reason only for an unknown key. The mechanism in the peer's 64-byte greeting shows the
other causes.
"""

from __future__ import annotations

import re
import socket

import zmq

from protocol.common.keys.credentials import Credentials
from protocol.common.keys.notation import show_key

GREETING_S = 1.0
"""Timeout in seconds for connecting and receiving the greeting."""

TOO_MANY = (
    (int(zmq.Event.HANDSHAKE_FAILED_AUTH), 300),
    (int(zmq.Event.HANDSHAKE_FAILED_PROTOCOL), 0x1000_0001),  # ZMQ_PROTOCOL_ERROR_ZMTP_UNEXPECTED_COMMAND
)
"""Event and value of the monitor if a service sends ERROR with reason 300 (too many connections).
The second: libzmq expects no ERROR before it has sent the first command of CURVE."""

_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_GREETING_BYTES = 64


def why_refused(endpoint: str, event: int, value: int, credentials: Credentials | None) -> str:
    """Return the error text for a failed handshake. credentials: those that were used.
    event, value: zmq.Event.HANDSHAKE_FAILED_… of the monitor."""
    if (event, value) in TOO_MANY:
        return too_many(endpoint)
    if event == zmq.Event.HANDSHAKE_FAILED_AUTH and credentials is not None:
        return (
            f"the evaluator at {endpoint} does not know this client's key; its operator can let it in: "
            f"wavefront-evaluator keys allow NAME {show_key(credentials.own.public)}"
        )
    mechanism = mechanism_of(endpoint)
    if mechanism == "CURVE" and credentials is None:
        return (
            f"the evaluator at {endpoint} lets in clients with keys only: give its public key (which "
            f"`wavefront-evaluator keys show` prints there) as {endpoint}#KEY, or keep it: "
            f"wavefront-evaluator keys trust {endpoint} KEY"
        )
    if mechanism == "CURVE" and credentials is not None:
        return (
            f"the evaluator at {endpoint} does not have the key {show_key(credentials.service)}; "
            "`wavefront-evaluator keys show` prints there which it has"
        )
    if mechanism == "NULL" and credentials is not None:
        return (
            f"the evaluator at {endpoint} has no keys, so that nothing would be encrypted; to connect all "
            "the same, give the address without #KEY (wavefront-evaluator keys forget "
            f"{endpoint}, if the key was kept)"
        )
    if mechanism == "NULL":
        return f"the evaluator at {endpoint} closed the connection before the handshake was over"
    return f"what listens at {endpoint} is not an evaluator (ZeroMQ handshake failed)"


def too_many(endpoint: str) -> str:
    """Return the error text for a service with too many connections."""
    return f"the evaluator at {endpoint} has too many connections (its max_connections); try again later"


def mechanism_of(endpoint: str) -> str:
    """Return the mechanism that the listener at a tcp address requires: NULL, CURVE or PLAIN.
    Empty if it sends no greeting, or nobody listens."""
    match = re.fullmatch(r"tcp://\[?(.+?)\]?:(\d+)", endpoint)
    if match is None:
        return ""
    try:
        with socket.create_connection((match[1], int(match[2])), GREETING_S) as peer:
            peer.settimeout(GREETING_S)
            # After signature and version the peer sends the rest of its greeting.
            peer.sendall(_SIGNATURE + b"\x03")
            greeting = b""
            while len(greeting) < _GREETING_BYTES:
                part = peer.recv(_GREETING_BYTES - len(greeting))
                if not part:
                    return ""
                greeting += part
    except (OSError, OverflowError):
        return ""
    if greeting[0] != _SIGNATURE[0] or greeting[9] != _SIGNATURE[9]:
        return ""
    return greeting[12:32].rstrip(b"\0").decode("ascii", "replace")
