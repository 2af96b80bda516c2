# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of a match or self-play file, read key by key, with errors that name file, table and key.

A table on the command line is `key=value,key=value`, so any value may be a string.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from protocol.common.settings.sources import source_named
from protocol.common.settings.spec import SettingsError, SettingsGroup, setting, settings_of, shown, unknown

T = TypeVar("T")
Group = TypeVar("Group", bound=SettingsGroup)


@dataclass(frozen=True, slots=True)
class _Switch:
    enabled: bool = setting(True)


class Table:
    """One table of the configuration, read key by key. `end` reports keys that were not read.

    source: name of the file or flag, and of the table, for errors.
    """

    def __init__(self, source: str, entries: object) -> None:
        self.source = source
        if not isinstance(entries, Mapping):
            raise SettingsError(f"{source} is a table of key = value, not {shown(entries)}")
        self._entries: dict[str, object] = dict(entries)
        self._known: list[str] = []

    def value(self, key: str) -> object:
        """Return the value of a key; None without one."""
        self._known.append(key)
        return self._entries.pop(key, None)

    def rest(self) -> dict[str, object]:
        """Return all unread entries, and mark them as read."""
        rest, self._entries = self._entries, {}
        return rest

    def rest_over(self, base: Group) -> Group:
        """Return `base` with all unread entries applied."""
        with source_named(self.source):
            return self.applied(base, self.rest())

    def applied(self, base: Group, entries: Mapping[str, object]) -> Group:
        """Return `base` with entries of this table applied. The error for an unknown name suggests the most
        similar one of all that the table has."""
        options = settings_of(type(base))
        for key in entries:
            if key not in options:
                raise unknown(base.noun, key, [*self._known, *options])
        return base.parsed(entries)

    def table(self, key: str) -> Table | None:
        """Return a table inside this one; None without one."""
        value = self.value(key)
        source = f"{self.source[:-1]}.{key}]" if self.source.endswith("]") else f"{self.source}: [{key}]"
        return None if value is None else Table(source, value)

    def settings(self, kind: type[Any]) -> dict[str, Any]:
        """Return the checked values of a dataclass's settings that the table has."""
        found: dict[str, Any] = {}
        for key, declared in settings_of(kind).items():
            value = self.value(key)
            if value is not None:
                with source_named(self.source):
                    found[key] = declared.parse(value)
        return found

    def part(self, key: str, kind: type[T]) -> T:
        """Return a dataclass of settings from the table under a key; with defaults without one."""
        table = self.table(key)
        return kind() if table is None else table.whole(kind)

    def rule(self, key: str, kind: type[T]) -> T | None:
        """Return a dataclass of settings from the table under a key; None without one or if it is disabled.

        A disabled rule is checked, too, so that its errors do not appear only when it is enabled.
        """
        table = self.table(key)
        if table is None:
            return None
        enabled = table.settings(_Switch).get("enabled", True)
        rule = table.whole(kind)
        return rule if enabled else None

    def end(self) -> None:
        """Raise SettingsError if there is an unread key."""
        for key in self._entries:
            raise SettingsError(f"{self.source}: {unknown('key', key, self._known)}")

    def whole(self, kind: type[T]) -> T:
        """Return a dataclass of settings from this table, with its parts from tables inside it."""
        parts = {key: self.part(key, part) for key, part in parts_of(kind).items()}
        values = self.settings(kind) | parts
        self.end()
        with source_named(self.source):
            return kind(**values)


def parts_of(kind: type[Any]) -> dict[str, type[Any]]:
    """Return the dataclasses of settings that are fields of a dataclass, by name."""
    kinds: dict[str, object] = {part.name: part.default_factory for part in fields(kind)}
    return {name: part for name, part in kinds.items() if isinstance(part, type)}


def parse_pairs(text: str, source: str) -> dict[str, str]:
    """Parse `key=value,key=value`. Quotes protect commas: `args="a,b"`. A first part without = has key "".

    Raises SettingsError.
    """
    lexer = shlex.shlex(text, posix=True, punctuation_chars="")
    lexer.whitespace, lexer.whitespace_split, lexer.escape, lexer.commenters = ",", True, "", ""
    try:
        parts = list(lexer)
    except ValueError as error:
        raise SettingsError(f"{source}: {text!r}: {error}") from None
    entries: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            key, value = ("", key) if not entries else (key, "true")
        if key.strip() in entries:
            raise SettingsError(f"{source}: {text!r}: {key.strip()} is given twice")
        entries[key.strip()] = value.strip()
    return entries


def parse_settings(text: str, source: str) -> dict[str, str]:
    """Parse `key=value,key=value`. Every key without a value, also the first, is true."""
    entries = parse_pairs(text, source)
    return {key or entries[""]: value if key else "true" for key, value in entries.items()}


def merge(base: MutableMapping[str, Any], over: Mapping[str, Any]) -> None:
    """Merge `over` into `base`, table by table. If `base` has another value in place of a table, it stays,
    and its reader reports the error."""
    for key, value in over.items():
        if not isinstance(value, Mapping) or key not in base:
            base[key] = value
        elif isinstance(base[key], dict):
            merge(base[key], value)
