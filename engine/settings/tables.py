# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of a match or self-play file: read key by key, with messages that name file, table and key.

On the command line a table is written `key=value,key=value`, so that any value may come as a text.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

from protocol.settings.sources import source_named
from protocol.settings.spec import SettingsError, SettingsGroup, setting, settings_of, shown, unknown

T = TypeVar("T")
Group = TypeVar("Group", bound=SettingsGroup)


@dataclass(frozen=True, slots=True)
class _Switch:
    enabled: bool = setting(True)


class Table:
    """One table of the configuration, read key by key; `end` complains about keys that nobody read.

    source: what messages call the file or the flag and the table in it.
    """

    def __init__(self, source: str, entries: object) -> None:
        self.source = source
        if not isinstance(entries, Mapping):
            raise SettingsError(f"{source} is a table of key = value, not {shown(entries)}")
        self._entries: dict[str, object] = dict(entries)
        self._known: list[str] = []

    def value(self, key: str) -> object:
        """Whatever stands under a key, None if nothing does."""
        self._known.append(key)
        return self._entries.pop(key, None)

    def rest(self) -> dict[str, object]:
        """All that was not read yet."""
        rest, self._entries = self._entries, {}
        return rest

    def rest_over(self, base: Group) -> Group:
        """Settings with all that was not read yet on top."""
        with source_named(self.source):
            return base.parsed(self.rest())

    def table(self, key: str) -> Table | None:
        """A table inside this one, None if it is not there."""
        value = self.value(key)
        source = f"{self.source[:-1]}.{key}]" if self.source.endswith("]") else f"{self.source}: [{key}]"
        return None if value is None else Table(source, value)

    def settings(self, kind: type[Any]) -> dict[str, Any]:
        """Those settings of a dataclass that stand in the table, checked."""
        found: dict[str, Any] = {}
        for key, declared in settings_of(kind).items():
            value = self.value(key)
            if value is not None:
                with source_named(self.source):
                    found[key] = declared.parse(value)
        return found

    def part(self, key: str, kind: type[T]) -> T:
        """A dataclass of settings from the table under a key; at its defaults if there is none."""
        table = self.table(key)
        return kind() if table is None else table._whole(kind)

    def rule(self, key: str, kind: type[T]) -> T | None:
        """A dataclass of settings from the table under a key; None without one and with `enabled = false`.

        A rule that is not enabled is read all the same: a mistake in it would show when it is.
        """
        table = self.table(key)
        if table is None:
            return None
        enabled = table.settings(_Switch).get("enabled", True)
        rule = table._whole(kind)
        return rule if enabled else None

    def end(self) -> None:
        """Raise SettingsError if there is a key that nobody read."""
        for key in self._entries:
            raise SettingsError(f"{self.source}: {unknown('key', key, self._known)}")

    def _whole(self, kind: type[T]) -> T:
        values = self.settings(kind)
        self.end()
        with source_named(self.source):
            return kind(**values)


def parse_pairs(text: str, source: str) -> dict[str, str]:
    """`key=value,key=value` as a table. Quotes keep commas: `args="a,b"`. A first part without = is kept
    under "".

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
    """`key=value,key=value` as a table, in which every key without a value, also the first, is true."""
    entries = parse_pairs(text, source)
    return {key or entries[""]: value if key else "true" for key, value in entries.items()}


def merge(base: MutableMapping[str, Any], over: Mapping[str, Any]) -> None:
    """Put `over` on top of `base`, table by table. What `base` has in place of a table stays: the code that
    reads it reports it."""
    for key, value in over.items():
        if not isinstance(value, Mapping) or key not in base:
            base[key] = value
        elif isinstance(base[key], dict):
            merge(base[key], value)
