# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront-evaluator keys`: manages key pairs, allowed clients and trusted services."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HELP = "create and print keys; allow and revoke clients"

NOTE = "A running service reads the list again at SIGHUP and `wavefront-evaluator reload`."

_Action = Callable[[argparse.Namespace, Path], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder and the subcommands."""
    where = "default: the user's configuration folder"
    parser.add_argument("--keys", default="", metavar="FOLDER", help=where)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, help: str, do: _Action) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=help, description=help, allow_abbrev=False)
        added.set_defaults(do=do)
        added.add_argument("--keys", default=argparse.SUPPRESS, metavar="FOLDER", help=where)
        return added

    make = action(
        "make", "create the key pair of a service or of this user's clients; print the public key", _make
    )
    make.add_argument("whose", choices=("service", "client"))
    make.add_argument("--replace", action="store_true", help="replace an existing pair")
    show = action("show", "print a public key", _show)
    show.add_argument("whose", nargs="?", default="service", choices=("service", "client"))
    show.add_argument(
        "--z85", action="store_true", help="print in Z85, as ZeroMQ writes keys; quote it in a shell"
    )
    listed = action("list", "print public keys, allowed clients and known services", _list)
    listed.add_argument("--json", action="store_true", help="print JSON")
    allow = action("allow", "allow a client by its public key, or change its rights", _allow)
    allow.add_argument("name", metavar="NAME", help="name of the client: letters, digits and any of _ . @ -")
    allow.add_argument("key", metavar="KEY", help="public key of the client")
    allow.add_argument(
        "--admin", action="store_true", help="also allow load, unload, reload, drain and the other commands"
    )
    allow.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="LIMIT=VALUE",
        help="classes=play,analysis; requests=N in flight; rate=N positions a second; share=X of a device, "
        "relative to 1 of others; for all connections with the key together",
    )
    revoke = action("revoke", "remove an allowed client", _revoke)
    revoke.add_argument("name", metavar="NAME")
    trust = action("trust", "store the public key of the service at an address", _trust)
    trust.add_argument("address", metavar="tcp://HOST:PORT")
    trust.add_argument("key", metavar="KEY")
    forget = action("forget", "remove the public key of an address", _forget)
    forget.add_argument("address", metavar="tcp://HOST:PORT")


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
            f"{path} is there already; --replace makes another pair, whose public key everybody has to be "
            "told who knows that of this one"
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
