# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront analysis`: queries of programs, by JSON lines or WebSocket (docs/reference/analysis.md)."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.analysis.scheduler import Scheduler
    from engine.analysis.settings import AnalysisSettings
    from engine.evaluation.errors import NoEvaluatorError
    from engine.options import Options
    from protocol.http.access import AccessCheck

HELP = "analyse positions and games for programs, many concurrently: JSON lines in and out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from engine.analysis.settings import AnalysisSettings
    from engine.option_flags import add_flags
    from protocol.settings import sources
    from protocol.settings.spec import settings_of

    parser.add_argument(
        "--quit-without-waiting",
        action="store_true",
        help="at the end of input, end running searches and discard waiting positions",
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of messages, and exit")
    listen = parser.add_argument_group("WebSocket")
    listen.add_argument(
        "--listen", metavar="HOST:PORT", help="accept queries at this address, not on standard input"
    )
    add_access_flags(listen)
    sources.add_flags(parser, settings_of(AnalysisSettings).values())
    add_flags(parser, defaults=default_options())


def add_access_flags(listen: argparse._ArgumentGroup) -> None:
    """Add the flags that say who may connect."""
    listen.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the tokens of clients: one token, or lines of NAME TOKEN; SIGHUP reads it again; "
        "required beyond this machine",
    )
    listen.add_argument(
        "--unencrypted",
        action="store_true",
        help="allow --listen beyond this machine: anyone on the way can read queries, answers and token",
    )
    listen.add_argument(
        "--origin",
        action="append",
        default=[],
        metavar="URL",
        help="allow pages of this site without a token, besides those of this machine; may be repeated",
    )
    listen.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="answer requests to this host name, besides those of this machine; may be repeated",
    )


def read_check(arguments: argparse.Namespace, *, local_pages: bool) -> AccessCheck:
    """Return the check of clients by the flags. local_pages: see AccessCheck. Raises SettingsError."""
    from protocol.http.access import AccessCheck, read_tokens

    tokens = {} if arguments.token_file is None else read_tokens(arguments.token_file)
    return AccessCheck(tokens, tuple(arguments.origin), tuple(arguments.host), local_pages=local_pages)


def default_options() -> Options:
    """Return the default options of this command. Transpositions are off, so that the search of one query
    cannot change the values of another."""
    from engine.options import Options

    return Options(transposition_visits=0)


def run(arguments: argparse.Namespace) -> int:
    from engine.analysis.settings import AnalysisSettings
    from engine.option_flags import options_of_arguments
    from protocol.settings.sources import from_arguments

    if arguments.schema:
        from engine.analysis.schema import schema_text

        print(schema_text(), end="")
        return 0
    options = options_of_arguments(arguments, default_options())
    settings = from_arguments(argparse.Namespace(**vars(arguments) | {"config": None}), AnalysisSettings())
    if arguments.listen is not None:
        return _listen(arguments, options, settings)
    return _converse(options, settings, at_once=arguments.quit_without_waiting)


def _converse(options: Options, settings: AnalysisSettings, *, at_once: bool) -> int:
    """Serve standard input and output until both are finished."""
    from engine.analysis.lines import LineClient, read_lines
    from engine.analysis.scheduler import Scheduler
    from protocol.host.processes import own_input

    failures: list[NoEvaluatorError] = []
    scheduler = Scheduler(options, settings, log=_log)
    client = LineClient(sys.stdout.buffer, settings.max_unread_bytes, scheduler.resume)

    def fail(error: NoEvaluatorError) -> None:
        failures.append(error)
        scheduler.end(client, at_once=True)

    scheduler.start(fail)
    threading.Thread(
        target=read_lines,
        args=(scheduler, client, os.fdopen(own_input(), "rb")),
        kwargs={"at_once": at_once},
        name="analysis-input",
        daemon=True,
    ).start()
    try:
        client.finished.wait()
    finally:
        scheduler.close()
    return _status(failures, _log)


def _listen(arguments: argparse.Namespace, options: Options, settings: AnalysisSettings) -> int:
    """Serve WebSocket clients until SIGTERM or Ctrl-C."""
    from engine.analysis.listening import AnalysisServer
    from engine.analysis.scheduler import Scheduler
    from protocol.http.access import check_address, read_address

    address = read_address(arguments.listen)
    reread = partial(read_check, arguments, local_pages=True)
    check = reread()
    check_address(address, has_token=bool(check.tokens), unencrypted=arguments.unencrypted)
    failures: list[NoEvaluatorError] = []
    scheduler = Scheduler(options, settings, log=_log)

    async def serve() -> None:
        server = AnalysisServer(scheduler, check, reread, log=_log)

        def fail(error: NoEvaluatorError) -> None:
            failures.append(error)
            server.stop()

        def listening(host: str, port: int) -> None:
            print(json.dumps({"event": "listening", "address": f"ws://{host}:{port}"}), flush=True)
            scheduler.start(fail)

        await server.run(address, listening)

    return serve_until_stopped(serve, arguments.listen, scheduler, failures, _log)


def serve_until_stopped(
    serve: Callable[[], Coroutine[Any, Any, None]],
    where: str,
    scheduler: Scheduler,
    failures: list[NoEvaluatorError],
    log: Callable[[str], None],
) -> int:
    """Run a server, then close the scheduler. Returns the exit status. where: its address. failures: those
    that stopped it."""
    import asyncio

    try:
        asyncio.run(serve())
    except OSError as error:
        log(f"cannot listen at {where}: {error.strerror or error}")
        return 1
    finally:
        scheduler.close()
    return _status(failures, log)


def _status(failures: list[NoEvaluatorError], log: Callable[[str], None]) -> int:
    for error in failures:
        log(str(error))
    return 1 if failures else 0


def _log(text: str) -> None:
    print(f"wavefront analysis: {text}", file=sys.stderr, flush=True)
