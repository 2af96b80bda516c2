# SPDX-License-Identifier: GPL-3.0-or-later
"""The link to the evaluator: connect or start it in the background, and reconnect when it is lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

from engine.evaluation.errors import (
    EvaluatorCrashedError,
    EvaluatorDrainingError,
    EvaluatorKilledError,
    EvaluatorRefusalError,
    NoEvaluatorError,
)
from engine.evaluation.link.failover import ConfiguredEvaluators
from engine.evaluation.link.health import Keepalive
from engine.evaluation.link.process import (
    EvaluatorProcess,
    EvaluatorSettings,
    NetworkKey,
    crash_folder,
    evaluator_command,
)
from protocol.common.extras import missing
from protocol.common.folders import expanded
from protocol.common.processes import crash_signal
from protocol.common.settings.spec import SettingsError

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient
    from protocol.wire.messages import NetworkInfo

FALLBACK_SECONDS = 3.0
"""Time without a given evaluator after which an embedded one replaces it, if that is allowed."""

RECONNECT_SECONDS = 10.0
"""Time without a given evaluator, after a connection, after which it is given up."""

HELLO_SECONDS = 30.0
"""Timeout of the handshake."""

LOAD_SECONDS = 600.0
"""Timeout for loading a network."""

FIND_SECONDS = 5.0
"""Timeout for checking whether the evaluator is the one at this user's ipc socket."""

RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Waits before successive attempts; the last one repeats."""

STEADY_SECONDS = 10.0
"""Time of service after which a refusal of work is retried at once; earlier ones after increasing waits."""

MOST_STARTS: dict[type[NoEvaluatorError], int] = {
    EvaluatorKilledError: 10,  # by a person, or a system that may soon have memory again
    EvaluatorCrashedError: 6,  # each may have found another device that crashes
    NoEvaluatorError: 3,
}
"""Maximum starts of an evaluator that fail in one way."""

MAX_IDLE_RESTARTS = 3
"""Maximum restarts in a row while none is used. After that an evaluator is started on demand."""


class EvaluatorLink:
    """A connection to the evaluator, established and restored in the background.

    `start` returns at once; `wait` and `client` return the connection. One thread at a time may use the
    client. `log` is called from several threads. If the process of an embedded evaluator ends, another one is
    started at once, even if it is not in use. With several addresses, health checks may move a connection in
    use to another evaluator (rules: failover.py). `client` then changes.
    """

    def __init__(
        self,
        settings: EvaluatorSettings,
        log: Callable[[str], None],
        *,
        fallback: bool = False,
        prepare: Callable[[EvaluatorClient], None] = lambda client: None,
    ) -> None:
        """fallback: start an embedded evaluator if no given one is available. prepare: called in the
        background with each new connection before its use."""
        self.settings = settings
        self._log = log
        self._fallback = fallback
        self._prepare = prepare
        self.notify: Callable[[], None] = lambda: None
        """Called in the background after each new connection or error."""
        self._condition = threading.Condition()
        self.client: EvaluatorClient | None = None
        """The connection; None while there is none. Read without the lock, for each batch."""
        self._error: NoEvaluatorError | None = None
        self._keepalive: Keepalive | None = None
        self._thread: threading.Thread | None = None
        self._process: EvaluatorProcess | None = None
        # Connections that were replaced. The user's thread owns them.
        self._retired: list[EvaluatorClient] = []
        self._idle_restarts = 0
        self._was_connected = False
        self._connected_at = 0.0
        self._refusals = 0
        """Consecutive refusals after a successful handshake."""
        self._drained = False
        """The last connection's evaluator had announced its shutdown."""
        self._address: str | None = None
        """Address of the current or last given evaluator; "" for an embedded one."""
        self._next: tuple[EvaluatorClient, str] | None = None
        """A better evaluator with another network and its address, for the next search."""
        self._closed = False
        self._crashes: str | None = None
        """Temporary folder for crash records; "" if none is needed; None until that is known."""
        addresses: tuple[str, ...] = ()
        try:
            addresses = settings.addresses
        except SettingsError as error:  # Unlike options, the environment was not checked before.
            self._error = EvaluatorRefusalError(f"WAVEFRONT_EVALUATOR: {error}")
        opens = partial(connect, settings=settings)
        self._candidates = ConfiguredEvaluators(addresses, opens, settings.keys, log, self._change_if_better)

    def adopt(self, settings: EvaluatorSettings) -> bool:
        """Adopt settings that the current evaluator fulfils. Return False if they need another one."""
        mine, client, process = self.settings, self.client, self._process
        if settings.address and not self._fallback:  # no evaluator is started
            settings = replace(settings, backend=mine.backend, threads=mine.threads)
        in_force = mine
        if client is not None and process is not None:
            in_force = mine.with_choices(client.network, process.threads)
        same = (
            value in (getattr(mine, name), getattr(in_force, name))
            for name, value in asdict(settings).items()
        )
        if not all(same):
            return False
        self.settings = settings
        return True

    @property
    def was_connected(self) -> bool:
        """True if there has been a connection."""
        with self._condition:
            return self._was_connected

    @property
    def error(self) -> NoEvaluatorError | None:
        """Why the link gave up connecting; None while it retries or is connected."""
        with self._condition:
            return self._error

    @property
    def pid(self) -> int | None:
        """Process id of the embedded evaluator; None if none runs."""
        process = self._process
        return process.pid if process is not None else None

    def start(self) -> None:
        """Start connecting, unless connected or connecting. Earlier failures are retried, but refusals are
        not: `wait` raises them again. Call it between searches, because the network may change."""
        with self._condition:
            if self._next is not None and not self._closed:
                (client, address), self._next = self._next, None
                self._replace(client, address)
        self._begin()

    def _begin(self) -> None:
        with self._condition:
            if self._closed or self.client is not None or self._thread is not None:
                return
            if isinstance(self._error, EvaluatorRefusalError):
                return
            self._error = None
            self._thread = threading.Thread(target=self._connect, name="evaluator-link", daemon=True)
            self._thread.start()

    def wait(self, timeout: float | None = None) -> EvaluatorClient | None:
        """Return the connection, or None after `timeout` seconds (default: no timeout).

        Raises NoEvaluatorError if the link has given up.
        """
        with self._condition:
            self._idle_restarts = 0
            self._condition.wait_for(lambda: self.client or self._error or self._closed, timeout)
            if self._error is not None:
                raise self._error
            return self.client

    def lost(self, client: EvaluatorClient, reason: str, *, refused: bool = False) -> None:
        """Close the failed `client` and reconnect in the background.

        refused: the evaluator answers but does not serve, because it shuts down or its devices failed.
        """
        with self._condition:
            if client is not self.client:  # Its process has ended, and another one is starting.
                return
            self.client = None
            steady = time.perf_counter() - self._connected_at >= STEADY_SECONDS
            self._refusals = (0 if steady else self._refusals) + 1 if refused else 0
            self._drained = client.said_goodbye()
            self._candidates.left(self._address or "", reason)
            self._take_next()
        self._log(f"evaluator lost: {reason}; reconnecting")
        client.close()
        self._begin()

    def follow(self, network: NetworkInfo) -> None:
        """Require another network of all evaluators, because the one in use serves it now."""
        self._candidates.follow(network)

    def check_keepalive(self, client: EvaluatorClient) -> None:
        """Check a `client` that owes answers, and kill an embedded evaluator that does not answer keepalives,
        which replaces it. Raises EvaluatorLost."""
        process, keepalive = self._process, self._keepalive
        if client is not self.client or self._address or process is None or keepalive is None:
            return
        if keepalive.has_stopped(time.perf_counter()):
            self._keepalive = None
            self.kill_silent(client)

    def kill_silent(self, client: EvaluatorClient) -> None:
        """Kill the embedded evaluator of `client` because it does not answer, which replaces it."""
        process = self._process
        if client is self.client and not self._address and process is not None:
            self._log("the evaluator does not answer; restarting it")
            process.kill()

    def close_retired(self) -> None:
        """Close the replaced connections. The client's thread calls this when it no longer uses them."""
        with self._condition:
            retired, self._retired = self._retired, []
        for client in retired:
            client.close()

    def close(self) -> None:
        """Disconnect, stop the embedded evaluator and wait for its process to exit. Idempotent."""
        with self._condition:
            self._closed = True
            client, self.client = self.client, None
            if self._next is not None:
                self._retired.append(self._next[0])
            thread = self._thread
            self._condition.notify_all()
        self._candidates.close()
        if client is not None:
            client.close()
        self.close_retired()
        self._end_process()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)
        if self._crashes:
            import shutil

            shutil.rmtree(self._crashes, ignore_errors=True)

    # -- in the background -------------------------------------------------------------------------------

    def _connect(self) -> None:
        error: NoEvaluatorError | None = None
        client: EvaluatorClient | None = None
        began = time.perf_counter()
        reported = address = ""
        starts, attempt = dict.fromkeys(MOST_STARTS, 0), 0
        embedded = not self.settings.address
        if self._refusals and not self._candidates.has_alternative():
            if self._fallback and not embedded:
                self._log("starting an evaluator of its own instead")
                embedded = True
            else:
                # Otherwise handshakes and refusals would alternate without a pause.
                self._pause(self._refusals - 1, self._candidates.has_alternative)
        while not self._closed:
            try:
                client, address = (self._start_embedded(), "") if embedded else self._candidates.connect()
                self._prepare(client)
                break
            except EvaluatorRefusalError as refusal:
                error = refusal
                break
            except ImportError as failed:
                error = EvaluatorRefusalError(missing(failed))
                break
            except NoEvaluatorError as failure:
                kind = next(kind for kind in MOST_STARTS if isinstance(failure, kind))
                starts[kind] += embedded
                waited = time.perf_counter() - began
                patience = FALLBACK_SECONDS if self._fallback else RECONNECT_SECONDS * self._was_connected
                if self._fallback and (self._drained or isinstance(failure, EvaluatorDrainingError)):
                    patience = 0.0  # It cannot return before it has shut down, if at all.
                if starts[kind] >= MOST_STARTS[kind] or (
                    not embedded and not self._fallback and waited >= patience
                ):
                    error = failure  # `wait` raises it.
                    break
                if str(failure) != reported and not self._closed:
                    reported = str(failure)
                    self._log(reported)
                if not embedded and waited >= patience:
                    self._log("starting an evaluator of its own instead")
                    embedded = True
                    continue
            self._pause(attempt, self._candidates.has_usable)
            attempt += 1
        with self._condition:
            self._thread = None
            if self._closed:
                if client is not None:
                    client.close()
            else:
                self._error = error
                if client is not None:
                    self._take(client, address)
            self._condition.notify_all()
        self.notify()

    def _take(self, client: EvaluatorClient, address: str) -> None:
        """Make a connection the current one. address: of a given evaluator; "" for an embedded one."""
        known, why = self._address, self._candidates.why(address)
        if address and address != known and (why or known is not None):
            self._log(f"using the evaluator at {address}{why}")
        if address and self.settings.compress and not client.compresses:
            self._log(f"{address}: compression off; both sides need Python 3.14 or extra `compression`")
        self.client, self._address = client, address
        self._keepalive = Keepalive(client)
        self._was_connected, self._drained = True, False
        self._connected_at = time.perf_counter()

    def _take_next(self) -> None:
        """Use the evaluator intended for the next search now, because the current one is lost."""
        if self._next is not None:
            (client, address), self._next = self._next, None
            self._take(client, address)

    def _pause(self, attempt: int, enough: Callable[[], bool] = lambda: False) -> None:
        """Wait before the next attempt. enough: ends the wait when it returns True, as `close` does."""
        seconds = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
        with self._condition:
            self._condition.wait_for(lambda: self._closed or enough(), seconds)

    def _change_if_better(self) -> None:
        """Move to a better evaluator, if there is one. Called after each health check."""
        with self._condition:
            self._condition.notify_all()  # This may end a pause.
            if self._closed or self.client is None or self._thread is not None or self._next is not None:
                return
            better = self._candidates.better_than(self._address or "")
            if better is None:
                return
            self._thread = threading.Thread(
                target=self._change_to, args=(better,), name="evaluator-link", daemon=True
            )
            self._thread.start()

    def _change_to(self, address: str) -> None:
        """Connect to a better evaluator while the current one is in use."""
        client: EvaluatorClient | None = None
        with suppress(NoEvaluatorError):  # The failure was recorded, so it no longer counts as better.
            client = self._candidates.connect_to(address)
        with self._condition:
            self._thread = None
            if client is None:
                pass
            elif self._closed:
                client.close()
            elif self.client is None:  # The current one was lost meanwhile.
                self._take(client, address)
            elif self.client.network.identity == client.network.identity:
                self._replace(client, address)
            else:  # A search must not use two networks.
                self._next = client, address
            self._condition.notify_all()
        self.notify()
        self._begin()

    def _replace(self, client: EvaluatorClient, address: str) -> None:
        """Make another connection the current one. The old one remains with its user, who owns it."""
        assert self.client is not None
        self._retired.append(self.client)
        if self._address:
            self._candidates.left(self._address)
        elif self._process is not None:
            threading.Thread(target=self._process.close, name="evaluator-end", daemon=True).start()
            self._process = None
        self._take(client, address)

    def _start_embedded(self) -> EvaluatorClient:
        self._end_process()
        if self._crashes is None:
            self._crashes = crash_folder() or ""
        process = EvaluatorProcess(evaluator_command(self.settings), self._crashes or None)
        with self._condition:
            self._process = process
            closed = self._closed
        if closed:
            self._end_process()
            raise NoEvaluatorError("the engine is closing")
        # The import takes as long as the evaluator's start: do both concurrently.
        from protocol.client import EvaluatorClient
        from protocol.errors import EvaluatorFailure

        address = process.await_ready(self._log, lambda status: self._ended(process, status))
        try:
            return EvaluatorClient(address, timeout=30.0, name=f"engine {os.getpid()}")
        except EvaluatorFailure as error:
            raise NoEvaluatorError(f"the evaluator that was started does not answer: {error}") from None

    def _ended(self, process: EvaluatorProcess, status: int) -> None:
        """Restart the embedded evaluator after its process ended, unless it was stopped or keeps failing."""
        name = crash_signal(status)
        with self._condition:
            if self._closed:
                return
            client = self.client if process is self._process else None
            if self._idle_restarts >= MAX_IDLE_RESTARTS:
                client = None
            if client is not None:
                self._idle_restarts += 1
                self._retired.append(client)
                self.client = None
                self._take_next()
        if client is None:
            if name is not None:  # Its broken connection may have been noticed before.
                self._log(f"the evaluator crashed ({name})")
            return
        how = f"it ended with exit code {status}" if name is None else f"it crashed ({name})"
        self._log(f"evaluator lost: {how}; starting another")
        self._begin()

    def _end_process(self) -> None:
        with self._condition:
            process, self._process = self._process, None
        if process is not None:
            process.close()


def connect(address: str, settings: EvaluatorSettings, same_as: NetworkInfo | None = None) -> EvaluatorClient:
    """Connect to a running evaluator, and let it load the network of the options, if any.

    same_as: required network, whatever its name there. Raises EvaluatorDrainingError, EvaluatorRefusalError
    with the reason, and NoEvaluatorError if there is no answer.
    """
    from protocol.client import EvaluatorClient
    from protocol.errors import Draining, EvaluatorFailure, RemoteError

    try:
        client = EvaluatorClient(
            address,
            timeout=HELLO_SECONDS,
            name=f"engine {os.getpid()}",
            keys=settings.keys,
            compress=settings.compress,
        )
    except Draining as error:
        raise EvaluatorDrainingError(f"the evaluator at {address} refuses: {error}") from None
    except RemoteError as error:
        raise EvaluatorRefusalError(f"the evaluator at {address} refuses: {error}") from None
    except EvaluatorFailure as error:
        raise NoEvaluatorError(str(error)) from None
    try:
        _choose_network(client, settings.network, same_as)
    except Draining as error:
        client.close()
        raise EvaluatorDrainingError(f"the evaluator at {address} refuses: {error}") from None
    except EvaluatorFailure as error:
        client.close()
        raise EvaluatorRefusalError(f"the evaluator at {address} cannot serve the network: {error}") from None
    return client


def _choose_network(client: EvaluatorClient, key: NetworkKey, same_as: NetworkInfo | None) -> None:
    if same_as is not None:
        client.use(equal_network(client, key, same_as).name)
    elif key[0]:
        client.use(served_network(client, key).name)


def equal_network(client: EvaluatorClient, key: NetworkKey, wanted: NetworkInfo) -> NetworkInfo:
    """Return an evaluator's network that equals another evaluator's, loaded if the options name a file.

    Raises EvaluatorFailure, also if there is none: results of different networks must not be mixed.
    """
    from protocol.errors import UnknownNetwork

    for network in client.networks:
        if network.identity == wanted.identity:
            return network
    served = ", ".join(map(_shown, client.networks)) or "none"
    if key[0]:
        network = served_network(client, key)
        if network.identity == wanted.identity:
            return network
        served = _shown(network)
    raise UnknownNetwork(
        f"it serves {served}, and the others serve {_shown(wanted)}: evaluators that are used together must "
        "have one network, by its content"
    )


def _shown(network: NetworkInfo) -> str:
    return f"{network.name} ({network.content_hash[:8]})"


def described(network: NetworkInfo, max_batch: int) -> str:
    """Return a text for the user: network, backend, device. max_batch: maximum positions per request."""
    return (
        f"network {_shown(network)}, backend {network.backend}, device {network.device}, "
        f"batch {network.recommended_batch} (at most {max_batch})"
    )


def changed_network(before: NetworkInfo, now: NetworkInfo) -> str:
    """Return the message for the user that the evaluator's network has changed."""
    return (
        f"the evaluator's network is now {_shown(now)}, it was {_shown(before)}: the tree and all cached "
        "evaluations are discarded"
    )


def served_network(client: EvaluatorClient, key: NetworkKey) -> NetworkInfo:
    """Return the network that the options name, loaded unless it is served under that name or hash.

    Raises EvaluatorFailure, also if the served ones use other heads than the options request.
    """
    from protocol.errors import UnknownNetwork

    weights, policy_head, value_head = key
    named = [network for network in client.networks if weights in (network.name, network.content_hash)]
    for network in named:
        has_policy = not network.policy_heads or policy_head in ("", network.policy_head)
        if has_policy and (not network.value_heads or value_head in ("", network.value_head)):
            return network
    if named:
        heads = ", ".join(f"{network.policy_head} and {network.value_head}" for network in named)
        raise UnknownNetwork(
            f"{weights!r} is served with the heads {heads}: ask for these, or name the file to load it "
            "with others"
        )
    path = weights if is_shipped(weights) else str(expanded(weights).resolve())
    return load_network(client, path, policy_head, value_head)


def is_shipped(weights: str) -> bool:
    """Return True if this names an included network (no dot, no folder), or leaves the choice to the
    evaluator ("")."""
    path = expanded(weights)
    return not weights or (path.name == weights and not path.suffix and not path.exists())


def load_network(client: EvaluatorClient, path: str, policy_head: str, value_head: str) -> NetworkInfo:
    """Let the client's evaluator load a network file, and return the network. Raises EvaluatorFailure.

    Plain tcp connections have no right to that. If this user owns the evaluator, its ipc socket has.
    """
    from protocol.errors import NotAllowed

    try:
        return client.load(path, policy_head=policy_head, value_head=value_head, timeout=LOAD_SECONDS)
    except NotAllowed:
        own = _at_own_socket(client)
        if own is None:
            raise
    with own:
        network = own.load(path, policy_head=policy_head, value_head=value_head, timeout=LOAD_SECONDS)
    client.networks = (*(known for known in client.networks if known.name != network.name), network)
    return network


def _at_own_socket(client: EvaluatorClient) -> EvaluatorClient | None:
    """Return another connection to the same evaluator process, through this user's ipc socket, or None."""
    from protocol.client import EvaluatorClient
    from protocol.connections.addresses import default_addresses
    from protocol.errors import EvaluatorFailure

    for address in default_addresses():
        if not (client.instance and address.startswith("ipc://")):
            continue
        try:
            own = EvaluatorClient(address, timeout=FIND_SECONDS, name=client.name)
        except EvaluatorFailure:
            continue
        if own.instance == client.instance:
            return own
        own.close()
    return None
