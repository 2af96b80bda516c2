# SPDX-License-Identifier: GPL-3.0-or-later
"""The classes of requests."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Priority: TypeAlias = Literal["play", "analysis", "selfplay"]
"""Request classes: play is served before analysis, analysis before self-play."""

PRIORITIES: tuple[Priority, ...] = get_args(Priority)
