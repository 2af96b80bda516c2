# SPDX-License-Identifier: GPL-3.0-or-later
"""A setting: its name, what it takes, what it is without being set; and dataclasses that consist of settings.

    @dataclass(frozen=True, slots=True)
    class Limits(SettingsGroup):
        nodes: int = setting(400, "nodes per move", low=1)

The default's type is the setting's. It is imported before `uciok`: nothing heavy here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from sys import float_info
from typing import Any, ClassVar, Self, TypeGuard

Value = bool | int | float | str | tuple[str, ...]

UNREACHED = 10**9
"""Bounds from here on are there for safety; only a value beyond one gets a message."""

TRUE, FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


class SettingsError(ValueError):
    """A setting that does not exist or a value that it cannot take. The message names both."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What one setting is called, what it takes and what it does.

    name: in Python, in TOML and (with dashes) on the command line. title: what messages and UCI call it.
    low and high bound a number, inclusive, and the length of each text in a list. choices: all that a text
    may be. zero: a word that stands for 0. section: its table in a TOML file. metavar: what the help of the
    command line calls its value. An advanced setting is left out of the short help. reader: raises
    SettingsError for a text that it cannot read; what it returns is for others.
    """

    name: str
    title: str
    default: Value
    help: str
    section: str
    low: float
    high: float
    choices: tuple[str, ...]
    zero: str
    metavar: str
    advanced: bool
    reader: Callable[[str], object] | None

    @property
    def flag(self) -> str:
        """The flag of the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_number(self) -> bool:
        return isinstance(self.default, int | float) and not isinstance(self.default, bool)

    @staticmethod
    def text(value: Value) -> str:
        """A value as UCI and the command line write it."""
        if isinstance(value, tuple):
            return ", ".join(value)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def parse(self, value: object) -> Value:
        """As `check`; what is not a text by itself may be given as one, and "<empty>" is the empty text."""
        if not isinstance(value, str):
            return self.check(value)
        text = value.strip()
        if isinstance(self.default, str):
            return self.check("" if text == "<empty>" else value)
        if isinstance(self.default, tuple):
            return self.check((value,))
        if isinstance(self.default, bool):
            return text.lower() in TRUE if text.lower() in TRUE + FALSE else self.check(value)
        if self.zero and text.lower() == self.zero:
            return 0
        return self.check(_finite_number(text))

    def check(self, value: object) -> Value:
        """Return `value`, if the setting takes it: choices as they are declared, lists as tuples.

        A whole number that stands for a real one stays whole. Raises SettingsError.
        """
        taken = self._taken(value)
        if taken is None:
            raise SettingsError(f"{self.title} is {self._wanted(value)}, not {shown(value)}")
        if self.reader is not None and isinstance(taken, str):
            try:
                self.reader(taken)
            except SettingsError as error:
                raise SettingsError(f"{self.title}: {error}") from None
        return taken

    def _taken(self, value: object) -> Value | None:
        """The value as the setting keeps it, None if it is of another type or out of range."""
        if isinstance(self.default, bool):
            return value if isinstance(value, bool) else None
        if isinstance(self.default, int | float):
            if isinstance(value, bool) or not isinstance(value, int | float):
                return None
            if not self.low <= value <= self.high:
                return None
            if isinstance(self.default, float):
                return value
            return int(value) if value == int(value) else None
        if isinstance(self.default, tuple):
            if not isinstance(value, list | tuple) or (self.default and not value):
                return None
            texts = [item for item in value if _is_text(item) and self.low <= len(item) <= self.high]
            return tuple(texts) if len(texts) == len(value) else None
        if not _is_text(value) or not self.choices:
            return value if _is_text(value) else None
        return next((choice for choice in self.choices if choice.lower() == value.strip().lower()), None)

    def _wanted(self, value: object) -> str:
        """What the setting takes, in words, for who gave it `value`."""
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, tuple):
            return ("a list of at least one text" if self.default else "a list of texts") + (
                ", none of them empty" if self.low == 1 else ""
            )
        if isinstance(self.default, str):
            text = "a text without NUL" if isinstance(value, str) else "a text"
            return f"one of {', '.join(self.choices)}" if self.choices else text
        kind = "a number" if isinstance(self.default, float) else "a whole number"
        if self.zero:
            kind = f"{self.zero} or {kind}"
        passed = isinstance(value, int | float) and float_info.max > value > self.high
        if self.high < UNREACHED or passed:
            return f"{kind} from {shown_number(self.low)} to {shown_number(self.high)}"
        return f"{kind} from {shown_number(self.low)} on"


def setting(
    default: Value,
    help: str = "",
    *,
    title: str = "",
    section: str = "",
    low: float = 0,
    high: float = float_info.max,
    choices: tuple[str, ...] = (),
    zero: str = "",
    metavar: str = "",
    advanced: bool = False,
    reader: Callable[[str], object] | None = None,
) -> Any:
    """A dataclass field that is a setting, see Setting. section: begins one, which later fields belong to."""
    declared = (title, default, help, section, low, high, choices, zero, metavar, advanced, reader)
    return field(default=default, metadata={"setting": declared})


_DECLARED: dict[type, Mapping[str, Setting]] = {}


def settings_of(kind: type[Any]) -> Mapping[str, Setting]:
    """The settings among the fields of a dataclass by name, in the order in which they are declared."""
    if kind not in _DECLARED:
        settings: dict[str, Setting] = {}
        section = ""
        for entry in fields(kind):
            if "setting" in entry.metadata:
                title, default, help, begun, *rest = entry.metadata["setting"]
                section = begun or section
                settings[entry.name] = Setting(entry.name, title or entry.name, default, help, section, *rest)
        _DECLARED[kind] = settings
    return _DECLARED[kind]


class SettingsGroup:
    """Base of a frozen dataclass whose fields all are settings. noun: what messages call one of them."""

    __slots__ = ()

    noun: ClassVar[str] = "setting"

    @classmethod
    def setting(cls, name: str) -> Setting:
        """The setting of a name. Raises SettingsError, which names the nearest one."""
        settings = settings_of(cls)
        if name not in settings:
            raise unknown(cls.noun, name, settings)
        return settings[name]

    def changed(self, **values: object) -> Self:
        """A copy with the given values. Raises SettingsError for unknown names and bad values."""
        return self._with({name: self.setting(name).check(value) for name, value in values.items()})

    def parsed(self, values: Mapping[str, object]) -> Self:
        """As `changed`; values may be given as texts."""
        return self._with({name: self.setting(name).parse(value) for name, value in values.items()})

    def _with(self, checked: Mapping[str, Value]) -> Self:
        defaults = settings_of(type(self))
        exact: dict[str, Any] = {
            name: float(value) if isinstance(defaults[name].default, float) else value  # type: ignore[arg-type]
            for name, value in checked.items()
        }
        return replace(self, **exact)  # type: ignore[type-var]  # the base is no dataclass, its classes are


def unknown(noun: str, name: str, known: Iterable[str]) -> SettingsError:
    """The error for a name that nothing has. It says which known name is the nearest, else all if few are."""
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if not near and len(names) <= 20:
        hint = f" (known are {', '.join(names)})"
    return SettingsError(f"no such {noun}: {shown(name)}{hint}")


def shown(value: object) -> str:
    """A value as messages show it, at most 60 characters, in JSON's words: null, true, false."""
    text = _written(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _written(value: object, depth: int = 3) -> str:
    """Of lists and objects, no more than messages show."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if not isinstance(value, list | tuple | dict):
        return repr(value)
    if depth == 0 and value:
        return "…"
    if isinstance(value, dict):
        pairs = islice(value.items(), 20)
        inner = ", ".join(f"{key!r}: {_written(each, depth - 1)}" for key, each in pairs)
        return f"{{{inner}}}"
    return f"[{', '.join(_written(each, depth - 1) for each in value[:20])}]"


def _is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a text. One with NUL is none: it can be no path and no argument of a program."""
    return isinstance(value, str) and "\0" not in value


def _finite_number(text: str) -> float | str:
    """The number that a text stands for, whole if it can be; the text itself if there is none."""
    for kind in (int, float):
        try:
            number: float = kind(text)
        except ValueError:
            continue
        if abs(number) <= float_info.max:
            return number
    return text


def shown_number(value: float) -> str:
    """A bound as messages show it."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.15g}"
