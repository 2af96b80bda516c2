"""A network's policy and W D L, from the evaluator into shards. A shard is rewritten when all of it is there,
so that a run that is killed loses one shard's work at most."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.evaluation.errors import NoEvaluatorError, PipelineError
from engine.evaluation.link import EvaluatorLink
from engine.evaluation.process import EvaluatorSettings
from engine.evaluation.requests import Requests
from engine.options import Options
from protocol.batch import PositionBatch
from training.data.annotations import annotated
from training.data.packed import PackedPositions, unpack_positions
from training.data.reading import encoded_positions
from training.data.shard import Shard, ShardError, read_header, read_shard, write_shard
from training.errors import TrainingError

if TYPE_CHECKING:
    from protocol.batch import EvaluationBatch
    from protocol.client import EvaluatorClient

REQUESTS_IN_FLIGHT = 3


@dataclass(slots=True)
class Annotated:
    """What was done. network: its SHA-256. passed_over: shards that had its annotations. broken: file -> what
    is wrong."""

    network: str = ""
    shards: int = 0
    positions: int = 0
    passed_over: int = 0
    broken: dict[str, str] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.shards} shards, {self.positions:,} positions annotated; {self.passed_over} were already, "
            f"{len(self.broken)} are broken"
        )


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A shard ready to be evaluated."""

    path: Path
    shard: Shard
    positions: PackedPositions
    start: NDArray[np.int64]
    moves: NDArray[np.uint16]


def annotate(
    paths: Sequence[Path], options: Options, note: Callable[[str], None], step: Callable[[int], None]
) -> Annotated:
    """Annotate shards with the network of the options.

    note: takes messages, among them each broken shard, which is left as it is. step: called with the number
    of positions evaluated since it was last called. Raises TrainingError if there is no evaluator.
    """
    link = EvaluatorLink(EvaluatorSettings.of(options), note)
    link.start()
    try:
        with ThreadPoolExecutor(1) as reader:
            return _Annotation(link, note, step).run(paths, reader)
    except (NoEvaluatorError, PipelineError) as error:
        raise TrainingError(str(error)) from None
    finally:
        link.close()


class _Annotation:
    def __init__(self, link: EvaluatorLink, note: Callable[[str], None], step: Callable[[int], None]) -> None:
        self._link, self._note, self._step = link, note, step
        self._unsent: deque[tuple[int, PositionBatch]] = deque()
        self._requests: Requests[tuple[int, PositionBatch]] = Requests(link, "selfplay", self._unsent.append)
        self.done = Annotated()

    def run(self, paths: Sequence[Path], reader: ThreadPoolExecutor) -> Annotated:
        client = self._connected()
        network = client.network
        self.done.network = network.content_hash
        if not network.content_hash:
            raise TrainingError("this backend evaluates no network: positions cannot be annotated with it")
        wanted = [path for path in paths if not self._has_annotations(path, network.content_hash)]
        encoded = [reader.submit(self._encoded, path, network.input_format) for path in wanted[:1]]
        for number, path in enumerate(wanted):
            ready = encoded.pop().result()
            # The next shard is played through while the evaluator is at this one.
            following = wanted[number + 1 : number + 2]
            encoded = [reader.submit(self._encoded, each, network.input_format) for each in following]
            if ready is None:
                continue
            logits, wdl = self._evaluated(ready, min(client.max_batch, max(64, client.recommended_batch)))
            try:
                write_shard(path, annotated(ready.shard, network.content_hash, logits, wdl, ready.start))
            except OSError as error:
                raise TrainingError(f"cannot write {path}: {error.strerror}") from None
            self.done.shards += 1
            self.done.positions += len(wdl)
            self._note(f"{path}: {len(wdl):,} positions ({number + 1} of {len(wanted)} shards)")
        return self.done

    def _has_annotations(self, path: Path, network: str) -> bool:
        try:
            there = read_header(path).get("annotated_by") == network
        except (ShardError, OSError):
            return False  # reading it says what is wrong
        self.done.passed_over += there
        return there

    def _encoded(self, path: Path, input_format: int) -> _Encoded | None:
        try:
            shard = read_shard(path)
            return _Encoded(path, shard, *encoded_positions(shard, input_format))
        except (ShardError, OSError) as error:
            self.done.broken[str(path)] = str(error)
            self._note(f"{path}: {error}; left as it is")
            return None

    def _evaluated(self, shard: _Encoded, size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Logits [m] and W D L [rows, 3]."""
        rows = len(shard.positions)
        logits, wdl = np.zeros(len(shard.moves), np.float32), np.zeros((rows, 3), np.float32)
        batches = _batches(shard, size)
        left = rows
        while left:
            self._send(batches)
            answer = self._requests.receive(None)
            if answer is None:
                continue
            request, completed = answer
            if request is None:
                continue
            first, batch = request
            if completed.evaluation is None:
                raise TrainingError(f"the evaluator refuses positions of {shard.path}: {completed.error}")
            self._take(completed.evaluation, first, logits, wdl, shard.start)
            left -= len(batch)
            self._step(len(batch))
        return logits, wdl

    def _send(self, batches: Iterator[tuple[int, PositionBatch]]) -> None:
        """Keep some requests under way."""
        self._connected()
        while len(self._requests.sent) < REQUESTS_IN_FLIGHT:
            if not self._unsent:
                following = next(batches, None)
                if following is None:
                    return
                self._unsent.append(following)
            if not self._requests.send(self._unsent[0][1], self._unsent[0]):
                return
            self._unsent.popleft()

    @staticmethod
    def _take(
        evaluation: EvaluationBatch,
        first: int,
        logits: NDArray[np.float32],
        wdl: NDArray[np.float32],
        start: NDArray[np.int64],
    ) -> None:
        wdl[first : first + len(evaluation)] = evaluation.wdl
        logits[start[first] : start[first + len(evaluation)]] = evaluation.logits

    def _connected(self) -> EvaluatorClient:
        """The evaluator, waiting for it as long as there is hope. Raises NoEvaluatorError."""
        while (client := self._requests.connect()) is None:
            self._link.wait(1.0)
        return client


def _batches(shard: _Encoded, size: int) -> Iterator[tuple[int, PositionBatch]]:
    """The shard's rows in batches, each with the number of its first row."""
    packed = shard.positions
    for first in range(0, len(packed), size):
        rows = slice(first, min(first + size, len(packed)))
        piece = PackedPositions(
            packed.boards[rows], packed.masks[rows], packed.repetitions[rows], packed.rule50[rows]
        )
        offsets = shard.start[first : rows.stop + 1]
        batch = PositionBatch(
            unpack_positions(piece),
            (offsets - offsets[0]).astype(np.uint32),
            shard.moves[offsets[0] : offsets[-1]],
        )
        yield first, batch
