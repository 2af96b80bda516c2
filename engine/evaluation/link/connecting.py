# SPDX-License-Identifier: GPL-3.0-or-later
"""Connecting to a running evaluator, and selecting or loading the network of the options."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.evaluation.errors import EvaluatorDrainingError, EvaluatorRefusalError, NoEvaluatorError
from engine.evaluation.link.process import EvaluatorSettings, NetworkKey
from protocol.common.folders import expanded

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient
    from protocol.wire.messages import NetworkInfo

HELLO_SECONDS = 30.0
"""Timeout of the handshake."""

LOAD_SECONDS = 600.0
"""Timeout for loading a network."""

FIND_SECONDS = 5.0
"""Timeout for checking whether the evaluator is the one at this user's ipc socket."""


def connect(address: str, settings: EvaluatorSettings, same_as: NetworkInfo | None = None) -> EvaluatorClient:
    """Connect to a running evaluator, and let it load the network of the options, if any.

    same_as: required network, whatever its name there. Raises EvaluatorDrainingError, EvaluatorRefusalError
    with the reason, and NoEvaluatorError if there is no answer.
    """
    from protocol.client import EvaluatorClient
    from protocol.errors import Draining, EvaluatorError, RemoteError

    try:
        client = EvaluatorClient(
            address,
            timeout=HELLO_SECONDS,
            name=f"engine {os.getpid()}",
            keys=settings.keys,
            compress=settings.compress,
        )
    except Draining as error:
        raise EvaluatorDrainingError(f"the evaluator at {address} refuses: {error}") from None
    except RemoteError as error:
        raise EvaluatorRefusalError(f"the evaluator at {address} refuses: {error}") from None
    except EvaluatorError as error:
        raise NoEvaluatorError(str(error)) from None
    try:
        _choose_network(client, settings.network, same_as)
    except Draining as error:
        client.close()
        raise EvaluatorDrainingError(f"the evaluator at {address} refuses: {error}") from None
    except EvaluatorError as error:
        client.close()
        raise EvaluatorRefusalError(f"the evaluator at {address} cannot serve the network: {error}") from None
    return client


def _choose_network(client: EvaluatorClient, key: NetworkKey, same_as: NetworkInfo | None) -> None:
    if same_as is not None:
        client.use(equal_network(client, key, same_as).name)
    elif key[0]:
        client.use(served_network(client, key).name)


def equal_network(client: EvaluatorClient, key: NetworkKey, wanted: NetworkInfo) -> NetworkInfo:
    """Return an evaluator's network that equals another evaluator's, loaded if the options name a file.

    Raises EvaluatorError, also if there is none: results of different networks must not be mixed.
    """
    from protocol.errors import UnknownNetwork

    for network in client.networks:
        if network.identity == wanted.identity:
            return network
    served = ", ".join(map(_shown, client.networks)) or "none"
    if key[0]:
        network = served_network(client, key)
        if network.identity == wanted.identity:
            return network
        served = _shown(network)
    raise UnknownNetwork(
        f"it serves {served}, and the others serve {_shown(wanted)}: evaluators that are used together must "
        "have one network, by its content"
    )


def _shown(network: NetworkInfo) -> str:
    return f"{network.name} ({network.content_hash[:8]})"


def described(network: NetworkInfo, max_batch: int) -> str:
    """Return a text for the user: network, backend, device. max_batch: maximum positions per request."""
    return (
        f"network {_shown(network)}, backend {network.backend}, device {network.device}, "
        f"batch {network.recommended_batch} (at most {max_batch})"
    )


def changed_network(before: NetworkInfo, now: NetworkInfo) -> str:
    """Return the message for the user that the evaluator's network has changed."""
    return (
        f"the evaluator's network is now {_shown(now)}, it was {_shown(before)}: the tree and all cached "
        "evaluations are discarded"
    )


def served_network(client: EvaluatorClient, key: NetworkKey) -> NetworkInfo:
    """Return the network that the options name, loaded unless it is served under that name or hash.

    Raises EvaluatorError, also if the served ones use other heads than the options request.
    """
    from protocol.errors import UnknownNetwork

    weights, policy_head, value_head = key
    named = [network for network in client.networks if weights in (network.name, network.content_hash)]
    for network in named:
        has_policy = not network.policy_heads or policy_head in ("", network.policy_head)
        if has_policy and (not network.value_heads or value_head in ("", network.value_head)):
            return network
    if named:
        heads = ", ".join(f"{network.policy_head} and {network.value_head}" for network in named)
        raise UnknownNetwork(
            f"{weights!r} is served with the heads {heads}: ask for these, or name the file to load it "
            "with others"
        )
    path = weights if is_shipped(weights) else str(expanded(weights).resolve())
    return load_network(client, path, policy_head, value_head)


def is_shipped(weights: str) -> bool:
    """Return True if this names an included network (no dot, no folder), or leaves the choice to the
    evaluator ("")."""
    path = expanded(weights)
    return not weights or (path.name == weights and not path.suffix and not path.exists())


def load_network(client: EvaluatorClient, path: str, policy_head: str, value_head: str) -> NetworkInfo:
    """Let the client's evaluator load a network file, and return the network. Raises EvaluatorError.

    Plain tcp connections have no right to that. If this user owns the evaluator, its ipc socket has.
    """
    from protocol.errors import NotAllowed

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
    from protocol.client import EvaluatorClient
    from protocol.connections.addresses import default_addresses
    from protocol.errors import EvaluatorError

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
