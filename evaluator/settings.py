# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of the service, declared once as the fields of `Settings`.

The flags of `python -m evaluator serve`, the files for `--config` and configs/evaluator.toml are derived from
it. A flag overrides the file; the file overrides the default.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from protocol.common.settings import sources
from protocol.common.settings.spec import SettingsGroup, setting, settings_of

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
TUNINGS = ("before", "behind", "off")


@dataclass(frozen=True, slots=True)
class DeviceSettings(SettingsGroup):
    """Settings that the loader of networks and the backends read; passed to them whole."""

    backend: tuple[str, ...] = setting(
        ("auto",),
        "what computes the networks, as NAME or NAME:option=value,option=value; repeat to use several"
        " devices",
        low=1,
        metavar="NAME",
    )
    threads: int = setting(0, "CPU threads of a backend; 0 lets it choose", metavar="N")
    play_latency_ms: float = setting(
        50.0, "latency target of class play in milliseconds", low=0.1, metavar="MS"
    )
    analysis_latency_ms: float = setting(
        200.0, "latency target of class analysis in milliseconds", low=0.1, metavar="MS"
    )
    selfplay_latency_ms: float = setting(
        1000.0, "latency target of class self-play in milliseconds", low=0.1, metavar="MS"
    )
    calibration_s: float = setting(
        0.4, "seconds for measuring a latency curve that is not cached", low=0.01, metavar="S"
    )
    tuning: str = setting(
        "behind",
        "when to measure the fastest kernels of a GPU. before: before serving, half a minute for a "
        "large network; behind: while serving, more slowly; off: never",
        choices=TUNINGS,
        metavar="|".join(TUNINGS),
    )
    latency_cache: bool = setting(True, "keep measured latency curves in the user's cache folder")


ALONE = DeviceSettings(tuning="before")
"""For a backend that is opened without a service: nothing is served while its kernels are measured."""


@dataclass(frozen=True, slots=True)
class Settings(DeviceSettings):
    """The value of every setting of the service."""

    network: tuple[str, ...] = setting(
        (),
        "lc0 network file to serve; may be repeated, the first is the default network. Without one, "
        "an included network is served",
        low=1,
        metavar="FILE",
    )
    policy_head: str = setting(
        "", "policy head of the networks; empty: the file's own choice", metavar="NAME"
    )
    value_head: str = setting("", "value head of the networks; empty: the file's own choice", metavar="NAME")
    address: tuple[str, ...] = setting(
        (),
        "address to listen on, as tcp://HOST:PORT or ipc://PATH; may be repeated. Without one, this "
        "user's ipc socket and tcp://127.0.0.1:5577",
        low=1,
        metavar="ADDRESS",
    )
    max_request: int = setting(
        4096, "maximum positions in one request", low=1, high=65536, metavar="POSITIONS"
    )
    max_play_queue: int = setting(
        65536, "maximum queued positions of class play per network", low=1, metavar="POSITIONS"
    )
    max_analysis_queue: int = setting(
        65536, "maximum queued positions of class analysis per network", low=1, metavar="POSITIONS"
    )
    max_selfplay_queue: int = setting(
        65536, "maximum queued positions of class self-play per network", low=1, metavar="POSITIONS"
    )
    max_client_queue: int = setting(
        32768, "maximum positions queued or running per client", low=1, metavar="POSITIONS"
    )
    max_connections: int = setting(
        4096,
        "maximum number of clients, within the system's limit of open files. Clients at ipc addresses"
        " are counted separately",
        low=1,
        metavar="N",
    )
    max_silent_per_address: int = setting(
        0,
        "maximum connections of one IP address that have not authenticated or, without keys, not sent"
        " a request. The upper limit is a quarter of max_connections; 0 means that quarter. Linux "
        "only",
        metavar="N",
    )
    max_client_bytes: int = setting(
        44 * 1024 * 1024,
        "maximum memory for the requests and unread answers of one client without encryption; three of "
        "the largest requests always fit. A client with a key is trusted. Linux only",
        low=1,
        metavar="BYTES",
    )
    max_buffered_bytes: int = setting(
        1024 * 1024 * 1024,
        "maximum memory for incomplete requests and unread answers of all clients without encryption. "
        "Beyond it, the client with the most is disconnected. Linux only",
        low=1,
        metavar="BYTES",
    )
    exit_timeout: float = setting(
        30.0,
        "seconds after SIGTERM or Ctrl-C to finish queued requests; a second signal ends the service at once",
        low=0.0,
        metavar="S",
    )
    hang_factor: float = setting(
        8.0,
        "a batch hangs if it takes longer than this many times its expected time plus hang_s. Its "
        "requests go to another device or get an error, and its device is excluded until the call "
        "returns",
        low=1.0,
        metavar="TIMES",
    )
    hang_s: float = setting(4.0, "seconds that are added to the limit of hang_factor", low=0.01, metavar="S")
    retry_s: float = setting(30.0, "seconds until an excluded device is tried again", low=0.01, metavar="S")
    exit_when_hung: bool = setting(
        False,
        "end the service with exit status 75 if the driver of a hanging device has not returned after"
        " retry_s seconds, so that systemd restarts it; requests for other devices are finished first",
    )
    keys: str = setting(
        "",
        "folder with the key pair of the service, created if missing, and the list of allowed clients"
        " (see `wavefront-evaluator keys`); empty: the user's configuration folder",
        metavar="FOLDER",
    )
    keys_on_loopback: bool = setting(
        False,
        "encrypt and require keys at this machine's loopback tcp addresses, too",
    )
    unencrypted: bool = setting(
        False,
        "listen without encryption and keys at addresses that other machines reach: anyone who "
        "reaches them can use this service, and anyone on the way can read and change messages",
    )
    plain_admin: bool = setting(
        False,
        "allow administration at tcp addresses without keys: to every user of this machine, and to "
        "anyone that a proxy connects",
    )
    metrics_port: int = setting(
        0,
        "port of the status page (/), Prometheus (/metrics) and health checks (/live, /ready); 0: none",
        high=65535,
        metavar="PORT",
    )
    metrics_address: str = setting(
        "127.0.0.1",
        "IPv4 or IPv6 address of that port, 0.0.0.0 or :: for all; anyone who reaches it can read the"
        " metrics and the page, with names and addresses of clients",
        metavar="ADDRESS",
    )
    page_host: tuple[str, ...] = setting(
        (),
        "further host name under which browsers may open the page, besides addresses, localhost and "
        "this machine's name; may be repeated",
        low=1,
        metavar="NAME",
    )
    log_level: str = setting(
        "info",
        "lowest level of the messages written to standard error",
        choices=LOG_LEVELS,
        metavar="|".join(LOG_LEVELS),
    )
    log_format: str = setting(
        "text",
        "format of the log: plain text, or one JSON object per line",
        choices=LOG_FORMATS,
        metavar="|".join(LOG_FORMATS),
    )
    trace_to: str = setting(
        "",
        "URL of an OpenTelemetry collector (OTLP over HTTP, as http://127.0.0.1:4318/v1/traces) that gets a"
        " span of each request; needs the extra 'tracing'",
        metavar="URL",
    )


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add --config and a flag for each setting to a parser."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file with settings (see configs/evaluator.toml); flags override it",
    )
    sources.add_flags(
        parser,
        settings_of(Settings).values(),
        switches=True,
        quotes=True,
        aliases={"network": ("--weights", "--WeightsFile")},  # names in the engine
    )


def from_arguments(arguments: argparse.Namespace) -> Settings:
    """Return the settings of a parsed command line and of its config file. Raises SettingsError."""
    return sources.from_arguments(arguments, Settings())
