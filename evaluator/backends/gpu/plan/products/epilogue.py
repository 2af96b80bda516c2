# SPDX-License-Identifier: GPL-3.0-or-later
"""The epilogue of a matrix product: computed by its kernel, or by a pass of kernels/rows.hip for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.builder import ACTIVATION_CODES, Geometry, ProgramBuilder
from evaluator.backends.gpu.plan.program import Buffer, Matrix
from evaluator.network.spec import Activation, Gating, LayerNorm

_ROW_ELEMENTS_PER_LANE = 32
"""Elements per thread of kernels/rows.hip in registers before a row gets more threads."""

_PIPELINED_ROWS = 8192
"""Minimum rows for a wave of kernels/rows.hip to process several, one after the other."""


@dataclass(frozen=True, slots=True)
class After:
    """Operations after a product in the same pass: norm, then gating.

    parts: (width, used) if a row is several parts of `width` elements, and the norm counts only the first
    `used` of each; its gammas and betas are 0 for the others. (0, 0): the whole row counts.
    """

    norm: LayerNorm | None = None
    gating: Gating | None = None
    parts: tuple[int, int] = (0, 0)

    def __bool__(self) -> bool:
        return self.norm is not None or self.gating is not None


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Operations on a product's sums: activation(sums + bias + residual), then `after`."""

    bias: Buffer | None = None
    residual: Buffer | None = None
    activation: Activation = Activation.NONE
    after: After = After()

    def __bool__(self) -> bool:
        added = self.bias is not None or self.residual is not None
        return added or self.activation is not Activation.NONE or bool(self.after)


@dataclass(frozen=True, slots=True)
class Partials:
    """Partial sums of a product that is split along k: float32 [splits, rows, padded width]."""

    buffer: Buffer
    splits: int


def finish_rows(
    b: ProgramBuilder,
    name: str,
    source: Matrix | Partials,
    out: Matrix | None,
    epilogue: Epilogue,
    rounded: Matrix | None = None,
) -> None:
    """Append a pass of kernels/rows.hip into out, rounded, or both. source: the product's result."""
    shape = rounded if out is None else out
    assert shape is not None
    numbers = 1 if out is not None else 2  # per element
    width, stride = shape.width * numbers, shape.stride * numbers
    wave = b.target.wave
    waves = 1
    while waves < 8 and stride > _ROW_ELEMENTS_PER_LANE * wave * waves:
        waves *= 2
    rows = max(1, 4 // waves)
    partials = source if isinstance(source, Partials) else None
    passes = 4 if shape.rows >= _PIPELINED_ROWS and partials is None else 1
    after = epilogue.after
    norm = after.norm
    b.launch(
        "rows",
        {
            "WIDTH": width,
            "LANES": waves * wave,
            "ROWS": rows,
            "PASSES": passes,
            "SPLIT": int(partials is not None),
            "ACTIVATION": ACTIVATION_CODES[epilogue.activation],
            "BIAS": int(epilogue.bias is not None),
            "RESIDUAL": int(epilogue.residual is not None),
            "NORMALISE": int(norm is not None),
            "PART": after.parts[0],
            "PART_USED": after.parts[1],
            "GATE": int(after.gating is not None),
            "KEEP": int(out is not None),
            "ROUND": b.format_code(rounded),
        },
        Geometry((-(-shape.rows // (rows * passes)), 1, 1), waves * wave * rows),
        (
            source.buffer if partials is None else None,
            None if partials is None else partials.buffer,
            epilogue.bias,
            epilogue.residual,
            *norm_vectors(b, name, norm),
            *_gating(b, name, after.gating),
            None if out is None else out.buffer,
            shape.rows,
            1 if partials is None else partials.splits,
            0.0 if norm is None else float(norm.epsilon),
            None if rounded is None else rounded.buffer,
            b.round_scale(rounded),
        ),
        f"{name}, rows",
    )


def norm_vectors(b: ProgramBuilder, name: str, norm: LayerNorm | None) -> tuple[Buffer | None, Buffer | None]:
    """Return the gammas and betas."""
    if norm is None:
        return None, None
    return (
        b.weight(f"{name}.gammas", lambda: pack.vector(norm.gammas, b.precision)),
        b.weight(f"{name}.betas", lambda: pack.vector(norm.betas, b.precision)),
    )


def _gating(b: ProgramBuilder, name: str, gating: Gating | None) -> tuple[Buffer | None, Buffer | None]:
    """Return the factors and summands of each square."""
    if gating is None:
        return None, None
    chunk = b.precision.chunk
    return (
        b.weight(f"{name}.multiply", lambda: pack.padded(gating.multiply, 1, chunk)),
        b.weight(f"{name}.add", lambda: pack.padded(gating.add, 1, chunk)),
    )
