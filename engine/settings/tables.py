"""Tables of settings, from TOML or from flags, read key by key with messages that name file, table and key.

On the command line a table is written `key=value,key=value`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, MutableMapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from protocol.settings.spec import SettingsError

T = TypeVar("T", bound=str)


class Table:
    """One table of the configuration, read key by key; `end` complains about keys that nobody read."""

    def __init__(self, place: str, entries: object) -> None:
        self.place = place
        if not isinstance(entries, Mapping):
            raise SettingsError(f"{place} is a table of key = value, not {entries!r}")
        self._entries: dict[str, object] = dict(entries)
        self._known: list[str] = []

    def value(self, key: str) -> object:
        """Whatever stands under a key, None if nothing does."""
        self._known.append(key)
        return self._entries.pop(key, None)

    def has(self, key: str) -> bool:
        return key in self._entries

    def rest(self) -> dict[str, object]:
        """All that was not read yet."""
        rest, self._entries = self._entries, {}
        return rest

    def table(self, key: str) -> Table | None:
        """A table inside this one, None if it is not there."""
        value = self.value(key)
        place = f"{self.place[:-1]}.{key}]" if self.place.endswith("]") else f"{self.place}: [{key}]"
        return None if value is None else Table(place, value)

    def text(self, key: str, default: str = "") -> str:
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(key, "a text", value)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; a single one stands for a list of one."""
        value = self.value(key)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(text, str) for text in values):
            raise self.error(key, "a text or a list of texts", value)
        return tuple(values)

    def choice(self, key: str, choices: Sequence[T], default: T) -> T:
        value = self.value(key)
        if value is None:
            return default
        if value not in choices:
            raise self.error(key, "one of " + ", ".join(choices), value)
        return cast("T", value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.value(key)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            value = value.lower() == "true"
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, "true or false", value)
        return value

    def whole(
        self, key: str, default: int, low: int, high: int = 10**9, *, kind: str = "a whole number"
    ) -> int:
        number = self.number(key, default, low, high, kind=kind)
        if number != int(number):
            raise self.error(key, kind, number)
        return int(number)

    def whole_or_auto(self, key: str, high: int) -> int:
        """The number, 0 for "auto" and if nothing is there."""
        if self._entries.get(key) == "auto":
            self._entries[key] = 0
        return self.whole(key, 0, 0, high, kind="auto or a whole number")

    def number(self, key: str, default: float, low: float, high: float, *, kind: str = "a number") -> float:
        """kind: what the message of a wrong value asks for."""
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, str):
            try:
                value = int(value) if value.strip().lstrip("+-").isdigit() else float(value)
            except ValueError:
                raise self.error(key, kind, value) from None
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            # Bounds that nobody is to reach are named to those who have passed them.
            bounded = high < 10**9 or (isinstance(value, int | float) and value > high)
            raise self.error(
                key, f"{kind} from {low:,} to {high:,}" if bounded else f"{kind} from {low:,} on", value
            )
        return value

    def error(self, key: str, wanted: str, value: object) -> SettingsError:
        return SettingsError(f"{self.place}: {key} is {wanted}, not {value!r}")

    def end(self) -> None:
        for key in self._entries:
            near = get_close_matches(key, self._known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f" (known are {', '.join(self._known)})"
            raise SettingsError(f"{self.place}: no such key: {key!r}{hint}")


def parse_pairs(text: str, place: str) -> dict[str, str]:
    """`key=value,key=value` as a table. Quotes keep commas: `args="a,b"`. A first part without = is kept
    under "".

    Raises SettingsError.
    """
    lexer = shlex.shlex(text, posix=True, punctuation_chars="")
    lexer.whitespace, lexer.whitespace_split, lexer.escape, lexer.commenters = ",", True, "", ""
    entries: dict[str, str] = {}
    try:
        for part in lexer:
            key, equals, value = part.partition("=")
            if not equals:
                key, value = ("", key) if not entries else (key, "true")
            entries[key.strip()] = value.strip()
    except ValueError as error:
        raise SettingsError(f"{place}: {text!r}: {error}") from None
    return entries


def parse_settings(text: str, place: str) -> dict[str, str]:
    """`key=value,key=value` as a table, in which every key without a value, also the first, is true."""
    entries = parse_pairs(text, place)
    return {key or entries[""]: value if key else "true" for key, value in entries.items()}


def merge(base: MutableMapping[str, Any], over: Mapping[str, Any]) -> None:
    """Put `over` on top of `base`, table by table."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = value
