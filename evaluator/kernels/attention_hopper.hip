// The product for q, k and v and the attention of heads of 32 over the 64 squares in one kernel, for many
// positions on sm_90a: q, k and v never leave the processor. out = softmax(q k^T + logits) v with
// q, k, v = a weights^T + bias. CPU fibers and other targets cannot run it.
//
// a: [m][k] as a tensor map (boxes of 128 x 64, 128-byte swizzle), m = 64 * positions, k a multiple of 8.
// weights: [3][heads][32][k], as a map of boxes of 64 x 32 x 3 x 2 heads. bias: float [3][heads][32];
// 1/sqrt(32) is in the weights and bias of q. logits (LOGITS): [positions * heads][64 queries][64 keys], as a
// map of boxes of 64 x 64. out: [m][heads * 32].
//
// Four groups of 4 waves. Of the first, one wave loads tiles (hopper_tiles.h) and one loads logits. Two
// multiply, tiles of 2 positions and 2 heads: a group has one position, with 32 columns each for q, k and v
// of the one head, then of the other. Their sums are packed as soon as they are complete, and stored to
// shared memory while the next tile's first step is multiplied. There the fourth group takes them up, with a
// whole tile's time for its four heads, two products for each with wgmma: 4 % of the tile's own work, and a
// softmax that nobody waits for. All columns in one instruction read a once for each step, where halves of
// them (hopper_halves.h) read it twice: 162 us, and 166 (256 positions, 32 heads, k = 1024).
//
// Shared memory: the stages, q, k and v of four heads, 12 KB each, and two boxes of logits, 8 KB each: 225 KB
// with 4 stages. Grid: a multiple of the cluster, at most what is resident. 128 registers at the start, then
// 32 to load, 176 to multiply and still 128 for attention.
//
// Orders. A thread has columns 8 j + 2 q + e of a row's 32, and stores them as 8 q + 2 j + e, 16 bytes at a
// time. For q and k any order does that is the same for both. For v it makes column 8 j + 2 q + e of what
// attention's second product gives the column 8 q + 2 j + e of the head: 16 bytes for a thread to store.
#include "hopper_tiles.h"
#include "matrix.h"

constexpr int THREADS = 4 * GROUP;
constexpr int DEPTH = 32, COLUMNS = 3 * DEPTH, HEADS = 2;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr int UNITS = 2 * HEADS;  // unit 2 h + g is head h of the position of group g
constexpr int BOXES = 2;
constexpr int BOX_BYTES = 64 * 64 * 2, PART = 64 * DEPTH * 2, UNIT_BYTES = 3 * PART;
// In shared memory, bytes: barriers of each unit and each box; units; boxes.
constexpr int READY = AFTER_STAGES, FREE = READY + 8 * UNITS;
constexpr int BOX_FULL = FREE + 8 * UNITS, BOX_EMPTY = BOX_FULL + 8 * BOXES;
constexpr int UNITS_AT = (BOX_EMPTY + 8 * BOXES + 1023) / 1024 * 1024,
              BOXES_AT = UNITS_AT + UNITS * UNIT_BYTES;

static_assert(BLOCK_N == HEADS * COLUMNS, "a tile is q, k and v of two heads");

DEVICE int first_head(const Place& place) {
  return place.n0 / COLUMNS;
}
DEVICE int steps_of(int k) {
  return (k + BLOCK_K - 1) / BLOCK_K;
}

// --- loading ---

DEVICE void load(const TensorMap& a, const TensorMap& weights, const Tiles& tiles, uint32 shared, int k) {
  const auto load_b = [&](uint32 to, uint32 full, int x, int n0, auto... blocks) {
    load_box_4d(to, weights, full, x, n0 / COLUMNS, blocks...);
  };
  load_tiles(tiles, a, shared, steps_of(k), load_b, [](const Place&, int) {});
}

// By one thread.
DEVICE void load_logits(const TensorMap& logits, const Tiles& tiles, uint32 shared, int heads) {
  uint32 count = 0;
  for (int tile = tiles.first; tile < tiles.count; tile += tiles.stride) {
    const Place place = place_of(tiles, tile);
    for (int unit = 0; unit < UNITS; unit++, count++) {
      const uint32 box = count % BOXES, full = shared + BOX_FULL + 8 * box;
      const int position = place.m0 / 64 + unit % 2, head = first_head(place) + unit / 2;
      barrier_wait(shared + BOX_EMPTY + 8 * box, count / BOXES % 2 ^ 1);
      barrier_expect(full, BOX_BYTES);
      load_box(shared + BOXES_AT + box * BOX_BYTES, logits, full, 0, (position * heads + head) * 64);
    }
  }
}

// --- multiplying ---

// Of q, for a thread's columns. k's bias would change all logits of a query by the same, and v's is added to
// the result.
struct Biases {
  float2 pair[HEADS][4];
};
DEVICE Biases fetch_biases(const float* bias, int first, int heads) {
  Biases biases;
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    const int head = first + h < heads ? first + h : 0;  // of an odd number the last is nobody's
#pragma unroll
    for (int j = 0; j < 4; j++)
      biases.pair[h][j] = load_pair(bias + head * DEPTH + 8 * j + thread_index() % 4 * 2);
  }
  return biases;
}

// A thread's share of q, k and v of a position, as it goes to shared memory.
struct Products {
  Bits128 row[HEADS][3][2];
};
DEVICE Products packed(const float (&c)[BLOCK_N / 2], const Biases& biases) {
  Products products;
#pragma unroll
  for (int head = 0; head < HEADS; head++)
#pragma unroll
    for (int part = 0; part < 3; part++)
#pragma unroll
      for (int half = 0; half < 2; half++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const int at = COLUMNS / 2 * head + DEPTH / 2 * part + 4 * j + 2 * half;
          float x = c[at], y = c[at + 1];
          if (part == 0) {
            x += biases.pair[head][j].x;
            y += biases.pair[head][j].y;
          }
          products.row[head][part][half].word[j] = pack_pair(x, y);
        }
  return products;
}
// Waits until the attention before has read its own.
DEVICE void hand_over(const Products& products, uint32 shared, int group, uint32 phase) {
  const int lane = thread_index() % WAVE, row = thread_index() % GROUP / WAVE * 16 + lane / 4;
  const uint32 to = shared + UNITS_AT + row * 64 + (lane % 4 ^ row / 2 % 4) * 16;
#pragma unroll
  for (int head = 0; head < HEADS; head++) {
    const int unit = 2 * head + group;
    barrier_wait(shared + FREE + 8 * unit, phase);
#pragma unroll
    for (int part = 0; part < 3; part++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        store_shared(to + unit * UNIT_BYTES + part * PART + half * 8 * 64, products.row[head][part][half]);
    stores_for_wgmma();
    __syncwarp();
    barrier_arrive_here_if(shared + READY + 8 * unit, lane == 0);
  }
}

DEVICE void multiply_step(float (&c)[BLOCK_N / 2], uint32 shared, Turn turn, int group, bool accumulate) {
  const Operands of = operands_of(shared, turn, group);
  barrier_wait(shared + FULL + 8 * turn.stage, turn.phase);
  wgmma_begin();
#pragma unroll
  for (int part = 0; part < BLOCK_K / 16; part++)
    wgmma<BLOCK_N>(c, of.a + 2 * part, of.b + 2 * part, accumulate || part > 0);
  wgmma_commit();
}

DEVICE void multiply(const float* bias, const Tiles& tiles, uint32 shared, int k, int heads) {
  int tile = tiles.first;
  if (tile >= tiles.count) return;
  const int steps = steps_of(k), group = thread_index() / GROUP - 1;
  float c[BLOCK_N / 2];
  Products products;
  Turn turn = {0, 0};
  for (uint32 phase = 0;; phase ^= 1) {
    multiply_step(c, shared, turn, group, false);
    Turn last = turn;
    turn = after(turn);
    if (tile != tiles.first) hand_over(products, shared, group, phase);
    for (int step = 1; step < steps; step++, turn = after(turn)) {
      multiply_step(c, shared, turn, group, true);
      wgmma_wait<1>();
      release(shared, last, tiles);
      last = turn;
    }
    const Biases biases = fetch_biases(bias, first_head(place_of(tiles, tile)), heads);
    wgmma_wait<0>();
    release(shared, last, tiles);
    products = packed(c, biases);
    tile += tiles.stride;
    if (tile >= tiles.count) {
      hand_over(products, shared, group, phase ^ 1);
      return;
    }
  }
}

// --- attention ---

// The logits of a wave's 16 queries as wgmma has its sums. Part c of row r of the box lies at part c ^ r % 8.
DEVICE void read_logits(float (&s)[32], uint32 box) {
  const int lane = thread_index() % WAVE, row = thread_index() % GROUP / WAVE * 16 + lane % 16;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    uint32 word[4];
    load_matrices(word, box + row * 128 + ((2 * j + lane / 16) ^ row % 8) * 16);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const Element low = {(uint16)word[i]}, high = {(uint16)(word[i] >> 16)};
      s[8 * j + 2 * i] = to_float(low);
      s[8 * j + 2 * i + 1] = to_float(high);
    }
  }
}

DEVICE void attend(const float* bias, Element* out, const Tiles& tiles, uint32 shared, int m, int heads) {
  const int lane = thread_index() % WAVE, row = thread_index() % GROUP / WAVE * 16 + lane / 4;
  uint32 phase = 0, count = 0;
  for (int tile = tiles.first; tile < tiles.count; tile += tiles.stride, phase ^= 1) {
    const Place place = place_of(tiles, tile);
#pragma unroll 1
    for (int unit = 0; unit < UNITS; unit++, count++) {
      float s[32];
#if LOGITS
      const uint32 box = count % BOXES;
      barrier_wait(shared + BOX_FULL + 8 * box, count / BOXES % 2);
      read_logits(s, shared + BOXES_AT + box * BOX_BYTES);
#endif
      const uint32 at = shared + UNITS_AT + unit * UNIT_BYTES;
      const uint64 q = operand_of_64_bytes(at), k = operand_of_64_bytes(at + PART);
      const uint64 v = operand_of_64_bytes(at + 2 * PART);
      const int head = first_head(place) + unit / 2;
      float biases[8];
      read_floats(biases, bias + (2 * heads + (head < heads ? head : 0)) * DEPTH + lane % 4 * 8);
      barrier_wait(shared + READY + 8 * unit, phase);
      wgmma_begin();
      wgmma<64>(s, q, k, LOGITS);
      wgmma<64>(s, q + 2, k + 2, true);
      wgmma_commit();
      wgmma_wait<0>();
#if LOGITS
      // Not as soon as they are asked for: a box beyond the last position is zeros at once, and has been seen
      // to overtake ldmatrix.
      barrier_arrive_here_if(shared + BOX_EMPTY + 8 * box, lane == 0);
#endif

      float largest[2] = {-3.0e38f, -3.0e38f}, sum[2] = {0.0f, 0.0f};
#pragma unroll
      for (int i = 0; i < 32; i++) largest[i / 2 % 2] = maximum(largest[i / 2 % 2], s[i]);
#pragma unroll
      for (int half = 0; half < 2; half++) largest[half] = row_max(largest[half]) * LOG2_E;
#pragma unroll
      for (int i = 0; i < 32; i++) {
        s[i] = exp2_fast(s[i] * LOG2_E - largest[i / 2 % 2]);
        sum[i / 2 % 2] += s[i];
      }
      float o[16];
      uint32 weights[4][4];
#pragma unroll
      for (int i = 0; i < 16; i++) weights[i / 4][i % 4] = pack_pair(s[2 * i], s[2 * i + 1]);
      wgmma_begin();
#pragma unroll
      for (int keys = 0; keys < 4; keys++) wgmma_of_registers(o, weights[keys], v + keys * 64, keys > 0);
      wgmma_commit();
#pragma unroll
      for (int half = 0; half < 2; half++) sum[half] = divide_fast(1.0f, row_sum(sum[half]));
      wgmma_wait<0>();
      barrier_arrive_here_if(shared + FREE + 8 * unit, lane == 0);

#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int to_row = place.m0 + unit % 2 * 64 + row + 8 * half;
        Bits128 bits;
#pragma unroll
        for (int j = 0; j < 4; j++)
          bits.word[j] = pack_pair(o[4 * j + 2 * half] * sum[half] + biases[2 * j],
                                   o[4 * j + 2 * half + 1] * sum[half] + biases[2 * j + 1]);
        store_if(out + ((uint64)to_row * heads + head) * DEPTH + lane % 4 * 8, bits,
                 to_row < m && head < heads);
      }
    }
  }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    attention_hopper(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap weights,
                     const __grid_constant__ TensorMap logits, const float* bias, Element* out, int m, int k,
                     int heads) {
  DYNAMIC_SHARED(memory);
  const uint32 shared = shared_address(memory);
  if (thread_index() == 0) {
    prefetch_map(a);
    prefetch_map(weights);
    init_stages(shared);
    for (int i = 0; i < UNITS; i++) {
      barrier_init(shared + READY + 8 * i, GROUP / WAVE);
      barrier_init(shared + FREE + 8 * i, GROUP / WAVE);
    }
    for (int i = 0; i < BOXES; i++) {
      barrier_init(shared + BOX_FULL + 8 * i, 1);
      barrier_init(shared + BOX_EMPTY + 8 * i, GROUP / WAVE);
    }
    barrier_init_done();
  }
  if constexpr (CLUSTER > 1)
    cluster_sync();
  else
    block_sync();
  start_kernel();
  wait_for_previous_kernel();
  const Tiles tiles = tiles_of(m, heads * COLUMNS);
  const int group = thread_index() / GROUP;
  if (group == 0) {
    fewer_registers<32>();
    if (thread_index() < WAVE) load(a, weights, tiles, shared, k);
#if LOGITS
    if (thread_index() == WAVE) load_logits(logits, tiles, shared, heads);
#endif
  } else if (group < 3) {
    more_registers<176>();
    multiply(bias, tiles, shared, k, heads);
  } else {
    attend(bias, out, tiles, shared, m, heads);
  }
  // A block must not end while others of its cluster may still write to its shared memory.
  if constexpr (CLUSTER > 1) cluster_sync();
}
