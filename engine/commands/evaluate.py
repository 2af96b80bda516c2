"""`wavefront evaluate`: positions as JSON lines in, what the network says about them as JSON lines out.

    {"fen": "startpos", "moves": ["e2e4"], "chess960": false}
    {"q": …, "wdl": [w, d, l], "moves_left": plies, "policy": {move: probability}, "logits": {move: raw}}

Answers keep the order of the questions, one line for each, and are written as soon as they are there, so that
a program may ask one position at a time. Batches are made of what has arrived. A position in which the king
could be taken cannot be played on, but a network evaluates it as any other: its answer carries a "warning".
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from engine._core import Game
    from engine.evaluation.connection.link import EvaluatorLink
    from engine.evaluation.encoding import HistoryFill
    from engine.options import Options
    from protocol.batch import EvaluationBatch, PositionBatch
    from protocol.client import EvaluatorClient
    from protocol.messages import NetworkInfo

HELP = "evaluate positions with the network, without a search: JSON lines in and out"

MAX_LINE_BYTES = 8 << 20
BATCHES_IN_FLIGHT = 2
PATIENCE_MS = 500.0
"""How long an answer is waited for before it is looked whether another evaluator is better."""

QUEUED_LINES = 4096
OPTIONS = (
    "weights",
    "backend",
    "policy_head",
    "value_head",
    "history_fill",
    "evaluator",
    "threads",
    "minibatch_size",
)


class _LineError(ValueError):
    """What is wrong with one line of input."""


@dataclass(frozen=True, slots=True)
class _Question:
    """A line understood. moves: the legal moves in UCI notation."""

    moves: list[str]
    warning: str = ""


@dataclass(slots=True)
class _Chunk:
    """Lines sent as one batch: of each what it asks, or its error. network: that the batch is encoded for."""

    entries: list[_Question | _LineError]
    games: list[Game]
    batch: PositionBatch | None = None
    network: NetworkInfo | None = None
    evaluation: EvaluationBatch | None = None

    @property
    def done(self) -> bool:
        """Whether it can be written: nothing of it is with the evaluator."""
        return not self.games or self.evaluation is not None

    def refuse(self, reason: str) -> None:
        """Answer every question of it with an error."""
        self.entries = [
            entry if isinstance(entry, _LineError) else _LineError(reason) for entry in self.entries
        ]
        self.games.clear()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from engine.option_flags import add_flags

    parser.add_argument(
        "file", nargs="?", default="-", help="JSON lines to read; - (default) is standard input"
    )
    add_flags(parser, only=OPTIONS)


def run(arguments: argparse.Namespace) -> int:
    from engine.evaluation.connection.link import EvaluatorLink
    from engine.evaluation.connection.process import EvaluatorSettings
    from engine.evaluation.errors import NoEvaluatorError
    from engine.option_flags import options_of_arguments

    options = options_of_arguments(arguments)
    try:
        source = sys.stdin.buffer if arguments.file == "-" else open(arguments.file, "rb")  # noqa: PTH123, SIM115
    except OSError as error:
        print(f"wavefront evaluate: cannot read {arguments.file}: {error.strerror}", file=sys.stderr)
        return 1
    link = EvaluatorLink(
        EvaluatorSettings.of(options), lambda text: print(f"wavefront evaluate: {text}", file=sys.stderr)
    )
    link.start()
    try:
        _Stream(link, options, source).run()
    except NoEvaluatorError as error:
        print(f"wavefront evaluate: {error}", file=sys.stderr)
        return 1
    finally:
        link.close()
    return 0


class _Stream:
    """Reads, evaluates and writes, with a few batches on their way at a time."""

    def __init__(self, link: EvaluatorLink, options: Options, source: BinaryIO) -> None:
        from engine.evaluation.requests import Requests

        self._link = link
        self._options = options
        self._source = source
        self._lines: queue.Queue[bytes | _LineError | None] = queue.Queue(QUEUED_LINES)
        self._ended = False
        self._chunks: deque[_Chunk] = deque()  # In the order of their lines, until they are written.
        self._unsent: deque[_Chunk] = deque()
        self._requests: Requests[_Chunk] = Requests(link, "analysis", self._unsent.append)

    def run(self) -> None:
        threading.Thread(target=self._read, name="evaluate-input", daemon=True).start()
        while not (self._ended and not self._chunks):
            if not self._ended and len(self._chunks) < BATCHES_IN_FLIGHT:
                lines = self._take_lines(wait=not self._chunks)
                if lines:
                    chunk = self._parse(lines)
                    self._chunks.append(chunk)
                    if chunk.games:
                        self._unsent.append(chunk)
            self._exchange()
            while self._chunks and self._chunks[0].done:
                _write(self._chunks.popleft())

    def _read(self) -> None:
        while line := self._source.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                while line and not line.endswith(b"\n"):
                    line = self._source.readline(MAX_LINE_BYTES)
                self._lines.put(_LineError(f"the line is longer than {MAX_LINE_BYTES} bytes"))
            else:
                self._lines.put(line)
        self._lines.put(None)

    def _take_lines(self, *, wait: bool) -> list[bytes | _LineError]:
        """What has arrived, up to a batch; with `wait`, at least one line unless the input has ended."""
        client = self._connected()
        most = min(self._options.minibatch_size or client.recommended_batch, client.max_batch)
        lines: list[bytes | _LineError] = []
        while len(lines) < most:
            try:
                line = self._lines.get(block=wait and not lines)
            except queue.Empty:
                break
            if line is None:
                self._ended = True
                break
            lines.append(line)
        return lines

    def _connected(self) -> EvaluatorClient:
        """The evaluator, waiting for it as long as there is hope. Raises NoEvaluatorError."""
        while (client := self._requests.connect()) is None:
            self._link.wait(1.0)
        return client

    def _exchange(self) -> None:
        """Send what is unsent and wait a little for what is due."""
        from engine.evaluation.errors import PipelineError

        network = self._network()
        while self._unsent:
            chunk = self._unsent[0]
            if chunk.batch is None or chunk.network != network:
                chunk.batch, chunk.network = self._encoded(chunk.games, network), network
            try:
                if not self._requests.send(chunk.batch, chunk):
                    return
            except PipelineError as error:
                chunk.refuse(str(error))
            self._unsent.popleft()
        # While lines may still come, a short wait: they can join the next batch.
        patient = self._ended or len(self._requests.sent) >= BATCHES_IN_FLIGHT
        answer = self._requests.receive(PATIENCE_MS if patient else 1.0)
        if answer is None:
            return
        answered, completed = answer
        if answered is not None:
            answered.evaluation = completed.evaluation
            if completed.evaluation is None:
                answered.refuse(f"evaluator: {completed.error}")

    def _parse(self, lines: Sequence[bytes | _LineError]) -> _Chunk:
        entries: list[_Question | _LineError] = []
        games = []
        for line in lines:
            try:
                if isinstance(line, _LineError):
                    raise line
                game, warnings = _game(line)
            except _LineError as error:
                entries.append(error)
            else:
                games.append(game)
                if not game.playable:
                    warnings.append("not a legal position: the side to move could take the king")
                entries.append(_Question(game.legal_moves(), "; ".join(warnings)))
        return _Chunk(entries, games)

    def _network(self) -> NetworkInfo:
        """The evaluator's network at the moment. Waits for the evaluator. Raises NoEvaluatorError."""
        client = self._connected()
        return client.network if client.in_flight else self._link.network_of(client)

    def _encoded(self, games: Sequence[Game], network: NetworkInfo) -> PositionBatch:
        from engine.evaluation.encoding import encode_games

        batch, _transforms = encode_games(
            games,
            input_format=network.input_format,
            history_fill=cast("HistoryFill", self._options.history_fill),
        )
        return batch


def _game(line: bytes) -> tuple[Game, list[str]]:
    """The game that a line describes, and what was corrected in its FEN. Raises _LineError."""
    from engine._core import Game

    if not line.strip():
        raise _LineError('the line is empty; expected {"fen": …, "moves": […], "chess960": …}')
    try:
        question = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _LineError(f"not JSON: {error}") from None
    if not isinstance(question, dict):
        raise _LineError('not a JSON object; expected {"fen": …, "moves": […], "chess960": …}')
    unknown = question.keys() - {"fen", "moves", "chess960"}
    if unknown:
        raise _LineError(f"unknown key {sorted(unknown)[0]!r:.60}; known are fen, moves and chess960")
    fen, moves = question.get("fen", "startpos"), question.get("moves", [])
    chess960 = question.get("chess960", False)
    if not isinstance(fen, str):
        raise _LineError("fen is not a text")
    if not isinstance(moves, list) or not all(isinstance(move, str) for move in moves):
        raise _LineError("moves is not a list of texts")
    if not isinstance(chess960, bool):
        raise _LineError("chess960 is not true or false")
    try:
        corrections: list[str] = []
        if fen == "startpos":
            game = Game(None, chess960)
        else:
            game, corrections = Game.read(fen, chess960, allow_opponent_check=True)
    except ValueError as error:
        raise _LineError(str(error)) from None
    for number, move in enumerate(moves, 1):
        try:
            game.push_uci(move)
        except ValueError as error:
            raise _LineError(f"move {number}: {error}") from None
    return game, [f"FEN corrected: {correction}" for correction in corrections]


def _write(chunk: _Chunk) -> None:
    import numpy as np

    answers = []
    position = 0
    for entry in chunk.entries:
        if isinstance(entry, _LineError):
            answers.append(json.dumps({"error": str(entry)}))
            continue
        evaluation, batch = chunk.evaluation, chunk.batch
        assert evaluation is not None and batch is not None
        start, end = int(batch.move_offsets[position]), int(batch.move_offsets[position + 1])
        logits = evaluation.logits[start:end].astype(np.float64)
        policy = np.exp(logits - logits.max(initial=-np.inf)) if len(logits) else logits
        policy /= policy.sum() if len(logits) else 1.0
        win, draw, loss = (float(share) for share in evaluation.wdl[position])
        answer: dict[str, object] = {
            "q": win - loss,
            "wdl": [win, draw, loss],
            "moves_left": float(evaluation.moves_left[position]),
            "policy": dict(zip(entry.moves, policy.tolist(), strict=True)),
            "logits": dict(zip(entry.moves, logits.tolist(), strict=True)),
        }
        if entry.warning:
            answer["warning"] = entry.warning
        answers.append(json.dumps(answer))
        position += 1
    sys.stdout.write("\n".join(answers) + "\n")
    sys.stdout.flush()
