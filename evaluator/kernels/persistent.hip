// All encoders of a network in one launch, for a few positions: what separates two steps is not the end of a
// kernel but a counter in memory.
//
// A layer is a few phases, each cut into tiles, which the blocks take in turns. A tile waits until the phases
// that it depends on are complete, and is counted when it is done (grid.h). The weights of a block's next
// tile are on their way to shared memory as soon as it has multiplied by those of this one: they depend on
// nothing, and at one position reading them is most of the work (BT4: 22 MB a layer, 5 us at 4.3 TB/s).
//
// All shapes are compiled in. Nothing hides the latency of an instruction where a multiprocessor has eight
// waves: each took 7 cycles, and a version that read the shapes of its phases from memory spent 800
// instructions of every wave, 3 us, on a tile.
//
//   phase      tiles, BT4  computes
//   SQUEEZE    16          parts: what smolgen takes of norm(y), compressed and times W1; 4 squares
//   QKV        96          q, k, v of norm(y), by other blocks than SQUEEZE
//   DENSE2     128         s2 = act(norm(act(sum of parts + b1)) W2^T + b) and its statistics
//   GENERATE   128         logits = norm(s2) Wg^T
//   ATTENTION  32          mixed; a head
//   OUTPUT     128         z = mixed Wo^T + b + norm(y)
//   FFN1       128         hidden = act(norm(z) Wf^T + b)
//   FFN2       128         y = hidden Wh^T + b + norm(z)
//
// The norm of y is the second one of the layer before; the first has none. No phase makes norms alone:
// products make them of what they take, or put their sums right for it (persistent_tile.h). After the last
// layer the rows are normalised and left in x. TAIL: before the layers come FFN1 and FFN2 once more, for what
// follows the embedding.
//
// Grid: at most one block for each multiprocessor, launched cooperatively. 8 waves. Shared memory: B_BYTES of
// weights and A_BYTES of inputs for each wave (on sm_90 16 + 11 KB: a tile's weights are there at once),
// `Shared`, and what the layers' weights are.
#include "attention.h"
#include "persistent_product.h"
#include "persistent_rows.h"
#if BIAS
#include "persistent_squeeze.h"
#endif

constexpr int ROWS = 64 * POSITIONS;
constexpr int MODEL = HEADS * DEPTH;

enum Phase { SQUEEZE, QKV, DENSE2, GENERATE, ATTENTION, OUTPUT, FFN1, FFN2, PHASES };

using Qkv = Product<ROWS, 3 * MODEL, WIDTH, QKV_M, QKV_N, ACTIVATION_NONE, OF_INPUTS>;
#if BIAS
using Dense2 = Product<POSITIONS, HEADS * GENERATED, DENSE1_WIDTH, DENSE2_M, DENSE2_N, DENSE2_ACTIVATION>;
using Generate = Product<POSITIONS * HEADS, 4096, GENERATED, GENERATE_M, GENERATE_N, ACTIVATION_NONE,
                         NO_ROW_NORM, HEADS, Dense2::TILES_N, Dense2::BN>;
#endif
using Output = Product<ROWS, WIDTH, MODEL, OUTPUT_M, OUTPUT_N, ACTIVATION_NONE, OF_RESIDUAL>;
using Ffn1 = Product<ROWS, HIDDEN, WIDTH, FFN1_M, FFN1_N, FFN_ACTIVATION, OF_INPUTS>;
using Ffn2 = Product<ROWS, WIDTH, HIDDEN, FFN2_M, FFN2_N, ACTIVATION_NONE, OF_RESIDUAL>;

// As gpu/persistent.py writes it: weights and what goes with them. The first of TAIL has nothing but ffn1 and
// ffn2: it is what follows an embedding, whose phases are those of an encoder's second half.
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
  // Of the rows of weights that have a norm's gammas in them.
  const float *ffn1_sums, *qkv_sums;
  Norm norm1, before;
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

// --- the walk ---

// Until a phase is complete; null for one that was complete before the launch.
DEVICE void begin(const uint32* phase, int tiles, const uint32* other = nullptr, int other_tiles = 0) {
  if (thread_index() == 0) {
    if (phase) await(phase, tiles);
    if (other) await(other, other_tiles);
  }
  block_sync();
  grid_acquire();
}

// Whether the weights of a product may come while another's tile is finished: not if its norms would go where
// the sums lie.
template <class P>
constexpr bool COMES_EARLY = P::WHOLE || P::GROUP_ROWS == 0;

// Asks for the weights of the block's first tile.
template <class P>
DEVICE void prefetch_first(Block& block, const Operands& o, int tile, int from = 0) {
  if (tile < P::TILES) prefetch<P>(block, o, tile, from);
}
// The tiles of a product that are this block's, of which the first is `tile`, its weights asked for already.
// after: null if what they wait for is there. gather: makes the inputs, if they are GATHERED. next: asks for
// the first weights of Q.
template <class P, class Q, bool GATHERED = false, class Gather, class Next>
DEVICE void tiles_of(Block& block, const Operands& o, int tile, int blocks, const uint32* after, int tiles,
                     uint32* done, Gather gather, Next next) {
  constexpr bool EARLY = COMES_EARLY<P> && COMES_EARLY<Q>;
  if (tile >= P::TILES) next(0);
  for (; tile < P::TILES; tile += blocks) {
    auto more = [&](int from) {
      if (tile + blocks < P::TILES)
        prefetch<P>(block, o, tile + blocks, from);
      else
        next(from);
    };
    if (after) begin(after, tiles);
    gather();
    multiply_and_finish<P, GATHERED>(block, o, tile, [&](int from) {
      if (EARLY) more(from);
    });
    signal(done);
    if (!EARLY) more(0);
  }
}

// layers: with the TAIL. input: the embedded board [ROWS][WIDTH]; x: the result, of norm `end`. The other
// buffers are as in the table above; statistics of s2; rows0 and rows1: means and deviations of the rows of y
// and z. counters: of [layers][PHASES] and one more, all 0; they are left at 0.
KERNEL(persistent, ALONE(THREADS))
(const Layer* weights, int layers, const float* end_gammas, const float* end_betas, float end_epsilon,
 const Element* input, Element* x, Element* y, Element* z, Element* qkv, Element* mixed, Element* hidden,
 float* parts, Element* s2, Element* logits, float* statistics, float* rows0, float* rows1, uint32* counters,
 int blocks) {
  DYNAMIC_SHARED(shared);
  Block block = {shared, 0, 0};
  if (thread_index() == 0) bulk_init(common_of(block).barrier);
  if (thread_index() < 16) common_of(block).ones[thread_index()] = to_element(1.0f);
  Layer* table = (Layer*)(shared + WAVES * (A_BYTES + B_BYTES) + sizeof(Shared));
  for (int i = thread_index(); i < layers * (int)sizeof(Layer) / 16; i += THREADS)
    ((Bits128*)table)[i] = ((const Bits128*)weights)[i];
  block_sync();
  // The squares to squeeze are the last blocks', so that the others begin with q, k and v at once.
  const int own = block_x(), from_end = blocks - 1 - own;
  auto nothing = [] {};
#if BIAS
  const bool squeezes = from_end < SQUEEZE_TILES;
#else
  const bool squeezes = false;
#endif

  auto to_qkv = [&](int index) {
    const Layer& layer = table[index];
    Operands o = {index ? y : input, layer.qkv.weights, layer.qkv.bias, qkv};
    o.factors = layer.qkv_sums;
    o.epsilon = layer.before.epsilon;
    o.rows = rows0;
    return o;
  };
  auto to_hidden = [&](int index) {
    const Layer& layer = table[index];
    Operands o = {TAIL && index == 0 ? input : z, layer.ffn1.weights, layer.ffn1.bias, hidden};
    o.factors = layer.ffn1_sums;
    o.epsilon = layer.norm1.epsilon;
    o.rows = rows1;
    return o;
  };
  if (TAIL)
    prefetch_first<Ffn1>(block, to_hidden(0), own);
  else if (!squeezes)
    prefetch_first<Qkv>(block, to_qkv(0), own);

  for (int index = 0; index < layers; index++) {
    const Layer& layer = table[index];
    auto phase = [&](int which) { return counters + (index * PHASES + which); };
    const Element* board = index ? y : input;
    const bool halved = TAIL && index == 0;

    if (!halved) {
      Operands to_z = {mixed, layer.output.weights, layer.output.bias, z, board};
      to_z.factors = layer.before.gammas;
      to_z.offsets = layer.before.betas;
      to_z.rows = rows0;
      auto output_next = [&](int from) { prefetch_first<Output>(block, to_z, own, from); };
#if BIAS
      if (squeezes) prefetch_squeeze(block, layer.before, layer.compress, layer.slices, from_end);
#endif
      begin(index ? phase(FFN2 - PHASES) : nullptr, Ffn2::TILES);  // the layer before
#if BIAS
      for (int tile = from_end; tile < SQUEEZE_TILES; tile += blocks) {
        if (tile != from_end) prefetch_squeeze(block, layer.before, layer.compress, layer.slices, tile);
        squeeze(block, board, layer.before.epsilon, tile, parts);
        signal(phase(SQUEEZE));
      }
      if (squeezes) prefetch_first<Qkv>(block, to_qkv(index), own);

      Operands to_s2 = {nullptr, layer.dense2.weights, layer.dense2.bias, s2};
      to_s2.made = statistics;
      tiles_of<Qkv, Dense2>(block, to_qkv(index), own, blocks, nullptr, 0, phase(QKV), nothing,
                            [&](int from) { prefetch_first<Dense2>(block, to_s2, own, from); });
      Operands to_logits = {s2, layer.generate, nullptr, logits};
      to_logits.norms = layer.smolgen_norm2;
      to_logits.epsilon = layer.smolgen_epsilon2.value;
      to_logits.statistics = statistics;
      Squeezed<Dense2> squeezed;
      load_squeezed(squeezed, layer.dense1_bias, layer.smolgen_norm1);
      tiles_of<Dense2, Generate, true>(
          block, to_s2, own, blocks, phase(SQUEEZE), SQUEEZE_TILES, phase(DENSE2),
          [&] {
            gather_squeezed<Dense2, DENSE1_ACTIVATION>(block, squeezed, parts, layer.smolgen_epsilon1.value);
          },
          [&](int from) { prefetch_first<Generate>(block, to_logits, own, from); });
      tiles_of<Generate, Output>(block, to_logits, own, blocks, phase(DENSE2), Dense2::TILES, phase(GENERATE),
                                 nothing, output_next);
      const uint32* generated = phase(GENERATE);
      constexpr int GENERATE_TILES = Generate::TILES;
#else
      tiles_of<Qkv, Output>(block, to_qkv(index), own, blocks, nullptr, 0, phase(QKV), nothing, output_next);
      const uint32* generated = nullptr;
      constexpr int GENERATE_TILES = 0;
#endif
      for (int tile = own; tile < POSITIONS * HEADS; tile += blocks) {
        const int position = tile / HEADS, head = tile % HEADS;
        begin(phase(QKV), Qkv::TILES, generated, GENERATE_TILES);
        attend<WAVES>((char*)inputs_of(block, 0), qkv + position * 64 * 3 * MODEL + head * DEPTH, 3 * MODEL,
                      MODEL, logits + tile * 4096, mixed + position * 64 * MODEL + head * DEPTH);
        signal(phase(ATTENTION));
      }
      tiles_of<Output, Ffn1>(block, to_z, own, blocks, phase(ATTENTION), POSITIONS * HEADS, phase(OUTPUT),
                             nothing,
                             [&](int from) { prefetch_first<Ffn1>(block, to_hidden(index), own, from); });
    }

    Operands to_y = {hidden, layer.ffn2.weights, layer.ffn2.bias, y, halved ? input : z};
    to_y.factors = layer.norm1.gammas;
    to_y.offsets = layer.norm1.betas;
    to_y.rows = rows1;
    tiles_of<Ffn1, Ffn2>(block, to_hidden(index), own, blocks, halved ? nullptr : phase(OUTPUT),
                         Output::TILES, phase(FFN1), nothing,
                         [&](int from) { prefetch_first<Ffn2>(block, to_y, own, from); });
    tiles_of<Ffn2, Qkv>(block, to_y, own, blocks, phase(FFN1), Ffn1::TILES, phase(FFN2), nothing,
                        [&](int from) {
                          if (index + 1 < layers && !squeezes)
                            prefetch_first<Qkv>(block, to_qkv(index + 1), own, from);
                        });
  }

  uint32* end = counters + layers * PHASES;
  begin(end + FFN2 - PHASES, Ffn2::TILES);
  for (int tile = from_end; tile < ROWS / WAVES; tile += blocks) {
    const int row = tile * WAVES + thread_index() / WAVE;
    float values[NORM_CHUNKS][CHUNK];
    load_row(values, y + row * WIDTH);
    normalise_row(values, end_gammas, end_betas, end_epsilon);
    store_row(x + row * WIDTH, values);
  }

  // Whoever comes last leaves the counters as they were.
  int* last = (int*)shared;
  block_sync();
  if (thread_index() == 0) *last = counter_add(end) == (uint32)blocks - 1;
  block_sync();
  if (*last)
    for (int i = thread_index(); i < layers * PHASES + 1; i += THREADS) counters[i] = 0;
}
