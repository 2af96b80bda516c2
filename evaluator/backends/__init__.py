# SPDX-License-Identifier: GPL-3.0-or-later
"""The backends, opened by name.

Built in are `gpu` (HIP kernels, on AMD and NVIDIA), `onnx` (onnxruntime, on the CPU or by its other
providers), `reference` (numpy, the reference for correctness), `random` and `uniform` (no network, for tests
and for benchmarks of everything else). Other packages add theirs through the entry point group
`wavefront.backends`. Its value names a module with the interface of every backend module:

    NEEDS_NETWORK: bool
    unavailable() -> str | None                      why it cannot run on this machine; None if it can
    open(network, settings, **options) -> Backend    raises BackendError
    named_devices(device: str) -> list[str]          if the option `device` can name several ("0+1", "all")

A backend's module is imported on first use, so that unused ones cost nothing.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import logging
from functools import cache
from types import ModuleType
from typing import Any

from evaluator.backends.common.base import Backend, BackendError
from evaluator.backends.common.batches import expand_planes
from evaluator.backends.common.probe import probe_batch
from evaluator.network.spec import NetworkSpec
from evaluator.settings import ALONE, DeviceSettings

log = logging.getLogger(__name__)

AUTO = "auto"

_BUILT_IN = {
    "gpu": "evaluator.backends.gpu.backend",
    "onnx": "evaluator.backends.onnx.backend",
    "reference": "evaluator.backends.reference.backend",
    "random": "evaluator.backends.reference.random",
    "uniform": "evaluator.backends.reference.uniform",
}


def backend_names() -> list[str]:
    """Return all names that `open_backend` accepts, `auto` first. Imports nothing."""
    return [AUTO, *_registered()]


def available_backends() -> dict[str, str | None]:
    """Return for each backend name None if it can run on this machine, else the reason."""
    return {name: unavailable(name) for name in _registered()}


def needs_network(name: str) -> bool:
    """Return False for backends without a network (random, uniform). Raises BackendError for an unknown
    name."""
    return name == AUTO or bool(_module(name).NEEDS_NETWORK)


def parse_backend(spec: str) -> tuple[str, dict[str, Any]]:
    """Return name and options of a backend: ("onnx", {"int8": True}) for "onnx:int8=true".

    Numbers and booleans are converted. Raises ValueError.
    """
    name, _, rest = spec.partition(":")
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"backend {spec!r}: options are written name:key=value,key=value")
        if key == "threads":
            raise ValueError(
                f"backend {spec!r}: threads is an option of the engine and of serve, not of a backend"
            )
        if key in options:
            raise ValueError(f"backend {spec!r}: {key} is given twice")
        options[key] = _value(value)
    return name, options


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def for_each_device(name: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the options once for each device that the option `device` names. Raises BackendError."""
    device = str(options.get("device", ""))
    named = getattr(_module(name), "named_devices", None) if "+" in device or device.endswith("all") else None
    if named is None:
        return [options]
    return [{**options, "device": each} for each in named(device)]


def prepare_backend(name: str) -> None:
    """Import a backend and look for its devices, so that opening it takes less time. Errors are left to
    `open_backend`. Any thread may call this."""
    try:
        unavailable("gpu" if name == AUTO else name)
    except Exception:
        log.debug("preparing the %s backend failed", name, exc_info=True)


def open_backend(
    name: str, network: NetworkSpec | None, settings: DeviceSettings = ALONE, **options: Any
) -> Backend:
    """Open a backend. It is a context manager; close it when done.

    network: a loaded network with its heads chosen (`load_network`); None for backends without one.
    settings: its `backend` is not read here. options: the backend's keyword arguments (onnx: int8, provider).
    `auto` picks the fastest backend that can run this network.

    Raises BackendError with a remedy.
    """
    if name == AUTO:
        from evaluator.backends.auto import open_fastest

        return open_fastest(network, settings, **options)
    module = _module(name)
    reason = unavailable(name)
    if reason is not None:
        raise BackendError(f"backend {name} cannot run here: {reason}")
    if network is None and module.NEEDS_NETWORK:
        raise BackendError(f"backend {name} needs a network")
    parameters = inspect.signature(module.open).parameters
    known = set(parameters) - {"network", "settings"}
    unknown = sorted(set(options) - known)
    if unknown:
        takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
        raise BackendError(f"backend {name} has no option {unknown[0]!r}; {takes}")
    for option, value in options.items():
        if parameters[option].annotation in ("bool", bool) and not isinstance(value, bool):
            raise BackendError(f"backend {name}: {option} is true or false, not {value!r}")
    backend: Backend = module.open(network, settings, **options)
    return backend


_plugins = cache(lambda: importlib.metadata.entry_points(group="wavefront.backends"))


def _registered() -> dict[str, str]:
    plugins = {entry.name: entry.value for entry in _plugins()}
    return {**plugins, **_BUILT_IN}


def _module(name: str) -> ModuleType:
    registered = _registered()
    if name not in registered:
        raise BackendError(f"there is no backend {name!r}; known are {', '.join(backend_names())}")
    try:
        return importlib.import_module(registered[name])
    except ImportError as error:
        raise BackendError(f"backend {name} cannot run here: {error}") from error


def unavailable(name: str) -> str | None:
    """Return why a backend cannot run on this machine; None if it can. Raises BackendError for an unknown
    name."""
    try:
        reason: str | None = _module(name).unavailable()
    except BackendError as error:
        return str(error)
    return reason
