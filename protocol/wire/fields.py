# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields of messages and the values that they accept. A message declares each field once:

    class Load(Message):
        path: Annotated[str, text(32768), "file on the evaluator's machine"]
        policy_head: Annotated[str, text(256), "policy head; empty for the file's default"] = ""

The decoder (`read`), the JSON Schema (schema.py) and the tables of docs/reference/protocol.md derive from it.
A field with a default may be missing or nil, unless it is REQUIRED. The texts are the field's meaning and, if
it differs, its name on the wire. Attributes without a kind are not in the first frame.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from protocol.errors import BadRequest

Schema = dict[str, Any]

MOST = 2**63 - 1
"""The largest integer of any field."""

REQUIRED = object()
"""Marks a field that must be on the wire although it has a default in Python."""


class Kind(NamedTuple):
    """The values that a field accepts.

    words: follow "must be" in errors, and describe the field in the docs. schema: its JSON Schema.
    fits: returns True for a valid value from the wire. convert: converts a valid value for Python.
    """

    words: str
    schema: Schema
    fits: Callable[[Any], bool]
    convert: Callable[[Any], Any] = lambda value: value

    def read(self, values: Mapping[str, Any], name: str) -> Any:
        """Return the field `name`. Raises BadRequest that names it, if it is missing or invalid."""
        value = values.get(name)
        if not self.fits(value):
            raise BadRequest(f"{name}: must be {self.words}")
        return self.convert(value)


# bool is an int in Python, but not in the protocol.
INTEGER = Kind("an integer", {"type": "integer"}, lambda value: type(value) is int)
NUMBER = Kind(
    "a finite number",
    {"type": "number"},
    lambda value: type(value) in (int, float) and math.isfinite(value),
    float,
)
FLAG = Kind("true or false", {"type": "boolean"}, lambda value: isinstance(value, bool))
MAP = Kind("a map", {"type": "object"}, lambda value: isinstance(value, dict))
MAP_OF_TEXT = Kind(
    "a map of text",
    {"type": "object", "additionalProperties": {"type": "string"}},
    lambda value: isinstance(value, dict) and all(isinstance(entry, str) for entry in value.values()),
)


def whole(lowest: int, most: int = MOST) -> Kind:
    """Return the kind of integers from `lowest` to `most`."""
    return Kind(
        f"an integer of at least {lowest}" if most == MOST else f"an integer from {lowest} to {most}",
        {"type": "integer", "minimum": lowest, "maximum": most},
        lambda value: type(value) is int and lowest <= value <= most,
    )


def text(most: int) -> Kind:
    """Return the kind of texts of at most `most` characters."""
    return Kind(
        f"text of at most {most} characters",
        {"type": "string", "maxLength": most},
        lambda value: isinstance(value, str) and len(value) <= most,
    )


def choice(*texts: str) -> Kind:
    """Return the kind that accepts only these texts."""
    return Kind(f"one of {', '.join(texts)}", {"enum": [*texts]}, lambda value: value in texts)


def pair(first: Kind, second: Kind) -> Kind:
    """Return the kind of two-element lists; Python gets tuples."""
    return Kind(
        f"a pair of {first.words} and {second.words}",
        {"type": "array", "prefixItems": [first.schema, second.schema], "minItems": 2, "maxItems": 2},
        lambda value: (
            isinstance(value, list) and len(value) == 2 and first.fits(value[0]) and second.fits(value[1])
        ),
        lambda value: (first.convert(value[0]), second.convert(value[1])),
    )


def items(of: Kind, most: int) -> Kind:
    """Return the kind of lists with at most `most` entries; Python gets tuples."""
    return Kind(
        f"a list of at most {most}, each {of.words}",
        {"type": "array", "items": of.schema, "maxItems": most},
        lambda value: isinstance(value, list) and len(value) <= most and all(map(of.fits, value)),
        lambda value: tuple(map(of.convert, value)),
    )


def record(declaring: type[Any], name: str) -> Kind:
    """Return the kind of maps with the fields of a dataclass. name: name of its schema."""
    return Kind(
        "a map with text keys",
        {"$ref": f"#/$defs/{name}"},
        lambda value: isinstance(value, dict) and all(isinstance(key, str) for key in value),
        lambda value: declaring(**read(declaring, value)),
    )


class Field(NamedTuple):
    """A field of a first frame. name: on the wire. meaning: description for the docs.
    optional: True if it may be missing or nil. attribute: its name in Python."""

    name: str
    kind: Kind
    meaning: str
    optional: bool = False
    attribute: str = ""


_FIELDS: dict[type, tuple[Field, ...]] = {}


def fields_of(declaring: type[Any]) -> tuple[Field, ...]:
    """Return the fields that a dataclass declares with a kind, in order."""
    if declaring not in _FIELDS:
        found = []
        for entry in dataclasses.fields(declaring):
            kind, *more = getattr(entry.type, "__metadata__", (None,))
            if kind is not None:
                meaning, *renamed = [each for each in more if each is not REQUIRED] or [""]
                has_default = entry.default is not entry.default_factory  # Without one, both are MISSING.
                optional = has_default and REQUIRED not in more
                found.append(Field((*renamed, entry.name)[0], kind, meaning, optional, entry.name))
        _FIELDS[declaring] = tuple(found)
    return _FIELDS[declaring]


def read(declaring: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for a dataclass from an untrusted map. Unknown fields are ignored.

    Raises BadRequest that names the field, if one is missing or invalid.
    """
    return {
        field.attribute: field.kind.read(values, field.name)
        for field in fields_of(declaring)
        if not field.optional or values.get(field.name) is not None
    }
