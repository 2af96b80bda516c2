"""New settings for a service that runs (SIGHUP): changes what can be changed and logs the rest."""

from __future__ import annotations

import logging
from dataclasses import fields, replace

from evaluator.devices.dispatcher import Dispatcher
from evaluator.devices.loading import Loader
from evaluator.devices.watchdog import Patience
from evaluator.scheduling.admission import QueueLimits
from evaluator.scheduling.batching import LatencyTargets
from evaluator.service.connections.access import Access
from evaluator.settings import Settings

log = logging.getLogger("evaluator.service")

AT_START = (
    "policy_head",
    "value_head",
    "backend",
    "threads",
    "address",
    "keys",
    "keys_on_loopback",
    "unencrypted",
    "max_request",
    "max_connections",
    "max_silent_per_address",
    "max_client_bytes",
    "max_buffered_bytes",
    "metrics_port",
    "metrics_address",
    "page_host",
    "exit_when_hung",
    "log_format",
)
"""Settings that a new value of needs a restart."""


def in_force(running: Settings, wanted: Settings) -> Settings:
    """What a service that was started with some settings goes by when others are wanted."""
    return replace(wanted, **{name: getattr(running, name) for name in AT_START})


def latency_targets(settings: Settings) -> LatencyTargets:
    """The latencies to keep, by class."""
    return LatencyTargets(
        settings.play_latency_ms, settings.analysis_latency_ms, settings.selfplay_latency_ms
    )


def queue_limits(settings: Settings) -> QueueLimits:
    """How many positions may be queued."""
    return QueueLimits(
        settings.max_play_queue,
        settings.max_analysis_queue,
        settings.max_selfplay_queue,
        settings.max_client_queue,
    )


def patience(settings: Settings) -> Patience:
    """How long devices are waited for."""
    return Patience(settings.hang_factor, settings.hang_s, settings.retry_s)


def reconfigure(
    before: Settings,
    settings: Settings,
    dispatcher: Dispatcher,
    loader: Loader,
    access: Access,
) -> None:
    """Apply everything but the networks, and say what has changed. before: what is in force."""
    changed = [
        each.name for each in fields(Settings) if getattr(before, each.name) != getattr(settings, each.name)
    ]
    for name in changed:
        if name in AT_START:
            log.warning("%s is not changed before a restart", name)
        else:
            log.info("%s is now %s", name, _shown(getattr(settings, name)))
    targets = latency_targets(settings)
    dispatcher.configure(queue_limits(settings), patience(settings), targets)
    loader.targets = targets
    loader.calibration_s = settings.calibration_s
    loader.cache = settings.latency_cache
    loader.tuning = settings.tuning
    access.plain_admin = settings.plain_admin
    logging.getLogger().setLevel(settings.log_level.upper())


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return ", ".join(value) or "what it is by default"
    return value
