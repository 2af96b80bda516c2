# SPDX-License-Identifier: GPL-3.0-or-later
"""New settings for a running service (SIGHUP): applies changes where possible and logs the others."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import fields, replace

from evaluator.devices.running.watchdog import Patience
from evaluator.scheduling.scheduler import QueueLimits
from evaluator.service.networks import NetworkToLoad
from evaluator.service.record import ServiceParts
from evaluator.settings import Settings
from protocol.common.keys.notation import KeysError

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
    "trace_to",
)
"""Settings that change only at a restart."""


def in_force(running: Settings, wanted: Settings) -> Settings:
    """Return the settings in force: those of AT_START from `running`, the others from `wanted`."""
    return replace(wanted, **{name: getattr(running, name) for name in AT_START})


def queue_limits(settings: Settings) -> QueueLimits:
    """Return the limits of queued positions."""
    return QueueLimits(
        settings.max_play_queue,
        settings.max_analysis_queue,
        settings.max_selfplay_queue,
        settings.max_client_queue,
    )


def patience(settings: Settings) -> Patience:
    """Return the time limits for devices."""
    return Patience(settings.hang_factor, settings.hang_s, settings.retry_s)


def reconfigure(
    service: ServiceParts, before: Settings, settings: Settings, networks: Sequence[NetworkToLoad]
) -> None:
    """Apply settings, log the changes, and reload the networks' files. For the I/O thread.

    before: settings in force. networks: those of the new settings.
    """
    life, manager = service.life, service.manager
    serving = life.loaded and not life.draining
    if serving:
        manager.reloading()
    _apply(service, before, settings)
    try:
        service.sessions.reload_keys()
    except KeysError as error:
        log.error("the list of clients stays as it is: %s", error)
    if not life.draining:
        service.networks.configure(networks)
    if serving:
        manager.ready("ready")


def _apply(service: ServiceParts, before: Settings, settings: Settings) -> None:
    changed = [
        each.name for each in fields(Settings) if getattr(before, each.name) != getattr(settings, each.name)
    ]
    for name in changed:
        if name in AT_START:
            log.warning("%s is not changed before a restart", name)
        else:
            log.info("%s is now %s", name, _shown(getattr(settings, name)))
    service.loader.settings = in_force(before, settings)
    service.dispatcher.configure(queue_limits(settings), patience(settings), service.loader.targets)
    service.access.plain_admin = settings.plain_admin
    logging.getLogger().setLevel(settings.log_level.upper())


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return ", ".join(value) or "what it is by default"
    return value
