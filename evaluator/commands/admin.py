# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront-evaluator` load, unload, reload, alias and drain: change a running evaluator."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from evaluator.commands import remote
from protocol.common.folders import expanded

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient

Answer = tuple[dict[str, Any], list[str]]


@dataclass
class Command:
    """A command. call: does it, and returns the answer as JSON and as lines. timeout_s: to wait for an
    answer."""

    HELP: str
    call: Callable[[EvaluatorClient, argparse.Namespace], Answer]
    ARGUMENTS: dict[str, str]
    timeout_s: float = 600.0

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        remote.add_arguments(parser, timeout=self.timeout_s)

    def run(self, arguments: argparse.Namespace) -> int:
        """Print the answer. Returns 1 if the evaluator refuses; what it served is still served."""
        return remote.ask(arguments, lambda client: remote.show(arguments, *self.call(client, arguments)))


def _alias(client: EvaluatorClient, arguments: argparse.Namespace) -> Answer:
    name = client.alias(arguments.alias, arguments.network)
    text = f"{arguments.alias} means {name}" if name else f"{arguments.alias} means nothing any more"
    return {"alias": arguments.alias, "network": name}, [text]


def _drain(client: EvaluatorClient, _: argparse.Namespace) -> Answer:
    client.drain()
    return {"drained": client.address}, ["drained"]


def _load(client: EvaluatorClient, arguments: argparse.Namespace) -> Answer:
    path = expanded(arguments.file)
    file = str(path.resolve() if path.exists() else path)
    network = client.load(file, policy_head=arguments.policy_head, value_head=arguments.value_head)
    if arguments.alias:
        client.alias(arguments.alias, network.name)
    return asdict(network), [f"{network.name} on {network.device}"]


def _reload(client: EvaluatorClient, arguments: argparse.Namespace) -> Answer:
    reply = client.reload(arguments.network)
    hashes = {
        each.name: each.content_hash if each.name in reply.changed else "unchanged" for each in reply.networks
    }
    return asdict(reply), [f"{name}: {text}" for name, text in hashes.items()]


def _unload(client: EvaluatorClient, arguments: argparse.Namespace) -> Answer:
    client.unload(arguments.network)
    return {"unloaded": arguments.network}, [f"unloaded {arguments.network}"]


_HEAD = "head of a network that has several (default: the file's own choice)"
_NETWORK = "name, alias or content hash"

COMMANDS = {
    "load": Command(
        "load a further network file into a running service",
        _load,
        {
            "file FILE": "network file, as a path on the service's machine",
            "--policy-head NAME = ''": _HEAD,
            "--value-head NAME = ''": _HEAD,
            "--alias ALIAS = ''": "further name of the network; see `alias`",
        },
    ),
    "unload": Command(
        "remove a network from a running service after its queued requests",
        _unload,
        {"network NETWORK": _NETWORK},
    ),
    "reload": Command(
        "read changed network files of a running service again; no request is lost",
        _reload,
        {"network NETWORK? = ''": f"{_NETWORK} (default: all networks)"},
    ),
    "alias": Command(
        "give a network of a running service a further name; `default` is the network of clients that name "
        "none",
        _alias,
        {
            "alias ALIAS": "the further name",
            "network NETWORK? = ''": f"{_NETWORK} (default: remove the alias)",
        },
        timeout_s=5.0,
    ),
    "drain": Command("end a running service after its queued requests", _drain, {}),
}
"""By name."""
