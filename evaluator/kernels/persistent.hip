// All encoders of a network in one launch, for a few positions: what separates two steps is not the end of a
// kernel but a counter in memory.
//
// A layer is a few phases, each cut into tiles, which the blocks take in turns. A tile waits until the phases
// that it depends on are complete, and is counted when it is done (grid.h). While a block waits the weights
// of its next tile are already on their way to shared memory: they depend on nothing, and at one position
// reading them is most of the work (BT4: 20 MB a layer, 5 us at 4.3 TB/s).
//
// All shapes are compiled in. Nothing hides the latency of an instruction where a multiprocessor has eight
// waves: each took 7 cycles, and a version that read the shapes of its phases from memory spent 800
// instructions of every wave, 3 us, on a tile.
//
//   phase      tiles, BT4  computes
//   COMPRESS   64          x = norm(y) of the layer before; compressed = x Wc^T; a row
//   QKV        96          q, k, v of x
//   DENSE1     16          s1 = act(compressed W1^T + b) and its statistics, beside QKV
//   DENSE2     128         s2 = act(norm(s1) W2^T + b) and its statistics
//   GENERATE   128         logits = norm(s2) Wg^T
//   ATTENTION  32          mixed; a head
//   OUTPUT     128         y = mixed Wo^T + b + x
//   NORM       8           x = norm(y); 8 rows
//   FFN1       96          hidden = act(x Wf^T + b)
//   FFN2       128         y = hidden Wh^T + b + x
//
// Grid: at most one block for each multiprocessor, launched cooperatively. 8 waves. Shared memory: B_BYTES of
// weights and A_BYTES of inputs for each wave (on sm_90 12 + 14 KB: a tile's weights are there at once),
// `Shared`, and what the layers' weights are.
#include "attention.h"
#include "persistent_product.h"

constexpr int ROWS = 64 * POSITIONS;
constexpr int MODEL = HEADS * DEPTH;
constexpr int NORM_CHUNKS = (WIDTH + CHUNK * WAVE - 1) / (CHUNK * WAVE);

enum Phase { COMPRESS, QKV, DENSE1, DENSE2, GENERATE, ATTENTION, OUTPUT, NORM, FFN1, FFN2, PHASES };

using Qkv = Product<ROWS, 3 * MODEL, WIDTH, QKV_M, QKV_N>;
#if BIAS
using Dense1 = Product<POSITIONS, DENSE1_WIDTH, 64 * COMPRESSED, DENSE1_M, DENSE1_N, DENSE1_ACTIVATION>;
using Dense2 = Product<POSITIONS, HEADS * GENERATED, DENSE1_WIDTH, DENSE2_M, DENSE2_N, DENSE2_ACTIVATION, 1,
                       Dense1::TILES_N, Dense1::BN>;
using Generate = Product<POSITIONS * HEADS, 4096, GENERATED, GENERATE_M, GENERATE_N, ACTIVATION_NONE, HEADS,
                         Dense2::TILES_N, Dense2::BN>;
#endif
using Output = Product<ROWS, WIDTH, MODEL, OUTPUT_M, OUTPUT_N>;
using Ffn1 = Product<ROWS, HIDDEN, WIDTH, FFN1_M, FFN1_N, FFN_ACTIVATION>;
using Ffn2 = Product<ROWS, WIDTH, HIDDEN, FFN2_M, FFN2_N>;

// As gpu/persistent.py writes it: weights and what goes with them.
struct Dense {
  const Element* weights;
  const float* bias;
};
struct Norm {
  const float* gammas;
  const float* betas;
};
struct Epsilon {
  float value;
  uint32 unused;
};
struct alignas(16) Layer {
  Dense qkv, output, ffn1, ffn2;
  Norm norm1, norm2;
  Epsilon epsilon1, epsilon2;
#if BIAS
  const Element* compress;
  const Element* generate;
  Dense dense1, dense2;
  const Element* smolgen_norm1;
  const Element* smolgen_norm2;
  Epsilon smolgen_epsilon1, smolgen_epsilon2;
#endif
};

// --- rows
// ----------------------------------------------------------------------------------------------------------

// Gammas and betas of a lane's part of a row, asked for before the row is there.
struct LaneNorm {
  float gammas[NORM_CHUNKS][CHUNK], betas[NORM_CHUNKS][CHUNK];
};
DEVICE int norm_column(int c) {
  return (thread_index() % WAVE + c * WAVE) * CHUNK;
}
DEVICE bool norm_inside(int c) {
  return WIDTH % (CHUNK * WAVE) == 0 || norm_column(c) < WIDTH;
}
DEVICE void load_norm(LaneNorm& lane, Norm norm) {
#pragma unroll
  for (int c = 0; c < NORM_CHUNKS; c++)
    if (norm_inside(c)) {
      read_floats(lane.gammas[c], norm.gammas + norm_column(c));
      read_floats(lane.betas[c], norm.betas + norm_column(c));
    }
}
DEVICE void load_row(float (&x)[NORM_CHUNKS][CHUNK], const Element* row) {
#pragma unroll
  for (int c = 0; c < NORM_CHUNKS; c++) {
    if (norm_inside(c)) {
      read_chunk(x[c], row + norm_column(c));
    } else {
#pragma unroll
      for (int e = 0; e < CHUNK; e++) x[c][e] = 0.0f;
    }
  }
}
DEVICE void store_row(Element* row, const float (&x)[NORM_CHUNKS][CHUNK]) {
#pragma unroll
  for (int c = 0; c < NORM_CHUNKS; c++)
    if (norm_inside(c)) write_chunk(row + norm_column(c), x[c]);
}
// Layer norm of a row by one wave.
DEVICE void normalise_row(float (&x)[NORM_CHUNKS][CHUNK], const LaneNorm& lane, float epsilon) {
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int c = 0; c < NORM_CHUNKS; c++)
#pragma unroll
    for (int e = 0; e < CHUNK; e++) sum += x[c][e];
  const float mean = wave_sum(sum) / WIDTH;
#pragma unroll
  for (int c = 0; c < NORM_CHUNKS; c++)
#pragma unroll
    for (int e = 0; e < CHUNK; e++) {
      x[c][e] = norm_inside(c) ? x[c][e] - mean : 0.0f;
      squares += x[c][e] * x[c][e];
    }
  const float scale = reciprocal_sqrt(wave_sum(squares) / WIDTH + epsilon);
#pragma unroll
  for (int c = 0; c < NORM_CHUNKS; c++)
    if (norm_inside(c))
#pragma unroll
      for (int e = 0; e < CHUNK; e++) x[c][e] = x[c][e] * scale * lane.gammas[c][e] + lane.betas[c][e];
}

#if BIAS
// Every wave has the whole row, and makes its share of the COMPRESSED values.
constexpr int COMPRESSED_OF_WAVE = (COMPRESSED + WAVES - 1) / WAVES;
constexpr bool COMPRESS_WHOLE = BULK_COPY && COMPRESSED * WIDTH * (int)sizeof(Element) <= WAVES * B_BYTES;
constexpr bool COMPRESS_FITS = COMPRESSED_OF_WAVE * WIDTH * (int)sizeof(Element) <= B_BYTES;

DEVICE void prefetch_compress(Block& block, const Element* weights) {
  const int wave = thread_index() / WAVE, first = wave * COMPRESSED_OF_WAVE;
  if constexpr (COMPRESS_WHOLE) {
    constexpr uint32 BYTES = COMPRESSED * WIDTH * sizeof(Element);
    if (thread_index() == 0) {
      bulk_expect(common_of(block).barrier, BYTES);
      bulk_copy(common_of(block).barrier, weights_of(block, 0), weights, BYTES);
    }
  } else if constexpr (COMPRESS_FITS) {
#pragma unroll
    for (int i = 0; i < COMPRESSED_OF_WAVE; i++)
#pragma unroll
      for (int c = 0; c < NORM_CHUNKS; c++)
        if (norm_inside(c) && first + i < COMPRESSED)
          copy_ahead(weights_of(block, wave) + i * WIDTH + norm_column(c),
                     weights + (first + i) * WIDTH + norm_column(c), true);
    commit_ahead();
  }
}
DEVICE void compress_row(Block& block, const float (&x)[NORM_CHUNKS][CHUNK], const Element* weights,
                         Element* out) {
  const int wave = thread_index() / WAVE, first = wave * COMPRESSED_OF_WAVE;
  const Element* from = COMPRESS_WHOLE  ? weights_of(block, 0) + first * WIDTH
                        : COMPRESS_FITS ? weights_of(block, wave)
                                        : weights + first * WIDTH;
  if constexpr (COMPRESS_WHOLE) {
    bulk_wait(common_of(block).barrier, block.parity);
    block.parity ^= 1;
  }
  constexpr int TOGETHER =
      COMPRESSED_OF_WAVE < 4 ? COMPRESSED_OF_WAVE : 4;  // sums that do not wait for each other
#pragma unroll 1
  for (int at = 0; at < COMPRESSED_OF_WAVE; at += TOGETHER) {
    float dot[TOGETHER];
#pragma unroll
    for (int i = 0; i < TOGETHER; i++) {
      dot[i] = 0.0f;
      const bool inside = at + i < COMPRESSED_OF_WAVE && first + at + i < COMPRESSED;
#pragma unroll
      for (int c = 0; c < NORM_CHUNKS; c++)
        if (inside && norm_inside(c)) {
          float w[CHUNK];
          read_chunk(w, from + (at + i) * WIDTH + norm_column(c));
#pragma unroll
          for (int e = 0; e < CHUNK; e++) dot[i] += x[c][e] * w[e];
        }
    }
#pragma unroll
    for (int i = 0; i < TOGETHER; i++) dot[i] = wave_sum(dot[i]);
#pragma unroll
    for (int i = 0; i < TOGETHER; i++)
      if (thread_index() % WAVE == 0 && at + i < COMPRESSED_OF_WAVE && first + at + i < COMPRESSED)
        out[first + at + i] = to_element(dot[i]);
  }
}
#endif

// --- the walk
// ----------------------------------------------------------------------------------------------------------

// Until a phase is complete; null for one that was complete before the launch.
DEVICE void begin(const uint32* phase, int tiles, const uint32* other = nullptr, int other_tiles = 0) {
  if (thread_index() == 0) {
    if (phase) await(phase, tiles);
    if (other) await(other, other_tiles);
  }
  block_sync();
  grid_acquire();
}

// The tiles of a product that are this block's, of which the first is `tile`, already prefetched.
template <class P>
DEVICE void tiles_of(Block& block, const Operands& o, int tile, int blocks, const uint32* after, int tiles,
                     uint32* done) {
  for (bool first = true; tile < P::TILES; tile += blocks, first = false) {
    if (!first) prefetch<P>(block, o, tile);
    begin(after, tiles);
    multiply_and_finish<P>(block, o, tile);
    signal(done);
  }
}
template <class P>
DEVICE void prefetch_first(Block& block, const Operands& o, int tile) {
  if (tile < P::TILES) prefetch<P>(block, o, tile);
}

// A norm of all rows, eight in a block.
DEVICE void norm_phase(const Element* from, Element* to, Norm norm, float epsilon, int first, int blocks,
                       const uint32* after, int tiles, uint32* done) {
  for (int tile = first; tile < ROWS / WAVES; tile += blocks) {
    const int row = tile * WAVES + thread_index() / WAVE;
    float x[NORM_CHUNKS][CHUNK];
    LaneNorm lane;
    load_norm(lane, norm);
    begin(after, tiles);
    load_row(x, from + row * WIDTH);
    normalise_row(x, lane, epsilon);
    store_row(to + row * WIDTH, x);
    signal(done);
  }
}

// input: the embedded board [ROWS][WIDTH]; x: the same, of which the result is left behind. The other buffers
// are as in the table above; statistics of s1 and s2 in turn. counters: of [layers][PHASES] and two
// more phases, all 0; they are left at 0.
KERNEL(persistent, ALONE(THREADS))
(const Layer* weights, int layers, const Element* input, Element* x, Element* y, Element* qkv, Element* mixed,
 Element* hidden, Element* compressed, Element* s1, Element* s2, Element* logits, float* statistics1,
 float* statistics2, uint32* counters, int blocks) {
  DYNAMIC_SHARED(shared);
  Block block = {shared, 0};
  if (thread_index() == 0) bulk_init(common_of(block).barrier);
  Layer* table = (Layer*)(shared + WAVES * (A_BYTES + B_BYTES) + sizeof(Shared));
  for (int i = thread_index(); i < layers * (int)sizeof(Layer) / 16; i += THREADS)
    ((Bits128*)table)[i] = ((const Bits128*)weights)[i];
  block_sync();
  // Those with a row to compress are the last ones, so that the others begin with q, k and v at once.
  const int own = block_x(), own_row = blocks - 1 - own;
  const int after_qkv = (own + blocks - Qkv::TILES % blocks) % blocks;

  for (int index = 0; index < layers; index++) {
    const Layer& layer = table[index];
    auto phase = [&](int which) { return counters + (index * PHASES + which); };
    const uint32* ready = index ? phase(FFN2 - PHASES) : nullptr;  // of the layer before
    const Layer& last = table[index ? index - 1 : 0];
    const Element* board = index ? x : input;

    const Operands to_qkv = {board, layer.qkv.weights, layer.qkv.bias, nullptr, qkv, nullptr,
                             0,     nullptr,           nullptr};
#if BIAS
    const Operands to_s1 = {compressed, layer.dense1.weights, layer.dense1.bias, nullptr, s1, nullptr, 0,
                            nullptr,    statistics1};
    const Operands to_s2 = {s1,
                            layer.dense2.weights,
                            layer.dense2.bias,
                            nullptr,
                            s2,
                            layer.smolgen_norm1,
                            layer.smolgen_epsilon1.value,
                            statistics1,
                            statistics2};
    const Operands to_logits = {s2,
                                layer.generate,
                                nullptr,
                                nullptr,
                                logits,
                                layer.smolgen_norm2,
                                layer.smolgen_epsilon2.value,
                                statistics2,
                                nullptr};
    for (int row = own_row; row < ROWS; row += blocks) {
      float values[NORM_CHUNKS][CHUNK];
      LaneNorm lane;
      prefetch_compress(block, layer.compress);
      if (index) load_norm(lane, last.norm2);
      begin(ready, Ffn2::TILES);
      load_row(values, (index ? y : input) + row * WIDTH);
      if (index) {
        normalise_row(values, lane, last.epsilon2.value);
        if (thread_index() < WAVE) store_row(x + row * WIDTH, values);
      }
      wave_loaded<0>();
      compress_row(block, values, layer.compress, compressed + row * COMPRESSED);
      signal(phase(COMPRESS));
    }
    // The longer way to the attention is that of smolgen, so its tiles come first.
    if (after_qkv < Dense1::TILES) {
      prefetch<Dense1>(block, to_s1, after_qkv);
      tiles_of<Dense1>(block, to_s1, after_qkv, blocks, phase(COMPRESS), ROWS, phase(DENSE1));
    }
    prefetch_first<Qkv>(block, to_qkv, own);
    tiles_of<Qkv>(block, to_qkv, own, blocks, index ? phase(COMPRESS) : nullptr, ROWS, phase(QKV));
    prefetch_first<Dense2>(block, to_s2, own);
    tiles_of<Dense2>(block, to_s2, own, blocks, phase(DENSE1), Dense1::TILES, phase(DENSE2));
    prefetch_first<Generate>(block, to_logits, own);
    tiles_of<Generate>(block, to_logits, own, blocks, phase(DENSE2), Dense2::TILES, phase(GENERATE));
    const uint32* generated = phase(GENERATE);
    constexpr int GENERATE_TILES = Generate::TILES;
#else
    const bool normalises = index && own_row < ROWS / WAVES;
    if (!normalises) prefetch_first<Qkv>(block, to_qkv, own);
    if (index)
      norm_phase(y, x, last.norm2, last.epsilon2.value, own_row, blocks, ready, Ffn2::TILES, phase(COMPRESS));
    if (normalises) prefetch_first<Qkv>(block, to_qkv, own);
    tiles_of<Qkv>(block, to_qkv, own, blocks, index ? phase(COMPRESS) : nullptr, ROWS / WAVES, phase(QKV));
    const uint32* generated = nullptr;
    constexpr int GENERATE_TILES = 0;
#endif

    const Operands to_y = {mixed,  layer.output.weights, layer.output.bias, board, y, nullptr, 0, nullptr,
                           nullptr};
    if (own >= POSITIONS * HEADS) prefetch_first<Output>(block, to_y, own);
    for (int tile = own; tile < POSITIONS * HEADS; tile += blocks) {
      const int position = tile / HEADS, head = tile % HEADS;
      begin(phase(QKV), Qkv::TILES, generated, GENERATE_TILES);
      attend<WAVES>((char*)inputs_of(block, 0), qkv + position * 64 * 3 * MODEL + head * DEPTH, 3 * MODEL,
                    MODEL, logits + tile * 4096, mixed + position * 64 * MODEL + head * DEPTH);
      signal(phase(ATTENTION));
    }
    if (own < POSITIONS * HEADS) prefetch_first<Output>(block, to_y, own);
    tiles_of<Output>(block, to_y, own, blocks, phase(ATTENTION), POSITIONS * HEADS, phase(OUTPUT));

    const Operands to_hidden = {
        x, layer.ffn1.weights, layer.ffn1.bias, nullptr, hidden, nullptr, 0, nullptr, nullptr};
    // Those with rows to normalise look at nothing else before.
    if (own_row >= ROWS / WAVES) prefetch_first<Ffn1>(block, to_hidden, own);
    norm_phase(y, x, layer.norm1, layer.epsilon1.value, own_row, blocks, phase(OUTPUT), Output::TILES,
               phase(NORM));
    if (own_row < ROWS / WAVES) prefetch_first<Ffn1>(block, to_hidden, own);
    tiles_of<Ffn1>(block, to_hidden, own, blocks, phase(NORM), ROWS / WAVES, phase(FFN1));

    const Operands from_hidden = {hidden, layer.ffn2.weights, layer.ffn2.bias, x, y, nullptr, 0, nullptr,
                                  nullptr};
    prefetch_first<Ffn2>(block, from_hidden, own);
    tiles_of<Ffn2>(block, from_hidden, own, blocks, phase(FFN1), Ffn1::TILES, phase(FFN2));
  }
  uint32* end = counters + layers * PHASES;
  norm_phase(y, x, table[layers - 1].norm2, table[layers - 1].epsilon2.value, own_row, blocks,
             end + FFN2 - PHASES, Ffn2::TILES, end);

  // Whoever comes last leaves the counters as they were.
  int* last = (int*)shared;
  block_sync();
  if (thread_index() == 0) *last = counter_add(end + 1) == (uint32)blocks - 1;
  block_sync();
  if (*last)
    for (int i = thread_index(); i < layers * PHASES + 2; i += THREADS) counters[i] = 0;
}
