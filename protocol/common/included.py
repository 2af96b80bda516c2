# SPDX-License-Identifier: GPL-3.0-or-later
"""The networks that are part of the package, which are named everywhere without a path."""

from __future__ import annotations

INCLUDED_NETWORKS = ("wavefront-cpu", "wavefront-gpu")
"""Their names: the default on CPUs, and the larger default on GPUs."""
