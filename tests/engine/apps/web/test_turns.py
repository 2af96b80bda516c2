# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns of clients in threads, their limits, and JSON in pieces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.apps.web.bodies import MOST_OF_ELEMENT, PIECE, read_object, written
from engine.apps.web.limits import ApiSettings, ClientLimits
from engine.apps.web.turns import Lane
from protocol.common.http.middleware import HttpError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(), VALUES), st.integers(0, PIECE + 9), st.sampled_from([None, 1]))
def test_object_in_pieces_is_the_same(value: dict[str, object], padding: int, indent: int | None) -> None:
    """padding: moves the places where pieces end."""
    value = {"": "x" * padding, **value}
    body = json.dumps(value, indent=indent).encode()
    assert read_object(body, 10**6) == json.loads(body)
    assert json.loads(written(value)) == json.loads(body)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(), VALUES), st.data())
def test_text_that_is_no_json_is_refused(value: dict[str, object], data: st.DataObject) -> None:
    body = json.dumps(value)
    place = data.draw(st.integers(0, len(body)))
    broken = body[:place] + data.draw(st.sampled_from(["", "}", ",", "[", '"', "0", " "])) + body[place + 1 :]
    try:
        expected = json.loads(broken)
    except ValueError:
        expected = None
    if isinstance(expected, dict):
        assert read_object(broken.encode(), 10**6) == expected
    else:
        with pytest.raises(HttpError):
            read_object(broken.encode(), 10**6)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"a": [' + b"1," * 11 + b"1]}", 413),
        (b'{"a": [[' + b"[]," * MOST_OF_ELEMENT + b"[]]]}", 413),
        (b'{"a": ' + b"[" * MOST_OF_ELEMENT, 400),
        (b'{"a": NaN}', 400),
        (b'{"a": [Infinity]}', 400),
        (b"\xff\xfe{}", 400),
        (b"[]", 422),
    ],
)
def test_body_is_refused_when_it_is_no_object_of_bounded_parts(body: bytes, status: int) -> None:
    with pytest.raises(HttpError) as raised:
        read_object(body, 10)
    assert raised.value.status == status


async def test_clients_take_turns_and_cancelled_work_is_not_done() -> None:
    done: list[str] = []
    lane, gate = Lane(1, 1), asyncio.Event()
    loop = asyncio.get_running_loop()

    def first() -> None:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()

    def note(name: str) -> Callable[[], None]:
        return lambda: done.append(name)

    running = asyncio.create_task(lane.run("many", first))
    waiting = [asyncio.create_task(lane.run("many", note(f"many {number}"))) for number in range(3)]
    waiting.append(asyncio.create_task(lane.run("one", note("one"))))
    left = asyncio.create_task(lane.run("other", note("left")))
    await asyncio.sleep(0)
    for task in (running, left):
        task.cancel()
    gate.set()
    await asyncio.gather(*waiting)
    lane.close()
    assert done == ["many 0", "one", "many 1", "many 2"]


async def test_requests_end_when_the_seconds_of_their_client_are_spent() -> None:
    async def request(limits: ClientLimits) -> None:
        with limits.charged("me"):
            await asyncio.Event().wait()

    limits = ClientLimits(ApiSettings(max_seconds=0.05))
    ended = await asyncio.gather(*(request(limits) for _ in range(3)), return_exceptions=True)
    with pytest.raises(HttpError, match="per minute are spent"):
        await request(limits)
    task = asyncio.create_task(request(ClientLimits(ApiSettings())))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [error.status for error in ([each for each in ended if isinstance(each, HttpError)])] == [429] * 3


async def test_positions_of_all_requests_of_a_client_count() -> None:
    limits = ClientLimits(ApiSettings(max_positions=10))
    with limits.charged("me") as first, limits.charged("me") as second, limits.charged("other") as third:
        limits.add(first, 6)
        limits.add(third, 10)
        for charge, count, status in ((second, 5, 429), (second, 11, 413), (first, 5, 429)):
            with pytest.raises(HttpError) as raised:
                limits.add(charge, count)
            assert raised.value.status == status
        limits.add(second, 4)
