# SPDX-License-Identifier: GPL-3.0-or-later
"""The option TimeManager: managers by name, with parameters in parentheses in lc0's syntax.

    legacy                  legacy(midpoint-move=45, slowmover=1.1)

Names and defaults are lc0's, except those of `adaptive`. It must import quickly, before `uciok`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from protocol.settings.spec import SettingsError, SettingsGroup, setting, settings_of, shown, unknown


class Parameters(SettingsGroup):
    """The parameters of one manager. name: of the manager."""

    __slots__ = ()

    noun: ClassVar[str] = "parameter"
    name: ClassVar[str]


@dataclass(frozen=True, slots=True)
class AdaptiveParameters(Parameters):
    """The default manager: engine/search/time/adaptive.py."""

    name = "adaptive"

    midpoint: float = setting(47.0, "median length of a game, in moves", low=1, high=1000)
    steepness: float = setting(7.0, "how narrowly lengths of games lie around it", low=1, high=100)
    first_move: float = setting(2.0, "most that a move without a tree gets, in mean moves", low=1, high=10)
    extension: float = setting(3.0, "most that an unsettled move gets, in budgets", low=1, high=10)


@dataclass(frozen=True, slots=True)
class LegacyParameters(Parameters):
    """lc0's default manager."""

    name = "legacy"

    slowmover: float = setting(1.0, "multiplies the time of a move", low=0, high=100)
    midpoint_move: float = setting(51.5, "median length of a game, in moves", low=1, high=1000)
    steepness: float = setting(7.0, "how narrowly lengths of games lie around it", low=1, high=100)
    immediate_use: float = setting(1.0, "share of saved time that the next move gets", low=0, high=1)
    first_move_bonus: float = setting(1.8, "time that the first move gets besides, in moves", low=0, high=100)
    book_ply_bonus: float = setting(0.25, "the same for each ply of the opening, up to 12", low=0, high=10)


@dataclass(frozen=True, slots=True)
class SmoothParameters(Parameters):
    """lc0's manager that plans visits, including those that the tree keeps."""

    name = "smooth"

    init_tree_reuse: float = setting(0.52, "share of the tree kept after a move, at first", low=0, high=0.99)
    max_tree_reuse: float = setting(0.73, "most that it is taken for", low=0, high=0.99)
    tree_reuse_update_rate: float = setting(3.39, "moves in which it is half forgotten", low=0.01, high=1000)
    init_timeuse: float = setting(0.7, "share of its time that a move uses, at first", low=0.01, high=1)
    min_timeuse: float = setting(0.34, "least that it is taken for", low=0.01, high=1)
    timeuse_update_rate: float = setting(5.51, "moves in which it is half forgotten", low=0.01, high=1000)
    max_move_budget: float = setting(0.42, "share of the clock that one move may have", low=0, high=1)
    init_piggybank: float = setting(0.09, "share of the first clock that is saved", low=0, high=1)
    per_move_piggybank: float = setting(0.12, "share of each move's time that is saved", low=0, high=1)
    max_piggybank_use: float = setting(0.94, "share of the savings that one move may have", low=0, high=1)
    max_piggybank_moves: float = setting(36.5, "most that is saved, in mean moves", low=0, high=1000)
    midpoint: float = setting(45.2, "median length of a game, in moves", low=1, high=1000)
    steepness: float = setting(5.93, "how narrowly lengths of games lie around it", low=1, high=100)


@dataclass(frozen=True, slots=True)
class SimpleParameters(Parameters):
    """lc0's manager that spends a percentage of the clock, which grows with the ply."""

    name = "simple"

    base_pct: float = setting(1.4, "percentage of the clock at the first move", low=0, high=100)
    ply_pct: float = setting(0.049, "percentage that each ply adds", low=0, high=1)
    time_factor: float = setting(1.5, "share of the increment", low=0, high=100)
    opening_bonus_pct: float = setting(0.0, "percentage that the first move gets besides", low=0, high=1000)


@dataclass(frozen=True, slots=True)
class AlphazeroParameters(Parameters):
    """lc0's manager that spends the same percentage of the clock on every move."""

    name = "alphazero"

    alphazero_time_pct: float = setting(12.0, "percentage of the clock for each move", low=0, high=100)


MANAGERS: tuple[type[Parameters], ...] = (
    AdaptiveParameters,
    LegacyParameters,
    SmoothParameters,
    SimpleParameters,
    AlphazeroParameters,
)
"""Every manager, the default first."""

_FORM = re.compile(r"([\w-]+)\s*(?:\((.*)\))?", re.DOTALL)

Kind = TypeVar("Kind", bound=Parameters)


def parse_time_manager(text: str) -> Parameters:
    """Return the parameters of the manager in a text: `name` or `name(parameter=value, …)`.

    Parameter names have dashes, as in lc0, or underscores. Raises SettingsError with the error and the valid
    names.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise SettingsError(f"write name or name(parameter=value, …), not {shown(text)}")
    name, inside = match[1].lower(), match[2] or ""
    kind = next((kind for kind in MANAGERS if kind.name == name), None)
    if kind is None:
        raise unknown("time manager", name, [kind.name for kind in MANAGERS])
    return _with_parameters(kind, inside)


def _with_parameters(kind: type[Kind], text: str) -> Kind:
    values: dict[str, object] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value:
            raise SettingsError(f"{kind.name}: write parameter=value, not {shown(part)}")
        attribute = key.replace("-", "_")
        if attribute not in settings_of(kind):
            dashed = [each.replace("_", "-") for each in settings_of(kind)]
            raise SettingsError(f"{kind.name}: {unknown('parameter', key, dashed)}")
        if attribute in values:
            raise SettingsError(f"{kind.name}: {key} is given twice")
        values[attribute] = value
    try:
        return kind().parsed(values)
    except SettingsError as error:
        raise SettingsError(f"{kind.name}: {error}") from None
