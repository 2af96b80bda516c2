# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront lichess`: this engine on lichess's analysis board (docs/how-to/lichess-analysis.md)."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from engine.options.flags import engine_flags
from protocol.common.commands import declare

if TYPE_CHECKING:
    from engine.apps.lichess.provider import Counts

HELP = "provide this engine to lichess's analysis board"

TOKEN = "LICHESS_API_TOKEN"
"""Environment variable with a token."""

OPTIONS = ["weights", "backend", "evaluator", "threads", "hash", "syzygy_path", "tree_memory"]


ARGUMENTS = {
    "--token-file FILE:Path": "file with lichess tokens, one line for each user (default: the "
    f"environment variable {TOKEN})",
    "--secret-file FILE:Path": "file with the provider secret, made if it is missing; providers with the "
    "same one share jobs (default: a new secret)",
    "--name NAME = Wavefront": "name on the analysis board (default: %(default)s)",
    "--offer* FILE": "network to offer as an engine of its own, named after it; may be repeated (default: "
    "--weights)",
    "--jobs JOBS = 20": "concurrent searches (default: %(default)s)",
    "--max-threads MAX_THREADS = 1": "most threads shown; the board's choice is ignored, --threads counts "
    "(default: %(default)s)",
    "--max-hash MAX_HASH = 512": "most hash shown, MiB (default: %(default)s)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from engine.apps.lichess.broker import BROKER, LICHESS

    servers = {
        f"--lichess URL = {LICHESS}": "server (default: %(default)s)",
        f"--broker URL = {BROKER}": "broker (default: %(default)s)",
    }
    declare(parser, {**servers, **engine_flags(OPTIONS)})


def run(arguments: argparse.Namespace) -> int:
    from engine._core import Game
    from engine.apps.lichess.broker import register
    from engine.apps.lichess.provider import Provider
    from engine.options.flags import options_of_arguments
    from engine.search.pool import SearchPool
    from protocol.common.printing import reason
    from protocol.common.processes import INTERRUPTED, interrupted_by_signals

    options = options_of_arguments(arguments)
    _check(arguments)
    networks = {"": options.weights} if not arguments.offer else {each: each for each in arguments.offer}
    try:
        tokens, secret = _tokens(arguments.token_file), _secret(arguments.secret_file)
    except OSError as error:
        return _fail(f"cannot read {error.filename}: {error.strerror}")
    progress = _StatusLine()
    pool = SearchPool(log=_log, priority="play")
    provider = Provider(
        pool,
        options,
        networks,
        url=arguments.broker,
        secret=secret,
        most_jobs=arguments.jobs,
        log=_log,
        changed=progress.show,
    )
    status = 0
    try:
        with interrupted_by_signals():
            pool.connections(options)
            for weights in networks.values():  # Loaded before the first job asks for it.
                pool.evaluate([Game(None, True)], options.changed(weights=weights)).result()
            for token in tokens:
                for network in networks:
                    name = f"{arguments.name} {Path(network).name}" if network else arguments.name
                    register(
                        arguments.lichess,
                        token,
                        secret,
                        name[:200],
                        network,
                        threads=arguments.max_threads,
                        hash_mb=arguments.max_hash,
                    )
                    _log(f"registered as {name}")
            provider.run()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Exception as error:
        status = _fail(reason(error))
    finally:
        provider.close()
        pool.close()
        progress.end()
    return status


def _check(arguments: argparse.Namespace) -> None:
    """Raise SettingsError for invalid arguments."""
    from protocol.common.included import INCLUDED_NETWORKS
    from protocol.common.published import network_of_user
    from protocol.common.settings.spec import SettingsError

    ranges = {"jobs": (1, 1000), "max_threads": (1, 65536), "max_hash": (1, 1048576)}
    for name, (low, high) in ranges.items():
        if not low <= (value := getattr(arguments, name)) <= high:
            raise SettingsError(f"--{name.replace('_', '-')}: {value} is not in {low} to {high:,}")
    if not 3 <= len(arguments.name) <= 150:
        raise SettingsError(f"--name: {len(arguments.name)} characters are not 3 to 150")
    for network in arguments.offer:
        if network not in INCLUDED_NETWORKS and not (Path(network).is_file() or network_of_user(network)):
            raise SettingsError(f"--offer: there is no file {network!a}")


def _tokens(path: Path | None) -> list[str]:
    """Return the tokens of a file, or of the environment. Raises OSError and SettingsError."""
    from protocol.common.keys.files import read_private
    from protocol.common.keys.notation import KeysError
    from protocol.common.settings.spec import SettingsError

    if path is None:
        text = os.environ.pop(TOKEN, "")  # Child processes do not get it.
        remedy = f"set {TOKEN}, or --token-file FILE"
    else:
        remedy = f"write one a line into {path}"
        try:
            text = read_private(path)
        except KeysError as error:
            raise SettingsError(f"--token-file: {error}") from None
    tokens = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not tokens or not all(
        token.isascii() and token.isprintable() and " " not in token for token in tokens
    ):
        raise SettingsError(
            f"a lichess token with the scopes engine:read and engine:write is needed: {remedy}"
        )
    return tokens


def _secret(path: Path | None) -> str:
    """Return the provider secret of a file, made if it is missing. Raises OSError and SettingsError."""
    from protocol.common.files import write_atomically
    from protocol.common.keys.files import read_private
    from protocol.common.keys.notation import KeysError
    from protocol.common.settings.spec import SettingsError

    made = secrets.token_urlsafe(32)
    if path is None:
        return made
    try:
        found = read_private(path).strip()
    except FileNotFoundError:
        write_atomically(path, made.encode(), mode=0o600)
        return made
    except KeysError as error:
        raise SettingsError(f"--secret-file: {error}") from None
    if not 16 <= len(found) <= 1024:
        raise SettingsError(f"--secret-file: {path} has {len(found)} characters, a secret has 16 to 1,024")
    return found


class _StatusLine:
    """One line on a terminal."""

    def __init__(self) -> None:
        self._draws = sys.stderr.isatty()
        self._lock = threading.Lock()

    def show(self, counts: Counts) -> None:
        if self._draws:
            with self._lock:
                print(f"\r\x1b[Kjobs: {counts}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._draws:
            print(file=sys.stderr)


def _fail(reason: str) -> int:
    _log(reason)
    return 1


def _log(text: str) -> None:
    from protocol.common.printing import say

    begin = "\r\x1b[K" if sys.stderr.isatty() else ""  # Instead of the line of progress.
    say(f"{begin}wavefront lichess", text)
