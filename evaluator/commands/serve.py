"""`python -m evaluator serve`: the service as a process, on its own or embedded in an engine.

Embedded, it serves one engine: it listens on a private address, tells it on stdout in JSON lines
({"event": "bound", …}, then {"event": "ready", …} or {"event": "error", …}; before that, every few seconds
when it takes long, {"event": "progress", "message": …}) and exits when its stdin ends, which it does when the
engine exits or is killed, on every platform.
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
from typing import TYPE_CHECKING, Any

from evaluator.progress import listen
from evaluator.settings import Settings, add_flags, from_arguments
from protocol.settings.spec import SettingsError

if TYPE_CHECKING:
    from evaluator.service.service import EvaluatorService
    from protocol.messages import NetworkInfo

HELP = "run the service until it is interrupted, drained or, with --embedded, its stdin ends"

SWITCH_INTERVAL_S = 0.0005
"""Seconds a Python thread may keep the interpreter while another wants it: with Python's own 5 ms the I/O
thread would answer late whenever a backend computes in Python."""

log = logging.getLogger("evaluator.serve")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the settings, and --embedded."""
    add_flags(parser)
    parser.add_argument(
        "--embedded",
        action="store_true",
        help="serve the program that started this one: private address, JSON lines on stdout, exit when "
        "stdin ends",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve; returns 0 after a clean end, 1 when it could not start, 2 for a wrong setting."""
    embedded: bool = arguments.embedded
    try:
        settings = from_arguments(arguments)
        logging.basicConfig(
            level=settings.log_level.upper(),
            stream=sys.stderr,
            format="%(asctime)s %(levelname)s %(message)s",
        )
        return _serve(settings, embedded)
    except SettingsError as error:
        return _fail(embedded, str(error), 2)


def _serve(settings: Settings, embedded: bool) -> int:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Imported here: `--help` need not wait for ZeroMQ and numpy.
    from evaluator.service.endpoints import AddressError

    failure: list[Exception] = []
    try:
        service = _service(settings, embedded, failure.append)
    except ValueError as error:
        return _fail(embedded, str(error), 2)
    _stop_on_signals(service.stop)  # before there is a folder that must be removed
    if embedded:
        listen(lambda text: _tell({"event": "progress", "message": text}))
    with _addresses(settings, embedded) as addresses, contextlib.ExitStack() as stack:
        try:
            bound = [service.bind(address) for address in addresses]
        except AddressError as error:
            service.close()
            return _fail(embedded, str(error), 1)
        if settings.metrics_port:
            from evaluator.service.health import serve_health

            try:
                stack.enter_context(serve_health(settings.metrics_port, service))
            except OSError as error:
                service.close()
                return _fail(embedded, f"metrics_port {settings.metrics_port}: {error.strerror}", 1)
        if embedded:
            _tell({"event": "bound", "address": bound[0], "pid": os.getpid(), "version": 1})
            threading.Thread(target=_watch_stdin, args=(service.stop,), daemon=True).start()
        else:
            for address in bound:
                log.info("listening on %s", address)
        service.run()
    if failure:
        return _fail(embedded, str(failure[0]) or repr(failure[0]), 1)
    if not embedded:
        log.info("stopped")
    return 0


def _service(settings: Settings, embedded: bool, on_failed: Callable[[Exception], None]) -> EvaluatorService:
    """The service that the settings describe, not yet listening. Raises ValueError for a wrong backend."""
    from evaluator.scheduling.admission import QueueLimits
    from evaluator.scheduling.batching import LatencyTargets
    from evaluator.scheduling.loading import Loader, parse_backend
    from evaluator.service.networks import NetworkToLoad
    from evaluator.service.service import EvaluatorService

    for backend in settings.backend:
        parse_backend(backend)
    loader = Loader(
        settings.backend,
        threads=settings.threads or None,
        calibration_s=settings.calibration_s,
        cache=settings.latency_cache,
        targets=LatencyTargets(
            settings.play_latency_ms, settings.analysis_latency_ms, settings.selfplay_latency_ms
        ),
    )
    paths: list[str | None] = list(settings.network)
    if not paths and loader.needs_network:
        from evaluator.network import SHIPPED_NETWORK

        paths = [str(SHIPPED_NETWORK)]
    elif not paths:
        paths = [None]
    return EvaluatorService(
        loader,
        [NetworkToLoad(path, settings.policy_head, settings.value_head) for path in paths],
        max_request=settings.max_request,
        limits=QueueLimits(
            settings.max_play_queue,
            settings.max_analysis_queue,
            settings.max_selfplay_queue,
            settings.max_client_queue,
        ),
        remote_admin=settings.remote_admin,
        on_ready=lambda networks: _ready(networks, embedded),
        on_failed=on_failed,
    )


def _ready(networks: Sequence[NetworkInfo], embedded: bool) -> None:
    # What is there now stays for good; the collector need not look at it again.
    gc.collect()
    gc.freeze()
    if embedded:
        _tell({"event": "ready", "networks": [network.name for network in networks]})
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
    """The addresses to listen at. An embedded evaluator's private folder lives as long as the context."""
    import zmq

    from evaluator.service.endpoints import private_folder
    from protocol.addresses import default_addresses

    if settings.address:
        yield list(settings.address)
        return
    if not embedded:
        yield default_addresses()
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


def _stop_on_signals(stop: Any) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        stop()

    for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, handle)


def _watch_stdin(stop: Any) -> None:
    # The pipe's other end closes with the engine, however it dies. Nothing is ever sent through it.
    with contextlib.suppress(OSError, ValueError):
        while os.read(0, 4096):
            pass
    stop()


def _tell(event: dict[str, Any]) -> None:
    # The engine may be gone; the end of stdin says so in a moment.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


def _fail(embedded: bool, message: str, status: int) -> int:
    if embedded:
        _tell({"event": "error", "message": message})  # the engine says it to the user
    else:
        print(f"error: {message}", file=sys.stderr)
    return status
