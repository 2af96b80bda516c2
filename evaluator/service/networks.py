"""The networks that a service has: found by name, loaded and unloaded while others are served.

Loading takes seconds and unloading waits for what is queued, so both have threads of their own; the list
itself belongs to the service's I/O thread, to which `call` takes what is to be done there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaluator.scheduling.dispatcher import Dispatcher
from evaluator.scheduling.loading import Loader
from evaluator.scheduling.served_network import ServedNetwork
from protocol.errors import BadRequest, UnknownNetwork
from protocol.messages import NetworkInfo

log = logging.getLogger("evaluator.service")


@dataclass(frozen=True, slots=True)
class NetworkToLoad:
    """A network file (None for backends that need none) and the heads to use ("": the file's choice)."""

    path: str | None
    policy_head: str = ""
    value_head: str = ""


class ServedNetworks:
    """The networks of a service, the first one being the default. Belongs to the I/O thread."""

    def __init__(
        self, loader: Loader, dispatcher: Dispatcher, call: Callable[[Callable[[], None]], None]
    ) -> None:
        self._loader = loader
        self._dispatcher = dispatcher
        self._call = call
        self._networks: list[ServedNetwork] = []

    def find(self, wanted: str) -> ServedNetwork:
        """The network of that name or content hash; the default one for "". Raises UnknownNetwork."""
        if not wanted and self._networks:
            return self._networks[0]
        for network in self._networks:
            if wanted in (network.info.content_hash, network.info.name):
                return network
        known = ", ".join(network.info.name for network in self._networks) or "none yet"
        raise UnknownNetwork(f"no network {wanted!r} here; there is: {known}")

    def infos(self) -> tuple[NetworkInfo, ...]:
        """The descriptions of the networks that clients are told."""
        return tuple(self._dispatcher.info(network) for network in self._networks)

    def load_initial(
        self,
        initial: Sequence[NetworkToLoad],
        on_ready: Callable[[], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """Begin to load the first networks. on_ready is called in the I/O thread once all are there,
        on_failed in another one."""

        def work() -> None:
            loaded: list[ServedNetwork] = []
            try:
                for network in initial:
                    loaded.append(self._loaded(network.path, network.policy_head, network.value_head))
            except Exception as error:  # reported to the owner, who knows whom to tell
                on_failed(error)
                return
            self._call(lambda: publish(loaded))

        def publish(loaded: list[ServedNetwork]) -> None:
            self._networks = loaded
            on_ready()

        threading.Thread(target=work, name="load", daemon=True).start()

    def load(
        self,
        wanted: NetworkToLoad,
        on_loaded: Callable[[NetworkInfo], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """Begin to load one more. on_loaded or on_failed is called in the I/O thread."""

        def work() -> None:
            try:
                served = self._loaded(wanted.path, wanted.policy_head, wanted.value_head)
            except Exception as error:  # whatever is wrong with the file, it is the client's to know
                failure = error
                self._call(lambda: on_failed(failure))
                return
            self._call(lambda: publish(served))

        def publish(served: ServedNetwork) -> None:
            self._networks.append(served)
            on_loaded(self._dispatcher.info(served))

        threading.Thread(target=work, name="load", daemon=True).start()

    def unload(self, wanted: str, on_unloaded: Callable[[], None]) -> None:
        """Serve a network no more; on_unloaded is called in the I/O thread when its memory is free.

        Raises UnknownNetwork, and BadRequest for the last one.
        """
        network = self.find(wanted)
        if len(self._networks) == 1:
            raise BadRequest("the last network cannot be unloaded; drain the evaluator instead")
        self._networks.remove(network)

        def work() -> None:
            self._dispatcher.retire(network)
            self._loader.forget(network)
            self._call(on_unloaded)

        threading.Thread(target=work, name="unload", daemon=True).start()

    def _loaded(self, path: str | None, policy_head: str, value_head: str) -> ServedNetwork:
        served = self._loader.load(path, policy_head, value_head)
        self._dispatcher.add(served)
        return served
