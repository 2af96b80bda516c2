# SPDX-License-Identifier: GPL-3.0-or-later
"""One batch on a device without the interpreter: parts joined, calls made, answers taken."""

import ctypes
import os
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator._core import Turn, run_batch
from evaluator.backends.gpu.driver.device import Call
from evaluator.backends.gpu.run.in_flight import Layout
from protocol.batch import POSITION_DTYPE, PositionBatch
from tests.backends.batches import varied_batch

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_size_t] * 5)


def address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class Driver:
    """Functions that note their arguments. fails: the first argument of the call that returns 7."""

    def __init__(self, fails: int = -1) -> None:
        self.made: list[tuple[int, ...]] = []

        def note(*arguments: int) -> int:
            self.made.append(arguments)
            return 7 if arguments[0] == fails else 0

        self._function = FUNCTION(note)

    def call(self, number: int) -> Call:
        return Call("note", address(self._function), (number, 2, 3, 4, 5))


def run(
    parts: list[PositionBatch], layout: Layout, *, block: Any = None, **given: Any
) -> tuple[int, int, bool]:
    """given: calls and outputs, as `run_batch` takes them."""
    block = np.zeros(layout.input_bytes, np.uint8) if block is None else block
    places: dict[str, Any] = {
        "offsets_at": layout.offsets_at,
        "moves_at": layout.moves_at,
        "capacity": layout.positions,
    }
    nothing: dict[str, Any] = {name: [] for name in ("before", "in_turn", "after", "outputs")}
    return run_batch(parts, block, turn=Turn(), **places, **(nothing | given))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 7))
def test_parts_lie_in_the_block_as_one_batch(sizes: list[int], unused: int) -> None:
    parts = [varied_batch(size, seed) for seed, size in enumerate(sizes)]
    whole = PositionBatch.concatenate(parts)
    layout = Layout(len(whole) + unused)
    block = np.full(layout.input_bytes, 0xAA, np.uint8)
    assert run(parts, layout, block=block) == (-1, 0, True)

    positions = block[: len(whole) * POSITION_DTYPE.itemsize].view(POSITION_DTYPE)
    offsets = block[layout.offsets_at :][: 4 * (layout.positions + 1)].view(np.uint32)
    moves = block[layout.moves_at :][: 2 * len(whole.moves)].view(np.uint16)
    assert positions.tobytes() == whole.positions.tobytes()
    assert moves.tolist() == whole.moves.tolist()
    assert offsets.tolist() == whole.move_offsets.tolist() + [len(whole.moves)] * unused
    assert (block[layout.moves_at + 2 * len(whole.moves) :] == 0xAA).all()


def test_calls_are_made_in_order() -> None:
    driver = Driver()
    calls = [driver.call(number) for number in range(5)]
    done = run([varied_batch(1, 0)], Layout(1), before=calls[:2], in_turn=calls[2:3], after=calls[3:])
    assert done == (-1, 0, True)
    assert driver.made == [(number, 2, 3, 4, 5) for number in range(5)]


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_later_calls_are_skipped_when_a_call_fails(fails: int) -> None:
    driver = Driver(fails)
    calls = [driver.call(number) for number in range(3)]
    source, target = np.ones(1, np.float32), np.zeros(1, np.float32)
    outputs, kinds = [(source.view(np.uint8), target)], ("before", "in_turn", "after")
    each = {kind: [call] for kind, call in zip(kinds, calls, strict=True)}
    result = run([varied_batch(1, 0)], Layout(1), **each, outputs=outputs)
    assert result[:2] == (fails, 7)
    assert len(driver.made) == fails + 1
    assert target[0] == 0


def test_a_call_takes_as_many_arguments_as_it_is_given() -> None:
    for count in range(1, 6):
        made: list[tuple[int, ...]] = []
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_size_t] * count)
        function = kind(lambda *arguments, made=made: made.append(arguments) or 0)
        given_arguments = tuple(range(2**63 + 1, 2**63 + 1 + count))
        run([varied_batch(1, 0)], Layout(1), before=[Call("f", address(function), given_arguments)])
        assert made == [given_arguments]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, np.float32(3.4e38)])
@pytest.mark.parametrize("at", [0, 36])
def test_outputs_are_copied_and_looked_at(value: float, at: int) -> None:
    sources = [np.arange(37, dtype=np.float32), np.arange(5, dtype=np.float32)]
    sources[0][at] = value
    targets = [np.zeros(37, np.float32), np.zeros(5, np.float32)]
    outputs = [(source.view(np.uint8), target) for source, target in zip(sources, targets, strict=True)]
    assert run([varied_batch(1, 0)], Layout(1), outputs=outputs) == (-1, 0, bool(np.isfinite(value)))
    for source, target in zip(sources, targets, strict=True):
        assert target.tobytes() == source.tobytes()


def test_other_threads_run_meanwhile() -> None:
    """The call reads from a pipe that only another Python thread can fill."""
    read_end, write_end = os.pipe()
    place = ctypes.create_string_buffer(1)
    read = Call("read", address(ctypes.CDLL(None).read), (read_end, ctypes.addressof(place), 1))
    results = []
    thread = threading.Thread(
        target=lambda: results.append(run([varied_batch(1, 0)], Layout(1), after=[read]))
    )
    thread.start()
    os.write(write_end, b"x")
    thread.join()
    os.close(read_end)
    os.close(write_end)
    assert results == [(0, 1, True)]  # it returns the number of bytes, which is taken for a failure
    assert place.raw == b"x"


def test_batch_is_rejected_when_it_does_not_fit() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        run([varied_batch(3, 0)], Layout(2))
    with pytest.raises(ValueError, match="does not fit"):
        run([varied_batch(1, 0)], Layout(2), block=np.zeros(2000, np.uint8))
    with pytest.raises(ValueError, match="differ in size"):
        run([varied_batch(1, 0)], Layout(1), outputs=[(np.zeros(8, np.uint8), np.zeros(1, np.float32))])
    with pytest.raises(ValueError, match="at most 5"):
        run([varied_batch(1, 0)], Layout(1), before=[Call("f", 1, (1, 2, 3, 4, 5, 6))])
    with pytest.raises(ValueError, match="at least one"):
        run([varied_batch(1, 0)], Layout(1), before=[Call("f", 1, ())])
    good = varied_batch(2, 0)
    with pytest.raises(ValueError, match="one entry more"):
        run([PositionBatch(good.positions, good.move_offsets[:-1], good.moves)], Layout(2))
    with pytest.raises(BufferError):
        run([good], Layout(2), block=memoryview(bytes(Layout(2).input_bytes)))
