# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsing of the common part of all messages: a JSON object with an id."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.apps.analysis.errors import QueryError
from protocol.common.settings.spec import shown

MOST_ID_CHARACTERS = 200


def read_object(message: str | bytes, most_bytes: int) -> tuple[dict[str, Any], list[str]]:
    """Return a message's JSON object, and the keys that occur twice in an object. Raises QueryError."""
    if len(message) > most_bytes:
        raise QueryError(f"the message is longer than {most_bytes:,} bytes")
    twice: dict[str, None] = {}

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    twice[key] = None
                seen.add(key)
        return value

    try:
        value = json.loads(message, object_pairs_hook=made)
    except RecursionError:
        raise QueryError("the message is nested too deeply") from None
    except ValueError as error:
        raise QueryError(f"the message is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise QueryError(f"the message is no JSON object, but {shown(value)}")
    return value, list(twice)


def read_id(message: Mapping[str, Any]) -> str:
    """Return the id of a query or action. Raises QueryError."""
    identity = message.get("id")
    if not isinstance(identity, str) or not identity:
        raise QueryError(f"id must be a non-empty string, not {shown(identity)}", "id")
    if len(identity) > MOST_ID_CHARACTERS:
        raise QueryError(f"id has at most {MOST_ID_CHARACTERS} characters, not {len(identity)}", "id")
    return identity


def listed(names: Sequence[str]) -> str:
    """Return names for a message: the first three, and the number of the others."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(map(shown, names[:3])) + more


def repeated_keys(keys: Sequence[str]) -> QueryError:
    """Return the warning about keys that occur twice in a message."""
    noun = "the key" if len(keys) == 1 else "the keys"
    return QueryError(f"{noun} {listed(keys)} came twice, the last value counts", keys[0])


def whole_numbers(field: str, value: object) -> tuple[int, ...]:
    """Return a list of whole numbers as a tuple. Raises QueryError."""
    if not isinstance(value, list) or not all(map(_is_whole, value)):
        raise QueryError(f"{field} is a list of whole numbers, not {shown(value)}", field)
    return tuple(map(int, value))


def _is_whole(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    return abs(number) <= 10**9 and number == int(number)
