# SPDX-License-Identifier: GPL-3.0-or-later
"""All compiled forms of the kernels: those in the plans of networks in use, per target.

Needs no device and no compiler: plans are data. `resources.py` compiles the variants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.compiler import KernelKey
from evaluator.gpu.driver.target import Precision, Target, amd_target, nvidia_target
from evaluator.gpu.plan import cluster_tiles, fp8, hopper
from evaluator.gpu.plan.builder import ACTIVATION_CODES
from evaluator.gpu.plan.plan import Plan
from evaluator.gpu.plan.program import Launch
from evaluator.gpu.plan.quantised import WeightFormat, rounded_network
from evaluator.gpu.plan.tiles import Choice, Chooser, candidates, model_chooser
from evaluator.network.random_network import SHAPES, random_network
from evaluator.network.spec import AttentionBody

AMD_TARGETS = (
    "gfx906",
    "gfx908",
    "gfx90a",
    "gfx942",
    "gfx950",
    "gfx1030",
    "gfx1100",
    "gfx1151",
    "gfx1200",
    "gfx1201",
)
NVIDIA_TARGETS = ("sm_80", "sm_90")

NETWORKS = ("t82", "bt4", "t80", "resnet-64x4", "resnet-classical")
"""Shapes whose kernels are listed. Two layers of each suffice, one reading the other's output; further layers
use the same kernels."""

SIZES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 256, 512, 1024)
"""Batch sizes of the plans."""

_TILE_SIZES = (1, 32, 256)
"""One batch size for each order of work in a plan; the tiles do not depend on it."""

LIGHT = ("expand", "policy", "outputs", "squeeze_excite")
"""Kernels with a negligible share of the time. All others are hot: they must not spill."""

_PROCESSORS = 64
_ACTIVATIONS = {code: activation.value for activation, code in ACTIVATION_CODES.items()}


@dataclass(frozen=True, slots=True)
class Variant:
    """A compiled kernel with its launch: dynamic shared memory in bytes, and threads per block."""

    key: KernelKey
    shared_bytes: int
    threads: int

    @property
    def hot(self) -> bool:
        return self.key.file not in LIGHT

    @property
    def label(self) -> str:
        """A label such as "gemm 128x128x32 2x4 mish bias": the constants in words, without zeros."""
        constants = dict(self.key.constants)
        words = [self.key.file]
        if "BLOCK_M" in constants:
            m, n, k = (constants.pop(f"BLOCK_{axis}") for axis in "MNK")
            waves = [constants.pop(f"WARPS_{axis}") for axis in "MNK" if f"WARPS_{axis}" in constants]
            words += [f"{m}x{n}x{k}", "*".join(map(str, waves))]
            constants.pop("STAGES", None)
        for name, value in constants.items():
            if name.endswith("ACTIVATION"):
                words += [_ACTIVATIONS[value]] if value else []
            elif value:
                words.append(name.lower() if value == 1 else f"{name.lower()}={value}")
        return " ".join(words)


def target_named(name: str) -> Target:
    """Return the target named "gfx1100" or "sm_90". Raises ValueError for other names."""
    if name.startswith("gfx"):
        return amd_target(name)
    if name.startswith("sm_") and name[3:].isdecimal() and len(name) >= 5:
        return nvidia_target(int(name[3:-1]), int(name[-1]))
    raise ValueError(f"{name!r} is not a target; write gfx1100 or sm_90")


class Variants:
    """Lists variants. Networks are made, and weights packed, once for all targets."""

    def __init__(self, networks: Sequence[str] = NETWORKS) -> None:
        shapes = [SHAPES[name] for name in networks]
        self._networks = [
            random_network(replace(shape, layers=min(shape.layers, 2), blocks=min(shape.blocks, 1)))
            for shape in shapes
        ]
        self._plans: dict[Precision, list[tuple[Plan, bool]]] = {}

    def used(self, target: Target, precision: Precision) -> list[Variant]:
        """Return the variants that run without measurements: the tiles that the model chooses."""
        choose = model_chooser(target, precision, _PROCESSORS)
        return _sorted(self._of(target, precision, choose, SIZES))

    def all(self, target: Target, precision: Precision) -> list[Variant]:
        """Return the variants that tuning may choose: every tile with every epilogue, and all of `used`."""
        found = set(self.used(target, precision))
        turn, turns = 0, 1
        while turn < turns:

            def choose(product: Product, turn: int = turn) -> Choice:
                nonlocal turns
                # The number of splits of k does not change the code, only whether it is split.
                different: dict[object, Choice] = {
                    (choice.tile, choice.splits > 1): choice
                    for choice in candidates(product, target, precision, packed=product.weight_bits > 0)
                }
                different |= {
                    (tile, False): Choice(None, hopper=tile)
                    for tile in hopper.candidates(product, target, precision)
                }
                different |= {
                    (tile, False): Choice(None, cluster=tile)
                    for tile in cluster_tiles.candidates(product, target, precision, _PROCESSORS)
                }
                turns = max(turns, len(different))
                return list(different.values())[turn % len(different)]

            found |= set(self._of(target, precision, choose, _TILE_SIZES))
            turn += 1
        return _sorted(found)

    def _of(
        self, target: Target, precision: Precision, choose: Chooser, sizes: Sequence[int]
    ) -> Iterator[Variant]:
        if precision not in self._plans:
            plans: list[tuple[Plan, bool]] = [
                (Plan(network, target, precision, choose, blocks=_PROCESSORS), False)
                for network in self._networks
            ]
            if precision is Precision.FP16:
                plans += [
                    (Plan(rounded_network(network, form), target, precision, choose, form), False)
                    for network in self._networks
                    if isinstance(network.body, AttentionBody)
                    for form in WeightFormat
                ]
                plans += [
                    (Plan(network, target, precision, choose, rounded=fp8.rounded_network(network)), True)
                    for network in self._networks
                    if isinstance(network.body, AttentionBody)
                ]
            self._plans[precision] = plans
        for plan, e4m3 in self._plans[precision]:
            if e4m3 and target.no_e4m3:
                continue
            plan = replace(plan, target=target, choose=choose)  # keeps the packed weights
            for size in sizes:
                programs = [plan.program(size)]
                if target.persistent:
                    programs += plan.persistent_programs(size)
                for program in programs:
                    for step in program.steps:
                        if isinstance(step, Launch):
                            yield Variant(step.kernel, step.shared_bytes, step.threads)


def _sorted(variants: Iterable[Variant]) -> list[Variant]:
    """Sort by hot first, then by kernel and constants."""
    return sorted(set(variants), key=lambda each: (not each.hot, each.key.file, each.key.constants))
