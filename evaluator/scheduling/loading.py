"""From a network file and backend names to a ServedNetwork: load, open on every device, measure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from evaluator.backends.base import Backend
from evaluator.scheduling.batching import LatencyTargets
from evaluator.scheduling.calibration import latency_model
from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.runners import Device, Runner, new_runner
from evaluator.scheduling.served_network import ServedNetwork
from protocol.messages import NetworkInfo

if TYPE_CHECKING:
    from evaluator.network import NetworkSpec

log = logging.getLogger("evaluator.loading")

WITHOUT_NETWORK = ("random", "uniform")
"""Backends that need no network file."""


class OpenBackend(Protocol):
    """What `evaluator.backends.open_backend` looks like; tests pass their own."""

    def __call__(
        self, name: str, network: NetworkSpec | None, *, threads: int | None = None, **options: Any
    ) -> Backend: ...


def default_open_backend(
    name: str, network: NetworkSpec | None, *, threads: int | None = None, **options: Any
) -> Backend:
    """`evaluator.backends.open_backend`, imported when first needed."""
    from evaluator.backends import open_backend

    return open_backend(name, network, threads=threads, **options)


@dataclass(slots=True)
class Loader:
    """Loads networks onto the same devices, one after the other.

    backends: names, with options as "name:key=value,key=value". Each runs on a device of its own, on several
    where its option `device` names several ("gpu:device=0+1", "gpu:device=all").
    threads: CPU threads of a backend, None for its own choice. calibration_s: time to measure a curve in.
    Thread-safe.
    """

    backends: tuple[str, ...]
    threads: int | None = None
    calibration_s: float = 0.4
    cache: bool = True
    targets: LatencyTargets = field(default_factory=LatencyTargets)
    open_backend: OpenBackend = default_open_backend
    progress: Callable[[str], None] = log.info
    _devices: list[Device] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def needs_network(self) -> bool:
        """Whether any of the backends wants a network file."""
        return any(spec.partition(":")[0] not in WITHOUT_NETWORK for spec in self.backends)

    def load(self, path: str | Path | None, policy_head: str = "", value_head: str = "") -> ServedNetwork:
        """Load a file (None: none, for the backends without) and open it on every device.

        Raises NetworkError, BackendError or OSError with a message for the user.
        """
        with self._lock:
            return self._load(path, policy_head, value_head)

    def forget(self, network: ServedNetwork) -> None:
        """Let the name of an unloaded network be used again."""
        with self._lock:
            self._names.discard(network.info.name)

    def _load(self, path: str | Path | None, policy_head: str, value_head: str) -> ServedNetwork:
        network: NetworkSpec | None = None
        if path is not None:
            from evaluator.network import load_network

            self.progress(f"loading {path}")
            preparing = self._prepare()
            network = load_network(Path(path), policy_head=policy_head or None, value_head=value_head or None)
            preparing.join()
        runners: list[Runner] = []
        try:
            for index, (name, options) in enumerate(self._named_backends()):
                runners.append(self._open(index, name, options, network))
        except BaseException:
            for runner in runners:
                runner.backend.close()
            raise
        first = runners[0]
        info = self._describe(network, first.backend, first.model)
        self._names.add(info.name)
        fallback = None if network is None else partial(self.open_backend, "reference", network)
        return ServedNetwork(info, runners, fallback)

    def _prepare(self) -> threading.Thread:
        """Find the devices while the file is read: a large one takes seconds, and a driver one."""
        from evaluator.backends import prepare_backend

        names = dict.fromkeys(parse_backend(spec)[0] for spec in self.backends)

        def work() -> None:
            for name in names:
                prepare_backend(name)

        thread = threading.Thread(target=work, name="prepare backends", daemon=True)
        thread.start()
        return thread

    def _named_backends(self) -> list[tuple[str, dict[str, Any]]]:
        """Name and options for each device, where an entry names several. Raises BackendError."""
        from evaluator.backends import for_each_device

        parsed = [parse_backend(spec) for spec in self.backends]
        return [(name, each) for name, options in parsed for each in for_each_device(name, options)]

    def _open(self, index: int, name: str, options: dict[str, Any], network: NetworkSpec | None) -> Runner:
        content_hash = "" if network is None else network.content_hash
        self.progress(f"opening the {name} backend")
        backend = self.open_backend(name, network, threads=self.threads, **options)
        try:
            self.progress(f"latency curve of {backend.device}: from the cache, or measured now")
            model, save = latency_model(
                backend, content_hash, self.threads, budget_s=self.calibration_s, use_cache=self.cache
            )
        except BaseException:
            backend.close()
            raise
        if index == len(self._devices):
            self._devices.append(Device(f"{index}:{name}"))
        return new_runner(self._devices[index], backend, model, self.targets, save)

    def _describe(self, network: NetworkSpec | None, backend: Backend, model: LatencyModel) -> NetworkInfo:
        base = backend.name if network is None else network.name
        name, serial = base, 2
        while name in self._names:
            name, serial = f"{base}-{serial}", serial + 1
        if network is None:
            # What a backend without a network says does not depend on the input format.
            return NetworkInfo(
                name,
                backend.name,
                1,
                backend=backend.name,
                device=backend.device,
                recommended_batch=model.knee,
            )
        return NetworkInfo(
            name=name,
            content_hash=network.content_hash,
            input_format=int(network.input_format),
            policy_head=network.policy_head,
            value_head=network.value_head,
            policy_heads=network.policy_heads,
            value_heads=network.value_heads,
            has_wdl=network.value.wdl,
            has_moves_left=network.moves_left is not None,
            backend=backend.name,
            device=backend.device,
            recommended_batch=model.knee,
        )


def parse_backend(spec: str) -> tuple[str, dict[str, Any]]:
    """The name and options of a backend: ("onnx", {"int8": True}) for "onnx:int8=true".

    Values that look like numbers or booleans become such. Raises ValueError.
    """
    name, _, rest = spec.partition(":")
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"backend {spec!r}: options are written name:key=value,key=value")
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
