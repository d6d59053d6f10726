// Matrix products of few rows, y = x @ weight.T, at the speed of reading the weights. See bulk_gemm.py.
//
// A block owns M outputs at a time and streams their weights through shared memory in stages, by bulk tensor copies. It starts
// them before it waits for the kernel that computes x (programmatic dependent launch). One warp copies. Each of the others
// multiplies by tensor cores (mma m16n8k16) a slice of the inputs; their sums meet in shared memory in a fixed order, so that a
// row's sum depends neither on the launch nor on how many rows there are.
//
// In a cluster of SPLIT blocks each has M outputs too, the same, but only its share of the slices, and copies only these inputs
// of x. SPLIT warps share a slice, each with its share of the outputs, and each block gets the sums of one share.
//
// With ADDS the outputs, in whole tiles of 16, are added to a residual; with SCALES the rows of x lack their norm, and
// SCALERS more warps (0 otherwise) compute the factor of each row. See deferred_norm.py. PARTS: of the squares.
//
// Constants of a compilation: M outputs of a cluster (gate and up rows counted), SPLIT, HELD slices of which a stage holds 64
// inputs, STAGES, NT tiles of 8 rows, GATED, HALF (fp16, else bf16). Rows of x that do not exist are not copied: what lies in
// their place only reaches their own sums.

#include "deferred_norm.cuh"

constexpr int SLICES = 4;            // of the inputs: 64 of every 256 belong to each
constexpr int LINE = 64;             // of such inputs: 128 bytes of a row, whose 16-byte words are swizzled
constexpr int OWN = SLICES / SPLIT;  // slices of a block
constexpr int TURNS = OWN / HELD;    // stages that hold a line of each
constexpr int ROWS = NT * 8;
constexpr int WEIGHT_LINES = M * LINE * 2, STAGE = HELD * (WEIGHT_LINES + ROWS * LINE * 2);  // bytes
constexpr int MT = M / SPLIT / 16;         // tiles of 16 weight rows of a warp, and of those whose sums meet in a block
constexpr int TILE = GATED ? 8 : 16;       // outputs of such a tile: 8 gate and 8 up rows, or 16 rows
constexpr int OUTPUTS = GATED ? M / 2 : M;
constexpr int QUADS = 32 * 16;             // bytes of the sums of a warp for 16 weight rows and 8 rows of x
constexpr int SUMS = SLICES * MT * NT * QUADS;
constexpr int ITEMS = (MT * NT + SLICES - 1) / SLICES;  // tiles of outputs and rows that a warp finishes
constexpr int FINISHED_AT_ONCE = ADDS ? ITEMS : 1;      // what is added lies in registers
static_assert(M % (16 * SPLIT) == 0, "tiles must be whole");
static_assert(!(ADDS && GATED), "gated outputs are not added");
static_assert(STAGES % TURNS == 0, "a stage holds the same slices each time: their warps wait for no other stage");

// [line][gate, up][output][LINE]
__device__ __forceinline__ void copy_weights(u32 to, const TensorMap& map, int line, int output, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %2, %4}], [%5], %6;" ::"r"(to), "l"(&map), "r"(0), "r"(output), "r"(line), "r"(barrier), "l"(policy)
      : "memory");
}

// [line][row][LINE]
__device__ __forceinline__ void copy_x(u32 to, const TensorMap& map, int line, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(0), "r"(line), "r"(barrier) : "memory");
}

// Of the warps that multiply.
__device__ __forceinline__ void meet() { asm volatile("bar.sync 1, %0;" ::"n"(SLICES * 32) : "memory"); }

// What a block copies: lines of HELD slices a step, of one tile after another.
struct Copied : Turn {
  int tile = blockIdx.x / SPLIT, step = 0;

  __device__ __forceinline__ int line() const {
    return step / TURNS * SLICES + blockIdx.x % SPLIT * OWN + step % TURNS * HELD;
  }
  __device__ __forceinline__ void next(int num_chunks) {
    skip(1);
    if (++step == num_chunks * TURNS) step = 0, tile += gridDim.x / SPLIT;
  }
};

extern "C" __global__ void __launch_bounds__((SLICES + 1 + SCALERS) * 32, 1)
    bulk_gemm(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map,
             const u16* __restrict__ bias, u16* __restrict__ out, int num_rows, int num_outputs, int num_inputs,
             u16* residual, const u16* __restrict__ norm_weight, float* squares, float eps) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const u32 stages = shared_address(shared);
  const u32 sums = stages + STAGES * STAGE;  // [slice][tile of outputs][tile of rows][lane][4]
  const u32 full = sums + SUMS, empty = full + STAGES * 8, scales = empty + STAGES * 8;
  // Behind the last input a copy reads zeros.
  const int num_chunks = (num_inputs + SLICES * LINE - 1) / (SLICES * LINE);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int num_tiles = (num_outputs + OUTPUTS - 1) / OUTPUTS;

  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      barrier_init(full + s * 8, 1);
      barrier_init(empty + s * 8, HELD * SPLIT);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  }
  if (SPLIT == 1)
    __syncthreads();
  else
    cluster_sync();

  if (warp == SLICES) {
    if (lane == 0) {
      const u64 policy = evict_first();
      auto start_weights = [&](const Copied& turn) {
        const u32 barrier = full + turn.stage * 8;
        barrier_expect(barrier, HELD * LINE * 2 * (M + num_rows));
        copy_weights(stages + turn.stage * STAGE, weight_map, turn.line(), turn.tile * OUTPUTS, barrier, policy);
      };
      auto start_x = [&](const Copied& turn) {
        copy_x(stages + turn.stage * STAGE + HELD * WEIGHT_LINES, x_map, turn.line(), full + turn.stage * 8);
      };
      Copied ahead, behind;
      while (ahead.parity == 0 && ahead.tile < num_tiles) start_weights(ahead), ahead.next(num_chunks);
      wait_for_kernel_before();
      while (behind.parity == 0 && behind.tile < num_tiles) start_x(behind), behind.next(num_chunks);
      for (; ahead.tile < num_tiles; ahead.next(num_chunks)) {
        barrier_wait(empty + ahead.stage * 8, ahead.parity ^ 1);
        start_weights(ahead);
        start_x(ahead);
      }
    }
    __syncwarp();
    if (SPLIT > 1) cluster_sync();  // a cluster has one tile
    return;
  }

#if SCALES
  if (warp > SLICES) {
    wait_for_kernel_before();
    scale_rows<PARTS, SCALERS, ROWS, 128>(scales, squares, eps, num_rows, num_inputs, warp - SLICES - 1);
    if (SPLIT == 1)
      scales_are_there<(SLICES + SCALERS) * 32>();
    else
      cluster_sync();
    return;
  }
#endif

  const int own = warp / SPLIT, group = warp % SPLIT, part = blockIdx.x % SPLIT;  // own: of the slices of this block
  const u32 weights_at = stages + own % HELD * WEIGHT_LINES, x_at = stages + HELD * WEIGHT_LINES;
  const int x_line = own % HELD * num_rows + lane % 8;
  const int weight_line = (GATED ? lane / 8 % 2 * (M / 2) + lane % 8 : lane % 16) + group * MT * TILE;
  Turn turn;
  turn.skip(own / HELD);
  if (ADDS) wait_for_kernel_before();
  for (int tile = blockIdx.x / SPLIT; tile < num_tiles; tile += gridDim.x / SPLIT) {
    // The i-th of the block's pairs of TILE outputs and 8 rows: its first output, and this lane's row.
    auto first_output = [&](int i) { return tile * OUTPUTS + (part * MT + i / NT) * TILE; };
    auto row_of = [&](int i) { return i % NT * 8 + lane / 4; };
    u32 before[ITEMS][2] = {}, norm_weights[ITEMS][2] = {};
    if (ADDS)
#pragma unroll
      for (int item = 0; item < ITEMS; item++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int i = warp + item * SLICES, output = first_output(i) + half * 8 + lane % 4 * 2;
          if (i >= MT * NT || row_of(i) >= num_rows || output >= num_outputs) continue;
          before[item][half] = *(const u32*)(residual + (long long)row_of(i) * num_outputs + output);
          norm_weights[item][half] = *(const u32*)(norm_weight + output);
        }
    float acc[MT][NT][4] = {};
    for (int chunk = 0; chunk < num_chunks; chunk++, turn.skip(TURNS)) {
      barrier_wait(full + turn.stage * 8, turn.parity);
      const u32 offset = turn.stage * STAGE;
#pragma unroll
      for (int step = 0; step < LINE / 16; step++) {  // two 16-byte words
        u32 b[NT][2];
#pragma unroll
        for (int t = 0; t < NT; t++)
          load_tile_8(b[t], word_at(offset + x_at, x_line + t * 8, step * 2 + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < MT; m++) {
          u32 a[4];
          load_tile_16(a, word_at(offset + weights_at, weight_line + m * TILE, step * 2 + lane / 16));
#pragma unroll
          for (int t = 0; t < NT; t++) multiply(acc[m][t], a, b[t]);
        }
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(empty + turn.stage * 8);
    }
    if (tile >= gridDim.x) meet();  // the sums of the tile before have been read
    auto place = [&](int slice, int i) { return sums + (slice * MT * NT + i) * QUADS + lane * 16; };
#pragma unroll
    for (int i = 0; i < MT * NT; i++)
      if (SPLIT == 1)
        store_quad(place(own, i), acc[i / NT][i % NT]);
      else
        store_quad_in_cluster(address_in(place(part * OWN + own, i), group), acc[i / NT][i % NT]);
    if (SPLIT == 1)
      meet();
    else
      cluster_sync();
    if (SCALES && SPLIT == 1 && tile < gridDim.x) wait_for_scales<(SLICES + SCALERS) * 32>();
#pragma unroll FINISHED_AT_ONCE
    for (int item = 0; item < ITEMS; item++) {
      const int i = warp + item * SLICES;
      if (i >= MT * NT) break;
      float y[4] = {};
#pragma unroll
      for (int s = 0; s < SLICES; s++) {
        float q[4];
        load_quad(q, place(s, i));
#pragma unroll
        for (int c = 0; c < 4; c++) y[c] += q[c];
      }
      if (SCALES) {
        const float2 scale = load_pair(scales + (i % NT * 8 + lane % 4 * 2) * 4);
        y[0] *= scale.x, y[1] *= scale.y, y[2] *= scale.x, y[3] *= scale.y;
      }
      const int row = row_of(i), first = first_output(i);
      u16* line = out + (long long)row * num_outputs;
      float added_squares = 0;
#pragma unroll
      for (int half = 0; half < TILE / 8; half++) {  // of 8 outputs
        float one = y[half * 2], other = y[half * 2 + 1];  // rows
        const int at = first + half * 8;
        if (bias != nullptr && at + lane / 4 < num_outputs) {
          const float more = widened(bias[at + lane / 4]);
          one += more, other += more;
        }
        u32 pair = transposed(GATED ? silu_times(one, other, y[2], y[3]) : rounded_pair(one, other));  // outputs of a row
        const int output = at + lane % 4 * 2;
        const bool is_there = row < num_rows && output < num_outputs;
        if (ADDS && is_there) {
          add_to_residual(pair, before[item][half], norm_weights[item][half], added_squares);
          *(u32*)(residual + (line - out) + output) = before[item][half];
        }
        if (is_there && num_outputs % 2 == 0) *(u32*)(line + output) = pair;
        if (is_there && num_outputs % 2) line[output] = (u16)pair;
        if (is_there && num_outputs % 2 && output + 1 < num_outputs) line[output + 1] = (u16)(pair >> 16);
      }
      if (ADDS) {
        for (int other = 2; other; other /= 2) added_squares += __shfl_xor_sync(~0u, added_squares, other);
        if (lane % 4 == 0 && row < num_rows && first < num_outputs) squares[row * PARTS + first / 16] = added_squares;
      }
    }
  }
}
