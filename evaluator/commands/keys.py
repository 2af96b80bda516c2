# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront-evaluator keys`: manages key pairs, allowed clients and trusted services."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.common.commands import declare

HELP = "create and print keys; allow and revoke clients"

NOTE = "A running service reads the list again at SIGHUP and `wavefront-evaluator reload`."

_Action = Callable[[argparse.Namespace, Path], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder and the subcommands."""
    where = "default: the user's configuration folder"
    parser.add_argument("--keys", default="", metavar="FOLDER", help=where)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (help, do, more) in ACTIONS.items():
        added = actions.add_parser(name, help=help, description=help, allow_abbrev=False)
        added.set_defaults(do=do)
        added.add_argument("--keys", default=argparse.SUPPRESS, metavar="FOLDER", help=where)
        declare(added, more)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Raises KeysError."""
    from protocol.common.keys.files import keys_folder

    arguments.do(arguments, keys_folder(arguments.keys))
    return 0


def _pair_file(whose: str) -> str:
    from protocol.common.keys.files import CLIENT_PAIR, SERVICE_PAIR

    return SERVICE_PAIR if whose == "service" else CLIENT_PAIR


def _make(arguments: argparse.Namespace, folder: Path) -> None:
    from protocol.common.keys.notation import KeysError, show_key
    from protocol.common.keys.pairs import make_pair

    path = folder / _pair_file(arguments.whose)
    try:
        pair = make_pair(path, replace=arguments.replace)
    except FileExistsError:
        raise KeysError(
            f"{path} exists; --replace makes a new pair: send its public key to all clients"
        ) from None
    print(f"made {path}", file=sys.stderr)
    print(show_key(pair.public))


def _show(arguments: argparse.Namespace, folder: Path) -> None:
    from protocol.common.keys.notation import KeysError, show_key
    from protocol.common.keys.pairs import read_pair

    path = folder / _pair_file(arguments.whose)
    try:
        public = read_pair(path).public
    except FileNotFoundError:
        raise KeysError(
            f"{path} is not there; `wavefront-evaluator keys make {arguments.whose}` makes it"
        ) from None
    if arguments.z85:
        from zmq.utils import z85

        print(z85.encode(public).decode())
    else:
        print(show_key(public))


def _list(arguments: argparse.Namespace, folder: Path) -> None:
    from protocol.common.keys.clients import read_clients
    from protocol.common.keys.files import CLIENTS, SERVICES
    from protocol.common.keys.notation import show_key
    from protocol.common.keys.pairs import read_pair
    from protocol.common.keys.services import read_services

    found: dict[str, Any] = {"folder": str(folder)}
    for whose in ("service", "client"):
        try:
            found[whose] = show_key(read_pair(folder / _pair_file(whose)).public)
        except FileNotFoundError:
            found[whose] = None
    found["clients"] = [
        {
            "name": client.name,
            "rights": client.rights,
            "key": show_key(client.key),
            "limits": str(client.quota),
        }
        for client in read_clients(folder / CLIENTS).values()
    ]
    found["services"] = {address: show_key(key) for address, key in read_services(folder / SERVICES).items()}
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"folder: {folder}")
    for whose in ("service", "client"):
        print(f"public key as a {whose}: {found[whose] or '(none made yet)'}")
    for client in found["clients"]:
        print(f"lets in {client['name']} ({client['rights']}): {client['key']} {client['limits']}".rstrip())
    for address, key in found["services"].items():
        print(f"knows {address}: {key}")


def _allow(arguments: argparse.Namespace, folder: Path) -> None:
    from protocol.common.keys.clients import AllowedClient, Quota, allow
    from protocol.common.keys.files import CLIENTS
    from protocol.common.keys.notation import read_key

    rights, quota = "admin" if arguments.admin else "play", Quota.of(arguments.limit)
    client = AllowedClient(arguments.name, rights, read_key(arguments.key), quota)
    allow(folder / CLIENTS, client)
    limits = f" and the limits {quota}" if str(quota) else ""
    print(f"{client.name} is let in, with the right to {client.rights}{limits}. {NOTE}")


def _revoke(arguments: argparse.Namespace, folder: Path) -> None:
    from protocol.common.keys.clients import revoke
    from protocol.common.keys.files import CLIENTS

    revoke(folder / CLIENTS, arguments.name)
    print(f"{arguments.name} is let in no more. {NOTE} It then cuts the client off.")


def _trust(arguments: argparse.Namespace, folder: Path) -> None:
    from protocol.common.keys.files import SERVICES
    from protocol.common.keys.notation import read_key
    from protocol.common.keys.services import trust

    trust(folder / SERVICES, arguments.address, read_key(arguments.key))
    print(f"{arguments.address} is now the service with this key only")


def _forget(arguments: argparse.Namespace, folder: Path) -> None:
    from protocol.common.keys.files import SERVICES
    from protocol.common.keys.services import forget

    forget(folder / SERVICES, arguments.address)
    print(f"the key of {arguments.address} is forgotten")


ACTIONS: dict[str, tuple[str, _Action, dict[str, str]]] = {
    "make": (
        "create the key pair of a service or of this user's clients; print the public key",
        _make,
        {"whose {service,client}": "", "--replace": "replace an existing pair"},
    ),
    "show": (
        "print a public key",
        _show,
        {
            "whose {service,client}? = service": "",
            "--z85": "print in Z85, as ZeroMQ writes keys; quote it in a shell",
        },
    ),
    "list": ("print public keys, allowed clients and known services", _list, {"--json": "print JSON"}),
    "allow": (
        "allow a client by its public key, or change its rights",
        _allow,
        {
            "name NAME": "name of the client: letters, digits and any of _ . @ -",
            "key KEY": "public key of the client",
            "--admin": "also allow load, unload, reload, drain and the other commands",
            "--limit* LIMIT=VALUE": "classes=play,analysis; requests=N in flight; rate=N positions a second; "
            "share=X of a device, relative to 1 of others; for all connections with the key together",
        },
    ),
    "revoke": ("remove an allowed client", _revoke, {"name NAME": ""}),
    "trust": (
        "store the public key of the service at an address",
        _trust,
        {"address tcp://HOST:PORT": "", "key KEY": ""},
    ),
    "forget": ("remove the public key of an address", _forget, {"address tcp://HOST:PORT": ""}),
}
"""Help, function and arguments by name."""
