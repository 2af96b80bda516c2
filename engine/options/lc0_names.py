# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0's options and values that mean something else here: users bring them along in configuration files."""

from __future__ import annotations

REPLACEMENTS = {
    "backendoptions": "write them behind the backend: Backend gpu:device=nvidia:0",
    "configfile": "start the engine with --config FILE",
    "maxcollisionevents": "the engine chooses it; VisitsPerPosition limits positions in flight",
    "maxconcurrentsearchers": "one thread searches",
    "maxprefetch": "the engine chooses what to evaluate ahead; see LookAhead",
    "nncachesize": "set Hash, in megabytes",
    "nodespersecondlimit": "no limit of speed exists; set Slowmover, or use go nodes",
    "preload": "isready loads the network",
    "taskworkers": "one thread searches",
    "timemanager": "there is one manager; set Slowmover and MoveOverheadMs",
}
"""What to use in place of an option that the engine does not have, by its name in lower case."""

AUTODISCOVER = "<autodiscover>"
"""lc0's WeightsFile for the first network that it finds; here an included one."""

BACKENDS = ("blas", "cuda", "cudnn", "dx12", "eigen", "hip", "metal", "onnx-", "opencl", "sycl", "xla")
"""Beginnings of names of backends that only lc0 has."""


def replacement(name: str) -> str:
    """Return what to use in place of an option of lc0; empty if nothing is known of the name."""
    return REPLACEMENTS.get(name.strip().lower(), "")


def is_backend_of_lc0(name: str) -> bool:
    """Return True if only lc0 has a backend of this name."""
    return name.strip().lower().startswith(BACKENDS)
