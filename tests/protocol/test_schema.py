# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON Schema of messages accepts what the codec makes, and refuses what the codec refuses."""

import json
from typing import Any, get_args

import jsonschema
import msgpack
import numpy as np
import pytest

from protocol.batch import POSITION_DTYPE, EvaluationBatch, PositionBatch
from protocol.errors import BadRequest
from protocol.wire import messages
from protocol.wire.codec import decode_reply, decode_request, encode
from tests.protocol.kit.__main__ import DOCUMENTS, main
from tests.protocol.kit.schema import schema

VALIDATOR = jsonschema.Draft202012Validator(schema())
HEADS = "vanilla", "winner", ("vanilla", "soft"), ("winner",)
NETWORK = messages.NetworkInfo(
    "bt4", "ab" * 32, 5, *HEADS, True, False, "onnx", "CPU", 32, ((1, 1.5), (32, 20.25))
)
BATCH = PositionBatch(
    np.zeros(2, POSITION_DTYPE), np.array([0, 1, 2], np.uint32), np.array([5, 7], np.uint16)
)
EVALUATION = EvaluationBatch(np.zeros(2, np.float32), np.zeros((2, 3), np.float32), np.zeros(2, np.float32))

MESSAGES: list[Any] = [
    messages.Hello(1, client="somebody"),
    messages.Evaluate(2, BATCH, "analysis", 500.0, "bt4"),
    messages.Cancel(2),
    messages.Ping(2**63 - 1),
    messages.Status(4),
    messages.Load(5, "/nets/bt4.pb.gz", "optimistic"),
    messages.Unload(6, "bt4"),
    messages.Alias(7, "default", "bt4"),
    messages.Reload(8),
    messages.Clients(9),
    messages.Drain(10),
    messages.Welcome(1, 1, "server", 4096, (NETWORK,), "ready", "", "bt4", {"default": "bt4"}, "ab12"),
    messages.Welcome(1, 1, "server", 4096, ()),
    messages.Welcome(0, 1, "server", 4096, (NETWORK,), features=messages.FEATURES),
    messages.Hello(1, (1, 2), features=(*messages.FEATURES, "of tomorrow")),
    messages.Result(2, EVALUATION, 0.5, 3.25, 2, "ab12"),
    messages.Result(2, EVALUATION, 0.5, 3.25, 2, "ab12", "ab" * 32),
    messages.Cancelled(2),
    messages.Pong(3),
    messages.StatusReply(4, True, True, False, (NETWORK,), {"errors": {"a": 1}}, "ready", 1767225600.5),
    messages.Loaded(5, NETWORK),
    messages.Unloaded(6),
    messages.Aliased(7, "bt4"),
    messages.Reloaded(8, (NETWORK,), ("bt4",)),
    messages.ClientsReply(9, ({"name": "somebody"},)),
    messages.Drained(10),
    messages.Error(0, "draining", "about to end"),
]


def header(message: Any) -> dict[str, Any]:
    """As JSON sees it."""
    unpacked: dict[str, Any] = msgpack.unpackb(encode(message)[0])
    return unpacked


def decodes(message: Any, changed: dict[str, Any]) -> bool:
    decode = decode_request if isinstance(message, get_args(messages.Request)) else decode_reply
    frames: list[Any] = encode(message)
    arrays = [bytes(memoryview(frame).cast("B")) for frame in frames[1:]]
    try:
        decode([msgpack.packb(changed), *arrays])
    except BadRequest:
        return False
    return True


def kind(message: Any) -> str:
    return type(message).__name__


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_it_is_printed_as_the_other_documents_are(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(DOCUMENTS[name]()))


def test_every_message_is_there() -> None:
    assert {header(message)["type"] for message in MESSAGES} == {*messages.REQUESTS, *messages.REPLIES}
    kinds = {*get_args(messages.Request), *get_args(messages.Reply)}
    assert {type(message) for message in MESSAGES} == kinds


@pytest.mark.parametrize("message", MESSAGES, ids=kind)
def test_encoded_messages_match_the_schema(message: Any) -> None:
    VALIDATOR.validate(header(message))
    VALIDATOR.validate(header(message) | {"a_field_of_tomorrow": [1, "x"]})
    side = "request" if isinstance(message, get_args(messages.Request)) else "reply"
    of_side = {**schema(), "oneOf": [{"$ref": f"#/$defs/{side}"}]}
    jsonschema.Draft202012Validator(of_side).validate(header(message))


WRONG: list[Any] = [None, True, -1, 0, 1.5, 2**63, "", "x" * 40000]
WRONG += [[], [[]], {}, {"a": 1}, ["x" * 2000], [1.5], [[1, True]]]


@pytest.mark.parametrize("message", MESSAGES, ids=kind)
def test_schema_and_codec_reject_the_same_messages(message: Any) -> None:
    whole = header(message)
    refused = 0
    for field in whole:
        variants = [{**whole, field: wrong} for wrong in WRONG]
        variants.append({name: value for name, value in whole.items() if name != field})
        for changed in variants:
            valid = VALIDATOR.is_valid(changed)
            refused += not valid
            if field == "count" and isinstance(changed.get(field), int):
                continue  # It has to agree with the frames, of which the schema knows nothing.
            assert valid == decodes(message, changed), (field, changed.get(field))
    assert refused


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("field", list(header(messages.Loaded(5, NETWORK))["network"]))
def test_networks_are_checked_alike(field: str, wrong: Any) -> None:
    message = messages.Loaded(5, NETWORK)
    whole = header(message)
    changed = {**whole, "network": {**whole["network"], field: wrong}}
    assert VALIDATOR.is_valid(changed) == decodes(message, changed)
