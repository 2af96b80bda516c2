# SPDX-License-Identifier: GPL-3.0-or-later
"""Welcomes of broken evaluators are errors of the connection, whatever is wrong with them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import zmq

from protocol.client import EvaluatorClient
from protocol.errors import EvaluatorFailure, EvaluatorLost, UnknownNetwork
from protocol.wire.codec import decode_request, encode
from protocol.wire.messages import WIRE_MAX_POSITIONS, NetworkInfo, Welcome

NETWORK = NetworkInfo("net", "0" * 64, 1, recommended_batch=8, curve=((1, 1.0), (8, 2.0)))
WELCOME = Welcome(1, version=1, server="s", max_batch=64, networks=(NETWORK,), state="ready", default="net")


@contextmanager
def welcoming(**changes: Any) -> Iterator[str]:
    """The address of an evaluator that answers one hello with a changed welcome."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        port = router.bind_to_random_port("tcp://127.0.0.1")

        def answer() -> None:
            who, *frames = router.recv_multipart(copy=False)
            hello = decode_request(frames)
            frames_back: list[Any] = encode(replace(WELCOME, id=hello.id, **changes))
            router.send_multipart([who, *frames_back])

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{port}"
        thread.join(10)


def test_right_welcome_is_taken() -> None:
    with welcoming() as address, EvaluatorClient(address, timeout=10) as client:
        assert client.network == NETWORK


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"default": "nobody"}, UnknownNetwork),
        ({"default": "nobody", "networks": ()}, UnknownNetwork),
        ({"default": None, "networks": ()}, UnknownNetwork),
        ({"networks": (replace(NETWORK, curve=((0, 1.0),)),)}, EvaluatorLost),
        ({"networks": (replace(NETWORK, curve=((1, float("nan")),)),)}, EvaluatorLost),
        ({"networks": (replace(NETWORK, recommended_batch=1 << 40),)}, EvaluatorLost),
        ({"max_batch": WIRE_MAX_POSITIONS + 1}, EvaluatorLost),
        ({"max_batch": 0}, EvaluatorLost),
    ],
)
def test_odd_welcome_is_an_error(changes: dict[str, Any], error: type[EvaluatorFailure]) -> None:
    with welcoming(**changes) as address, pytest.raises(error):
        EvaluatorClient(address, timeout=10)
