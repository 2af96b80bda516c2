# SPDX-License-Identifier: GPL-3.0-or-later
"""Loading of a network into an evaluator that may serve others, too."""

from __future__ import annotations

from protocol.client import EvaluatorClient
from protocol.connections.addresses import default_addresses
from protocol.errors import EvaluatorError, NotAllowed
from protocol.messages import NetworkInfo

LOAD_SECONDS = 600.0
"""Timeout for loading a network."""

FIND_SECONDS = 5.0
"""Timeout for checking whether the evaluator is the one at this user's ipc socket."""


def load_network(client: EvaluatorClient, path: str, policy_head: str, value_head: str) -> NetworkInfo:
    """Let the client's evaluator load a network file, and return the network. Raises EvaluatorError.

    Plain tcp connections have no right to that. If this user owns the evaluator, its ipc socket has.
    """
    try:
        return client.load(path, policy_head=policy_head, value_head=value_head, timeout=LOAD_SECONDS)
    except NotAllowed:
        own = _at_own_socket(client)
        if own is None:
            raise
    with own:
        network = own.load(path, policy_head=policy_head, value_head=value_head, timeout=LOAD_SECONDS)
    client.networks = (*(known for known in client.networks if known.name != network.name), network)
    return network


def _at_own_socket(client: EvaluatorClient) -> EvaluatorClient | None:
    """Return another connection to the same evaluator process, through this user's ipc socket, or None."""
    for address in default_addresses():
        if not (client.instance and address.startswith("ipc://")):
            continue
        try:
            own = EvaluatorClient(address, timeout=FIND_SECONDS, name=client.name)
        except EvaluatorError:
            continue
        if own.instance == client.instance:
            return own
        own.close()
    return None
