# SPDX-License-Identifier: GPL-3.0-or-later
"""The evaluator: a service that owns the devices and runs lc0 networks for its clients.

Knows no chess rules.
"""

from pathlib import Path as _Path

from protocol.common.native import locate_core as _locate_core

_locate_core(__name__, __path__, _Path(__file__).resolve().parent)
