# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds ONNX Runtime's execution providers and their devices, and opens sessions on them.

A provider comes in one of two ways. Builds of onnxruntime such as `onnxruntime-directml` contain it. A
plug-in, a package `onnxruntime-ep-NAME`, is a library next to any build. Its path is only taken from the
installed package, never from an option. The import of onnxruntime costs time, so import this on use.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from evaluator.backends.common import crashes
from evaluator.backends.common.base import BackendError
from evaluator.backends.common.crashes import Phase
from evaluator.backends.onnx.runtime import onnxruntime as ort
from evaluator.backends.onnx.sessions import CPU, opened, session_options
from protocol.common.version import __version__

log = logging.getLogger(__name__)

GUIDE = "docs/how-to/onnx-providers.md says what to install"

_KINDS = ("GPU", "CPU", "NPU")
"""Kinds of devices, in order of preference. An NPU is used on request only: it is meant for low power."""


@dataclass(frozen=True, slots=True)
class OrtProvider:
    """name: in options. key: ONNX Runtime's name. auto: `auto` may try it. options: constant options for ONNX
    Runtime."""

    name: str
    key: str
    auto: bool = True
    options: Mapping[str, str] = field(default_factory=dict)


CPU_PROVIDER = OrtProvider("cpu", CPU)

PROVIDERS = {
    provider.name: provider
    for provider in (
        CPU_PROVIDER,
        OrtProvider("directml", "DmlExecutionProvider"),
        OrtProvider("migraphx", "MIGraphXExecutionProvider", auto=False),
        OrtProvider("openvino", "OpenVINOExecutionProvider"),
        OrtProvider("cuda", "CUDAExecutionProvider"),
        # TensorRT rejects tensors in fp16 without this option.
        OrtProvider("tensorrt", "TensorrtExecutionProvider", auto=False, options={"trt_fp16_enable": "1"}),
        OrtProvider(
            "coreml",
            "CoreMLExecutionProvider",
            auto=False,
            options={"ModelFormat": "MLProgram", "RequireStaticInputShapes": "1"},
        ),
        OrtProvider("webgpu", "WebGpuExecutionProvider"),
    )
}
"""All providers, by name. `auto` does not try MIGraphX and TensorRT, which compile for minutes, nor CoreML:
every Mac has it, so it would delay every start there, and nobody has tried it yet."""


@dataclass(frozen=True, slots=True, eq=False)
class ProviderDevice:
    """A device of an installed provider.

    kind: GPU, CPU or NPU. name: hardware in words, may be empty. source: package and version. number: the
    provider's own name of it. handle: ONNX Runtime's object, if it listed the device itself.
    """

    provider: OrtProvider
    kind: str
    name: str
    source: str
    number: str
    handle: Any = None

    def __str__(self) -> str:
        return " ".join(filter(None, (self.provider.name, self.kind, self.name)))

    @property
    def subject(self) -> str:
        """What a crash is attributed to: the device, its packages and this program."""
        return "|".join(("onnxruntime", str(self), self.number, self.source, __version__))


@dataclass(frozen=True, slots=True)
class FoundProvider:
    """devices: of all providers except the CPU's, the preferred one of a provider first. problems: by
    provider, why an installed plug-in has no device."""

    devices: tuple[ProviderDevice, ...]
    problems: dict[str, str]

    def of(self, name: str) -> tuple[ProviderDevice, ...]:
        """Return the devices of the provider with a name."""
        return tuple(device for device in self.devices if device.provider.name == name)


@cache
def found_providers() -> FoundProvider:
    """Return the devices of the installed providers, cached. Never raises."""
    sources, problems = _register_plugins()
    devices: list[ProviderDevice] = []
    for name, provider in PROVIDERS.items():
        if provider is CPU_PROVIDER:
            continue
        source = sources.get(name, f"onnxruntime {ort.__version__}")
        subject = f"onnxruntime|{name}|{source}|{__version__}"
        try:
            if crash := crashes.excluded(subject):
                raise BackendError(f"disabled after a crash: {crash}; {crashes.RETRY}")
            with crashes.attempt(subject, Phase.OPENING):
                found = _devices_of(provider, source)
        except Exception as error:  # of a library that is not ours
            problems[name] = f"{source}: {error}"
            continue
        if not found and name in sources:
            problems[name] = f"{source} supports no device of this machine"
        devices += sorted(found, key=_rank)
    return FoundProvider(tuple(devices), problems)


def select(name: str, number: int = 0) -> ProviderDevice:
    """Return a device of the provider with a name. number: index into its devices. Raises BackendError."""
    if name not in PROVIDERS:
        raise BackendError(f"provider {name!r} is not one of {', '.join(PROVIDERS)}")
    found = found_providers()
    devices = found.of(name)
    if not isinstance(number, int):
        raise BackendError(f"device {number!r} is not a number; `wavefront-evaluator devices` lists them")
    if not devices:
        reason = found.problems.get(name) or f"onnxruntime {ort.__version__} has no such provider"
        raise BackendError(f"provider {name} cannot be used: {reason}; {GUIDE}")
    if not 0 <= number < len(devices):
        known = ", ".join(f"{index} ({device})" for index, device in enumerate(devices))
        raise BackendError(f"provider {name} has no device {number}; there are: {known}")
    return devices[number]


def for_auto() -> list[ProviderDevice]:
    """Return the GPUs that `auto` compares with the CPU: the preferred one of each provider."""
    first: dict[str, ProviderDevice] = {}
    for device in found_providers().devices:
        first.setdefault(device.provider.name, device)
    return [each for each in first.values() if each.kind == "GPU" and each.provider.auto]


def open_on(device: ProviderDevice, model: bytes, *, half: bool, threads: int) -> ort.InferenceSession:
    """Open a model with fixed shapes on a device. half: it computes in fp16. threads: of the CPU.

    Raises BackendError, also if the provider computes no part of the model.
    """
    key = device.provider.key
    options = session_options(threads)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if device.provider.name == "directml":  # it supports neither memory patterns nor parallel execution
        options.enable_mem_pattern = False
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    own = _options_of(device, half=half, threads=threads)
    if device.handle is not None:
        session = opened(lambda: _with_handle(device, own, options, model))
    else:
        _load_libraries(device.provider)
        # Without this, onnxruntime would print an error and compute on the CPU.
        strict = {"providers": [(key, own), CPU], "enable_fallback": 0}
        session = opened(lambda: ort.InferenceSession(model, options, **strict))
    session.disable_fallback()
    if key not in session.get_providers():
        raise BackendError(f"onnxruntime did not open {device}, only {', '.join(session.get_providers())}")
    _require_nodes(session, device)
    return session


def _with_handle(
    device: ProviderDevice, own: dict[str, str], options: ort.SessionOptions, model: bytes
) -> ort.InferenceSession:
    options.add_provider_for_devices([device.handle], own)
    return ort.InferenceSession(model, options, enable_fallback=0)


def _options_of(device: ProviderDevice, *, half: bool, threads: int) -> dict[str, str]:
    """Return the provider's options for a device."""
    options = dict(device.provider.options)
    name = device.provider.name
    if name == "openvino":
        # Without the hint it may compute in bf16 on CPUs and in fp16 on GPUs, whatever the model says. With
        # f16, the value's error exceeds the tolerance on CPUs.
        config = {"INFERENCE_PRECISION_HINT": "f16" if half and device.kind != "CPU" else "f32"}
        if device.kind == "CPU":
            config["INFERENCE_NUM_THREADS"] = str(threads)
        options["load_config"] = json.dumps({device.number.partition(".")[0]: config})
        if device.handle is None:
            options["device_type"] = device.number
    elif name == "cuda" and not half:
        options["use_tf32"] = "0"
    if device.handle is None and name in ("directml", "migraphx", "cuda", "tensorrt"):
        options["device_id"] = device.number
    return options


def _load_libraries(provider: OrtProvider) -> None:
    """Load CUDA's libraries from NVIDIA's packages, if these are installed."""
    if provider.name in ("cuda", "tensorrt") and hasattr(ort, "preload_dlls"):
        ort.preload_dlls()


def _require_nodes(session: ort.InferenceSession, device: ProviderDevice) -> None:
    """Raise BackendError if the CPU computes everything. onnxruntime tells it since 1.24."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return
    nodes: dict[str, int] = {}
    for part in session.get_provider_graph_assignment_info():
        nodes[part.ep_name] = nodes.get(part.ep_name, 0) + len(part.get_nodes())
    if nodes and device.provider.key not in nodes:
        raise BackendError(f"{device} supports no operator of this network")
    if nodes.get(CPU):
        log.info("%s: %d of %d operators run on the CPU", device, nodes[CPU], sum(nodes.values()))


# --- finding ------------------------------------------------------------------------------------------------


def _register_plugins() -> tuple[dict[str, str], dict[str, str]]:
    """Register the libraries of all installed plug-ins. Return the packages with versions, and the problems,
    both by provider."""
    sources: dict[str, str] = {}
    problems: dict[str, str] = {}
    for name in PROVIDERS:
        package = f"onnxruntime-ep-{name}"
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        source = f"{package} {version}, onnxruntime {ort.__version__}"
        subject = f"onnxruntime|{source}|{__version__}"
        try:
            if crash := crashes.excluded(subject):
                raise BackendError(f"disabled after a crash: {crash}; {crashes.RETRY}")
            library = _library_of(package)
            with crashes.attempt(subject, Phase.OPENING):
                ort.register_execution_provider_library(package, library)
            sources[name] = source
        except Exception as error:  # of a package that is not ours
            problems[name] = f"{source}: {error}"
    return sources, problems


def _library_of(package: str) -> str:
    """Return the path of a plug-in's library, which must be a file of the package. Raises BackendError."""
    if not hasattr(ort, "register_execution_provider_library"):
        raise BackendError(f"onnxruntime {ort.__version__} has no plug-ins; install 1.23 or newer")
    name = package.replace("-", "_")
    library: str = importlib.import_module(name).get_library_path()
    folder = Path(str(importlib.metadata.distribution(package).locate_file(name)))
    if not Path(library).resolve().is_relative_to(folder.resolve()):
        raise BackendError(f"its library {library} is not in its folder {folder}")
    return library


def _devices_of(provider: OrtProvider, source: str) -> list[ProviderDevice]:
    """Return the devices of a provider, as ONNX Runtime lists them or as the provider does."""
    listed = ort.get_ep_devices() if hasattr(ort, "get_ep_devices") else []
    own = [each for each in listed if each.ep_name == provider.key]
    if not own and provider.key in ort.get_available_providers():
        return _unlisted_devices(provider, source)
    return [_listed_device(provider, source, str(number), each) for number, each in enumerate(own)]


def _listed_device(provider: OrtProvider, source: str, number: str, handle: Any) -> ProviderDevice:
    hardware = handle.device
    kind = hardware.type.name
    name = hardware.metadata.get("Description", "") or hardware.vendor
    return ProviderDevice(provider, kind, name, source, _openvino_name(handle) or number, handle)


def _openvino_name(handle: Any) -> str:
    return str(handle.ep_metadata.get("ov_device", ""))


def _unlisted_devices(provider: OrtProvider, source: str) -> list[ProviderDevice]:
    """Return the devices of a provider that is part of this build of onnxruntime but lists none."""
    if provider.name != "openvino":
        return [ProviderDevice(provider, "GPU", "", source, "0")]
    from onnxruntime.capi import _pybind_state  # noqa: TID251 - runtime.py has imported onnxruntime

    numbers = _pybind_state.get_available_openvino_device_ids()
    return [ProviderDevice(provider, each.partition(".")[0], "", source, each) for each in numbers]


def _rank(device: ProviderDevice) -> tuple[int, bool]:
    """Return the place of a device among those of its provider: discrete GPUs first."""
    kind = _KINDS.index(device.kind) if device.kind in _KINDS else len(_KINDS)
    integrated = device.handle is not None and device.handle.device.metadata.get("Discrete") != "1"
    return kind, integrated
