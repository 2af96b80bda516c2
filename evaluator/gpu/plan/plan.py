"""How one network runs on one target: the launches of every batch size, with the packed weights kept between
them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from evaluator.gpu.driver.target import Precision, Target
from evaluator.gpu.plan import bodies, heads
from evaluator.gpu.plan.builder import ProgramBuilder
from evaluator.gpu.plan.layers import PackedLayers
from evaluator.gpu.plan.linear_layer import Linear
from evaluator.gpu.plan.persistent_form import USUAL, PersistentForm
from evaluator.gpu.plan.program import Launch, PlanError, Program
from evaluator.gpu.plan.quantised import WeightFormat
from evaluator.gpu.plan.steps import outputs
from evaluator.gpu.plan.tiles import Chooser, Measurements
from evaluator.network.spec import AttentionBody, NetworkSpec, ResidualTower

log = logging.getLogger(__name__)


EIGHT_BIT_POSITIONS = 16
"""With precision=fp8 or int8, batches of so many positions and more have products of 8 bits. Smaller ones
wait for memory and for each other's launches, not for the matrix unit, and stay in fp16."""


@dataclass(slots=True)
class Plan:
    """How one network runs on one target. weights: every array for the device, filled by `program`.

    packed: the format that the network's weights were rounded to (quantised.rounded_network), if they were.
    blocks: how many can wait for each other in one launch, 0 for none. fused: whether attention and the
    product before it may be one kernel at some batch sizes, and norms may be left to the products that read
    their rows, by which a position's bits then differ.
    rounded: the network with products of 8 bits (eight_bits.rounded_network), which batches of
    EIGHT_BIT_POSITIONS and more compute in place of it. form: of the one launch. measurements: what `choose`
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
    form: PersistentForm = USUAL
    measurements: Measurements | None = None
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    _linears: dict[str, Linear] = field(default_factory=dict)

    def forget(self) -> None:
        """Drop everything that was packed: what is asked for next is packed anew."""
        self.weights.clear()
        self._linears.clear()

    def network_of(self, positions: int) -> NetworkSpec:
        """What a batch of so many positions computes."""
        return self.network if self.rounded is None or positions < EIGHT_BIT_POSITIONS else self.rounded

    def program(self, positions: int) -> Program:
        """The launches for a batch. Raises PlanError for what the kernels cannot run."""
        if self.fused:
            try:
                return self._program(positions, blocks=0, left=True)
            except PlanError as error:  # gammas and weights may be too large together
                log.debug("no norms are left to their readers for %d positions: %s", positions, error)
        return self._program(positions, blocks=0)

    def persistent_program(self, positions: int) -> Program | None:
        """The program with all encoders in one launch, for a few positions; None if that cannot be."""
        rounded = self.packed is not None or self.network_of(positions) is self.rounded
        if not self.blocks or positions > self.form.most_positions or rounded:
            return None
        try:
            program = self._program(positions, blocks=self.blocks)
        except PlanError as error:
            log.debug("no persistent kernel for %d positions: %s", positions, error)
            return None
        together = any(isinstance(step, Launch) and step.cooperative for step in program.steps)
        return program if together else None

    def _program(self, positions: int, *, blocks: int, left: bool = False) -> Program:
        """blocks: of one launch for all encoders; 0 for many launches. left: whether norms may be left to the
        products that read their rows."""
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
                x = bodies.attention_body(b, layers, body, blocks, self.form)
        b.fork()
        moves_left = network.moves_left
        value, moves = heads.hidden_layers(b, layers, network.value, moves_left, x)
        b.main()
        heads.policy(b, layers, network.policy, x)
        b.join()
        outputs(b, value, network.value.dense2, moves, None if moves_left is None else moves_left.dense2)
        return b.program
