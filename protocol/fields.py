"""Checked access to the fields of an untrusted msgpack map: right type, within limits, or BadRequest."""

from __future__ import annotations

import math
from typing import Any

from protocol.errors import BadRequest


class Fields:
    """The fields of one map. Every getter raises BadRequest, naming the field, when it is not as asked."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    @classmethod
    def of(cls, value: Any, name: str) -> Fields:
        """The fields of a nested map."""
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise BadRequest(f"{name}: must be a map with text keys")
        return cls(value)

    def identity(self, lowest: int = 1) -> int:
        """The id: an integer from `lowest` to 2^63 - 1."""
        return self.integer("id", lowest)

    def integer(self, name: str, lowest: int) -> int:
        value = self._values.get(name)
        # bool is an int in Python, but not in the protocol.
        if type(value) is not int or not lowest <= value < 2**63:
            raise BadRequest(f"{name}: must be an integer of at least {lowest}")
        return value

    def integers(self, name: str, most: int) -> tuple[int, ...]:
        values = self.items(name, most)
        if not all(type(value) is int for value in values):
            raise BadRequest(f"{name}: must be a list of integers")
        return tuple(values)

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def number(self, name: str) -> float:
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise BadRequest(f"{name}: must be a finite number")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        return None if self._values.get(name) is None else self.number(name)

    def boolean(self, name: str) -> bool:
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise BadRequest(f"{name}: must be true or false")
        return value

    def text(self, name: str, most: int) -> str:
        value = self._values.get(name)
        if not isinstance(value, str) or len(value) > most:
            raise BadRequest(f"{name}: must be text of at most {most} characters")
        return value

    def optional_text(self, name: str, most: int, default: str) -> str:
        return default if self._values.get(name) is None else self.text(name, most)

    def texts(self, name: str, most: int, longest: int) -> tuple[str, ...]:
        values = self.items(name, most)
        if not all(isinstance(value, str) and len(value) <= longest for value in values):
            raise BadRequest(f"{name}: must be a list of text of at most {longest} characters each")
        return tuple(values)

    def items(self, name: str, most: int) -> list[Any]:
        value = self._values.get(name)
        if not isinstance(value, list) or len(value) > most:
            raise BadRequest(f"{name}: must be a list of at most {most} entries")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        value = self._values.get(name)
        if not isinstance(value, dict):
            raise BadRequest(f"{name}: must be a map")
        return value
