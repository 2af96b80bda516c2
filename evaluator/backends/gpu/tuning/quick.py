# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses matrix products without measuring, for a quick start.

Cached measurements of this device take precedence. Otherwise: the wgmma kernels if many rows fill the chip
and a library would need another pass, else a trusted library's first guess, else the best tile by the model
of plan/tiles.py. As few kernels as possible are compiled. The plan passes the same self-check as any other,
and is replaced once there are measurements (devices/tuning.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evaluator.backends.gpu.blas.library import EPILOGUES, Library
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.device import DeviceError, DeviceInfo
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan import hopper
from evaluator.backends.gpu.plan.tiles import Choice, Measured, model_chooser
from evaluator.backends.gpu.tuning.tune import offers
from evaluator.network.spec import Activation

TRUSTED = ("cuBLASLt",)
"""Libraries whose first guess needs no check: AMD's compile for minutes for some shapes, or are wrong."""

_MOST_ROW_BLOCKS = 4
"""Maximum number of blocks that share a row and exchange its norm's sums: more wait too long for each
other."""


class QuickChooser:
    """A Chooser that measures nothing. guessed: products without a measurement."""

    def __init__(
        self,
        info: DeviceInfo,
        precision: Precision,
        libraries: Sequence[Library],
        known: Mapping[Product, Sequence[Measured]],
    ) -> None:
        """known: measurements, fastest first. The device must be the calling thread's."""
        self._info, self._precision = info, precision
        self._libraries = [library for library in libraries if library.name in TRUSTED]
        self._known = known
        self._model = model_chooser(info.target, precision, info.multiprocessors)
        self.guessed: dict[Product, Choice] = {}

    def choose(self, product: Product) -> Choice:
        """Return how to compute a product."""
        if product in self._known:
            return self._known[product][0].choice
        if product not in self.guessed:
            self.guessed[product] = self._guess(product)
        return self.guessed[product]

    def _guess(self, product: Product) -> Choice:
        library = self._of_library(product)
        activations = {Activation.NONE}
        if library is not None:
            activations |= EPILOGUES[library.library].activations
        needs_pass = product.followed or product.activation not in activations
        if (library is None or needs_pass) and (tile := self._wgmma(product)) is not None:
            return Choice(None, hopper=tile)
        return library or self._model(product)

    def _wgmma(self, product: Product) -> hopper.HopperTile | None:
        """Return the tile that was fastest for most products on an H200; None if its blocks would leave
        processors idle."""
        tiles = hopper.candidates(product, self._info.target, self._precision)
        full = [
            tile
            for tile in tiles
            if tile.blocks(product.m, product.n) >= self._info.multiprocessors
            and tile.row_blocks <= _MOST_ROW_BLOCKS
        ]
        return max(
            full, key=lambda tile: (tile.normalise, tile.row_blocks, tile.block_n, tile.cluster), default=None
        )

    def _of_library(self, product: Product) -> Choice | None:
        for library in self._libraries:
            try:
                return next(iter(offers(library, product)), None)
            except DeviceError:
                continue
        return None
