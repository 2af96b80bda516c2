# SPDX-License-Identifier: GPL-3.0-or-later
"""The conformance script: our own client passes it, and clients that do something wrong are told what."""

import io
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import msgpack
import numpy as np
import pytest
import zmq

from evaluator.backends.reference.random import random_evaluation
from protocol import EvaluatorClient
from protocol.batch import POSITION_DTYPE, PositionBatch
from protocol.common.keys.files import SERVICE_PAIR
from protocol.common.keys.notation import show_key
from protocol.common.keys.pairs import pair_at
from protocol.errors import ERRORS, EvaluatorLost, RemoteError
from protocol.wire.codec import encode, encode_evaluate
from protocol.wire.compression import Compressor
from protocol.wire.messages import Evaluate, Hello
from tests.protocol.kit.__main__ import main
from tests.protocol.kit.evaluator import ScriptedEvaluator
from tests.protocol.kit.vectors import vectors
from tests.protocol.kit.walk import ENDING_CODES, PASSING_CODE, Walk

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
BRIEF_S = 2.0
"""For clients that are known to fall silent."""


def vector_batches() -> list[PositionBatch]:
    return [
        PositionBatch(
            np.frombuffer(bytes.fromhex(vector["record"]), POSITION_DTYPE),
            np.array([0, len(vector["policy_indices"])], np.uint32),
            np.array(vector["policy_indices"], np.uint16),
        )
        for vector in vectors()
        if vector["input_format"] == 1
    ]


BATCHES = vector_batches()


def changed(plane: int, mask: int) -> PositionBatch:
    batch = BATCHES[0]
    positions = batch.positions.copy()
    positions["planes"][0, plane] = mask
    return PositionBatch(positions, batch.move_offsets, batch.moves)


def with_moves(*indices: int) -> PositionBatch:
    return PositionBatch(
        BATCHES[0].positions, np.array([0, len(indices)], np.uint32), np.array(indices, np.uint16)
    )


def frames_of(message: Any) -> list[Any]:
    return [*encode(message)]


@contextmanager
def client_thread(client: Callable[[str, threading.Event], None], address: str) -> Iterator[None]:
    """Runs a client beside the walk; the event says that the walk is over."""
    over = threading.Event()
    thread = threading.Thread(target=client, args=(address, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def walk(
    client: Callable[[str, threading.Event], None], patience_s: float = PATIENCE_S, out: TextIO | None = None
) -> Counter[str]:
    script = Walk("tcp://127.0.0.1:0", patience_s, out or io.StringIO())
    with client_thread(client, script.address):
        return script.run()


def our_client(
    address: str, over: threading.Event, *, compress: bool | None = None, keys: str | Path = ""
) -> None:
    """Keeps three batches in flight, compares their answers, and comes back after every loss."""
    while not over.is_set():
        try:
            with EvaluatorClient(address, compress=compress, keys=keys) as evaluator:
                _ask_until_lost(evaluator, over)
        except (EvaluatorLost, RemoteError):
            over.wait(0.1)  # As a client does that has nowhere else to go.


def _ask_until_lost(evaluator: EvaluatorClient, over: threading.Event) -> None:
    asked: dict[int, PositionBatch] = {}
    number = 0
    while not over.is_set() and (asked or not evaluator.draining):
        while len(asked) < 3 and not evaluator.draining:
            batch = BATCHES[number % len(BATCHES)]
            asked[evaluator.submit(batch)] = batch
            number += 1
        done = evaluator.receive(timeout_ms=100)
        if done is None:
            continue
        batch = asked.pop(done.id)
        if done.evaluation is not None:
            assert np.array_equal(done.evaluation.logits, random_evaluation(batch).logits)
    over.wait(0.1)


def raw_client(*messages: Any) -> Callable[[str, threading.Event], None]:
    """Sends these and then falls silent."""

    def run(address: str, over: threading.Event) -> None:
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(address)
            for message in messages:
                socket.send_multipart(message if isinstance(message, list) else frames_of(message))
            assert over.wait(PATIENCE_S)

    return run


def asking_client(
    address: str, over: threading.Event, *, ends_at: str = "", persistent: bool = False
) -> None:
    """Asks again whenever something comes, be it an error; at a type of message that ends it, no more.
    persistent: where nothing comes it says hello and asks again."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(address)
        socket.send_multipart(frames_of(Hello(1)))
        number = 1
        while not over.is_set():
            if socket.poll(50):
                header = msgpack.unpackb(socket.recv_multipart()[0])
                number += 1
                if header["type"] != ends_at:
                    socket.send_multipart(frames_of(Evaluate(number, BATCHES[0])))
            elif persistent:
                number += 2
                socket.send_multipart(frames_of(Hello(number - 1)))
                socket.send_multipart(frames_of(Evaluate(number, BATCHES[0])))


def test_our_own_client_passes() -> None:
    out = io.StringIO()
    assert walk(our_client, out=out) == {}
    told = out.getvalue().splitlines()
    assert told[0] == "welcome" and told[-1] == "errors that may end a client"
    assert not [line for line in told if line.startswith(" ")]


def test_our_own_client_passes_with_keys_and_compression(tmp_path: Path) -> None:
    pytest.importorskip("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")
    pair = pair_at(tmp_path / SERVICE_PAIR)
    script = Walk("tcp://127.0.0.1:0", PATIENCE_S, io.StringIO(), pair)
    address = f"{script.address}#{show_key(pair.public)}"
    with client_thread(partial(our_client, compress=True, keys=tmp_path / "client"), address):
        assert script.run() == {}
    assert script.compressed > 0


def faults_of(*messages: Any) -> list[str]:
    """What is wrong with a client that sends these messages."""
    faults: list[str] = []
    evaluator = ScriptedEvaluator("tcp://127.0.0.1:0", faults.append)
    with client_thread(raw_client(*messages), evaluator.address):
        try:
            assert evaluator.listen(
                lambda: evaluator.messages == len(messages), time.perf_counter() + PATIENCE_S
            )
        finally:
            evaluator.close(linger_ms=0)
    return faults


def test_a_client_that_compresses_unasked_is_reported() -> None:
    pytest.importorskip("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")
    faults = faults_of(GREETING, encode_evaluate(2, FIRST, "play", None, "", Compressor()))
    assert [text for text in faults if "did not offer" in text]


def test_every_code_that_answers_an_evaluate_is_tried() -> None:
    tried = {PASSING_CODE, *ENDING_CODES, "draining"}
    assert {*ERRORS} - tried == {"cancelled", "load_failed", "unsupported_version"}


GREETING = Hello(1)
FIRST = BATCHES[0]


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([Hello(1, versions=(7,))], "lack 1"),
        ([[b"", *encode(GREETING)]], "DEALER"),
        ([[msgpack.packb({b"type": b"hello", b"id": 1})]], "bad_request"),
        ([Evaluate(1, FIRST)], "without a hello"),
        ([GREETING, Evaluate(2, FIRST), Evaluate(2, FIRST)], "duplicate_id"),
        ([GREETING, Evaluate(2, FIRST, network="bt4")], "unknown_network"),
        ([GREETING, Evaluate(2, PositionBatch.concatenate([FIRST] * 65))], "too_large"),
        ([GREETING, Evaluate(2, changed(109, 0))], "plane 109"),
        ([GREETING, Evaluate(2, changed(111, 1))], "plane 111"),
        ([GREETING, Evaluate(2, changed(110, 1))], "plane 110"),
        ([GREETING, Evaluate(2, changed(104, 1))], "planes 104"),
        ([GREETING, Evaluate(2, changed(5, 0))], "one king"),
        ([GREETING, Evaluate(2, changed(1, 1 << 4))], "one square"),
        ([GREETING, Evaluate(2, with_moves(*range(20)))], "test vector 'the initial position'"),
        ([GREETING, Evaluate(2, with_moves(5, 5))], "same policy index twice"),
    ],
)
def test_a_wrong_message_is_reported(messages: list[Any], fault: str) -> None:
    assert [text for text in faults_of(*messages) if fault in text]


@pytest.mark.parametrize(
    ("messages", "fault"), [([], "a hello was waited for"), ([GREETING], "an evaluate was waited for")]
)
def test_a_client_that_falls_silent_is_reported_what_was_expected(messages: list[Any], fault: str) -> None:
    (told,) = walk(raw_client(*messages), BRIEF_S)
    assert told.endswith(fault)


def test_a_client_that_does_not_notice_a_loss_is_reported() -> None:
    (told,) = walk(asking_client, BRIEF_S)
    assert told.startswith("a restart: ") and "say hello, and ask again" in told


def test_a_client_that_spins_while_the_evaluator_drains_is_reported() -> None:
    faults = walk(partial(asking_client, persistent=True))
    assert any(told.startswith("draining: ") and "go elsewhere" in told for told in faults)


def test_a_client_that_gives_up_after_an_error_is_reported() -> None:
    (told,) = walk(partial(asking_client, ends_at="error"), BRIEF_S)
    assert "is to be sent again" in told


def test_the_command_prints_the_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--listen", "tcp://127.0.0.1:0", "--patience", "0.1"]) == 1
    printed = capsys.readouterr().out
    assert "listening at tcp://127.0.0.1:" in printed
    assert "a hello was waited for" in printed
