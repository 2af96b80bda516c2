"""Plain data to UCI text, and the guard that keeps everything else off standard output."""

from __future__ import annotations

import os
import sys
import threading
from time import strftime

from engine.options import Options
from engine.search.report import Line, Report
from engine.uci.parse import shown
from protocol.settings.spec import Setting


class Output:
    """Standard output, for UCI alone; safe to use from several threads.

    Constructing it points file descriptor 1 and `sys.stdout` at standard error, so that a stray print, in
    Python or in a C library, cannot break the protocol.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        try:
            os.fstat(2)
        except OSError:  # Started without standard error, as some GUIs do: its number must not become ours.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != 2:
                os.dup2(nowhere, 2)
                os.close(nowhere)
        self._descriptor = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._log_path = ""
        self.broken = False

    def log_to(self, path: str) -> None:
        """Append everything said and heard from now on to a file; an empty path ends that. Raises OSError."""
        if path:
            with open(path, "a", encoding="utf-8"):  # noqa: PTH123 - pathlib costs more than uciok allows.
                pass
        self._log_path = path

    def heard(self, text: str) -> None:
        """Log a line of input."""
        if self._log_path:
            self._append(">", text)

    def send(self, text: str) -> None:
        """Write one or more lines. When nobody reads any more, `broken` becomes true and nothing is
        raised."""
        data = memoryview((text + "\n").encode("utf-8", "replace"))
        with self._lock:
            if self._log_path:
                self._append("<", text)
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                self.broken = True

    def info_string(self, text: str) -> None:
        """`info string …`, on one line."""
        self.send("info string " + shown(text, 400))

    def _append(self, mark: str, text: str) -> None:
        try:
            with open(self._log_path, "a", encoding="utf-8") as file:  # noqa: PTH123 - as above.
                for line in text.splitlines():
                    file.write(f"{strftime('%F %T')} {mark} {shown(line, 100_000)}\n")
        except OSError:
            self._log_path = ""


def option_line(option: Setting) -> str:
    """`option name … type … default …`, as sent in answer to `uci`.

    UCI has no real numbers: such an option is a string that must read as one.
    """
    default = option.text(option.default)
    if isinstance(option.default, bool):
        kind = f"check default {default}"
    elif isinstance(option.default, int):
        kind = f"spin default {default} min {option.low:.0f} max {option.high:.0f}"
    elif option.choices:
        kind = f"combo default {default}" + "".join(f" var {choice}" for choice in option.choices)
    else:
        kind = f"string default {default or '<empty>'}"
    return f"option name {option.title} type {kind}"


def info_lines(report: Report, options: Options) -> str:
    """A report as `info` lines, one for each line of play."""
    milliseconds = round(report.seconds * 1000)
    head = f"info depth {max(1, report.depth)} seldepth {max(1, report.selective_depth)}"
    head += f" time {milliseconds} nodes {report.nodes}"
    tail = f" hashfull {report.hashfull} nps {report.nodes_per_second} tbhits {report.tablebase_hits}"
    lines = []
    for number, line in enumerate(report.lines, 1):
        middle = f" score {_score(line, options)}"
        if options.show_wdl:
            win, draw, loss = _thousandths(line.wdl)
            middle += f" wdl {win} {draw} {loss}"
        if options.show_moves_left:
            middle += f" movesleft {round(line.moves_left / 2)}"
        lines.append(f"{head}{middle}{tail} multipv {number} pv {' '.join(line.moves)}")
    return "\n".join(lines)


def statistics_lines(report: Report) -> str:
    """The statistics of the root's moves as `info string` lines, the most visited last."""
    return "\n".join(
        f"info string {move.move:<5} N: {move.visits:7d} (+{move.in_flight:2d}) "
        f"(P: {move.prior * 100:5.2f}%) (WL: {move.q:8.5f}) (D: {move.d:6.3f}) "
        f"(M: {move.m:5.1f}) (U: {move.u:7.5f})"
        for move in sorted(report.statistics, key=lambda move: move.visits)
    )


def best_move_line(report: Report) -> str:
    """`bestmove …`. Without a legal move it is `(none)`, as Stockfish writes it and GUIs expect."""
    line = f"bestmove {report.best_move or '(none)'}"
    return line + (f" ponder {report.ponder}" if report.best_move and report.ponder else "")


def _score(line: Line, options: Options) -> str:
    return f"cp {line.score(options.score_type)}" if line.mate is None else f"mate {line.mate}"


def _thousandths(wdl: tuple[float, float, float]) -> tuple[int, int, int]:
    """Three whole numbers that add up to 1000."""
    win, loss = (min(1000, max(0, round(1000 * share))) for share in (wdl[0], wdl[2]))
    loss = min(loss, 1000 - win)
    return win, 1000 - win - loss, loss
