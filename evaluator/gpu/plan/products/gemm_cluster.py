# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches of kernels/gemm_cluster.hip: products of some hundred rows on sm_90 that take and leave norms."""

from __future__ import annotations

from evaluator.gpu.plan.builder import ACTIVATION_CODES, Geometry, ProgramBuilder
from evaluator.gpu.plan.cluster_tiles import BLOCK_K, ClusterTile
from evaluator.gpu.plan.products.epilogue import Epilogue, finish_rows
from evaluator.gpu.plan.products.product_use import Use, norm_arguments, own_epilogue, weights_of
from evaluator.gpu.plan.products.tensor_maps import rows_map, weights_map
from evaluator.gpu.plan.program import Buffer, LeftNorm


def by_cluster_kernel(b: ProgramBuilder, use: Use, tile: ClusterTile) -> None:
    """Append the product by kernels/gemm_cluster.hip with its epilogue; then `after`, if any."""
    out = use.result
    later = bool(use.after) or use.rounded is not None
    if later or out is None:
        out = b.matrix(b.of_branch("product"), use.a.rows, use.layer.width)
    cluster_launch(b, use, tile, out.buffer)
    if later:
        finish_rows(b, use.layer.name, out, use.result, Epilogue(after=use.after), use.rounded)


def cluster_launch(
    b: ProgramBuilder, use: Use, tile: ClusterTile, out: Buffer, leaves: LeftNorm | None = None
) -> None:
    """Append one launch. leaves: the norm that is left to the readers of `out`."""
    layer, product, a = use.layer, use.product, use.a
    of_residual = None if use.residual is None else use.residual.norm
    left = a.norm or of_residual
    epilogue = own_epilogue(b, use)
    weights, _ = weights_of(b, layer, None)
    b.launch(
        "gemm_cluster",
        {
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "BLOCK_K": BLOCK_K,
            "STAGES": tile.stages,
            "CLUSTER_M": tile.cluster_m,
            "SPLITS": tile.splits,
            "MIN_BLOCKS": tile.at_once,
            "ACTIVATION": ACTIVATION_CODES[epilogue.activation],
            "RESIDUAL": int(epilogue.residual is not None),
            "BIAS": int(epilogue.bias is not None),
            "INPUT_NORM": int(a.norm is not None),
            "RESIDUAL_NORM": int(of_residual is not None),
            "NORM_PARTS": 0 if left is None else left.parts,
            "ROW_SUMS": int(leaves is not None),
        },
        Geometry((tile.blocks(a.rows, product.n), 1, 1), tile.threads, tile.shared_bytes),
        (
            rows_map(a.buffer, a.rows, product.k, a.stride, b.precision, tile.block_m),
            weights_map(weights, product.n, product.k, tile.block_n, b.precision),
            epilogue.bias,
            epilogue.residual,
            out,
            a.rows,
            product.n,
            product.k,
            use.ldo,
            *norm_arguments(b, layer, a.norm, of_residual),
            None if leaves is None else leaves.sums,
        ),
        layer.name,
    )
