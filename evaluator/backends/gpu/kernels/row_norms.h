// SPDX-License-Identifier: GPL-3.0-or-later
// Layer norms that are left to the readers of a matrix (gemm.hip).
//
// A product with ROW_SUMS leaves its rows unnormalised and writes, for each part of their columns, the sum
// and the sum of squares: float2 [parts][m]. A part is the columns of one wave's tiles. A product that reads
// the rows as inputs (INPUT_NORM) or as residual (RESIDUAL_NORM) adds the NORM_PARTS parts and applies
//   norm(x) = (x - mean) / sqrt(variance + epsilon) * gammas + betas
// Of inputs the gammas are in the weights and the betas in the bias, so that
//   norm(x) b^T = scale (x b^T) + shift (sums of the weights of each column), shift = -mean * scale
// Of a residual the betas are in the bias, too.
#pragma once
#include "portable.h"

#if INPUT_NORM || RESIDUAL_NORM
#define NORMED 1
#else
#define NORMED 0
#endif

struct alignas(8) RowSums {
  float sum, squares;
};
struct alignas(8) RowNorm {
  float scale, shift;
};

#if NORMED
// parts: of all m rows. Each thread has one of the block's rows; rows beyond the last repeat it.
// per_column: one divided by the number of elements that count.
DEVICE RowNorm row_norm(const RowSums* parts, int row, int m, float per_column, float epsilon) {
  row = row < m ? row : m - 1;
  RowSums part[NORM_PARTS];
#pragma unroll
  for (int i = 0; i < NORM_PARTS; i++) part[i] = parts[(uint64)i * m + row];
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int i = 0; i < NORM_PARTS; i++) {
    sum += part[i].sum;
    squares += part[i].squares;
  }
  const float mean = sum * per_column;
  const float scale = reciprocal_sqrt(maximum(squares * per_column - mean * mean, 0.0f) + epsilon);
  return {scale, -mean * scale};
}
#endif
