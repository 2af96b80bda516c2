# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings: name, accepted values and default of each; and dataclasses that consist of settings.

    @dataclass(frozen=True, slots=True)
    class Limits(SettingsGroup):
        nodes: int = setting(400, "nodes per move", low=1)

The default's type is the setting's type. Imported before `uciok`, so it must not import anything heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from sys import float_info
from typing import Any, ClassVar, Self, TypeGuard

Value = bool | int | float | str | tuple[str, ...]

UNREACHED = 10**9
"""Bounds of this size are safety limits; messages show one only if a value exceeds it."""

TRUE, FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


class SettingsError(ValueError):
    """An unknown setting or an invalid value. The message names both."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Name, accepted values and meaning of a setting.

    name: in Python, in TOML and (with dashes) on the command line. title: in messages and UCI.
    low, high: inclusive bounds of a number, or of the length of each text in a list. choices: accepted texts.
    zero: a word for 0. section: table in a TOML file. metavar: name of its value in the command line's help.
    advanced: excluded from the short help. reader: raises SettingsError for an invalid text; its result is
    not used here.
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
        """Command-line flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_number(self) -> bool:
        return isinstance(self.default, int | float) and not isinstance(self.default, bool)

    @staticmethod
    def text(value: Value) -> str:
        """Return a value as UCI and the command line write it."""
        if isinstance(value, tuple):
            return ", ".join(value)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def parse(self, value: object) -> Value:
        """Like `check`, but accept texts for other types; "<empty>" is the empty text."""
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
        """Return `value` if the setting accepts it: choices as declared, lists as tuples.

        An integer for a float setting stays an integer. Raises SettingsError.
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
        """Return the value as the setting stores it, None if it has another type or is out of range."""
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
        """Return the accepted values in words, for the error about `value`."""
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
    """Return a dataclass field that is a setting, see Setting. section: starts one, also for later fields."""
    declared = (title, default, help, section, low, high, choices, zero, metavar, advanced, reader)
    return field(default=default, metadata={"setting": declared})


_DECLARED: dict[type, Mapping[str, Setting]] = {}


def settings_of(kind: type[Any]) -> Mapping[str, Setting]:
    """Return the settings of a dataclass by name, in the order of declaration."""
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
    """Base of a frozen dataclass whose fields are all settings. noun: word for one of them in messages."""

    __slots__ = ()

    noun: ClassVar[str] = "setting"

    @classmethod
    def setting(cls, name: str) -> Setting:
        """Return the setting with that name. Raises SettingsError that suggests the most similar one."""
        settings = settings_of(cls)
        if name not in settings:
            raise unknown(cls.noun, name, settings)
        return settings[name]

    def changed(self, **values: object) -> Self:
        """Return a copy with the given values. Raises SettingsError for unknown names and invalid values."""
        return self._with({name: self.setting(name).check(value) for name, value in values.items()})

    def parsed(self, values: Mapping[str, object]) -> Self:
        """Like `changed`, but values may be texts."""
        return self._with({name: self.setting(name).parse(value) for name, value in values.items()})

    def _with(self, checked: Mapping[str, Value]) -> Self:
        defaults = settings_of(type(self))
        exact: dict[str, Any] = {
            name: float(value) if isinstance(defaults[name].default, float) else value  # type: ignore[arg-type]
            for name, value in checked.items()
        }
        return replace(self, **exact)  # type: ignore[type-var]  # the base is no dataclass, its classes are


def unknown(noun: str, name: str, known: Iterable[str]) -> SettingsError:
    """Return the error for an unknown name, with the most similar name, or all known names if few."""
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if not near and len(names) <= 20:
        hint = f" (known are {', '.join(names)})"
    return SettingsError(f"no such {noun}: {shown(name)}{hint}")


def shown(value: object) -> str:
    """Return a value for messages, at most 60 characters, with JSON's null, true and false."""
    text = _written(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _written(value: object, depth: int = 3) -> str:
    """Return a value as text. Lists and maps are abridged to what messages show."""
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
    """Return True for a text without NUL, which no path and no program argument may contain."""
    return isinstance(value, str) and "\0" not in value


def _finite_number(text: str) -> float | str:
    """Return the number in a text, an int if possible; the text itself if it is not a finite number."""
    for kind in (int, float):
        try:
            number: float = kind(text)
        except ValueError:
            continue
        if abs(number) <= float_info.max:
            return number
    return text


def shown_number(value: float) -> str:
    """Return a bound for messages."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.15g}"
