# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python API: `Engine`, which plays and analyses for programs."""

from __future__ import annotations

from engine.api.engine import (
    Analysis,
    Engine,
    EngineClosedError,
    EngineError,
    EvaluatorError,
    PlayResult,
    PositionError,
)
from engine.search.report import Line, Report

__all__ = [
    "Analysis",
    "Engine",
    "EngineClosedError",
    "EngineError",
    "EvaluatorError",
    "Line",
    "PlayResult",
    "PositionError",
    "Report",
]
