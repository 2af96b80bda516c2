# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python API: engines that play and analyse, for programs.

engine.py: `Engine`, whose calls block. aio.py: `AsyncEngine`, for asyncio.
"""

from __future__ import annotations

from engine.api.aio import AsyncAnalysis, AsyncEngine
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
    "AsyncAnalysis",
    "AsyncEngine",
    "Engine",
    "EngineClosedError",
    "EngineError",
    "EvaluatorError",
    "Line",
    "PlayResult",
    "PositionError",
    "Report",
]
