// SPDX-License-Identifier: GPL-3.0-or-later
// Multi-head attention over the 64 squares, one block per head and position; see attention.h.
//
// qkv: [positions * 64][row_stride], with q, k, v side by side in the first 3 * heads * DEPTH, each head
// padded with zeros to DEPTH (a multiple of 16); 1/sqrt(depth) is in the weights of q. bias (BIAS): the
// smolgen logits [positions][heads][64 queries][64 keys]. out: [positions * 64][heads * DEPTH]. ROUND (E4M3):
// out holds e4m3 numbers (e4m3.h), the results times round_scale.
//
// Grid: (heads, positions), 4 waves. In fp16 at depth 32 nine blocks share a multiprocessor of 228 KB. The
// kernel is bound by moving qkv, bias and out once (BT4, batch 256: 0.2 GB, 47 us at 4.3 TB/s), and needs
// many blocks in flight to keep memory busy.
#include "attention.h"

constexpr int THREADS = 4 * WAVE;

KERNEL(attention, THREADS)
(const Element* qkv, const Element* bias, Element* out, int heads, int row_stride, float round_scale) {
  DYNAMIC_SHARED(shared);
  const int head = block_x(), position = block_y(), width = heads * DEPTH;
  const uint64 first = (uint64)position * 64 * width + head * DEPTH;
#if ROUND == E4M3
  Element* const own = (Element*)((char*)out + first);
#else
  Element* const own = out + first;
#endif
  start_kernel();
  wait_for_previous_kernel();
  attend<4>(shared, qkv + (uint64)position * 64 * row_stride + head * DEPTH, row_stride, width,
            bias + ((uint64)position * heads + head) * 4096, own, round_scale);
}
