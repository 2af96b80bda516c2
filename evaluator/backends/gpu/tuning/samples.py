# SPDX-License-Identifier: GPL-3.0-or-later
"""Random operands on a device, shared by the measured products.

Filling memory for each of hundreds of products would take longer than running them. So all share one buffer
of inputs, and those of one shape their weights. The random data is a short block, repeated. Its length makes
all rows different, and lets the host compute any row without storing the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.driver.target import MatrixUnit, Precision
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.quantised import Packed, WeightFormat, rounded
from evaluator.backends.gpu.plan.quantised import pack as pack_codes
from evaluator.network.e4m3 import codes, decoded, nearest
from protocol.common.closing import Closing

RESIDUAL_AT = 1 << 13
"""Start of a residual in the inputs, in elements: its rows differ from those of the inputs."""

_BLOCK = (1 << 18) + 1
_BLOCKS_AT_ONCE = 16

_COPIES_BYTES = 96 << 20
"""Total size of the copies of the weights, used cyclically: more than the L2 of any GPU."""

_MOST_COPIES = 64

E4M3_DEVIATION = 8.0
"""Standard deviation of random e4m3 numbers."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of an array on the device: address of the first, count, and stride in bytes."""

    address: int
    count: int
    stride: int

    def __getitem__(self, copy: int) -> int:
        return self.address + copy % self.count * self.stride


@dataclass(frozen=True, slots=True)
class SampleWeights:
    """Weights [n, k] of a product. exact: values of the stored elements, as in `Samples.rows`. plain: copies
    of them. packed: their codes, if rounded; codes, scales: copies of these. fragments: copies in the order
    of MFMA's lanes, if the target has that unit."""

    exact: Any
    plain: Copies
    packed: Packed | None = None
    codes: Copies | None = None
    scales: Copies | None = None
    fragments: Copies | None = None


class Samples(Closing):
    """Used by one thread at a time. `close` frees everything, unless it was abandoned: a hanging call may
    still read it."""

    def __init__(self, device: Gpu, precision: Precision) -> None:
        self._device, self.precision = device, precision
        self._rng = np.random.default_rng(1)
        self._blocks = {False: self._random_block(1.0), True: self._random_pairs()}  # key: e4m3
        self._inputs: dict[bool, tuple[int, int]] = {}
        self._weights: SampleWeights | None = None
        self._of: tuple[int, int, int, bool] | None = None
        self._allocated: list[int] = []
        self.abandoned = False

    def close(self) -> None:
        """Free the device's memory. Idempotent."""
        if not self.abandoned:
            self._free_weights()
            for address, _ in self._inputs.values():
                self._device.free(address)
            self._inputs = {}

    def inputs(self, elements: int, *, e4m3: bool = False) -> int:
        """Return the address of at least this many random elements with standard deviation 1, or of e4m3
        pairs with E4M3_DEVIATION. A call for more elements changes the address."""
        address, there = self._inputs.get(e4m3, (0, 0))
        if elements > there:
            if address:
                self._device.free(self._inputs.pop(e4m3)[0])
            block = self._blocks[e4m3]
            address = self._device.allocate(elements * block.itemsize)
            self._inputs[e4m3] = address, elements
            piece = np.tile(block, _BLOCKS_AT_ONCE)
            for at in range(0, elements, len(piece)):
                self._device.write(address + at * block.itemsize, piece[: elements - at])
        return address

    def rows(self, rows: Any, width: int, at: int = 0, *, e4m3: bool = False) -> Any:
        """Return rows of a matrix that starts at an element of the inputs: [len(rows), width], as `exact`
        returns them; e4m3 pairs as float64, twice as many numbers."""
        places = (np.asarray(rows, np.int64)[:, None] * width + np.arange(width) + at) % _BLOCK
        elements = self._blocks[e4m3][places]
        return _exact_pairs(elements) if e4m3 else exact(elements, self.precision)

    def weights(self, n: int, k: int, bits: int, *, e4m3: bool = False) -> SampleWeights:
        """Return random weights with standard deviation k ** -0.5; those of the last shape are cached. bits:
        of their codes, 0 for none. e4m3: pairs as in `inputs`."""
        if self._weights is None or self._of != (n, k, bits, e4m3):
            self._free_weights()
            self._weights, self._of = self._make_weights(n, k, bits, e4m3), (n, k, bits, e4m3)
        return self._weights

    def _make_weights(self, n: int, k: int, bits: int, e4m3: bool) -> SampleWeights:
        if e4m3:
            pairs = np.resize(self._random_pairs(), (n, k))
            plain, fragments = self._copies(pairs), self._fragments(pairs)
            return SampleWeights(_exact_pairs(pairs), plain, fragments=fragments)
        stored = np.resize(self._random_block(k**-0.5), (n, k))
        if not bits:
            plain, fragments = self._copies(stored), self._fragments(stored)
            return SampleWeights(exact(stored, self.precision), plain, fragments=fragments)
        rounding = next(each for each in WeightFormat if each.bits == bits)
        stored = pack.stored(rounded(stored.astype(np.float32), rounding), self.precision)
        packed = pack_codes(stored, rounding, self._device.info.target.matrix_unit(self.precision))
        assert packed is not None
        scales = self._copies(packed.scales, most=1)
        return SampleWeights(
            exact(stored, self.precision), self._copies(stored), packed, self._copies(packed.codes), scales
        )

    def _fragments(self, stored: Any) -> Copies | None:
        mfma = self._device.info.target.matrix_unit(self.precision) is MatrixUnit.MFMA
        whole = stored.shape[1] % pack.FRAGMENT_K == 0
        return self._copies(pack.fragments(stored)) if mfma and whole else None

    def _random_block(self, deviation: float) -> Any:
        values = self._rng.standard_normal(_BLOCK, np.float32) * np.float32(deviation)
        return pack.stored(values, self.precision)

    def _random_pairs(self) -> Any:
        values = self._rng.standard_normal(2 * _BLOCK, np.float32) * np.float32(E4M3_DEVIATION)
        return codes(nearest(values)).view(np.uint16)

    def _copies(self, array: Any, most: int = _MOST_COPIES) -> Copies:
        stride = pack.round_up(array.nbytes, 256)
        count = max(1, min(most, _COPIES_BYTES // stride))
        address = self._device.allocate(count * stride)
        self._allocated.append(address)
        for copy in range(count):
            self._device.write(address + copy * stride, array)
        return Copies(address, count, stride)

    def _free_weights(self) -> None:
        allocated, self._allocated = self._allocated, []
        for address in allocated:
            self._device.free(address)
        self._weights = self._of = None


def _exact_pairs(pairs: Any) -> Any:
    """Return pairs of e4m3 numbers as float64, twice as many in the last dimension."""
    return decoded(np.ascontiguousarray(pairs).view(np.uint8)).astype(np.float64)


def exact(values: Any, precision: Precision) -> Any:
    """Return stored elements in the host's arithmetic: float64 for fp32, float32 for halves, with similar
    headroom in precision."""
    if precision is Precision.BF16:
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float64 if precision is Precision.FP32 else np.float32)
