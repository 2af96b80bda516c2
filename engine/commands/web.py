# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront web`: a board in the browser, and the HTTP API (docs/reference/http.md)."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.options.flags import engine_flags, options_of_arguments
from protocol.common.commands import Declared, declare
from protocol.common.printing import ReportedError, say

if TYPE_CHECKING:
    from engine.apps.review.people import Imitators
    from engine.apps.web.server import WebServer
    from engine.evaluation.errors import NoEvaluatorError
    from protocol.common.http.access import AccessCheck

_log = partial(say, "wavefront web")

HELP = "analyse, play and review in the browser, and answer programs by HTTP"

FIRST = "--open --listen --human --private --token-file --weights --backend --evaluator --threads --hash"
"""Flags that the help shows."""

DEFAULT_ADDRESS = "127.0.0.1:8766"


ARGUMENTS: Declared = {
    "--open": "open the page in a browser",
    f"--listen HOST:PORT = {DEFAULT_ADDRESS}": "address of the page (default: %(default)s); port 0 is a free "
    "one",
    "--human* FILE:Path": "network that imitates people, named by their rating: maia-1500.pb.gz; may be "
    "repeated (default: those of `wavefront get`)",
    "--private": "keep the page's games and reviews in memory, not in files",
    "--certificate FILE:Path": "PEM file of a certificate, for TLS",
    "--key FILE:Path": "PEM file of its key (default: --certificate)",
    "access": {
        "--token-file FILE": "file with the tokens of clients: one token, or lines of NAME TOKEN; SIGHUP "
        "reads it again; required beyond this machine",
        "--unencrypted": "allow --listen beyond this machine: anyone on the way can read queries, answers "
        "and token",
        "--origin* URL": "answer pages of this site, too; may be repeated",
        "--host* NAME": "answer requests to this host name, besides those of this machine; may be repeated",
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from engine.apps.analysis.settings import AnalysisSettings
    from engine.apps.web.limits import ApiSettings
    from engine.commands.analysis import default_options
    from protocol.common.settings import sources
    from protocol.common.settings.spec import settings_of

    sources.add_flags(parser, settings_of(ApiSettings).values())
    sources.add_flags(parser, settings_of(AnalysisSettings).values())
    declare(parser, engine_flags(defaults=default_options()))


def run(arguments: argparse.Namespace) -> int:
    from engine.apps.analysis.scheduler import QueryScheduler
    from engine.apps.analysis.settings import AnalysisSettings
    from engine.apps.web.limits import ApiSettings
    from engine.commands.analysis import default_options
    from protocol.common.folders import data_folder
    from protocol.common.http.access import check_address, read_address
    from protocol.common.settings.sources import from_arguments

    options = options_of_arguments(arguments, default_options())
    plain = argparse.Namespace(**vars(arguments) | {"config": None})
    settings, api = from_arguments(plain, AnalysisSettings()), from_arguments(plain, ApiSettings())
    address = read_address(arguments.listen)
    certificate = [str(file) for file in (arguments.certificate, arguments.key) if file is not None]
    people = _people(arguments.human, certificate)
    unencrypted = arguments.unencrypted or bool(certificate)
    check_address(address, has_token=bool(_read_check(arguments).tokens), unencrypted=unencrypted)
    # Before the imports below: the evaluator takes longest.
    scheduler = QueryScheduler(options, settings, log=_log)
    failures: list[NoEvaluatorError] = []
    server: WebServer | None = None

    def fail(error: NoEvaluatorError) -> None:
        failures.append(error)
        if server is not None:
            server.stop()

    scheduler.start(fail)

    async def serve() -> None:
        nonlocal server
        from engine.apps.web.server import WebServer as Server
        from engine.apps.web.service import WebService

        folder = None if arguments.private else data_folder()
        service = WebService(scheduler, options, api, people, folder and folder / "games", _log)
        server = Server(service, scheduler, api, lambda: _read_check(arguments), _log, certificate)

        def listening(host: str, port: int) -> None:
            url = f"http{'s' if certificate else ''}://{host}:{port}/"
            print(f"The page is at {url} (Ctrl-C ends it).", flush=True)
            if failures:
                server.stop()
            elif arguments.open:
                _open(url)

        try:
            await server.run(address, listening)
        finally:
            await asyncio.to_thread(service.close)

    try:
        asyncio.run(serve())
    except OSError as error:
        raise ReportedError(f"cannot listen at {arguments.listen}: {error.strerror or error}") from None
    finally:
        scheduler.close()
    for failure in failures:
        _log(str(failure))
    return 1 if failures else 0


def _people(human: Sequence[object], certificate: Sequence[str]) -> Imitators:
    """Return the networks that play like people. Raises SettingsError, also if a file is missing."""
    from engine.apps.review.people import Imitators
    from protocol.common.published import imitators, network_of_user
    from protocol.common.settings.spec import SettingsError

    networks = [network_of_user(str(each)) or each for each in human] or imitators()
    for file in (*networks, *certificate):
        if not Path(str(file)).is_file():
            raise SettingsError(f"{file}: there is no such file")
    try:
        return Imitators.of([Path(str(each)) for each in networks])
    except ValueError as error:
        raise SettingsError(f"--human: {error}") from None


def _read_check(arguments: argparse.Namespace) -> AccessCheck:
    """Return the check of clients by the flags. Raises SettingsError."""
    from protocol.common.http.access import AccessCheck, read_tokens

    tokens = {} if arguments.token_file is None else read_tokens(arguments.token_file)
    return AccessCheck(tokens, tuple(arguments.origin), tuple(arguments.host))


def _open(url: str) -> None:
    """Open a page in the user's browser, which may wait for its end."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
