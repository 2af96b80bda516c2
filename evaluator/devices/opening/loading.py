# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a ServedNetwork from a network file and backend names: load, open on every device, measure."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from evaluator.backends import for_each_device, open_backend, parse_backend, prepare_backend
from evaluator.backends.common.base import Backend, BackendError
from evaluator.devices.opening.calibration import latency_model
from evaluator.devices.runners import Device, Runner, new_runner
from evaluator.devices.served_network import ServedNetwork
from evaluator.network.describe import cost_of
from evaluator.scheduling.batching import LatencyTargets
from evaluator.scheduling.latency import LatencyModel
from evaluator.settings import DeviceSettings
from protocol.wire.messages import NetworkInfo

if TYPE_CHECKING:
    from evaluator.network import NetworkSpec

log = logging.getLogger("evaluator.loading")

STANDBYS = ("onnx", "reference")
"""Backends for a standby, in order of preference. numpy is some hundred times slower than onnxruntime."""

_KIND = attrgetter("name", "device", "max_batch", "buckets")
"""Backends with equal values compute equally fast."""

WITHOUT_NETWORK = ("random", "uniform")
"""Backends that need no network file."""


@dataclass(slots=True)
class Loader:
    """Loads networks onto the same devices, one after the other.

    settings: each backend has its own device, or several if its option `device` names several
    ("gpu:device=0+1", "gpu:device=all"). patience_s: seconds that a network waits for the one before, whose
    driver may hang. serving: other networks need the devices, so nothing is measured on them before a network
    is served. Thread-safe.
    """

    settings: DeviceSettings
    open_backend: Callable[..., Backend] = open_backend
    progress: Callable[[str], None] = log.info
    patience_s: float = 300.0
    serving: bool = False
    _doing: tuple[str, float] | None = None
    """The current step, and its start in seconds of the monotonic clock."""
    _devices: list[Device] = field(default_factory=list)
    _served: list[ServedNetwork] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def targets(self) -> LatencyTargets:
        """Latency targets by class."""
        wanted = self.settings
        return LatencyTargets(wanted.play_latency_ms, wanted.analysis_latency_ms, wanted.selfplay_latency_ms)

    def load(
        self,
        path: str | Path | None,
        policy_head: str = "",
        value_head: str = "",
        *,
        taken: Collection[str] = (),
    ) -> ServedNetwork:
        """Load one network. See `load_all`."""
        return self.load_all([(path, policy_head, value_head)], taken=taken)[0]

    def load_all(
        self, wanted: Sequence[tuple[str | Path | None, str, str]], *, taken: Collection[str] = ()
    ) -> list[ServedNetwork]:
        """Load files and open them on every device. Files with the same content and heads, or those of an
        open network, share one network. Files are read and opened concurrently; then each network is measured
        alone.

        wanted: path, policy head and value head; path "" for `shipped_network`, None for backends without a
        network. taken: names that they must not get, in addition to those of other networks. Raises
        NetworkError, BackendError or OSError with a message for the user.
        """
        with self._turn():
            with ThreadPoolExecutor(len(wanted)) as readers:
                networks = [*readers.map(lambda each: self._read(*each), wanted)]
            keys = [place if each is None else _key(each) for place, each in enumerate(networks)]
            known: dict[object, ServedNetwork] = {
                _key(served.info): served for served in self._served if not served.closing
            }
            new: dict[object, NetworkSpec | None] = {}
            for key, network in zip(keys, networks, strict=True):
                if key not in known:
                    new.setdefault(key, network)
            known |= zip(new, self._open_everywhere([*new.values()], taken=taken), strict=True)
            return [known[key] for key in keys]

    def reload(
        self, old: ServedNetwork, path: str | Path | None, policy_head: str = "", value_head: str = ""
    ) -> ServedNetwork | None:
        """Load the file of a served network again, under the same name; None if it has not changed.

        Raises as `load` does, and NetworkError for a network that needs another encoding of positions.
        """
        from evaluator.network import NetworkError

        with self._turn():
            network = self._read(path, policy_head, value_head)
            if network is None or _key(old.info) == _key(network):
                return None
            if int(network.input_format) != old.info.input_format:
                raise NetworkError(
                    f"{path}: its input format is {int(network.input_format)}, that of network "
                    f"{old.info.name} was {old.info.input_format}; load it under another name"
                )
            (served,) = self._open_everywhere([network], old.info.name)
            self._served.remove(old)
            return served

    def forget(self, network: ServedNetwork) -> None:
        """Make the name of an unloaded network available again."""
        with self._lock:
            self._served.remove(network)

    def doing(self) -> str:
        """Return the current step and its duration, in words; empty if nothing is loading. Never blocks."""
        doing = self._doing
        return "" if doing is None else f"{doing[0]}, for {time.perf_counter() - doing[1]:.0f} s"

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let one network load at a time. Raises BackendError if the one before takes too long."""
        if not self._lock.acquire(timeout=self.patience_s):
            raise BackendError(f"another load is running ({self.doing()}); retry, or restart the service")
        try:
            yield
        finally:
            self._doing = None
            self._lock.release()

    def _report(self, doing: str) -> None:
        self._doing = doing, time.perf_counter()
        self.progress(doing)

    def _read(self, path: str | Path | None, policy_head: str, value_head: str) -> NetworkSpec | None:
        if path is None:
            return None
        from evaluator.network import load_network

        preparing = self._prepare()
        if not path:
            preparing.join()  # the choice of the network depends on the devices
            path = shipped_network(self.settings.backend)
        self._report(f"loading {path}")
        network = load_network(path, policy_head=policy_head or None, value_head=value_head or None)
        preparing.join()
        return network

    def _open_everywhere(
        self, networks: Sequence[NetworkSpec | None], name: str = "", taken: Collection[str] = ()
    ) -> list[ServedNetwork]:
        """Open networks on every device. name: empty for unused names that are not in `taken`."""
        parsed = map(parse_backend, self.settings.backend)  # one entry may name several devices
        named = [(backend, each) for backend, options in parsed for each in for_each_device(backend, options)]
        self._report(f"opening the {', '.join(dict.fromkeys(each for each, _ in named))} backend")
        settings = self.settings
        if self.serving and settings.tuning == "before":
            settings = replace(settings, tuning="behind")
        calls = [
            [partial(self.open_backend, backend, network, settings, **options) for backend, options in named]
            for network in networks
        ]
        if not self._devices:
            self._devices = [Device(f"{index}:{backend}") for index, (backend, _) in enumerate(named)]
        backends = _opened([call for each in calls for call in each])
        before = len(self._served)
        try:
            # One after the other: another device's work would hold the interpreter and lengthen the times.
            left = iter(backends)
            for network, reopen in zip(networks, calls, strict=True):
                runners: list[Runner] = []
                for device, again in zip(self._devices, reopen, strict=True):
                    runners.append(self._measured(device, next(left), network, again, runners))
                self._served.append(self._made(network, runners, name, taken))
        except BaseException:
            del self._served[before:]
            for backend in backends:
                backend.close()
            raise
        return self._served[before:]

    def _made(
        self, network: NetworkSpec | None, runners: list[Runner], name: str, taken: Collection[str]
    ) -> ServedNetwork:
        first = runners[0]
        name = name or self._free_name(first.backend.name if network is None else network.name, taken)
        info = _described(name, network, first.backend, first.model)
        standby = None if network is None else partial(self._open_standby, network, first.backend)
        return ServedNetwork(info, runners, standby, 1 if network is None else cost_of(network).flop)

    def _open_standby(self, network: NetworkSpec, failed: Backend) -> Runner:
        """Open a standby. failed: backend of the network's first device. Raises BackendError."""
        reasons = []
        for name in STANDBYS:
            if failed.on_host and name == failed.name:
                continue
            try:
                backend = self.open_backend(name, network, self.settings)
            except BackendError as error:
                reasons.append(f"{name}: {error}")
                continue
            try:
                return self._measured(Device(f"standby:{name}"), backend, network)
            except BaseException:
                backend.close()
                raise
        raise BackendError("; ".join(reasons))

    def _prepare(self) -> threading.Thread:
        """Find the devices while the file is read: both can take seconds."""
        names = dict.fromkeys(parse_backend(spec)[0] for spec in self.settings.backend)

        def work() -> None:
            for name in names:
                prepare_backend(name)

        thread = threading.Thread(target=work, name="prepare backends", daemon=True)
        thread.start()
        return thread

    def _measured(
        self,
        device: Device,
        backend: Backend,
        network: NetworkSpec | None,
        reopen: Callable[[], Backend] | None = None,
        others: Sequence[Runner] = (),
    ) -> Runner:
        """Return a runner with a latency curve: that of an equal device or equally large network, or else an
        estimate while the device serves others. others: runners of the network on other devices."""
        content_hash = "" if network is None else network.content_hash
        calibrate = partial(latency_model, content_hash=content_hash, settings=self.settings)
        flop = 1 if network is None else cost_of(network).flop
        known = [(each, flop) for each in others]
        for served in reversed(self._served):
            known += [(each, served.flop) for each in served.runners if each.device is device]
        equal = factor = None
        for each, its_flop in known:
            same = flop == its_flop and _KIND(each.backend) == _KIND(backend)
            if same or (self.serving and each.device is device):
                equal, factor = each.model, None if same else flop / its_flop
                break
        self.progress(f"latency curve of {backend.device}: known, or measured now")
        model, save = calibrate(backend, equal=equal, factor=factor)
        return new_runner(device, backend, model, self.targets, save, reopen, calibrate)

    def _free_name(self, base: str, taken: Collection[str]) -> str:
        names = {served.info.name for served in self._served} | {*taken}
        name, serial = base, 2
        while name in names:
            name, serial = f"{base}-{serial}", serial + 1
        return name


def _opened(calls: Sequence[Callable[[], Backend]]) -> list[Backend]:
    """Open backends concurrently and return them in order. If one fails, close the others and raise its
    error."""
    results: dict[int, Backend | BaseException] = {}

    def work(index: int) -> None:
        try:
            results[index] = calls[index]()
        except BaseException as error:
            results[index] = error

    # Daemon threads, because a driver that hangs must not keep the process alive.
    threads = [
        threading.Thread(target=work, args=(index,), name=f"open {index}", daemon=True)
        for index in range(len(calls))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    in_order = [results[index] for index in range(len(calls))]
    backends = [each for each in in_order if isinstance(each, Backend)]
    for error in in_order:
        if isinstance(error, BaseException):
            for backend in backends:
                backend.close()
            raise error
    return backends


def _key(network: NetworkInfo | NetworkSpec) -> tuple[str, str, str]:
    """Return what equal networks have in common: content and heads."""
    return network.content_hash, network.policy_head, network.value_head


def _described(name: str, network: NetworkSpec | None, backend: Backend, model: LatencyModel) -> NetworkInfo:
    if network is None:
        # The results of a backend without a network do not depend on the input format.
        return NetworkInfo(
            name, backend.name, 1, backend=backend.name, device=backend.device, recommended_batch=model.knee
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


def shipped_network(backends: Sequence[str]) -> Path:
    """Return the default network file: the larger one if any backend runs on a GPU.

    `auto` runs on a GPU unless the GPU is small. It may also choose a provider of ONNX Runtime, but only
    after comparing it with the CPU, so it gets the smaller network then.
    """
    from evaluator.backends import AUTO, unavailable
    from evaluator.backends.gpu.backend import is_small
    from evaluator.network import SHIPPED_GPU_NETWORK, SHIPPED_NETWORK

    parsed = [parse_backend(spec) for spec in backends]
    names = {name for name, _ in parsed}
    gpu = "gpu" in names or (AUTO in names and unavailable("gpu") is None and not is_small())
    named = any(name == "onnx" and "provider" in options for name, options in parsed)
    if named and unavailable("onnx") is None:
        from evaluator.backends.onnx.backend import runs_on_gpu

        gpu = gpu or any(name == "onnx" and runs_on_gpu(options) for name, options in parsed)
    return SHIPPED_GPU_NETWORK if gpu else SHIPPED_NETWORK


def needs_network(backends: Sequence[str]) -> bool:
    """Return True if any of the backends needs a network file."""
    return any(spec.partition(":")[0] not in WITHOUT_NETWORK for spec in backends)
