# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of `match` and `selfplay` that select the executor of games."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.workers.executor import MakeExecutor


def add_executor_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--workers", metavar="N", help="processes that play games (default: auto: one, more for fast devices)"
    )
    group.add_argument(
        "--ray", metavar="ADDRESS", help="play on the nodes of a Ray cluster (docs/how-to/cluster.md)"
    )


def executor_of_arguments(arguments: argparse.Namespace, workers: int) -> MakeExecutor[Any]:
    """Return the constructor of the executor. workers: as configured; 0 is auto. Raises SettingsError."""
    from engine.workers.local import local_executor

    if arguments.ray is None:
        return partial(local_executor, workers=workers)
    if workers > 1:
        from protocol.settings.spec import SettingsError

        raise SettingsError("workers are processes of this machine: with --ray leave them out")
    from engine.workers.ray import ray_executor

    return partial(ray_executor, address=arguments.ray)
