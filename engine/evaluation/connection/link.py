# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds or starts the evaluator, and gets it back when it is lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from engine.evaluation.connection.configured import ConfiguredEvaluators
from engine.evaluation.connection.connecting import changed_network
from engine.evaluation.connection.keepalive import Keepalive
from engine.evaluation.connection.process import (
    EvaluatorProcess,
    EvaluatorSettings,
    crash_folder,
    evaluator_command,
)
from engine.evaluation.errors import (
    EvaluatorCrashedError,
    EvaluatorDrainingError,
    EvaluatorKilledError,
    EvaluatorRefusalError,
    NoEvaluatorError,
)
from protocol.errors import EvaluatorLost
from protocol.host.extras import missing
from protocol.host.processes import crash_signal
from protocol.settings.spec import SettingsError

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient
    from protocol.messages import NetworkInfo

FALLBACK_SECONDS = 3.0
"""How long a given evaluator may be out of reach before one is started in its place, if that is allowed."""

RECONNECT_SECONDS = 10.0
"""How long a given evaluator that was connected may be out of reach before it is given up."""

RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Waits before each new attempt; the last one repeats."""

STEADY_SECONDS = 10.0
"""An evaluator that refuses work after having served for this long is asked again at once; one that refuses
earlier after longer and longer waits."""

MAX_FAILED_STARTS = 3
"""Starts in a row that may fail without a reason given before the engine stops trying."""

MAX_KILLED_STARTS = 10
"""The same for those that are killed: by a person, or the system, which may have memory again before long."""

MAX_CRASHED_STARTS = 6
"""The same for those that crash: each may have found another device that crashes."""

MAX_IDLE_RESTARTS = 3
"""Evaluators that may die in a row without anybody having asked for one: then one is started when it is."""


class EvaluatorLink:
    """A connection to the evaluator that is made, and made again when lost, in the background.

    `start` returns at once; `wait` and `client` give the connection when there is one. The client belongs to
    the thread that uses it; one thread at a time may. `log` is called from several threads. An embedded
    evaluator is watched: if its process ends, another is started at once, whether or not it is in use. Where
    several addresses are given their evaluators are watched, too, and the connection may become one to
    another of them while it is in use (failover.py has the rules): `client` is then another.
    """

    def __init__(
        self,
        settings: EvaluatorSettings,
        log: Callable[[str], None],
        *,
        fallback: bool = False,
        prepare: Callable[[EvaluatorClient], None] = lambda client: None,
    ) -> None:
        """fallback: where no given evaluator can be had one is started in their place. prepare: called in the
        background with each new connection, before it can be used."""
        self.settings = settings
        self._log = log
        self._fallback = fallback
        self._prepare = prepare
        self._condition = threading.Condition()
        self._client: EvaluatorClient | None = None
        self._error: NoEvaluatorError | None = None
        self._keepalive: Keepalive | None = None
        self._thread: threading.Thread | None = None
        self._process: EvaluatorProcess | None = None
        # Connections to evaluators that died; they belong to the user's thread.
        self._retired: list[EvaluatorClient] = []
        self._idle_restarts = 0
        self._was_connected = False
        self._connected_at = 0.0
        self._refusals = 0
        """In a row, of an evaluator that had welcomed the engine."""
        self._drained = False
        """The last connection's evaluator had said that it is about to end."""
        self._address: str | None = None
        """Of the given evaluator that is used, or was last; "" for one of the engine's own."""
        self._next: tuple[EvaluatorClient, str] | None = None
        """A better evaluator with another network, for the next search, and its address."""
        self._network: NetworkInfo | None = None
        """The one that `network_of` returned last."""
        self._closed = False
        self._crashes: str | None = None
        """A temporary folder for records of crashes, "" if none is needed, None until that is known."""
        addresses: tuple[str, ...] = ()
        try:
            addresses = settings.addresses
        except SettingsError as error:  # Options are checked before; the environment is not.
            self._error = EvaluatorRefusalError(f"WAVEFRONT_EVALUATOR: {error}")
        self._given = ConfiguredEvaluators(addresses, settings, log, self._reconsider)

    def adopt(self, settings: EvaluatorSettings) -> bool:
        """Adopt settings that the evaluator in use fulfils. Returns False if they need another one."""
        mine, client, process = self.settings, self._client, self._process
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
    def client(self) -> EvaluatorClient | None:
        """The connection, None while there is none."""
        return self._client  # Without the lock: asked for with each batch.

    @property
    def was_connected(self) -> bool:
        """Whether there has been a connection."""
        with self._condition:
            return self._was_connected

    @property
    def error(self) -> NoEvaluatorError | None:
        """Why the last attempt to connect was the last one; None while attempts go on or succeeded."""
        with self._condition:
            return self._error

    @property
    def pid(self) -> int | None:
        """Process id of the embedded evaluator, None if none runs."""
        process = self._process
        return process.pid if process is not None else None

    def start(self) -> None:
        """Begin to connect unless that is done or running. An earlier failure is tried anew, a refusal is
        not: `wait` raises it again. To be called between searches: it may be another network's evaluator."""
        with self._condition:
            if self._next is not None and not self._closed:
                (client, address), self._next = self._next, None
                self._replace(client, address)
        self._begin()

    def _begin(self) -> None:
        with self._condition:
            if self._closed or self._client is not None or self._thread is not None:
                return
            if isinstance(self._error, EvaluatorRefusalError):
                return
            self._error = None
            self._thread = threading.Thread(target=self._connect, name="evaluator-link", daemon=True)
            self._thread.start()

    def wait(self, timeout: float | None = None) -> EvaluatorClient | None:
        """The connection, waiting up to `timeout` seconds for it; None when the time is over.

        Raises NoEvaluatorError when there is no hope of one.
        """
        with self._condition:
            self._idle_restarts = 0
            self._condition.wait_for(lambda: self._client or self._error or self._closed, timeout)
            if self._error is not None:
                raise self._error
            return self._client

    def lost(self, client: EvaluatorClient, reason: str, *, refused: bool = False) -> None:
        """Tell that `client` has failed: it is closed and a new connection is made in the background.

        refused: the evaluator is there and does not serve, because it is about to end or its devices failed.
        """
        with self._condition:
            if client is not self._client:  # Its process was seen to end, and another is being started.
                return
            self._client = None
            steady = time.monotonic() - self._connected_at >= STEADY_SECONDS
            self._refusals = (0 if steady else self._refusals) + 1 if refused else 0
            self._drained = client.said_goodbye()
            self._given.left(self._address or "", reason)
            self._take_next()
        self._log(f"evaluator lost: {reason}; reconnecting")
        client.close()
        self._begin()

    def network_of(self, client: EvaluatorClient) -> NetworkInfo:
        """The network that `client` means now, notices that wait included. One that is not the network of the
        call before is logged: the caller discards its values of that one."""
        with suppress(EvaluatorLost):  # The next sender finds that out.
            client.take_notices()
        before, self._network = self._network, client.network
        if before is not None and before.identity != self._network.identity:
            self._given.follow(self._network)
            self._log(changed_network(before, self._network))
        return self._network

    def look_after(self, client: EvaluatorClient) -> None:
        """Tell that `client` owes answers and none has come. An evaluator of the engine's own that does not
        even say that it is there is ended, and so replaced. Raises EvaluatorLost."""
        process, keepalive = self._process, self._keepalive
        if client is not self._client or self._address or process is None or keepalive is None:
            return
        if keepalive.has_stopped(time.monotonic()):
            self._keepalive = None
            self.end_silent(client)

    def end_silent(self, client: EvaluatorClient) -> None:
        """End an evaluator of the engine's own that `client` is connected to and that does not even say that
        it is there, and so replace it."""
        process = self._process
        if client is self._client and not self._address and process is not None:
            self._log("the evaluator has been silent for a while and does not answer: it is ended")
            process.kill()

    def close_retired(self) -> None:
        """Free the connections to evaluators that died. For the thread that uses the client, once it uses
        none of them any more."""
        with self._condition:
            retired, self._retired = self._retired, []
        for client in retired:
            client.close()

    def close(self) -> None:
        """Disconnect and end the embedded evaluator. Idempotent; waits until its process is gone."""
        with self._condition:
            self._closed = True
            client, self._client = self._client, None
            if self._next is not None:
                self._retired.append(self._next[0])
            thread = self._thread
            self._condition.notify_all()
        self._given.close()
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
        began = time.monotonic()
        reported = address = ""
        failed_starts = killed_starts = crashed_starts = attempt = 0
        embedded = not self.settings.address
        if self._refusals and not self._given.has_alternative():
            if self._fallback and not embedded:
                self._log("starting an evaluator of its own instead")
                embedded = True
            else:
                # It would welcome the engine and refuse again, as fast as messages go to and fro.
                self._pause(self._refusals - 1, self._given.has_alternative)
        while not self._closed:
            try:
                client, address = (self._start_embedded(), "") if embedded else self._given.connect()
                self._prepare(client)
                break
            except EvaluatorRefusalError as refusal:
                error = refusal
                break
            except ImportError as failed:
                error = EvaluatorRefusalError(missing(failed))
                break
            except NoEvaluatorError as failure:
                if str(failure) != reported and not self._closed:
                    reported = str(failure)
                    self._log(reported)
                killed = isinstance(failure, EvaluatorKilledError)
                killed_starts += killed
                crashed = isinstance(failure, EvaluatorCrashedError)
                crashed_starts += crashed
                failed_starts += embedded and not killed and not crashed
                waited = time.monotonic() - began
                patience = FALLBACK_SECONDS if self._fallback else RECONNECT_SECONDS * self._was_connected
                if self._fallback and (self._drained or isinstance(failure, EvaluatorDrainingError)):
                    patience = 0.0  # It will not be back before it has ended, if at all.
                hopeless = (
                    failed_starts >= MAX_FAILED_STARTS
                    or killed_starts >= MAX_KILLED_STARTS
                    or crashed_starts >= MAX_CRASHED_STARTS
                )
                if hopeless or (not embedded and not self._fallback and waited >= patience):
                    error = failure
                    break
                if not embedded and waited >= patience:
                    self._log("starting an evaluator of its own instead")
                    embedded = True
                    continue
            self._pause(attempt, self._given.has_usable)
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

    def _take(self, client: EvaluatorClient, address: str) -> None:
        """Have a connection used from now on. address: of a given evaluator, "" for the engine's own."""
        known, why = self._address, self._given.why(address)
        if address and address != known and (why or known is not None):
            self._log(f"using the evaluator at {address}{why}")
        if address and self.settings.compress and not client.compresses:
            self._log(
                f"what goes to {address} is not compressed: that needs Python 3.14 or the extra "
                "`compression` on both sides"
            )
        self._client, self._address = client, address
        self._keepalive = Keepalive(client)
        self._was_connected, self._drained = True, False
        self._connected_at = time.monotonic()

    def _take_next(self) -> None:
        """Have the evaluator that the next search was to use used now: the present one is gone."""
        if self._next is not None:
            (client, address), self._next = self._next, None
            self._take(client, address)

    def _pause(self, attempt: int, enough: Callable[[], bool] = lambda: False) -> None:
        """Wait before the next attempt, or until there is enough of whatever it is, or the link is closed."""
        seconds = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
        with self._condition:
            self._condition.wait_for(lambda: self._closed or enough(), seconds)

    def _reconsider(self) -> None:
        """Go to a better evaluator, if there is one: called after each look at one of several."""
        with self._condition:
            self._condition.notify_all()  # A pause may be over.
            if self._closed or self._client is None or self._thread is not None or self._next is not None:
                return
            better = self._given.better_than(self._address or "")
            if better is None:
                return
            self._thread = threading.Thread(
                target=self._change_to, args=(better,), name="evaluator-link", daemon=True
            )
            self._thread.start()

    def _change_to(self, address: str) -> None:
        """Connect to a better one of several while the present one is used."""
        client: EvaluatorClient | None = None
        with suppress(NoEvaluatorError):  # It is not better, then, and has been noted not to be.
            client = self._given.connect_to(address)
        with self._condition:
            self._thread = None
            if client is None:
                pass
            elif self._closed:
                client.close()
            elif self._client is None:  # It was lost meanwhile.
                self._take(client, address)
            elif self._client.network.identity == client.network.identity:
                self._replace(client, address)
            else:  # A search must not be answered by two networks.
                self._next = client, address
            self._condition.notify_all()
        self._begin()

    def _replace(self, client: EvaluatorClient, address: str) -> None:
        """Have another connection used, and leave the present one to its user, who owns it."""
        assert self._client is not None
        self._retired.append(self._client)
        if self._address:
            self._given.left(self._address)
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
        # The import takes as long as the evaluator's own start: do both at once.
        from protocol.client import EvaluatorClient
        from protocol.errors import EvaluatorError

        address = process.await_ready(self._log, lambda status: self._ended(process, status))
        try:
            return EvaluatorClient(address, timeout=30.0, name=f"engine {os.getpid()}")
        except EvaluatorError as error:
            raise NoEvaluatorError(f"the evaluator that was started does not answer: {error}") from None

    def _ended(self, process: EvaluatorProcess, status: int) -> None:
        """The embedded evaluator's process has ended: start another, unless that was meant or is hopeless."""
        with self._condition:
            if self._closed or process is not self._process or self._client is None:
                return
            if self._idle_restarts >= MAX_IDLE_RESTARTS:
                return
            self._idle_restarts += 1
            self._retired.append(self._client)
            self._client = None
            self._take_next()
        name = crash_signal(status)
        how = f"it ended with exit code {status}" if name is None else f"it crashed ({name})"
        self._log(f"evaluator lost: {how}; starting another")
        self._begin()

    def _end_process(self) -> None:
        with self._condition:
            process, self._process = self._process, None
        if process is not None:
            process.close()
