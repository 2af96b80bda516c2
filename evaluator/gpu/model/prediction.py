# SPDX-License-Identifier: GPL-3.0-or-later
"""Predicts positions per second of whole networks on a card, launch by launch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import ModuleType

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.compiler import KernelKey
from evaluator.gpu.driver.target import Precision, Target
from evaluator.gpu.inspect.variants import LIGHT, Variant, target_named
from evaluator.gpu.model import amd, nvidia
from evaluator.gpu.model.cards import Card
from evaluator.gpu.model.code import NOTHING, Code
from evaluator.gpu.model.timing import Timing, timing, traffic_of
from evaluator.gpu.plan.plan import Plan
from evaluator.gpu.plan.products.gemm import gemm_constants, whole_steps
from evaluator.gpu.plan.program import Launch, Program
from evaluator.gpu.plan.tiles import Choice, candidates, model_chooser
from evaluator.network.random_network import SHAPES, random_network

_MOST_SPLITS = 8

_ENCODER = re.compile(r"^encoder\d+\.")


@dataclass(frozen=True, slots=True)
class Phase:
    """A predicted launch. count: occurrences in the whole network. tile: of a product."""

    label: str
    kernel: str
    timing: Timing
    count: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for a network at one batch size on one card."""

    positions: int
    phases: tuple[Phase, ...]

    @property
    def milliseconds(self) -> float:
        return sum(phase.count * phase.timing.microseconds for phase in self.phases) / 1000

    @property
    def positions_per_second(self) -> float:
        return 1000 * self.positions / self.milliseconds

    @property
    def most_positions_per_second(self) -> float:
        """Positions per second if all parts of a unit worked concurrently all the time."""
        return 1e6 * self.positions / sum(phase.count * phase.timing.bound for phase in self.phases)


def unavailable(card: Card) -> str | None:
    """Return why nothing can be predicted for a card here; None if it can."""
    reason: str | None = _maker(card).unavailable(target_named(card.target))
    return reason


class Model:
    """Predictions for one card in fp16 with our own kernels alone. Kernels are compiled on first use."""

    def __init__(self, card: Card, *, tuned: bool = True, deterministic: bool = False) -> None:
        """tuned: each product gets the tile that is fastest in this model, as if measured; else that of
        `tiles.model_chooser`. deterministic: its choice in that mode, without tuning."""
        self.card = card
        self.target: Target = target_named(card.target)
        usual = model_chooser(self.target, Precision.FP16, card.units, deterministic=deterministic)
        self._choose = self._fastest if tuned and not deterministic else usual
        self._fused = card.target.startswith("gfx") and not deterministic
        self._codes: dict[KernelKey, Code] = {}
        self._chosen: dict[Product, Choice] = {}

    def predict(self, network: str, batches: Sequence[int]) -> list[Prediction]:
        """Predict each batch size. network: a name of SHAPES. Raises CompilationError."""
        shape = SHAPES[network]
        # A first and a last encoder, and one that represents all others.
        spec = random_network(replace(shape, layers=min(shape.layers, 3), blocks=min(shape.blocks, 1)))
        repeats = {"encoder1.": max(1, shape.layers - 2), "block0.": shape.blocks}
        plan = Plan(spec, self.target, Precision.FP16, self._choose, fused=self._fused)
        return [self._prediction(plan.program(size), repeats) for size in batches]

    def _prediction(self, program: Program, repeats: dict[str, int]) -> Prediction:
        launches = [step for step in program.steps if isinstance(step, Launch)]
        sizes = {name: float(array.nbytes) for name, array in program.weights.items()}

        def count(label: str) -> int:
            return next((times for start, times in repeats.items() if label.startswith(start)), 1)

        weights = sum(size * count(name) for name, size in sizes.items())
        found = self.timings(launches, sizes | program.work, weights)
        phases: list[Phase] = []
        for launch, each in zip(launches, found, strict=True):
            phase = Phase(_ENCODER.sub("encoder.", launch.label), _label(launch), each, count(launch.label))
            _add(phases, phase)
        return Prediction(program.positions, tuple(phases))

    def timings(self, launches: Sequence[Launch], sizes: dict[str, float], weights: float) -> list[Timing]:
        """Return times of kernels that the model supports (`predictable`). sizes: of the program's buffers.
        weights: bytes of the whole network's. Raises CompilationError."""
        self._compile(launches)
        found = []
        for launch in launches:
            traffic = traffic_of(launch, sizes)
            cached = traffic.data + weights < self.card.cache_mb * 2**20 / 2
            code = self._codes.get(_reduced(launch.kernel), NOTHING)
            found.append(timing(launch, code, self.card, self.target, traffic, cached))
        return found

    # -- choosing --------------------------------------------------------------------------------------

    def _fastest(self, product: Product) -> Choice:
        """Return the fastest of our own tiles in this model."""
        if product not in self._chosen:
            possible = [
                choice
                for choice in candidates(product, self.target, Precision.FP16)
                if choice.splits <= _MOST_SPLITS
            ]
            launches = [_launch_of(product, choice, self.target) for choice in possible]
            self._compile(launches)
            times = [self._time(product, launch) for launch in launches]
            self._chosen[product] = possible[times.index(min(times))]
        return self._chosen[product]

    def _time(self, product: Product, launch: Launch) -> float:
        """Return the microseconds, including the pass that adds up splits."""
        code = self._codes[_reduced(launch.kernel)]
        traffic = traffic_of(launch, {})
        own = timing(launch, code, self.card, self.target, traffic, cached=False).microseconds
        splits = launch.grid[2]
        if splits == 1:
            return own
        again = 4.0 * product.m * product.n * splits / (self.card.cache * 1e3)
        return own + again + (0.0 if product.followed else self.card.launch)

    # -- compiling -------------------------------------------------------------------------------------

    def _compile(self, launches: Iterable[Launch]) -> None:
        """Compile and analyse all unknown kernels concurrently."""
        wanted = {
            _reduced(each.kernel): Variant(_reduced(each.kernel), each.shared_bytes, each.threads)
            for each in launches
            if each.kernel.file not in LIGHT
        }
        missing = [variant for key, variant in wanted.items() if key not in self._codes]
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            found = pool.map(self._code, missing)
            self._codes |= dict(zip((variant.key for variant in missing), found, strict=True))

    def _code(self, variant: Variant) -> Code:
        code: Code = _maker(self.card).code_of(variant, self.target, self.card)
        return code


def _add(phases: list[Phase], phase: Phase) -> None:
    """Append a phase, or count it with the equal one of another encoder."""
    for index, each in enumerate(phases):
        if replace(each, count=phase.count) == phase:
            phases[index] = replace(each, count=each.count + phase.count)
            return
    phases.append(phase)


def predictable(launch: Launch) -> bool:
    """Return True if the model supports a kernel: all but those for Hopper and the one for all encoders."""
    return launch.kernel.file in ("gemm", "attention", "rows", *LIGHT)


def _maker(card: Card) -> ModuleType:
    return amd if card.target.startswith("gfx") else nvidia


def _reduced(key: KernelKey) -> KernelKey:
    """Return a kernel without insignificant constants: its epilogue, and whether it takes whole boards."""
    if key.file != "gemm":
        return key
    same = {"SPLIT": 0, "SEGMENT": 0, "ACTIVATION": 0, "BIAS_BY_SQUARE": 0, "BIAS": 1}
    return KernelKey(key.file, key.precision, tuple((dict(key.constants) | same).items()))


def _launch_of(product: Product, choice: Choice, target: Target) -> Launch:
    """Return the launch of a product with one of our tiles, with the arguments needed for timing."""
    tile, split = choice.tile, choice.splits > 1
    assert tile is not None
    constants = gemm_constants(
        tile,
        split=split,
        convolution=product.convolution,
        segment=product.segment,
        bias=not split,
        whole_steps=whole_steps(product, tile, target),
    )
    steps = -(-product.k // tile.block_k)
    sizes = (product.m, product.n, product.k, product.k, product.n, product.k, -(-steps // choice.splits))
    return Launch(
        KernelKey("gemm", Precision.FP16, tuple(constants.items())),
        (-(-product.n // tile.block_n), -(-product.m // tile.block_m), choice.splits),
        tile.warps * target.wave,
        tile.shared_bytes(target, Precision.FP16),
        (*(None,) * 7, *sizes),
        "",
    )


def _label(launch: Launch) -> str:
    """Return a label such as "gemm 128x128x32 / 2": tile and splits of k; "direct" if it takes fragments."""
    constants = dict(launch.kernel.constants)
    if launch.kernel.file != "gemm":
        return launch.kernel.file
    tile = "x".join(str(constants[f"BLOCK_{axis}"]) for axis in "MNK")
    return f"gemm {'direct ' * constants['DIRECT']}{tile}" + (
        f" / {launch.grid[2]}" if launch.grid[2] > 1 else ""
    )
