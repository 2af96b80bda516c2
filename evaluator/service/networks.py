# SPDX-License-Identifier: GPL-3.0-or-later
"""The networks that a service has: found by name or alias, and changed while others are served.

Loading takes seconds and unloading waits for what is queued, so both have threads of their own; the list
itself belongs to the service's I/O thread, to which `call` takes what is to be done there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from evaluator.devices.dispatcher import Dispatcher
from evaluator.devices.loading import Loader
from evaluator.devices.served_network import ServedNetwork
from protocol.errors import BadRequest, NotReady, UnknownNetwork
from protocol.messages import DEFAULT_ALIAS, NetworkInfo

log = logging.getLogger("evaluator.service")

NOT_READY = "the networks are still being loaded; say hello, and wait for the welcome"

Failed = Callable[[Exception], None]
"""Called in the I/O thread with what is wrong."""


class NetworksError(Exception):
    """Several networks could not be loaded again. The message has all the reasons."""


@dataclass(frozen=True, slots=True)
class NetworkToLoad:
    """A network file ("": the shipped one; None: none, for backends without) and the heads to use ("": the
    file's choice)."""

    path: str | None
    policy_head: str = ""
    value_head: str = ""


@dataclass(frozen=True, slots=True)
class ReloadedNetwork:
    """A network whose file was read again. changed: it has another content, which is served now."""

    info: NetworkInfo
    changed: bool


@dataclass(slots=True)
class _Entry:
    """source: the file that a reload looks at. asked: what the settings ask for it by, files with the same
    content; empty for a network that a client had loaded."""

    served: ServedNetwork
    source: NetworkToLoad
    asked: set[NetworkToLoad] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held by who reloads or unloads it."""

    @property
    def has_file(self) -> bool:
        """Whether there is one to look at again: a backend that needs none has none."""
        return self.source.path is not None


class ServedNetworks:
    """The networks of a service. Belongs to the I/O thread.

    An alias is a further name for a network; the one called `default` is meant by requests without one.
    Unloading a network ends its aliases: no other network takes its place by itself.
    """

    def __init__(
        self,
        loader: Loader,
        dispatcher: Dispatcher,
        call: Callable[[Callable[[], None]], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """changed: called in the I/O thread right after each change of the networks or their aliases."""
        self._loader = loader
        self._dispatcher = dispatcher
        self._call = call
        self._changed = changed
        self._entries: list[_Entry] = []
        self._changing = threading.Lock()
        """Held by who loads or reloads until what came of it is among the entries: the loader gives a network
        that it has already to a client that asks for its content."""
        self._aliases: dict[str, str] = {}
        self._wanted: Sequence[NetworkToLoad] = ()
        """What the settings ask for, the default network first."""
        self._default_of: NetworkToLoad | None = None
        """The first of the settings when that was last made the default."""
        self._loading: set[NetworkToLoad] = set()
        """What is being loaded because the settings ask for it."""

    # -- finding ---------------------------------------------------------------------------------------

    @property
    def default(self) -> str:
        """The name of the default network, empty if there is none."""
        return self._aliases.get(DEFAULT_ALIAS, "")

    @property
    def aliases(self) -> Mapping[str, str]:
        """Alias to name."""
        return dict(self._aliases)

    def find(self, wanted: str, bound: str = "") -> ServedNetwork:
        """The network of that name, alias or content hash; for "" the one named `bound`, or the default one.

        Raises UnknownNetwork, and NotReady before the first networks are there.
        """
        return self._entry(wanted, bound).served

    def names_of(self, network: ServedNetwork, bound: str) -> tuple[str, ...]:
        """All that `find` finds a network by, for who is bound to one."""
        names = dict.fromkeys(("", network.info.name, network.info.content_hash, *self._aliases))
        return tuple(name for name in names if self._is(network, name, bound))

    def infos(self) -> tuple[NetworkInfo, ...]:
        """The descriptions of the networks for clients, the default one first."""
        return tuple(self._dispatcher.info(served) for served in self.served())

    def served(self) -> list[ServedNetwork]:
        """What clients are given, the default network first. Any thread may ask, as for `default`, `aliases`
        and `infos`."""
        networks = [entry.served for entry in list(self._entries)]
        return sorted(networks, key=lambda served: served.info.name != self.default)

    def _is(self, network: ServedNetwork, wanted: str, bound: str) -> bool:
        try:
            return self.find(wanted, bound) is network
        except (NotReady, UnknownNetwork):
            return False

    def _entry(self, wanted: str, bound: str = "") -> _Entry:
        if not self._entries:
            raise NotReady(NOT_READY)
        name = wanted or bound or DEFAULT_ALIAS
        for entry in self._entries:
            if name == entry.served.info.name:
                return entry
        if wanted or not bound:
            meant = self._aliases.get(name)
            for entry in self._entries:
                if meant == entry.served.info.name or wanted == entry.served.info.content_hash:
                    return entry
        known = ", ".join([*(entry.served.info.name for entry in self._entries), *self._aliases])
        if not wanted:
            raise UnknownNetwork(f"the default network was unloaded; name one of: {known}")
        raise UnknownNetwork(f"no network {wanted!r} here; there is: {known}")

    # -- changing --------------------------------------------------------------------------------------

    def load_initial(
        self, initial: Sequence[NetworkToLoad], on_ready: Callable[[], None], on_failed: Failed
    ) -> None:
        """Begin to load the first networks. on_ready is called in the I/O thread once all are there,
        on_failed in another one."""

        self._wanted = initial

        def work() -> None:
            loaded: dict[ServedNetwork, _Entry] = {}
            try:
                for source in initial:
                    served = self._loaded(source, ())
                    loaded.setdefault(served, _Entry(served, source)).asked.add(source)
            except Exception as error:  # reported to the owner, who knows whom to tell
                on_failed(error)
                return
            self._call(lambda: publish([*loaded.values()]))

        def publish(loaded: list[_Entry]) -> None:
            self._entries = loaded
            self._aliases[DEFAULT_ALIAS] = loaded[0].served.info.name
            self._default_of = initial[0]
            on_ready()
            if self._wanted != initial:  # Other settings have come in the meantime.
                self.configure(self._wanted)

        threading.Thread(target=work, name="load", daemon=True).start()

    def load(
        self, wanted: NetworkToLoad, on_loaded: Callable[[NetworkInfo], None], on_failed: Failed
    ) -> None:
        """Begin to load one more. on_loaded or on_failed is called in the I/O thread. A file with the content
        and heads of one that is served is not loaded again: on_loaded gets that one. Raises NotReady."""
        if not self._entries:
            raise NotReady(NOT_READY)
        self._load(wanted, lambda entry: on_loaded(self._dispatcher.info(entry.served)), on_failed)

    def _load(self, wanted: NetworkToLoad, on_loaded: Callable[[_Entry], None], on_failed: Failed) -> None:
        aliases = tuple(self._aliases)

        def work() -> None:
            try:
                with self._changing:
                    served = self._loaded(wanted, aliases)
                    self._call_and_wait(lambda: publish(served))
            except Exception as error:  # whatever is wrong with the file, it is the client's to know
                failure = error
                self._call(lambda: on_failed(failure))

        def publish(served: ServedNetwork) -> None:
            entry = next((entry for entry in self._entries if entry.served is served), None)
            if entry is None:
                entry = _Entry(served, wanted)
                self._entries.append(entry)
                self._changed()
            on_loaded(entry)

        threading.Thread(target=work, name="load", daemon=True).start()

    def unload(self, wanted: str, on_unloaded: Callable[[], None]) -> None:
        """Serve a network no more; on_unloaded is called in the I/O thread when its memory is free.

        Raises UnknownNetwork, and BadRequest for the last one.
        """
        entry = self._entry(wanted)
        if len(self._entries) == 1:
            raise BadRequest("the last network cannot be unloaded; drain the evaluator instead")
        self._entries.remove(entry)
        name = entry.served.info.name
        self._aliases = {alias: meant for alias, meant in self._aliases.items() if meant != name}
        entry.served.closing = True  # Nobody is given it for another file of the same content.
        self._changed()

        def work() -> None:
            with entry.lock:
                self._dispatcher.retire(entry.served)
                self._loader.forget(entry.served)
            self._call(on_unloaded)

        threading.Thread(target=work, name="unload", daemon=True).start()

    def alias(self, alias: str, wanted: str) -> str:
        """Have an alias mean a network, or nothing for an empty `wanted`; returns the network's name.

        Raises UnknownNetwork, and BadRequest for an alias that a network is named.
        """
        if any(alias in (entry.served.info.name, entry.served.info.content_hash) for entry in self._entries):
            raise BadRequest(f"a network is named {alias!r}; choose another alias")
        if not wanted:
            if self._aliases.pop(alias, None) is None:
                raise UnknownNetwork(f"there is no alias {alias!r}")
            self._changed()
            return ""
        name = self._entry(wanted).served.info.name
        self._aliases[alias] = name
        self._changed()
        return name

    def reload(
        self, wanted: str, on_reloaded: Callable[[list[ReloadedNetwork]], None], on_failed: Failed
    ) -> None:
        """Look at the file of a network again, or of all for "", and serve what is there now under the same
        name. What is queued is still evaluated by the network that it was sent to.

        on_reloaded or on_failed is called in the I/O thread; the latter with what was wrong with any of them,
        and the others are reloaded all the same. Raises UnknownNetwork.
        """
        entries = [self._entry(wanted)] if wanted else [each for each in self._entries if each.has_file]
        self._reload_all(entries, on_reloaded, on_failed)

    def _reload_all(
        self,
        entries: Sequence[_Entry],
        on_reloaded: Callable[[list[ReloadedNetwork]], None],
        on_failed: Failed,
    ) -> None:
        def work() -> None:
            done: list[ReloadedNetwork] = []
            failures: list[Exception] = []
            for entry in entries:
                try:
                    with entry.lock:
                        if not entry.served.closing:  # It has been unloaded meanwhile.
                            done.append(self._reload(entry))
                except Exception as error:  # the file is the client's, who must hear what is wrong with it
                    failures.append(error)
            if not failures:
                self._call(lambda: on_reloaded(done))
            elif len(failures) == 1:
                self._call(lambda: on_failed(failures[0]))
            else:
                self._call(lambda: on_failed(NetworksError("; ".join(map(str, failures)))))

        threading.Thread(target=work, name="reload", daemon=True).start()

    # -- what the settings ask for -----------------------------------------------------------------------

    def configure(self, wanted: Sequence[NetworkToLoad]) -> None:
        """Look at all files again, load what settings ask for, and unload what they asked for before. What
        goes wrong is logged, and tried again the next time; until all that is asked for is there, what was
        served before is served on. Networks that clients had loaded stay.

        May be called again at any time: what was asked for last counts.
        """
        self._wanted = wanted
        if not self._entries:
            return  # `load_initial` comes back to it.
        for entry in self._entries:
            if entry.asked or entry.source in wanted:
                entry.asked = {entry.source}  # Other files may have another content by now.

        def failed(error: Exception) -> None:
            log.error("a network could not be loaded again, what was served before is served on: %s", error)
            self._load_missing()

        kept = [entry for entry in self._entries if entry.has_file and not self._is_unwanted(entry)]
        self._reload_all(kept, lambda done: self._load_missing(), failed)

    def _load_missing(self) -> None:
        def failed(source: NetworkToLoad, error: Exception) -> None:
            log.error("a network could not be loaded, what was served before is served on: %s", error)
            self._loading.discard(source)
            self._settle()

        def loaded(source: NetworkToLoad, entry: _Entry) -> None:
            log.info("network %s is loaded", entry.served.info.name)
            self._loading.discard(source)
            entry.asked.add(source)
            self._settle()

        for source in self._wanted:
            if self._asked_by(source) is None and source not in self._loading:
                self._loading.add(source)
                self._load(source, partial(loaded, source), partial(failed, source))
        self._settle()

    def _settle(self) -> None:
        """Make the network that the settings name first the default, if it is another one than before, and
        unload what they name no more as soon as all others are there."""
        first = self._asked_by(self._wanted[0])
        if first is not None and (self._wanted[0] != self._default_of or not self.default):
            self._aliases[DEFAULT_ALIAS] = first.served.info.name
            self._default_of = self._wanted[0]
            self._changed()
        if any(self._asked_by(source) is None for source in self._wanted):
            return
        for entry in list(self._entries):
            name = entry.served.info.name
            if not self._is_unwanted(entry):
                files = [source for source in self._wanted if source in entry.asked]
                if files and entry.source not in files:
                    entry.source = files[0]
            elif len(self._entries) > 1:
                self.unload(name, partial(log.info, "network %s is unloaded", name))

    def _asked_by(self, source: NetworkToLoad) -> _Entry | None:
        return next((entry for entry in self._entries if source in entry.asked), None)

    def _is_unwanted(self, entry: _Entry) -> bool:
        """Whether the settings asked for a network once, and do so no more."""
        return bool(entry.asked) and entry.asked.isdisjoint(self._wanted)

    # -- threads of its own ------------------------------------------------------------------------------

    def _reload(self, entry: _Entry) -> ReloadedNetwork:
        old = entry.served
        source = entry.source
        with self._changing:
            new = self._loader.reload(old, source.path, source.policy_head, source.value_head)
            if new is None:
                return ReloadedNetwork(self._dispatcher.info(old), changed=False)
            self._dispatcher.add(new)
            self._call_and_wait(partial(self._swap, entry, new))
        log.info("network %s is now %s", new.info.name, new.info.content_hash)
        self._dispatcher.retire(old)
        return ReloadedNetwork(self._dispatcher.info(new), changed=True)

    def _swap(self, entry: _Entry, new: ServedNetwork) -> None:
        old, entry.served = entry.served, new
        old.closing = True
        new.closing = entry not in self._entries  # It is unloaded as soon as it is in its place.
        self._changed()

    def _call_and_wait(self, task: Callable[[], None]) -> None:
        done = threading.Event()

        def work() -> None:
            try:
                task()
            finally:
                done.set()

        self._call(work)
        done.wait()

    def _loaded(self, wanted: NetworkToLoad, aliases: Sequence[str]) -> ServedNetwork:
        taken = (DEFAULT_ALIAS, *aliases)
        served = self._loader.load(wanted.path, wanted.policy_head, wanted.value_head, taken=taken)
        self._dispatcher.add(served)
        return served
