// SPDX-License-Identifier: GPL-3.0-or-later
// The policy logits of the legal moves only: about 35 per position, instead of the head's 4288 entries.
//
// move_offsets: [positions + 1]; moves: policy indices; logits: float, in the order of the moves. source: int
// [1858], where each policy entry is computed (see each kernel). Grid: (positions), 8 waves.
#include "portable.h"

constexpr int THREADS = 8 * WAVE;
constexpr int FIRST_PROMOTION = 64 * 64;

#if ATTENTION_POLICY
// The logit of a move is q[from] . k[to], with 1/sqrt(DEPTH) in the weights of q; source = from * 64 + to. A
// promotion, source = 4096 + 24 * from-file + 3 * to-file + piece, adds promotion[piece] . k[to]; the host
// has added up lc0's two offsets. qk: [positions * 64][2 * DEPTH], q then k. One wave per move; its lanes
// divide DEPTH.
KERNEL(policy, THREADS)
(const Element* qk, const float* promotion, const int* source, const uint32* move_offsets,
 const uint16* moves, float* logits) {
  const int lane = thread_index() % WAVE;
  const int position = block_x();
  start_kernel();
  wait_for_previous_kernel();
  const uint32 end = move_offsets[position + 1];
  const Element* board = qk + (uint64)position * 64 * 2 * DEPTH;
  for (uint32 move = move_offsets[position] + thread_index() / WAVE; move < end; move += THREADS / WAVE) {
    const int entry = source[moves[move]];
    int from = entry / 64, to = entry % 64, piece = -1;
    if (entry >= FIRST_PROMOTION) {
      const int rest = entry - FIRST_PROMOTION;
      from = 48 + rest / 24;
      to = 56 + rest % 24 / 3;
      piece = rest % 3;
    }
    const Element* q = board + from * 2 * DEPTH;
    const Element* k = board + to * 2 * DEPTH + DEPTH;
    float sum = 0.0f;
    for (int at = lane * CHUNK; at < DEPTH; at += WAVE * CHUNK) {
      float a[CHUNK], b[CHUNK];
      read_chunk(a, q + at);
      read_chunk(b, k + at);
#pragma unroll
      for (int i = 0; i < CHUNK; i++) sum += a[i] * b[i];
      if (piece >= 0) {
#pragma unroll
        for (int i = 0; i < CHUNK; i++) sum += promotion[piece * DEPTH + at + i] * b[i];
      }
    }
    sum = wave_sum(sum);
    if (lane == 0) logits[move] = sum;
  }
}
#else
// For a head that computes every entry. source: index of an entry among the ENTRIES elements of a position.
KERNEL(policy, THREADS)
(const Element* entries, const float*, const int* source, const uint32* move_offsets, const uint16* moves,
 float* logits) {
  const int position = block_x();
  start_kernel();
  wait_for_previous_kernel();
  const uint32 end = move_offsets[position + 1];
  for (uint32 move = move_offsets[position] + thread_index(); move < end; move += THREADS)
    logits[move] = to_float(entries[(uint64)position * ENTRIES + source[moves[move]]]);
}
#endif
