"""Every setting of the service, in one table: the fields of `Settings`.

The flags of `python -m evaluator serve`, the file that `--config` reads and configs/evaluator.toml are all
made from it. A flag beats the file, the file beats the default.
"""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import dataclass

from protocol.settings import sources
from protocol.settings.spec import Setting, SettingsGroup, setting, settings_of

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
TUNINGS = ("before", "behind", "off")


@dataclass(frozen=True, slots=True)
class Settings(SettingsGroup):
    """The value of every setting."""

    network: tuple[str, ...] = setting(
        (),
        "lc0 network file to serve; repeat for several, the first is the default one. Without any, the "
        "network that comes with the program",
        low=1,
        metavar="FILE",
    )
    policy_head: str = setting(
        "", "policy head of the networks; empty for the file's own choice", metavar="NAME"
    )
    value_head: str = setting(
        "", "value head of the networks; empty for the file's own choice", metavar="NAME"
    )
    backend: tuple[str, ...] = setting(
        ("auto",),
        "what runs the networks, as NAME or NAME:option=value,option=value; repeat for several devices "
        "side by side",
        low=1,
        metavar="NAME",
    )
    threads: int = setting(0, "CPU threads of a backend; 0 lets it choose", metavar="N")
    address: tuple[str, ...] = setting(
        (),
        "where to listen, as tcp://HOST:PORT or ipc://PATH; repeat for several. Without any, this user's "
        "well-known ipc socket and tcp://127.0.0.1:5577",
        low=1,
        metavar="ADDRESS",
    )
    max_request: int = setting(4096, "most positions in one request", low=1, high=65536, metavar="POSITIONS")
    max_play_queue: int = setting(
        65536, "most positions of class play queued per network", low=1, metavar="POSITIONS"
    )
    max_analysis_queue: int = setting(
        65536, "most positions of class analysis queued per network", low=1, metavar="POSITIONS"
    )
    max_selfplay_queue: int = setting(
        65536, "most positions of class self-play queued per network", low=1, metavar="POSITIONS"
    )
    max_client_queue: int = setting(
        32768, "most positions queued or running per client", low=1, metavar="POSITIONS"
    )
    max_connections: int = setting(
        4096,
        "most clients at a time, as far as the system's limit of open files allows. Clients at ipc addresses "
        "are counted apart",
        low=1,
        metavar="N",
    )
    max_silent_per_address: int = setting(
        0,
        "most connections of one IP address that have not authenticated or, without keys, have not sent a "
        "request; at most a quarter of max_connections, 0 for that quarter. Linux only",
        metavar="N",
    )
    max_client_bytes: int = setting(
        44 * 1024 * 1024,
        "most memory that one client may take with requests on the way, queued or running, and with answers "
        "that it has not read; room for three of the largest requests in any case. Linux only",
        low=1,
        metavar="BYTES",
    )
    max_buffered_bytes: int = setting(
        1024 * 1024 * 1024,
        "most memory that all clients together may take with requests on the way and unread answers: beyond, "
        "the one that takes most is closed. Linux only",
        low=1,
        metavar="BYTES",
    )
    play_latency_ms: float = setting(
        50.0, "latency to keep for requests of class play", low=0.1, metavar="MS"
    )
    analysis_latency_ms: float = setting(
        200.0, "latency to keep for requests of class analysis", low=0.1, metavar="MS"
    )
    selfplay_latency_ms: float = setting(
        1000.0, "latency to keep for requests of class self-play", low=0.1, metavar="MS"
    )
    exit_timeout: float = setting(
        30.0,
        "seconds after SIGTERM or Ctrl-C to finish what is queued; a second signal ends the service at once",
        low=0.0,
        metavar="S",
    )
    hang_factor: float = setting(
        8.0,
        "a batch that takes longer than this many times its expected time and hang_s is given up: its "
        "requests go to another device, or are answered with an error, and the device is left out until it "
        "comes back",
        low=1.0,
        metavar="TIMES",
    )
    hang_s: float = setting(4.0, "see hang_factor", low=0.01, metavar="S")
    retry_s: float = setting(
        30.0, "seconds until a device that was left out is tried again", low=0.01, metavar="S"
    )
    exit_when_hung: bool = setting(
        False,
        "end the service with exit status 75 when the driver of a device that hangs has not returned for "
        "retry_s seconds, so that systemd starts it again; requests for other devices are finished first",
    )
    calibration_s: float = setting(
        0.4, "seconds to measure a latency curve in, where none is cached", low=0.01, metavar="S"
    )
    tuning: str = setting(
        "behind",
        "when it is measured what is fastest on a GPU, where that is not known yet: before a network is "
        "served, which takes half a minute for a large one; behind, while it is served already, more slowly, "
        "and nobody waits; or off",
        choices=TUNINGS,
        metavar="|".join(TUNINGS),
    )
    latency_cache: bool = setting(True, "keep measured latency curves in the user's cache folder")
    keys: str = setting(
        "",
        "folder with this service's key pair, which is made if it is missing, and the list of the clients "
        "that are let in (see `python -m evaluator keys`); empty for the user's configuration folder",
        metavar="FOLDER",
    )
    keys_on_loopback: bool = setting(
        False,
        "encrypt and demand keys of clients at tcp addresses of this machine, too, not only at those that "
        "others reach",
    )
    unencrypted: bool = setting(
        False,
        "no encryption and no keys at addresses that others reach: anyone who reaches them can use this "
        "service, and anyone on the way can read and change the messages",
    )
    plain_admin: bool = setting(
        False,
        "load, unload, alias, reload, drain and clients at tcp addresses without keys, too: for every user "
        "of this machine, and for whomever a proxy lets in",
    )
    metrics_port: int = setting(
        0,
        "port for the page that shows the service (/), Prometheus (/metrics) and health checks (/live, "
        "/ready); 0 for none",
        high=65535,
        metavar="PORT",
    )
    metrics_address: str = setting(
        "127.0.0.1",
        "IPv4 or IPv6 address for that port, 0.0.0.0 or :: for all; all who reach it can read the metrics "
        "and the page, with names and addresses of clients",
        metavar="ADDRESS",
    )
    page_host: tuple[str, ...] = setting(
        (),
        "a name that browsers may ask for the page by, besides addresses, localhost and this machine's own "
        "name; repeat for several",
        low=1,
        metavar="NAME",
    )
    log_level: str = setting(
        "info", "what is written to stderr", choices=LOG_LEVELS, metavar="|".join(LOG_LEVELS)
    )
    log_format: str = setting(
        "text",
        "lines for people, or a JSON object a line",
        choices=LOG_FORMATS,
        metavar="|".join(LOG_FORMATS),
    )


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Give a parser --config and a flag for every setting."""
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file with settings (see configs/evaluator.toml); flags beat it"
    )
    sources.add_flags(
        parser,
        settings_of(Settings).values(),
        switches=True,
        quotes=True,
        aliases={"network": ("--weights", "--WeightsFile")},  # what the engine calls it
    )


def from_arguments(arguments: argparse.Namespace) -> Settings:
    """The settings of a parsed command line and the file it names. Raises SettingsError."""
    return sources.from_arguments(arguments, Settings())


def default_toml() -> str:
    """configs/evaluator.toml: every setting with its default, commented."""

    def comment(entry: Setting) -> list[str]:
        text = entry.help[0].upper() + entry.help[1:] + "."
        if entry.choices:
            text += f" One of: {', '.join(entry.choices)}."
        return textwrap.wrap(text, 105)

    heading = (
        "Settings of the evaluator, each with its default.",
        "Use: python -m evaluator serve --config configs/evaluator.toml",
    )
    return sources.toml_text(settings_of(Settings).values(), heading, comment)
