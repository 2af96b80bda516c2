# SPDX-License-Identifier: GPL-3.0-or-later
"""The served networks: lookup by name or alias, and changes while others are served.

Loading takes seconds and unloading waits for queued requests, so both run on threads of their own. The list
belongs to the service's I/O thread; `call` runs a function there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from evaluator.devices.opening.loading import Loader
from evaluator.devices.running.dispatcher import Dispatcher
from evaluator.devices.served_network import ServedNetwork
from protocol.errors import BadRequest, NotReady, UnknownNetwork
from protocol.wire.messages import DEFAULT_ALIAS, NetworkInfo

log = logging.getLogger("evaluator.service")

NOT_READY = "the networks are still being loaded; say hello, and wait for the welcome"

MOST_FORMERS = 4
"""Former networks of a network that end their requests, each in its own memory."""

Failed = Callable[[Exception], None]
"""Called in the I/O thread with the error."""


class NetworksError(Exception):
    """Networks could not be reloaded. The message contains all reasons."""


@dataclass(frozen=True, slots=True)
class NetworkToLoad:
    """A network file ("" for the included one, None for backends without a file) and the heads to use ("" for
    the file's default)."""

    path: str | None
    policy_head: str = ""
    value_head: str = ""


@dataclass(frozen=True, slots=True)
class ReloadedNetwork:
    """A network whose file was read again. changed: True if the content differs and is served now."""

    info: NetworkInfo
    changed: bool


@dataclass(slots=True)
class _Entry:
    """source: file that a reload reads. sources: files with this content that the settings name; empty for a
    network that a client had loaded."""

    served: ServedNetwork
    source: NetworkToLoad
    sources: set[NetworkToLoad] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the entry is reloaded or unloaded."""
    formers: list[threading.Thread] = field(default_factory=list)
    """Each ends the requests of a former network, which takes minutes under a flood."""

    @property
    def has_file(self) -> bool:
        """True if the network comes from a file; some backends need none."""
        return self.source.path is not None


class ServedNetworks:
    """The networks of a service. Belongs to the I/O thread.

    An alias is an additional name for a network. Requests without a network name use the alias `default`.
    Unloading a network removes its aliases; they are not moved to another network.
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
        """Held by loads and reloads until the result is in `_entries`. The loader shares a network that it
        already has with any client that loads the same content."""
        self._aliases: dict[str, str] = {}
        self._wanted: Sequence[NetworkToLoad] = ()
        """Networks that the settings name, the default network first."""
        self._default_of: NetworkToLoad | None = None
        """The first network of the settings when it was last made the default."""
        self._loading: set[NetworkToLoad] = set()
        """Networks of the settings that are being loaded."""

    # -- finding ---------------------------------------------------------------------------------------

    @property
    def default(self) -> str:
        """Name of the default network; empty if there is none."""
        return self._aliases.get(DEFAULT_ALIAS, "")

    @property
    def aliases(self) -> Mapping[str, str]:
        """Network name by alias."""
        return dict(self._aliases)

    def find(self, wanted: str, bound: str = "") -> ServedNetwork:
        """Return the network with a name, alias or content hash; for "" the one named `bound`, or the
        default.

        Raises UnknownNetwork, and NotReady before the initial networks are loaded.
        """
        for entry in self._entries:  # without a call, as each request needs it
            if entry.served.info.name == (wanted or bound):
                return entry.served
        return self._entry(wanted, bound).served

    def names_of(self, network: ServedNetwork, bound: str) -> tuple[str, ...]:
        """Return all names under which `find` returns a network, for a client bound to `bound`."""
        names = dict.fromkeys(("", network.info.name, network.info.content_hash, *self._aliases))
        return tuple(name for name in names if self._is(network, name, bound))

    def infos(self) -> tuple[NetworkInfo, ...]:
        """Return the networks' descriptions for clients, the default network first."""
        return tuple(self._dispatcher.info(served) for served in self.served())

    def served(self) -> list[ServedNetwork]:
        """Return the served networks, the default one first. Any thread may call this, and use `default`,
        `aliases` and `infos`."""
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
        """Start loading the initial networks. on_ready: called in the I/O thread once all are loaded.
        on_failed: called in another thread."""

        self._wanted = initial

        def work() -> None:
            loaded: dict[ServedNetwork, _Entry] = {}
            try:
                for source, served in zip(initial, self._loaded(initial, ()), strict=True):
                    loaded.setdefault(served, _Entry(served, source)).sources.add(source)
            except Exception as error:  # the owner decides how to report it
                on_failed(error)
                return
            self._call(lambda: publish([*loaded.values()]))

        def publish(loaded: list[_Entry]) -> None:
            self._entries = loaded
            self._aliases[DEFAULT_ALIAS] = loaded[0].served.info.name
            self._default_of = initial[0]
            on_ready()
            if self._wanted != initial:  # the settings changed during loading
                self.configure(self._wanted)

        threading.Thread(target=work, name="load", daemon=True).start()

    def load(
        self, wanted: NetworkToLoad, on_loaded: Callable[[NetworkInfo], None], on_failed: Failed
    ) -> None:
        """Start loading another network. on_loaded, on_failed: one of them is called in the I/O thread. A
        file with the content and heads of a served network is not loaded again; on_loaded gets that one.
        Raises NotReady."""
        if not self._entries:
            raise NotReady(NOT_READY)
        self._load(wanted, lambda entry: on_loaded(self._dispatcher.info(entry.served)), on_failed)

    def _load(self, wanted: NetworkToLoad, on_loaded: Callable[[_Entry], None], on_failed: Failed) -> None:
        aliases = tuple(self._aliases)

        def work() -> None:
            try:
                with self._changing:
                    (served,) = self._loaded([wanted], aliases)
                    self._call_and_wait(lambda: publish(served))
            except Exception as error:  # the client gets any error of the file
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
        """Stop serving a network. on_unloaded: called in the I/O thread once its memory is free.

        Raises UnknownNetwork, and BadRequest for the last network.
        """
        entry = self._entry(wanted)
        if len(self._entries) == 1:
            raise BadRequest("the last network cannot be unloaded; drain the evaluator instead")
        self._entries.remove(entry)
        name = entry.served.info.name
        self._aliases = {alias: meant for alias, meant in self._aliases.items() if meant != name}
        entry.served.closing = True  # The loader must not return it for another file with this content.
        self._changed()

        def work() -> None:
            with entry.lock:
                for former in entry.formers:
                    former.join()
                self._dispatcher.retire(entry.served)
                self._loader.forget(entry.served)
            self._call(on_unloaded)

        threading.Thread(target=work, name="unload", daemon=True).start()

    def alias(self, alias: str, wanted: str) -> str:
        """Point an alias at a network and return the network's name. wanted: empty removes the alias.

        Raises UnknownNetwork, and BadRequest if `alias` is the name of a network.
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
        """Read the file of a network, or of all for "", again, and serve its new content under the same name.

        Queued requests are still evaluated by the network that they were sent to. A reload waits for them
        only if MOST_FORMERS networks have some. on_reloaded or on_failed is called in the I/O thread. If one
        file fails, the others are still reloaded; on_failed gets all errors. Raises UnknownNetwork.
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
                        if not entry.served.closing:  # else unloaded in the meantime
                            done.append(self._reload(entry))
                except Exception as error:  # the client gets any error of the file
                    failures.append(error)
            if failures:
                self._call(lambda: on_failed(NetworksError("; ".join(map(str, failures)))))
            else:
                self._call(lambda: on_reloaded(done))

        threading.Thread(target=work, name="reload", daemon=True).start()

    # -- networks of the settings ------------------------------------------------------------------------

    def configure(self, wanted: Sequence[NetworkToLoad]) -> None:
        """Apply the networks of new settings: reload all files, load new networks, unload removed ones.

        Errors are logged, and retried at the next call. The previous networks stay until all new ones are
        loaded. Networks that clients had loaded stay. May be called again at any time; the last call counts.
        """
        self._wanted = wanted
        if not self._entries:
            return  # `load_initial` calls this again
        for entry in self._entries:
            if entry.sources or entry.source in wanted:
                entry.sources = {entry.source}  # other files may have changed

        def failed(error: Exception) -> None:
            log.error("a network could not be loaded again, so the former one is still served: %s", error)
            self._load_missing()

        kept = [entry for entry in self._entries if entry.has_file and not self._is_unwanted(entry)]
        self._reload_all(kept, lambda done: self._load_missing(), failed)

    def _load_missing(self) -> None:
        def failed(source: NetworkToLoad, error: Exception) -> None:
            log.error("a network could not be loaded, so the former ones are still served: %s", error)
            self._loading.discard(source)
            self._settle()

        def loaded(source: NetworkToLoad, entry: _Entry) -> None:
            log.info("network %s is loaded", entry.served.info.name)
            self._loading.discard(source)
            entry.sources.add(source)
            self._settle()

        for source in self._wanted:
            if self._asked_by(source) is None and source not in self._loading:
                self._loading.add(source)
                self._load(source, partial(loaded, source), partial(failed, source))
        self._settle()

    def _settle(self) -> None:
        """Set the default network if the settings' first network has changed. Unload networks that the
        settings no longer name, once all others are loaded."""
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
                files = [source for source in self._wanted if source in entry.sources]
                if files and entry.source not in files:
                    entry.source = files[0]
            elif len(self._entries) > 1:
                self.unload(name, partial(log.info, "network %s is unloaded", name))

    def _asked_by(self, source: NetworkToLoad) -> _Entry | None:
        return next((entry for entry in self._entries if source in entry.sources), None)

    def _is_unwanted(self, entry: _Entry) -> bool:
        """Return True if the settings named a network before and no longer do."""
        return bool(entry.sources) and entry.sources.isdisjoint(self._wanted)

    # -- for the loading threads -------------------------------------------------------------------------

    def _reload(self, entry: _Entry) -> ReloadedNetwork:
        old, source = entry.served, entry.source
        entry.formers = [each for each in entry.formers if each.is_alive()]
        while len(entry.formers) >= MOST_FORMERS:
            entry.formers.pop(0).join()
        with self._changing:
            new = self._loader.reload(old, source.path, source.policy_head, source.value_head)
            if new is None:
                return ReloadedNetwork(self._dispatcher.info(old), changed=False)
            self._dispatcher.add(new)
            self._call_and_wait(partial(self._swap, entry, new))
        log.info("network %s is now %s", new.info.name, new.info.content_hash)
        former = threading.Thread(target=self._dispatcher.retire, args=(old,), name="retire", daemon=True)
        entry.formers.append(former)
        former.start()
        return ReloadedNetwork(self._dispatcher.info(new), changed=True)

    def _swap(self, entry: _Entry, new: ServedNetwork) -> None:
        old, entry.served = entry.served, new
        old.closing = True
        new.closing = entry not in self._entries  # the entry was unloaded; so is the new network
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

    def _loaded(self, wanted: Sequence[NetworkToLoad], aliases: Sequence[str]) -> list[ServedNetwork]:
        files = [(each.path, each.policy_head, each.value_head) for each in wanted]
        networks = self._loader.load_all(files, taken=(DEFAULT_ALIAS, *aliases))
        for served in networks:
            self._dispatcher.add(served)
        return networks
