# SPDX-License-Identifier: GPL-3.0-or-later
"""Creation of a time manager from its parameters."""

from __future__ import annotations

from engine.search.time.adaptive import AdaptiveManager
from engine.search.time.alphazero import AlphazeroManager
from engine.search.time.budget import TimeManager
from engine.search.time.legacy import LegacyManager
from engine.search.time.simple import SimpleManager
from engine.search.time.smooth import SmoothManager
from engine.settings.time_managers import (
    AdaptiveParameters,
    AlphazeroParameters,
    LegacyParameters,
    Parameters,
    SimpleParameters,
    SmoothParameters,
    parse_time_manager,
)


def new_manager(text: str) -> TimeManager:
    """Return a new manager for a value of the option TimeManager. Raises SettingsError."""
    return _manager(parse_time_manager(text))


def _manager(parameters: Parameters) -> TimeManager:
    match parameters:
        case LegacyParameters():
            return LegacyManager(parameters)
        case SmoothParameters():
            return SmoothManager(parameters)
        case SimpleParameters():
            return SimpleManager(parameters)
        case AlphazeroParameters():
            return AlphazeroManager(parameters)
        case AdaptiveParameters():
            return AdaptiveManager(parameters)
    raise AssertionError(f"no manager for {type(parameters).__name__}")
