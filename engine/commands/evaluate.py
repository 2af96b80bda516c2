# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront evaluate`: the network's output, same as `wavefront analysis` with `"nodes": 0`.

Input is JSON lines, FEN or EPD lines, or PGN. Answers are in the order of the input:

    {"id": "a", "fen": "startpos", "moves": ["e2e4"], "chess960": false}
    {"q": …, "wdl": [w, d, l], "moves_left": …, "policy": {move: probability}, "logits": {move: …}, "id": "a"}

An error has the number of its line, and the exit status is then 1. With --output, the same command continues
an interrupted one after the answers that the file has. A file .csv gets rows with FEN and moves.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from engine.options.flags import engine_flags, options_of_arguments
from protocol.common.commands import Declared
from protocol.common.outputs import OVERWRITE, guard_output
from protocol.common.printing import ReportedError, failing_as, reason, say

if TYPE_CHECKING:
    from rich.progress import Progress

    from engine._core import Game
    from engine.apps.analysis.evaluate_input import Entry
    from engine.options import Options
    from engine.search.loop.evaluation import Evaluated
    from engine.search.pool import SearchPool

    Sent = tuple[list[Entry], Evaluated | None] | None

_log = partial(say, "wavefront evaluate")

HELP = "evaluate positions with the network, without a search: JSON, FEN, EPD or PGN in, JSON lines out"
OPTIONS = "weights backend policy_head value_head history_fill evaluator threads minibatch_size"
BATCHES_IN_FLIGHT = 2
"""Batches queued for writing. Two more may be in flight: the next to write and the last one read."""

HEADER = "game,ply,id,fen,move,share,q,win,draw,loss,moves_left,moves,error,line"
"""Of a CSV file. move, share: most probable move and its probability. moves: all, with probabilities."""


ARGUMENTS: Declared = {
    "file FILE? = -": "JSON, FEN or EPD lines, or PGN; - (default) is standard input",
    "--output FILE = ''": "write the answers to a file, as CSV if its name ends in .csv; the same command "
    "continues it",
    **OVERWRITE,
    **engine_flags(OPTIONS.split()),
}


def run(arguments: argparse.Namespace) -> int:
    from engine.search.pool import SearchPool
    from protocol.common.processes import INTERRUPTED, own_input

    options = options_of_arguments(arguments)
    if arguments.file == "-" and sys.stdin is None:
        raise ReportedError("standard input is closed: give a file")
    with failing_as(ReportedError, f"cannot read {arguments.file}"):
        if arguments.file == "-":
            sys.stdin = os.fdopen(own_input(), encoding="utf-8")
        source = sys.stdin.buffer if arguments.file == "-" else open(arguments.file, "rb")  # noqa: PTH123, SIM115
    sent: queue.Queue[Sent] = queue.Queue(BATCHES_IN_FLIGHT)
    path = Path(arguments.file)
    count = failed = first_failed = 0
    with ExitStack() as stack:
        output, done = sys.stdout, 0
        if arguments.output:
            output, done = _continued(Path(arguments.output), path, overwrite=arguments.overwrite)
            stack.enter_context(output)
        is_table = arguments.output.lower().endswith(".csv")
        progress = stack.enter_context(_progress(done, shown=bool(arguments.output)))
        pool = stack.enter_context(SearchPool(log=_log, priority="analysis"))
        try:
            pool.connections(options)
            arguments_of_sender = source, path, pool, options, sent, done
            threading.Thread(target=_send, args=arguments_of_sender, daemon=True).start()
            while batch := sent.get():
                answers = list(_answers(*batch))
                for entry, answer in zip(batch[0], answers, strict=True):
                    output.write(_row(entry.game, answer) if is_table else json.dumps(answer) + "\n")
                output.flush()
                progress.advance(progress.task_ids[0], len(answers))
                count += len(answers)
                for answer in answers:
                    if "error" in answer:
                        failed += 1
                        first_failed = first_failed or answer["line"]
        except KeyboardInterrupt:
            if not arguments.output:
                raise
            _log("interrupted; the same command continues")
            return INTERRUPTED
    if failed:
        _log(f"{failed:,} of {count:,} could not be evaluated, the first in line {first_failed:,}")
    return 1 if failed else 0


def _continued(path: Path, source: Path, *, overwrite: bool) -> tuple[TextIO, int]:
    """Open a file for further answers, and return it with the number of those it has. An incomplete last one
    is removed. overwrite: replace a file of something else. Raises OutputError for one otherwise."""
    is_table = path.suffix.lower() == ".csv"
    begin = (HEADER.encode(),) if is_table else (b'{"q": ', b'{"error": ', b'{"game": ')
    guard_output(path, [source], own=lambda content: content.startswith(begin), overwrite=overwrite)
    done = size = 0
    if path.is_file():
        with path.open("rb") as existing:
            lines = existing if existing.peek(100).startswith(begin) else ()
            for line in lines:
                if line.endswith(b"\n"):
                    done += 1
                    size += len(line)
        os.truncate(path, size)
    output = path.open("a", encoding="utf-8", newline="")
    if is_table and not size:
        output.write(f"{HEADER}\n")
    return output, max(0, done - is_table)


def _row(game: Game | None, answer: dict[str, Any]) -> str:
    """Return an answer as a row of a CSV file."""
    row = dict(answer)
    if game is not None and "q" in answer:
        row["fen"] = game.fen()
        row["win"], row["draw"], row["loss"] = answer["wdl"]
        moves = sorted(answer["policy"].items(), key=lambda each: -each[1])
        row["move"], row["share"] = moves[0] if moves else ("", "")
        row["moves"] = " ".join(f"{move} {share}" for move, share in moves)
    text = io.StringIO(newline="")
    csv.DictWriter(text, HEADER.split(","), extrasaction="ignore", lineterminator="\n").writerow(row)
    return text.getvalue().rstrip("\n").replace("\n", " ") + "\n"


def _progress(done: int, *, shown: bool) -> Progress:
    """Return a progress bar on standard error. done: answers of an earlier run."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.completed:,} positions"), TimeElapsedColumn()
    progress = Progress(*columns, console=console, disable=not (shown and console.is_terminal))
    progress.add_task("", total=None, completed=done)
    return progress


def _send(
    source: BinaryIO, path: Path, pool: SearchPool, options: Options, sent: queue.Queue[Sent], done: int
) -> None:
    """Send the positions of a stream in batches until it ends, without the first `done`."""
    from engine.apps.analysis.evaluate_input import Entry, entries
    from engine.apps.analysis.evaluation import batch_size

    links = pool.links(options)
    with suppress(RuntimeError):  # The pool was closed because there is no evaluator.
        try:
            for arrived in entries(source, path, _log):
                passed = min(done, len(arrived))
                done, arrived = done - passed, arrived[passed:]
                while arrived:
                    size = batch_size(links, options)
                    batch, arrived = arrived[:size], arrived[size:]
                    games = [entry.game for entry in batch if entry.game is not None]
                    sent.put((batch, pool.evaluate(games, options) if games else None))
        except Exception as error:  # The answers so far are written, whatever it is.
            sent.put(([Entry(None, {"error": reason(error)}, 1)], None))
        sent.put(None)


def _answers(batch: list[Entry], evaluated: Evaluated | None) -> Iterator[dict[str, Any]]:
    """Yield the answers of a batch."""
    from engine.apps.analysis.evaluation import outputs
    from engine.evaluation.errors import PipelineError

    games = [entry.game for entry in batch if entry.game is not None]
    try:
        found = outputs(games, *evaluated.result()) if evaluated else []
    except PipelineError as error:
        found = [{"error": str(error)}] * len(games)
    rest = iter(found)
    for game, fields, line in batch:
        answer = fields if game is None else {**next(rest), **fields}
        yield answer | ({"line": line} if "error" in answer else {})
