# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of one network on one target: the launches of every batch size, sharing the packed weights."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from evaluator.backends.gpu.driver.target import Precision, Target
from evaluator.backends.gpu.plan import bodies, heads
from evaluator.backends.gpu.plan.builder import ProgramBuilder
from evaluator.backends.gpu.plan.layers import PackedLayers
from evaluator.backends.gpu.plan.persistent import MAX_POSITIONS
from evaluator.backends.gpu.plan.persistent_form import USUAL, PersistentForm, forms_for
from evaluator.backends.gpu.plan.products.linear_layer import Linear
from evaluator.backends.gpu.plan.program import Launch, PlanError, Program
from evaluator.backends.gpu.plan.quantised import WeightFormat
from evaluator.backends.gpu.plan.steps import outputs
from evaluator.backends.gpu.plan.tiles import Chooser, Measurements
from evaluator.network.spec import AttentionBody, NetworkSpec, ResidualTower

log = logging.getLogger(__name__)


FP8_POSITIONS = 16
"""Minimum batch for 8-bit products. Smaller batches wait for memory and launches, not for
the matrix unit, and stay in fp16."""


@dataclass(slots=True)
class Plan:
    """The plan of one network on one target. weights: every array for the device, filled by `program`.

    packed: format to which the network's weights were rounded (quantised.rounded_network), if any. blocks:
    maximum number that can wait for each other in one launch; 0 for none. fused: allow attention and the
    product before it in one kernel at some batch sizes, and norms left to the products that read the rows; a
    position's bits then depend on the batch size. rounded: the network with 8-bit products
    (fp8.rounded_network), for batches of `rounded_from` positions and more. form: of the single launch; None
    for all forms that may be the fastest on the target. measurements: the basis of `choose`, if products were
    measured.
    """

    network: NetworkSpec
    target: Target
    precision: Precision
    choose: Chooser
    packed: WeightFormat | None = None
    blocks: int = 0
    fused: bool = True
    rounded: NetworkSpec | None = None
    rounded_from: int = FP8_POSITIONS
    form: PersistentForm | None = None
    measurements: Measurements | None = None
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    _linears: dict[str, Linear] = field(default_factory=dict)

    def forget(self) -> None:
        """Delete all packed arrays; later requests pack again."""
        self.weights.clear()
        self._linears.clear()

    def network_of(self, positions: int) -> NetworkSpec:
        """Return the network for a batch size."""
        return self.network if self.rounded is None or positions < self.rounded_from else self.rounded

    def program(self, positions: int) -> Program:
        """Return the launches for a batch. Raises PlanError if the kernels do not support the network."""
        if self.fused:
            try:
                return self._program(positions, blocks=0, left=True)
            except PlanError as error:  # gammas times weights may exceed the range
                log.debug("no norms are left to their readers for %d positions: %s", positions, error)
        return self._program(positions, blocks=0)

    def persistent_programs(self, positions: int) -> list[Program]:
        """Return the programs with all encoders in one launch, for a few positions, one per possible form."""
        forms = forms_for(self.target, self.blocks) if self.form is None else (self.form,)
        made = (self._persistent_program(positions, form) for form in forms)
        return [program for program in made if program is not None]

    def _persistent_program(self, positions: int, form: PersistentForm) -> Program | None:
        rounded = self.packed is not None or self.network_of(positions) is self.rounded
        if not self.blocks or positions > MAX_POSITIONS or rounded:
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
        form: PersistentForm = USUAL,
    ) -> Program:
        """blocks: of the single launch for all encoders, in that form; 0 for many launches. left: allow norms
        to be left to the products that read the rows."""
        network = self.network_of(positions)
        b = ProgramBuilder(
            positions,
            self.target,
            self.precision,
            self.choose,
            self.weights,
            fused=self.fused,
            left=left,
            measurements=self.measurements,
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
