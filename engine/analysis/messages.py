"""What all messages have in common: a JSON object with an id."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.analysis.errors import QueryError
from protocol.settings.spec import shown

MOST_ID_CHARACTERS = 200


def read_object(message: str | bytes, most_bytes: int) -> dict[str, Any]:
    """The JSON object of a message. Raises QueryError."""
    if len(message) > most_bytes:
        raise QueryError(f"the message is longer than {most_bytes:,} bytes")
    try:
        value = json.loads(message)
    except RecursionError:
        raise QueryError("the message is nested too deeply") from None
    except ValueError as error:
        raise QueryError(f"the message is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise QueryError(f'the message is no JSON object, such as {{"id": "1"}}, but {shown(value)}')
    return value


def read_id(message: Mapping[str, Any]) -> str:
    """The id of a query or action. Raises QueryError."""
    identity = message.get("id")
    if not isinstance(identity, str) or not identity:
        given = f", not {shown(identity)}" if "id" in message else ""
        raise QueryError(f"id is a text, which the answers carry{given}", "id")
    if len(identity) > MOST_ID_CHARACTERS:
        raise QueryError(f"id has at most {MOST_ID_CHARACTERS} characters, not {len(identity)}", "id")
    return identity


def whole_numbers(field: str, value: object) -> tuple[int, ...]:
    """A list of whole numbers. Raises QueryError."""
    if not isinstance(value, list) or not all(map(_is_whole, value)):
        raise QueryError(f"{field} is a list of whole numbers, not {shown(value)}", field)
    return tuple(map(int, value))


def _is_whole(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    return abs(number) <= 10**9 and number == int(number)
