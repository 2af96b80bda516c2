# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches of kernels/gemm_hopper.hip: products of many rows on sm_90, including the following layer norm."""

from __future__ import annotations

from evaluator.backends.gpu.plan import hopper
from evaluator.backends.gpu.plan.builder import ACTIVATION_CODES, Geometry, ProgramBuilder
from evaluator.backends.gpu.plan.hopper import HopperTile
from evaluator.backends.gpu.plan.products.epilogue import After, Epilogue, finish_rows, norm_vectors
from evaluator.backends.gpu.plan.products.product_use import (
    Use,
    address,
    biases_of,
    sum_scales,
    weights_of,
)
from evaluator.backends.gpu.plan.products.tensor_maps import rows_map, weights_map

ROW_COUNTERS = 1 << 14
"""Counters of kernels/gemm_hopper.hip: four per set of blocks that share rows, 0 between launches."""


def by_hopper_kernel(b: ProgramBuilder, use: Use, tile: HopperTile) -> None:
    """Append the product by kernels/gemm_hopper.hip, which can include the following layer norm."""
    layer, product, a = use.layer, use.product, use.a
    norm = use.after.norm if tile.normalise else None
    later = After() if tile.normalise else use.after
    result, rounded = use.result, use.rounded
    unrounded = rounded is not use.rounded
    if later or (result is None and unrounded):
        result, rounded = b.matrix(b.of_branch("product"), a.rows, layer.width), None
    # Blocks that share rows exchange the sums of 64 rows: two of 8 bytes each, double-buffered.
    row_groups = 2 * tile.blocks(a.rows, product.n) // tile.row_blocks if tile.row_blocks else 0
    weights, _ = weights_of(b, layer, None)
    b.launch(
        "gemm_hopper",
        {
            "BLOCK_N": tile.block_n,
            "STAGES": tile.stages,
            "CLUSTER_M": tile.cluster_m,
            "CLUSTER_N": tile.cluster_n,
            "ACTIVATION": ACTIVATION_CODES[layer.activation],
            "RESIDUAL": int(use.residual is not None),
            "BIAS": int(layer.biases is not None),
            "NORMALISE": int(norm is not None),
            "ROW_BLOCKS": tile.row_blocks,
            "FORMAT": int(layer.e4m3),
            "KEEP": int(result is not None),
            "ROUND": b.format_code(rounded),
        },
        Geometry(
            (tile.blocks(a.rows, product.n), 1, 1),
            hopper.THREADS,
            tile.shared_bytes,
            tile.cluster,
            tile.row_blocks or 1,
        ),
        (
            rows_map(a.buffer, a.rows, product.k, a.stride, b.precision),
            weights_map(weights, product.n, product.k, tile.block_n, b.precision),
            biases_of(b, layer),
            address(use.residual),
            *norm_vectors(b, layer.name, norm),
            address(result),
            a.rows,
            product.n,
            product.k,
            use.ldo,
            0.0 if norm is None else float(norm.epsilon),
            *sum_scales(b, layer),
            address(rounded),
            b.round_scale(rounded),
            b.work("row_parts", row_groups * 2 * 2 * tile.row_blocks * 64 * 8) if row_groups else None,
            b.counters("row_counters", ROW_COUNTERS) if row_groups else None,
        ),
        layer.name,
    )
    if later or unrounded:
        assert result is not None
        out = None if result is use.result else use.result
        finish_rows(b, layer.name, result, out, Epilogue(after=later), use.rounded)
