# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront web`: a board in the browser, and the HTTP API (docs/reference/http.md)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.analysis.listening import AnalysisServer
    from engine.evaluation.errors import NoEvaluatorError

HELP = "analyse, play and review in the browser, and answer programs by HTTP"

DEFAULT_ADDRESS = "127.0.0.1:8766"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from engine.analysis.settings import AnalysisSettings
    from engine.commands.analysis import add_access_flags, default_options
    from engine.option_flags import add_flags
    from engine.web.limits import ApiSettings
    from protocol.settings import sources
    from protocol.settings.spec import settings_of

    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default=DEFAULT_ADDRESS,
        help="address of the page (default: %(default)s); port 0 is a free one",
    )
    parser.add_argument(
        "--human",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="network that imitates people, named by their rating: maia-1500.pb.gz; may be repeated",
    )
    parser.add_argument(
        "--private", action="store_true", help="keep the page's games in memory, not in files"
    )
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="PEM file of a certificate, for TLS")
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="PEM file of its key (default: --certificate)"
    )
    add_access_flags(parser.add_argument_group("access"))
    sources.add_flags(parser, settings_of(ApiSettings).values())
    sources.add_flags(parser, settings_of(AnalysisSettings).values())
    add_flags(parser, defaults=default_options())


def run(arguments: argparse.Namespace) -> int:
    import asyncio
    from functools import partial

    from engine.analysis.scheduler import Scheduler
    from engine.analysis.settings import AnalysisSettings
    from engine.commands.analysis import default_options, read_check, serve_until_stopped
    from engine.option_flags import options_of_arguments
    from engine.web.limits import ApiSettings
    from protocol.host.folders import data_folder
    from protocol.http.access import check_address, read_address
    from protocol.settings.sources import from_arguments
    from protocol.settings.spec import SettingsError

    options = options_of_arguments(arguments, default_options())
    plain = argparse.Namespace(**vars(arguments) | {"config": None})
    settings, api = from_arguments(plain, AnalysisSettings()), from_arguments(plain, ApiSettings())
    address = read_address(arguments.listen)
    certificate = [str(file) for file in (arguments.certificate, arguments.key) if file is not None]
    for file in (*arguments.human, *certificate):
        if not Path(file).is_file():
            raise SettingsError(f"{file}: there is no such file")
    reread = partial(read_check, arguments, local_pages=False)
    check = reread()
    unencrypted = arguments.unencrypted or bool(certificate)
    check_address(address, has_token=bool(check.tokens), unencrypted=unencrypted)
    # Before the imports below: the evaluator takes longest.
    scheduler = Scheduler(options, settings, log=_log)
    failures: list[NoEvaluatorError] = []
    server: AnalysisServer | None = None

    def fail(error: NoEvaluatorError) -> None:
        failures.append(error)
        if server is not None:
            server.stop()

    scheduler.start(fail)

    async def serve() -> None:
        nonlocal server
        from engine.analysis.listening import AnalysisServer as Server
        from engine.web.service import WebService

        folder = None if arguments.private else data_folder()
        kept = folder and folder / "games"
        service = WebService(scheduler, options, api, arguments.human, kept, _log)
        server = Server(
            scheduler,
            check,
            reread,
            log=_log,
            routes=service.routes(),
            without_token=service.without_token,
            body_bytes=api.max_body_bytes,
            certificate=certificate,
        )

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

    return serve_until_stopped(serve, arguments.listen, scheduler, failures, _log)


def _open(url: str) -> None:
    """Open a page in the user's browser, which may wait for its end."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _log(text: str) -> None:
    from protocol.host.printing import printable

    print(f"wavefront web: {printable(text)}", file=sys.stderr, flush=True)
