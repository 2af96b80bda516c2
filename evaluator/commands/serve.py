# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator serve`: the service as a process, stand-alone or embedded in an engine.

Embedded, it serves one engine at a private address. It reports on stdout in JSON lines: {"event": "bound",
…}, then {"event": "ready", …} or {"event": "error", …}. A slow start sends {"event": "progress", "message":
…} every few seconds. It exits at the end of its stdin, which the system closes when the engine exits or is
killed, on every platform.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from evaluator.backends.common.progress import listen
from evaluator.backends.common.threads import default_threads
from evaluator.service import logs
from evaluator.settings import Settings, add_flags, from_arguments
from protocol.common.commands import declare
from protocol.common.processes import own_input
from protocol.common.settings.spec import SettingsError

if TYPE_CHECKING:
    from evaluator.service.connections.access import Access
    from evaluator.service.connections.limits import ConnectionLimits
    from evaluator.service.networks import NetworkToLoad
    from evaluator.service.service import EvaluatorService
    from protocol.wire.messages import NetworkInfo

HELP = "run the service until it is interrupted or drained"

SWITCH_INTERVAL_S = 0.0005
"""Seconds a Python thread may hold the GIL while another waits. With Python's default of 5 ms the I/O thread
would answer late whenever a backend computes in Python."""

KEPT_DESCRIPTORS = 64
"""Descriptors for everything but client connections: network files, drivers, health checks."""

MOST_DESCRIPTORS = 65536

EXIT_HUNG = 75
"""Exit status after a device hangs (sysexits.h: EX_TEMPFAIL, try again)."""

log = logging.getLogger("evaluator.serve")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the settings, and --embedded."""
    add_flags(parser)
    declare(
        parser,
        {
            "--embedded": "serve only the parent process: private address, JSON lines on stdout, exit "
            "when stdin ends",
            "--retry-gpu": "retry GPUs that are excluded because they crashed",
        },
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve. Returns 0 after a clean end, 1 if it could not start, 2 for a wrong setting.

    With `exit_when_hung` the process ends with EXIT_HUNG if the driver of a device does not return.
    """
    embedded: bool = arguments.embedded
    try:
        settings = from_arguments(arguments)
        logs.configure(settings.log_level, settings.log_format)
        if arguments.retry_gpu:
            from evaluator.backends.common import crashes

            crashes.forget()
        return _serve(settings, embedded, lambda: from_arguments(arguments))
    except SettingsError as error:
        return _fail(embedded, str(error), 2)


def _serve(settings: Settings, embedded: bool, again: Callable[[], Settings]) -> int:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Imported here so that `--help` does not wait for ZeroMQ and numpy.
    from evaluator.service.connections.endpoints import AddressError, advice
    from evaluator.service.heap import trimmed

    if settings.metrics_port and not settings.metrics_address:
        return _fail(embedded, "metrics_address is empty, which would be all addresses: 0.0.0.0 or ::", 2)
    failure: list[Exception] = []
    hung: list[str] = []

    def on_hung(reason: str) -> None:
        if settings.exit_when_hung:
            hung.append(reason)
            service.drain(reason, settings.exit_timeout)

    try:
        service = _service(settings, embedded, failure.append, on_hung)
    except ValueError as error:
        return _fail(embedded, str(error), 2)
    _handle_signals(service, settings, again)  # before the private folder exists, which must be removed
    if embedded:
        listen(lambda text: _report_event({"event": "progress", "message": text}))
    with _addresses(settings, embedded) as addresses, contextlib.ExitStack() as stack:
        try:
            bound = [service.bind(address) for address in addresses]
        except AddressError as error:
            service.close()
            return _fail(embedded, str(error), 1)
        if settings.metrics_port:
            from evaluator.service.http.routes import serve_health

            try:
                where = settings.metrics_address, settings.metrics_port
                stack.enter_context(serve_health(*where, service.record, settings.page_host))
            except OSError as error:
                service.close()
                told = f"{error.strerror}{advice(error, '--metrics-port or --metrics-address')}"
                return _fail(embedded, f"metrics on {where[0]} port {where[1]}: {told}", 1)
            host = f"[{where[0]}]" if ":" in where[0] else where[0]
            log.info("the page that shows this service is at http://%s:%d/", host, where[1])
        if embedded:
            threading.Thread(target=_watch_stdin, args=(own_input(), service.stop), daemon=True).start()
            _report_event({"event": "bound", "address": bound[0], "pid": os.getpid(), "version": 1})
        else:
            for address in bound:
                log.info("listening on %s", address)
            stack.enter_context(trimmed())
        service.run()
    if hung:
        _exit_hung(hung[0])
    if failure:
        return _fail(embedded, str(failure[0]) or repr(failure[0]), 1)
    if not embedded:
        log.info("stopped")
    return 0


def _exit_hung(reason: str) -> NoReturn:
    """End the process at once: the driver's exit handlers would hang as well."""
    log.error("the service ends with exit status %d: %s", EXIT_HUNG, reason)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(EXIT_HUNG)


def _service(
    settings: Settings,
    embedded: bool,
    on_failed: Callable[[Exception], None],
    on_hung: Callable[[str], None],
) -> EvaluatorService:
    """Return the service for the settings, not yet listening. Raises ValueError for a wrong backend."""
    from evaluator import _core
    from evaluator.backends import parse_backend
    from evaluator.devices.opening.loading import Loader
    from evaluator.service.reload import patience, queue_limits
    from evaluator.service.service import EvaluatorService

    for backend in settings.backend:
        parse_backend(backend)
    if not embedded:
        _core.keep_heap_small()
    private = embedded and not settings.address
    return EvaluatorService(
        Loader(settings),
        _networks(settings),
        max_request=settings.max_request,
        limits=queue_limits(settings),
        connections=_connection_limits(settings, embedded=embedded, private=private),
        private=private,
        access=access_of(settings, embedded),
        patience=patience(settings),
        on_ready=lambda networks: _ready(networks, embedded, settings.threads),
        on_failed=on_failed,
        on_hung=on_hung,
        trace_to="" if private else settings.trace_to,
    )


def _connection_limits(settings: Settings, *, embedded: bool, private: bool) -> ConnectionLimits:
    """Return the limits within this process's limit of descriptors. Raises ValueError."""
    from evaluator.service.connections.limits import ConnectionLimits

    # Addresses that require keys have as many unauthenticated connections.
    for_each = 1 if private else 2
    descriptors = _descriptors() - KEPT_DESCRIPTORS
    most_connections = descriptors // for_each
    if most_connections < 1:
        raise ValueError(
            f"the limit of open files is {_descriptors()}, too few for a client: raise it (ulimit -n), to "
            f"{KEPT_DESCRIPTORS + 64 * for_each} for 64 clients"
        )
    if settings.max_silent_per_address > max(1, settings.max_connections // 4):
        raise ValueError(
            f"--max-silent-per-address: {settings.max_silent_per_address} is not in 0 to "
            f"{max(1, settings.max_connections // 4)}, a quarter of max_connections"
        )
    if most_connections < settings.max_connections and not embedded:
        log.warning(
            "the limit of open files, %d, allows %d connections of max_connections, %d: raise it (ulimit -n, "
            "LimitNOFILE of a systemd unit)",
            _descriptors(),
            most_connections,
            settings.max_connections,
        )
    return ConnectionLimits(
        min(settings.max_connections, most_connections),
        settings.max_client_bytes,
        settings.max_buffered_bytes,
        settings.max_silent_per_address,
        min(max(settings.max_connections, 1024), descriptors - most_connections) or 1,
    )


def access_of(settings: Settings, embedded: bool) -> Access:
    """Return the permissions for the settings."""
    import zmq

    from evaluator.service.connections.access import Access

    return Access(
        settings.keys,
        keys_on_loopback=settings.keys_on_loopback,
        unencrypted=settings.unencrypted,
        # Without ipc the parent program has no other way to load networks.
        plain_admin=settings.plain_admin or (embedded and not zmq.has("ipc")),
    )


def _networks(settings: Settings) -> list[NetworkToLoad]:
    """Return the networks of the settings."""
    from evaluator.devices.opening.loading import needs_network
    from evaluator.service.networks import NetworkToLoad

    paths: list[str | None] = list(settings.network)
    if not paths:
        paths = ["" if needs_network(settings.backend) else None]
    return [NetworkToLoad(path, settings.policy_head, settings.value_head) for path in paths]


def _descriptors() -> int:
    """Raise this process's limit of descriptors as far as possible, and return it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return most
    return most if soft == resource.RLIM_INFINITY else soft


def _ready(networks: Sequence[NetworkInfo], embedded: bool, threads: int) -> None:
    # Existing objects stay permanently, so exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    if embedded:
        names = [network.name for network in networks]
        _report_event({"event": "ready", "networks": names, "threads": threads or default_threads()})
        return
    for network in networks:
        log.info(
            "network %s on %s (%s), best batch %d",
            network.name,
            network.device,
            network.backend,
            network.recommended_batch,
        )
    log.info("ready")


@contextlib.contextmanager
def _addresses(settings: Settings, embedded: bool) -> Iterator[list[str]]:
    """Context manager for the addresses to listen at. It removes an embedded evaluator's private folder."""
    import zmq

    from evaluator.service.connections.endpoints import private_folder
    from protocol.connections.addresses import default_addresses

    if settings.address:
        yield list(settings.address)
        return
    if not embedded:
        yield default_addresses(_without_ipc)
        return
    folder: Path | None = None
    if zmq.has("ipc"):
        with contextlib.suppress(OSError):
            folder = private_folder()
    try:
        yield [f"ipc://{folder / 'evaluator'}" if folder is not None else "tcp://127.0.0.1:0"]
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _without_ipc(reason: OSError) -> None:
    log.warning(
        "there is no ipc address, so nobody may administer this service but by --plain-admin or a key: %s",
        reason,
    )


def _handle_signals(service: EvaluatorService, settings: Settings, again: Callable[[], Settings]) -> None:
    """Install signal handlers. The first SIGINT or SIGTERM drains the service, the second ends it at once.
    SIGHUP applies the settings of `again`, but ends the service in a terminal. SIGUSR1 logs the state."""
    from evaluator.service.reload import in_force

    received: list[int] = []
    current = [settings]

    def end(number: int, frame: FrameType | None) -> None:
        if received or service.record.life.ending:
            service.stop_at_once()
        received.append(number)
        service.drain(signal.Signals(number).name, current[-1].exit_timeout)

    def reload(number: int, frame: FrameType | None) -> None:
        try:
            changed = again()
        except SettingsError as error:
            log.error("the settings stay as they are: %s", error)
            return
        before, current[-1] = current[-1], in_force(current[-1], changed)
        # The networks depend on backends and heads, which cannot change here.
        service.reconfigure(before, changed, _networks(current[-1]))

    def log_state(number: int, frame: FrameType | None) -> None:
        service.log_state()

    for name, handler in (
        ("SIGINT", end),
        ("SIGTERM", end),
        ("SIGBREAK", end),
        ("SIGHUP", end if sys.stderr is not None and sys.stderr.isatty() else reload),
        ("SIGUSR1", log_state),
    ):
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, handler)


def _watch_stdin(descriptor: int, stop: Any) -> None:
    # The pipe's other end closes with the engine, even if it is killed. No data is ever sent through it.
    with contextlib.suppress(OSError, ValueError):
        while os.read(descriptor, 4096):
            pass
    stop()


def _report_event(event: dict[str, Any]) -> None:
    # The engine may be gone; then stdin ends soon.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


def _fail(embedded: bool, message: str, status: int) -> int:
    if embedded:
        _report_event({"event": "error", "message": message})  # the engine shows it to the user
    else:
        print(f"error: {message}", file=sys.stderr)
    return status
