// SPDX-License-Identifier: GPL-3.0-or-later
// All encoders of a network in one persistent kernel, for a few positions. Counters in memory separate the
// steps, instead of kernel boundaries.
//
// A layer has a few phases, each divided into tiles, which the blocks take cyclically. A tile waits until the
// phases that it depends on are complete, and is counted when it is done (grid.h). A block prefetches the
// weights of its next tile to shared memory as soon as it has multiplied by the current ones: they depend on
// nothing, and at one position reading them is most of the work (BT4: 22 MB per layer, 5 us at 4.3 TB/s).
//
// All shapes are compiled in. With eight waves on a multiprocessor nothing hides the latency of an
// instruction: each took 7 cycles. A version that read the shapes of its phases from memory spent 800
// instructions of every wave, 3 us, on a tile.
//
//   phase      tiles, BT4  computes
//   SQUEEZE    16          parts: norm(y) of 4 squares, compressed and times their rows of W1 (smolgen)
//   QKV        96          q, k, v of norm(y), by other blocks than SQUEEZE
//   DENSE2     128         s2 = act(norm(act(sum of parts + b1)) W2^T + b) and its statistics
//   GENERATE   128         logits = norm(s2) Wg^T
//   ATTENTION  32          mixed = attention of one head
//     With LOGITS_IN_ATTENTION, instead of both:
//   ATTENTION  128         mixed = attention of 8 heads for two queries (persistent_logits.h)
//   OUTPUT     128         z = mixed Wo^T + b + norm(y)
//   FFN1       128         hidden = act(norm(z) Wf^T + b)
//   FFN2       128         y = hidden Wh^T + b + norm(z)
//
// The norm of y is the second norm of the previous layer; the first layer has none. No phase computes only a
// norm: products normalise their inputs, or correct their sums instead (persistent_tile.h). After the last
// layer the rows are normalised and stored to x. TAIL: FFN1 and FFN2 of the embedding come before the layers.
//
// Options of the plan: LOGITS_IN_ATTENTION; PAIRS, clusters of two blocks that share the weights that they
// read. Rows of weights are then a chunk apart in memory as in shared memory, so that one copy loads those of
// a tile.
//
// Grid: at most one block per multiprocessor, launched cooperatively. 8 waves. Shared memory: B_BYTES of
// weights and A_BYTES of inputs per wave (on sm_90 16 + 11 KB, which holds all weights of a tile at once),
// `CommonShared`, and the table of the layers' weights.
#include "attention.h"
#include "persistent_product.h"
#include "persistent_rows.h"
#if BIAS
#include "persistent_squeeze.h"
#endif
#if LOGITS_IN_ATTENTION
#include "persistent_logits.h"
#endif

constexpr int ROWS = 64 * POSITIONS;
constexpr int MODEL = HEADS * DEPTH;

enum Phase { SQUEEZE, QKV, DENSE2, GENERATE, ATTENTION, OUTPUT, FFN1, FFN2, PHASES };

using Qkv = Product<ROWS, 3 * MODEL, WIDTH, QKV_M, QKV_N, ACTIVATION_NONE, OF_INPUTS>;
#if BIAS
using Dense2 = Product<POSITIONS, HEADS * GENERATED, DENSE1_WIDTH, DENSE2_M, DENSE2_N, DENSE2_ACTIVATION>;
using Generate = Product<POSITIONS * HEADS, 4096, GENERATED, GENERATE_M, GENERATE_N, ACTIVATION_NONE,
                         NO_ROW_NORM, HEADS, Dense2::TILES_N, Dense2::BN>;
#if LOGITS_IN_ATTENTION
using Logits = LogitsTile;
using VectorNorm = Product<POSITIONS * HEADS, 4096, GENERATED, 16, 16, ACTIVATION_NONE, NO_ROW_NORM, HEADS,
                           Dense2::TILES_N, Dense2::BN>;
constexpr int ATTENTION_TILES = LogitsTile::TILES;
#else
using Logits = Generate;
constexpr int ATTENTION_TILES = POSITIONS * HEADS;
#endif
#else
constexpr int ATTENTION_TILES = POSITIONS * HEADS;
#endif
using Output = Product<ROWS, WIDTH, MODEL, OUTPUT_M, OUTPUT_N, ACTIVATION_NONE, OF_RESIDUAL>;
using Ffn1 = Product<ROWS, HIDDEN, WIDTH, FFN1_M, FFN1_N, FFN_ACTIVATION, OF_INPUTS>;
using Ffn2 = Product<ROWS, WIDTH, HIDDEN, FFN2_M, FFN2_N, ACTIVATION_NONE, OF_RESIDUAL>;

// The weights of a layer, in the layout of ../plan. With TAIL the first layer has only ffn1 and ffn2:
// those of the embedding, whose phases are the second half of an encoder's.
struct Dense {
  const Element* weights;
  const float* bias;
};
struct Epsilon {
  float value;
  uint32 unused;
};
struct alignas(16) Layer {
  Dense ffn1, ffn2, qkv, output;
  // The sum of each row of weights that include the gammas of a norm.
  const float *ffn1_sums, *qkv_sums;
  Norm norm1, input_norm;
#if BIAS
  const Element* compress;
  const Element* slices;
  const float* dense1_bias;
  const Element* generate;
  Dense dense2;
  const Element* smolgen_norm1;
  const Element* smolgen_norm2;
  Epsilon smolgen_epsilon1, smolgen_epsilon2;
#endif
};

// --- phases and tiles ---

// Waits until one or two phases are complete; null for a phase that was complete before the launch.
DEVICE void wait_for_phases(const uint32* phase, int tiles, const uint32* other = nullptr,
                            int other_tiles = 0) {
  if (thread_index() == 0) {
    if (phase) await(phase, tiles);
    if (other) await(other, other_tiles);
  }
  block_sync();
  grid_acquire();
}

// True if the weights of a product may be prefetched during the epilogue of another: not if its norms would
// overwrite the sums.
template <class P>
constexpr bool PREFETCHES_EARLY = P::BULK || P::GROUP_ROWS == 0;

// Prefetches the weights of the first tile of the block, if it has one.
template <class P>
DEVICE void prefetch_first(Block& block, const Operands& o, int tile, int from = 0) {
  if (tile < P::TILES) prefetch<P>(block, o, tile, from);
}
// Runs the block's tiles of the product P: `tile`, whose weights have been prefetched, and every `blocks`-th
// from there. after: phase of `tiles` tiles to wait for; null if complete. make_inputs: makes the inputs in
// shared memory (INPUTS_MADE). next: prefetches the first weights of the next product, Q.
template <class P, class Q, bool INPUTS_MADE = false, class MakeInputs, class Next>
DEVICE void run_tiles(Block& block, const Operands& o, int tile, int blocks, const uint32* after, int tiles,
                      uint32* done, MakeInputs make_inputs, Next next) {
  constexpr bool EARLY = PREFETCHES_EARLY<P> && PREFETCHES_EARLY<Q>;
  if (tile >= P::TILES) next(0);
  for (; tile < P::TILES; tile += blocks) {
    auto more = [&](int from) {
      if (tile + blocks < P::TILES)
        prefetch<P>(block, o, tile + blocks, from);
      else
        next(from);
    };
    if (after) wait_for_phases(after, tiles);
    make_inputs();
    multiply_tile<P, INPUTS_MADE>(block, o, tile, [&](int from) {
      if (EARLY) more(from);
    });
    signal(done);
    if (!EARLY) more(0);
  }
}

// layers: their number, including the TAIL. input: the embedded board [ROWS][WIDTH]. x: the result,
// normalised with the end_ values. The other buffers are those of the table above. statistics: of s2.
// row_norms0 and row_norms1: mean and scale of each row of y and of z. counters: [layers][PHASES] and one
// more, 0 before and after a launch.
#if PAIRS
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 1) persistent
#else
KERNEL(persistent, ALONE(THREADS))
#endif
    (const Layer* weights, int layers, const float* end_gammas, const float* end_betas, float end_epsilon,
     const Element* input, Element* x, Element* y, Element* z, Element* qkv, Element* mixed, Element* hidden,
     float* parts, Element* s2, Element* logits, float* statistics, float* row_norms0, float* row_norms1,
     uint32* counters, int blocks) {
  DYNAMIC_SHARED(shared);
  Block block = {shared};
  if (thread_index() == 0) {
    bulk_init(common_shared(block).barrier);
#if PAIRS
    bulk_init(common_shared(block).barrier + 1, 2);
#endif
  }
#if PAIRS
  block.free_parity = 1;
#endif
  if (thread_index() < 16) common_shared(block).ones[thread_index()] = to_element(1.0f);
  Layer* table = (Layer*)(shared + WAVES * (A_BYTES + B_BYTES) + sizeof(CommonShared));
  for (int i = thread_index(); i < layers * (int)sizeof(Layer) / 16; i += THREADS)
    ((Bits128*)table)[i] = ((const Bits128*)weights)[i];
  block_sync();
  if (PAIRS) cluster_sync();
  // The last blocks squeeze, so that the others start with q, k and v at once.
  const int block_index = block_x(), index_from_end = blocks - 1 - block_index;
  auto nothing = [] {};
#if BIAS
  const bool squeezes_first = index_from_end < SQUEEZE_TILES;
#else
  const bool squeezes_first = false;
#endif

  auto to_qkv = [&](int index) {
    const Layer& layer = table[index];
    Operands o = {index ? y : input, layer.qkv.weights, layer.qkv.bias, qkv};
    o.factors = layer.qkv_sums;
    o.epsilon = layer.input_norm.epsilon;
    o.row_norms = row_norms0;
    return o;
  };
  auto to_hidden = [&](int index) {
    const Layer& layer = table[index];
    Operands o = {TAIL && index == 0 ? input : z, layer.ffn1.weights, layer.ffn1.bias, hidden};
    o.factors = layer.ffn1_sums;
    o.epsilon = layer.norm1.epsilon;
    o.row_norms = row_norms1;
    return o;
  };
  if (TAIL)
    prefetch_first<Ffn1>(block, to_hidden(0), block_index);
  else if (!squeezes_first)
    prefetch_first<Qkv>(block, to_qkv(0), block_index);

  for (int index = 0; index < layers; index++) {
    const Layer& layer = table[index];
    auto phase = [&](int which) { return counters + (index * PHASES + which); };
    const Element* board = index ? y : input;
    const bool ffn_only = TAIL && index == 0;

    if (!ffn_only) {
      Operands to_z = {mixed, layer.output.weights, layer.output.bias, z, board};
      to_z.factors = layer.input_norm.gammas;
      to_z.offsets = layer.input_norm.betas;
      to_z.row_norms = row_norms0;
      auto output_next = [&](int from) { prefetch_first<Output>(block, to_z, block_index, from); };
#if BIAS
      if (squeezes_first)
        prefetch_squeeze(block, layer.input_norm, layer.compress, layer.slices, index_from_end);
#endif
      wait_for_phases(index ? phase(FFN2 - PHASES) : nullptr, Ffn2::TILES);  // of the previous layer
#if BIAS
      for (int tile = index_from_end; tile < SQUEEZE_TILES; tile += blocks) {
        if (tile != index_from_end)
          prefetch_squeeze(block, layer.input_norm, layer.compress, layer.slices, tile);
        squeeze(block, board, layer.input_norm.epsilon, tile, parts);
        signal(phase(SQUEEZE));
      }
      if (squeezes_first) prefetch_first<Qkv>(block, to_qkv(index), block_index);

      Operands to_s2 = {nullptr, layer.dense2.weights, layer.dense2.bias, s2};
      to_s2.statistics_out = statistics;
      run_tiles<Qkv, Dense2>(block, to_qkv(index), block_index, blocks, nullptr, 0, phase(QKV), nothing,
                             [&](int from) { prefetch_first<Dense2>(block, to_s2, block_index, from); });
#if LOGITS_IN_ATTENTION
      const LogitsOperands to_mixed = {
          layer.generate, layer.smolgen_norm2, s2, statistics, layer.smolgen_epsilon2.value, qkv, mixed};
      auto logits_next = [&](int from) { prefetch_logits(block, to_mixed, block_index, from); };
#else
      Operands to_logits = {s2, layer.generate, nullptr, logits};
      to_logits.norms = layer.smolgen_norm2;
      to_logits.epsilon = layer.smolgen_epsilon2.value;
      to_logits.statistics = statistics;
      auto logits_next = [&](int from) { prefetch_first<Generate>(block, to_logits, block_index, from); };
#endif
      SqueezedVectors<Dense2> squeezed;
      load_squeezed_vectors(squeezed, layer.dense1_bias, layer.smolgen_norm1);
      run_tiles<Dense2, Logits, true>(
          block, to_s2, block_index, blocks, phase(SQUEEZE), SQUEEZE_TILES, phase(DENSE2),
          [&] {
            make_dense2_inputs<Dense2, DENSE1_ACTIVATION>(block, squeezed, parts,
                                                          layer.smolgen_epsilon1.value);
          },
          logits_next);
#if LOGITS_IN_ATTENTION
      if (block_index >= ATTENTION_TILES) output_next(0);
      for (int tile = block_index; tile < ATTENTION_TILES; tile += blocks) {
        wait_for_phases(phase(QKV), Qkv::TILES, phase(DENSE2), Dense2::TILES);
        attend_with_logits<VectorNorm>(block, to_mixed, tile, [&](int from) {
          if (tile + blocks < ATTENTION_TILES)
            prefetch_logits(block, to_mixed, tile + blocks, from);
          else
            output_next(from);
        });
        signal(phase(ATTENTION));
      }
#else
      run_tiles<Generate, Output>(block, to_logits, block_index, blocks, phase(DENSE2), Dense2::TILES,
                                  phase(GENERATE), nothing, output_next);
      const uint32* generated = phase(GENERATE);
      constexpr int GENERATE_TILES = Generate::TILES;
#endif
#else
      run_tiles<Qkv, Output>(block, to_qkv(index), block_index, blocks, nullptr, 0, phase(QKV), nothing,
                             output_next);
      const uint32* generated = nullptr;
      constexpr int GENERATE_TILES = 0;
#endif
#if !LOGITS_IN_ATTENTION
      for (int tile = block_index; tile < ATTENTION_TILES; tile += blocks) {
        const int position = tile / HEADS, head = tile % HEADS;
        wait_for_phases(phase(QKV), Qkv::TILES, generated, GENERATE_TILES);
        attend<WAVES>((char*)inputs_space(block, 0), qkv + position * 64 * 3 * MODEL + head * DEPTH,
                      3 * MODEL, MODEL, logits + tile * 4096, mixed + position * 64 * MODEL + head * DEPTH,
                      1.0f);
        signal(phase(ATTENTION));
      }
#endif
      run_tiles<Output, Ffn1>(
          block, to_z, block_index, blocks, phase(ATTENTION), ATTENTION_TILES, phase(OUTPUT), nothing,
          [&](int from) { prefetch_first<Ffn1>(block, to_hidden(index), block_index, from); });
    }

    Operands to_y = {hidden, layer.ffn2.weights, layer.ffn2.bias, y, ffn_only ? input : z};
    to_y.factors = layer.norm1.gammas;
    to_y.offsets = layer.norm1.betas;
    to_y.row_norms = row_norms1;
    run_tiles<Ffn1, Ffn2>(block, to_hidden(index), block_index, blocks, ffn_only ? nullptr : phase(OUTPUT),
                          Output::TILES, phase(FFN1), nothing,
                          [&](int from) { prefetch_first<Ffn2>(block, to_y, block_index, from); });
#if BIAS
#endif
    run_tiles<Ffn2, Qkv>(block, to_y, block_index, blocks, phase(FFN1), Ffn1::TILES, phase(FFN2), nothing,
                         [&](int from) {
                           if (index + 1 < layers && !squeezes_first)
                             prefetch_first<Qkv>(block, to_qkv(index + 1), block_index, from);
                         });
  }

  uint32* end = counters + layers * PHASES;
  wait_for_phases(end + FFN2 - PHASES, Ffn2::TILES);
  for (int tile = index_from_end; tile < ROWS / WAVES; tile += blocks) {
    const int row = tile * WAVES + thread_index() / WAVE;
    float values[NORM_CHUNKS][CHUNK];
    load_row(values, y + row * WIDTH);
    normalise_row(values, end_gammas, end_betas, end_epsilon);
    store_row(x + row * WIDTH, values);
  }

  // The last block to finish resets the counters.
  int* last = (int*)shared;
  block_sync();
  if (thread_index() == 0) *last = counter_add(end) == (uint32)blocks - 1;
  block_sync();
  if (*last)
    for (int i = thread_index(); i < layers * PHASES + 1; i += THREADS) counters[i] = 0;
  if (PAIRS) cluster_sync();  // neither may end while the other still accesses its shared memory
}
