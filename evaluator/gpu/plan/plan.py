# SPDX-License-Identifier: GPL-3.0-or-later
"""How one network runs on one target: the launches of every batch size, with the packed weights kept between
them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.target import Precision, Target
from evaluator.gpu.plan import bodies, heads
from evaluator.gpu.plan.builder import ProgramBuilder
from evaluator.gpu.plan.layers import PackedLayers
from evaluator.gpu.plan.persistent_form import USUAL, PersistentForm, forms_for
from evaluator.gpu.plan.products.linear_layer import Linear
from evaluator.gpu.plan.program import Launch, PlanError, Program
from evaluator.gpu.plan.quantised import WeightFormat
from evaluator.gpu.plan.steps import outputs
from evaluator.gpu.plan.tiles import Choice, Chooser, Measured, Measurements
from evaluator.network.spec import AttentionBody, NetworkSpec, ResidualTower

log = logging.getLogger(__name__)


FP8_POSITIONS = 16
"""With precision=fp8, batches of at least this many positions have products of 8 bits. Smaller ones wait for
memory and for each other's launches, not for the matrix unit, and stay in fp16."""


OWN_POSITIONS = range(2, 33)
"""Batches that may be computed by our own kernels alone. A larger one is long beside the gaps between its
launches; a single position has one launch for all encoders."""


@dataclass(slots=True)
class Plan:
    """How one network runs on one target. weights: every array for the device, filled by `program`.

    packed: the format that the network's weights were rounded to (quantised.rounded_network), if they were.
    blocks: how many can wait for each other in one launch, 0 for none. fused: whether attention and the
    product before it may be one kernel at some batch sizes, and norms may be left to the products that read
    their rows, by which a position's bits then differ.
    rounded: the network with products of 8 bits (fp8.rounded_network), which batches of
    FP8_POSITIONS and more compute in place of it. form: of the one launch; None for all forms that
    may be the fastest on the target. measurements: what `choose`
    chooses by, if products were measured.
    """

    network: NetworkSpec
    target: Target
    precision: Precision
    choose: Chooser
    packed: WeightFormat | None = None
    blocks: int = 0
    fused: bool = True
    rounded: NetworkSpec | None = None
    form: PersistentForm | None = None
    measurements: Measurements | None = None
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    _linears: dict[str, Linear] = field(default_factory=dict)

    def forget(self) -> None:
        """Drop everything that was packed: what is asked for next is packed anew."""
        self.weights.clear()
        self._linears.clear()

    def network_of(self, positions: int) -> NetworkSpec:
        """What a batch of so many positions computes."""
        return self.network if self.rounded is None or positions < FP8_POSITIONS else self.rounded

    def program(self, positions: int) -> Program:
        """The launches for a batch. Raises PlanError for what the kernels cannot run."""
        if self.fused:
            try:
                # On sm_90 only what is all our own leaves norms: whether that is faster shows in the whole.
                return self._program(positions, blocks=0, left=self.target.name != "sm_90")
            except PlanError as error:  # gammas and weights may be too large together
                log.debug("no norms are left to their readers for %d positions: %s", positions, error)
        return self._program(positions, blocks=0)

    def own_programs(self, positions: int) -> list[Program]:
        """A program of our own kernels alone, if there is one, for a few positions on sm_90: each kernel
        begins while the one before it ends, and fetches its weights meanwhile, which a library's do not. With
        smolgen as a second branch: one chain of all was 5 to 12 % slower."""
        if self.measurements is None or self.target.name != "sm_90" or positions not in OWN_POSITIONS:
            return []
        if self.packed is not None or self.network_of(positions) is self.rounded:
            return []
        program = self.own_program(positions, chained=False)
        return [] if program is None else [program]

    def own_program(self, positions: int, *, chained: bool, left: bool = True) -> Program | None:
        """One of them. left: whether norms may be left to the products that read their rows. None if that
        cannot be."""
        try:
            return self._program(positions, blocks=0, left=left, own=True, chained=chained)
        except PlanError as error:  # gammas and weights may be too large together
            log.debug("no program of our own kernels alone for %d positions: %s", positions, error)
            return self.own_program(positions, chained=chained, left=False) if left else None

    def persistent_programs(self, positions: int) -> list[Program]:
        """The programs with all encoders in one launch, for a few positions, one for each form that can
        be."""
        forms = forms_for(self.target, self.blocks) if self.form is None else (self.form,)
        made = (self._persistent_program(positions, form) for form in forms)
        return [program for program in made if program is not None]

    def _persistent_program(self, positions: int, form: PersistentForm) -> Program | None:
        rounded = self.packed is not None or self.network_of(positions) is self.rounded
        if not self.blocks or positions > form.most_positions or rounded:
            return None
        try:
            program = self._program(positions, blocks=self.blocks, form=form)
        except PlanError as error:
            log.debug("no persistent kernel for %d positions: %s", positions, error)
            return None
        together = any(isinstance(step, Launch) and step.cooperative for step in program.steps)
        return program if together else None

    def _program(
        self,
        positions: int,
        *,
        blocks: int,
        left: bool = False,
        own: bool = False,
        chained: bool | None = None,
        form: PersistentForm = USUAL,
    ) -> Program:
        """blocks: of one launch for all encoders, which has that form; 0 for many launches. left: whether
        norms may be left to the products that read their rows. own: whether only our own kernels compute
        products, for which they must have been measured. chained: as of ProgramBuilder."""
        network = self.network_of(positions)
        choose, measurements = self.choose, self.measurements
        if own:
            assert measurements is not None
            choose, measurements = _without_libraries(measurements)
        b = ProgramBuilder(
            positions,
            self.target,
            self.precision,
            choose,
            self.weights,
            fused=self.fused,
            left=left,
            chained=chained,
            measurements=measurements,
        )
        unit = self.target.matrix_unit(self.precision)
        layers = PackedLayers(self.precision, self._linears, self.packed, unit)
        match network.body:
            case ResidualTower() as tower:
                x = bodies.residual_tower(b, layers, tower)
            case AttentionBody() as body:
                x = bodies.attention_body(b, layers, body, blocks, form)
        b.fork()
        moves_left = network.moves_left
        value, moves = heads.hidden_layers(b, layers, network.value, moves_left, x)
        b.main()
        heads.policy(b, layers, network.policy, x)
        b.join()
        outputs(b, value, network.value.dense2, moves, None if moves_left is None else moves_left.dense2)
        return b.program


def _without_libraries(measurements: Measurements) -> tuple[Chooser, Measurements]:
    """The same of what is our own alone."""

    def own(product: Product) -> list[Measured]:
        return [each for each in measurements(product) if not each.choice.library]

    def choose(product: Product) -> Choice:
        found = own(product)
        if not found:
            raise PlanError(f"{product}: nothing of our own computes it")
        return found[0].choice

    return choose, own
