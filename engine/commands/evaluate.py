# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront evaluate`: the network's output, same as `wavefront analysis` with `"nodes": 0`.

Answers are in the order of the input lines:

    {"fen": "startpos", "moves": ["e2e4"], "chess960": false}
    {"q": …, "wdl": [w, d, l], "moves_left": plies, "policy": {move: probability}, "logits": {move: raw}}
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from engine._core import Game
    from engine.options import Options
    from engine.pool.evaluation import Evaluated
    from engine.pool.pool import SearchPool

    Lines = list[tuple[Game | None, dict[str, str]]]
    Sent = tuple[Lines, Evaluated | None] | None

HELP = "evaluate positions with the network, without a search: JSON lines in and out"
OPTIONS = "weights backend policy_head value_head history_fill evaluator threads minibatch_size"
MAX_LINE_BYTES = READ_BYTES = 1 << 20
BATCHES_IN_FLIGHT = 2
"""Batches queued for writing. Two more may be in flight: the next to write and the last one read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from engine.option_flags import add_flags

    parser.add_argument(
        "file", nargs="?", default="-", help="JSON lines to read; - (default) is standard input"
    )
    add_flags(parser, only=OPTIONS.split())


def run(arguments: argparse.Namespace) -> int:
    from engine.evaluation.errors import NoEvaluatorError
    from engine.option_flags import options_of_arguments
    from engine.pool.pool import SearchPool

    options = options_of_arguments(arguments)
    try:
        source = sys.stdin.buffer if arguments.file == "-" else open(arguments.file, "rb")  # noqa: PTH123, SIM115
    except OSError as error:
        _log(f"cannot read {arguments.file}: {error.strerror}")
        return 1
    sent: queue.Queue[Sent] = queue.Queue(BATCHES_IN_FLIGHT)
    with SearchPool(log=_log, priority="analysis") as pool:
        try:
            pool.connections(options)
            threading.Thread(target=_send, args=(source, pool, options, sent), daemon=True).start()
            while batch := sent.get():
                sys.stdout.write("".join(_answers(*batch)))
                sys.stdout.flush()
        except NoEvaluatorError as error:
            _log(str(error))
            return 1
    return 0


def _send(source: BinaryIO, pool: SearchPool, options: Options, sent: queue.Queue[Sent]) -> None:
    """Send the lines of a stream in batches until it ends."""
    from engine.analysis.evaluation import batch_size, read_line

    links = pool.links(options)
    with suppress(RuntimeError):  # The pool was closed because there is no evaluator.
        for arrived in _arriving(source):
            while arrived:
                size = batch_size(links, options)
                lines, arrived = [read_line(line, MAX_LINE_BYTES) for line in arrived[:size]], arrived[size:]
                games = [game for game, _ in lines if game is not None]
                sent.put((lines, pool.evaluate(games, options) if games else None))
        sent.put(None)


def _arriving(source: BinaryIO) -> Iterator[list[bytes]]:
    """Yield lines as they arrive. A too long line is truncated just beyond the limit."""
    rest = b""
    while data := source.read1(READ_BYTES):  # type: ignore[attr-defined]
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[: MAX_LINE_BYTES + 1]
        yield lines
    yield [rest] if rest else []


def _answers(lines: Lines, evaluated: Evaluated | None) -> Iterator[str]:
    from engine.analysis.evaluation import outputs
    from engine.evaluation.errors import PipelineError

    games = [game for game, _ in lines if game is not None]
    try:
        found = outputs(games, *evaluated.result()) if evaluated else []
    except PipelineError as error:
        found = [{"error": str(error)}] * len(games)
    rest = iter(found)
    for game, more in lines:
        yield json.dumps(more if game is None else {**next(rest), **more}) + "\n"


def _log(text: str) -> None:
    print(f"wavefront evaluate: {text}", file=sys.stderr, flush=True)
