# SPDX-License-Identifier: GPL-3.0-or-later
"""The option TimeManager: names, parameters, and what is said of mistakes."""

from __future__ import annotations

import re

import pytest

from engine.options import OptionError, Options
from engine.settings.time_managers import (
    MANAGERS,
    AdaptiveParameters,
    LegacyParameters,
    Parameters,
    SmoothParameters,
    parse_time_manager,
)
from protocol.settings.spec import SettingsError, settings_of
from tests.paths import REPOSITORY


@pytest.mark.parametrize("kind", MANAGERS, ids=lambda kind: kind.name)
def test_a_name_alone_is_the_manager_at_its_defaults(kind: type[Parameters]) -> None:
    assert parse_time_manager(kind.name) == kind()
    assert parse_time_manager(f" {kind.name.upper()}() ") == kind()


def test_parameters_are_written_as_lc0_writes_them() -> None:
    assert parse_time_manager("legacy(midpoint-move=45, slowmover=1.5)") == LegacyParameters(
        slowmover=1.5, midpoint_move=45.0
    )
    assert parse_time_manager("smooth( init_piggybank = 0.2 ,)") == SmoothParameters(init_piggybank=0.2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write name or name"),
        ("legacy(", "write name or name"),
        ("legacy)", "write name or name"),
        ("legacy(slowmover=1) smooth", "write name or name"),
        ("legasy", "did you mean 'legacy'"),
        ("fast", "known are adaptive, legacy, smooth, simple, alphazero"),
        ("legacy(slow=1)", "did you mean 'slowmover'"),
        ("legacy(slowmover)", "write parameter=value, not 'slowmover'"),
        ("legacy(slowmover=)", "write parameter=value"),
        ("legacy(slowmover=fast)", "slowmover is a number from 0 to 100, not 'fast'"),
        ("simple(ply-pct=2)", "from 0 to 1, not 2"),
        ("legacy(slowmover=1,slowmover=2)", "slowmover is given twice"),
    ],
)
def test_mistakes_are_reported_with_what_there_is(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_time_manager(text)


@pytest.mark.parametrize("kind", MANAGERS, ids=lambda kind: kind.name)
def test_the_documents_name_every_parameter_and_its_default(kind: type[Parameters]) -> None:
    text = (REPOSITORY / "docs/explanation/time.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith(f"| `{kind.name}` | ") and "(" in line)
    told = dict(re.findall(r"`([\w-]+)` \(([\d.]+)\)", row))
    declared = {name.replace("_", "-"): f"{spec.default:g}" for name, spec in settings_of(kind).items()}
    assert told == declared


def test_the_option_is_checked_when_it_is_set() -> None:
    assert Options().with_uci("timemanager", "smooth").time_manager == "smooth"
    with pytest.raises(OptionError, match=r"TimeManager:.*'smooth'"):
        Options().with_uci("TimeManager", "smoth")
    assert parse_time_manager(Options().time_manager) == AdaptiveParameters()
