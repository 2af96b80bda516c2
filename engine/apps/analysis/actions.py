# SPDX-License-Identifier: GPL-3.0-or-later
"""Actions besides queries: version, networks, options, terminating queries, clearing the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from engine.apps.analysis.clients import Client
from engine.apps.analysis.errors import QueryError
from engine.apps.analysis.messages import MOST_ID_CHARACTERS, listed, whole_numbers
from engine.apps.analysis.query import QUERY_OPTIONS
from engine.options import Options
from protocol.common.settings.spec import Setting, shown, unknown
from protocol.common.version import __version__, git_hash

if TYPE_CHECKING:
    from protocol.wire.messages import NetworkInfo

FORMAT = 1
"""Version of the format of queries and answers. Incompatible changes increase it."""


STATES = ("starting", "ready", "unavailable")
"""States of the evaluator: being connected or started, connected, none available."""


class Desk(Protocol):
    """The part of the scheduler that actions use."""

    options: Options

    @property
    def state(self) -> str:
        """Of the evaluator, one of STATES."""

    def networks(self) -> tuple[NetworkInfo, ...] | None:
        """Return the evaluator's networks; None while there is no evaluator."""

    def terminate(self, client: Client, identity: str | None, turns: tuple[int, ...] | None) -> None:
        """Stop a client's positions with this id and these turns (None: any). They are answered."""

    def clear_cache(self, client: Client) -> None:
        """Discard a client's evaluations at once; running searches discard theirs at their end."""


def perform(desk: Desk, client: Client, identity: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Perform the `action` of a message, and return the answers. Raises QueryError."""
    name = message["action"]
    if not isinstance(name, str):
        raise QueryError(f"action is a text, not {shown(name)}", "action")
    if name not in ACTIONS:
        raise QueryError(str(unknown("action", name, ACTIONS)), "action")
    fields, action = ACTIONS[name]
    answer = {"id": identity, "action": name, **action(desk, client, message)}
    unused = [field for field in message if field not in ("id", "action", *fields)]
    if not unused:
        return [answer]
    problem = f"{name} has no {'field' if len(unused) == 1 else 'fields'} {listed(unused)}, not used"
    return [{"id": identity, "field": unused[0], "warning": problem}, answer]


def _version(_desk: Desk, _client: Client, _message: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "Wavefront", "version": __version__, "git_hash": git_hash() or None, "format": FORMAT}


def described_networks(desk: Desk) -> dict[str, Any]:
    """Return the evaluator's networks and its state."""
    networks = desk.networks()
    listed = [
        {
            "name": network.name,
            "content_hash": network.content_hash,
            "backend": network.backend,
            "device": network.device,
            "input_format": network.input_format,
            "policy_head": network.policy_head,
            "value_head": network.value_head,
            "has_wdl": network.has_wdl,
            "has_moves_left": network.has_moves_left,
            "recommended_batch": network.recommended_batch,
        }
        for network in networks or ()
    ]
    return {"ready": networks is not None, "state": desk.state, "networks": listed}


def _options(desk: Desk, _client: Client, _message: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "options": [_option(option, getattr(desk.options, name)) for name, option in QUERY_OPTIONS.items()]
    }


def _option(option: Setting, value: Any) -> dict[str, Any]:
    described: dict[str, Any] = {"name": option.name, "uci_name": option.title, "help": option.help}
    described["value"] = value
    if option.is_number:
        described |= {"low": option.low, "high": option.high}
    if option.choices:
        described["choices"] = list(option.choices)
    return described


def _terminate(desk: Desk, client: Client, message: Mapping[str, Any]) -> dict[str, Any]:
    meant = message.get("terminate_id")
    if not isinstance(meant, str) or len(meant) > MOST_ID_CHARACTERS:
        raise QueryError(
            f"terminate_id is the id of the query to end, a text, not {shown(meant)}", "terminate_id"
        )
    turns = _turns(message)
    desk.terminate(client, meant, turns)
    return {"terminate_id": meant, **_named(turns)}


def _terminate_all(desk: Desk, client: Client, message: Mapping[str, Any]) -> dict[str, Any]:
    turns = _turns(message)
    desk.terminate(client, None, turns)
    return _named(turns)


def _clear_cache(desk: Desk, client: Client, _message: Mapping[str, Any]) -> dict[str, Any]:
    desk.clear_cache(client)
    return {}


def _turns(message: Mapping[str, Any]) -> tuple[int, ...] | None:
    return whole_numbers("turns", message["turns"]) if "turns" in message else None


def _named(turns: tuple[int, ...] | None) -> dict[str, Any]:
    return {} if turns is None else {"turns": list(turns)}


Action = Callable[[Desk, Client, Mapping[str, Any]], dict[str, Any]]

ACTIONS: Mapping[str, tuple[tuple[str, ...], Action]] = {
    "query_version": ((), _version),
    "query_networks": ((), lambda desk, _client, _message: described_networks(desk)),
    "query_options": ((), _options),
    "terminate": (("terminate_id", "turns"), _terminate),
    "terminate_all": (("turns",), _terminate_all),
    "clear_cache": ((), _clear_cache),
}
"""By name: the fields besides id and action, and the function."""
