// Matrix products of few rows, y = x @ weight.T, at the speed of reading the weights. See bulk_gemm.py.
//
// A block owns M outputs at a time and streams their weights through shared memory in stages of KC inputs, by bulk tensor
// copies. It starts them before it waits for the kernel that computes x (programmatic dependent launch). One warp copies.
// Each of the others multiplies by tensor cores (mma m16n8k16) a slice of a stage's inputs; their sums meet in shared memory
// in a fixed order, so that a row's sum depends neither on M nor on how many rows there are.
//
// Constants of a compilation: M outputs of a block (gate and up rows counted), STAGES, NT tiles of 8 rows, GATED, HALF
// (fp16, else bf16). Rows of x that do not exist are not copied: what lies in their place only reaches their own sums.

#include "hopper.cuh"

constexpr int SLICES = 4;  // of a stage's inputs, one a warp
constexpr int LINE = 64;   // inputs of a slice: 128 bytes of a row, whose 16-byte words are swizzled
constexpr int KC = SLICES * LINE;
constexpr int ROWS = NT * 8;
constexpr int WEIGHT_SLICE = M * LINE * 2;  // bytes
constexpr int STAGE = KC * (M + ROWS) * 2;
constexpr int MT = M / 16;  // tiles of 16 outputs
constexpr int OUTPUTS = GATED ? M / 2 : M;
constexpr int SUM_PITCH = M + 4;  // floats
static_assert(M % 16 == 0, "tiles must be whole");

// [slice][gate, up][output][LINE]
__device__ __forceinline__ void copy_weights(u32 to, const TensorMap& map, int slice, int output, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %2, %4}], [%5], %6;" ::"r"(to), "l"(&map), "r"(0), "r"(output), "r"(slice), "r"(barrier), "l"(policy)
      : "memory");
}

// [slice][row][LINE]
__device__ __forceinline__ void copy_x(u32 to, const TensorMap& map, int slice, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(0), "r"(slice), "r"(barrier) : "memory");
}

// Which stage comes next, the parity of its barriers' phase, and the tile and inputs that it holds.
struct Turn {
  int stage = 0, parity = 0, tile = blockIdx.x, chunk = 0;

  __device__ __forceinline__ void next(int num_chunks) {
    if (++stage == STAGES) stage = 0, parity ^= 1;
    if (++chunk == num_chunks) chunk = 0, tile += gridDim.x;
  }
};

extern "C" __global__ void __launch_bounds__(SLICES * 32 + 32, 1)
    bulk_gemm(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map,
             const u16* __restrict__ bias, u16* __restrict__ out, int num_rows, int num_outputs, int num_chunks) {
  extern __shared__ __align__(1024) unsigned char shared[];
  float* sums = (float*)(shared + STAGES * STAGE);  // [SLICES][ROWS][SUM_PITCH]
  const u32 stages = shared_address(shared);
  const u32 full = shared_address(sums + SLICES * ROWS * SUM_PITCH), empty = full + STAGES * 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int num_tiles = (num_outputs + OUTPUTS - 1) / OUTPUTS;

  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      barrier_init(full + s * 8, 1);
      barrier_init(empty + s * 8, SLICES);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();

  if (warp == SLICES) {
    if (lane == 0) {
      const u64 policy = evict_first();
      auto start_weights = [&](const Turn& turn) {
        const u32 barrier = full + turn.stage * 8;
        barrier_expect(barrier, KC * 2 * (M + num_rows));
        copy_weights(stages + turn.stage * STAGE, weight_map, turn.chunk * SLICES, turn.tile * OUTPUTS, barrier, policy);
      };
      auto start_x = [&](const Turn& turn) {
        copy_x(stages + turn.stage * STAGE + SLICES * WEIGHT_SLICE, x_map, turn.chunk * SLICES, full + turn.stage * 8);
      };
      Turn ahead, behind;
      while (ahead.parity == 0 && ahead.tile < num_tiles) start_weights(ahead), ahead.next(num_chunks);
      asm volatile("griddepcontrol.wait;" ::: "memory");
      while (behind.parity == 0 && behind.tile < num_tiles) start_x(behind), behind.next(num_chunks);
      for (; ahead.tile < num_tiles; ahead.next(num_chunks)) {
        barrier_wait(empty + ahead.stage * 8, ahead.parity ^ 1);
        start_weights(ahead);
        start_x(ahead);
      }
    }
    return;
  }

  const u32 weights_at = stages + warp * WEIGHT_SLICE, x_at = stages + SLICES * WEIGHT_SLICE;
  const int line = warp * num_rows + lane % 8;
  Turn turn;
  for (int tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
    float acc[MT][NT][4] = {};
    for (int chunk = 0; chunk < num_chunks; chunk++, turn.next(num_chunks)) {
      barrier_wait(full + turn.stage * 8, turn.parity);
      const u32 offset = turn.stage * STAGE;
#pragma unroll
      for (int step = 0; step < LINE / 16; step++) {  // two 16-byte words
        u32 b[NT][2];
#pragma unroll
        for (int t = 0; t < NT; t++)
          load_tile_8(b[t], word_at(offset + x_at, line + t * 8, step * 2 + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < MT; m++) {
          u32 a[4];
          load_tile_16(a, word_at(offset + weights_at, m * 16 + lane % 16, step * 2 + lane / 16));
#pragma unroll
          for (int t = 0; t < NT; t++) multiply(acc[m][t], a, b[t]);
        }
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(empty + turn.stage * 8);
    }
    if (tile >= gridDim.x) asm volatile("bar.sync 1, %0;" ::"n"(SLICES * 32) : "memory");  // the sums of the tile before have been read
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int t = 0; t < NT; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int output = m * 16 + lane / 4 + i / 2 * 8, row = t * 8 + lane % 4 * 2 + i % 2;
          sums[(warp * ROWS + row) * SUM_PITCH + output] = acc[m][t][i];
        }
    asm volatile("bar.sync 1, %0;" ::"n"(SLICES * 32) : "memory");
    const int first = tile * OUTPUTS;
    for (int i = threadIdx.x; i < num_rows * OUTPUTS; i += SLICES * 32) {
      const int row = i / OUTPUTS, output = i % OUTPUTS;
      if (first + output >= num_outputs) continue;
      float y = 0, up = 0;
#pragma unroll
      for (int s = 0; s < SLICES; s++) {
        y += sums[(s * ROWS + row) * SUM_PITCH + output];
        if (GATED) up += sums[(s * ROWS + row) * SUM_PITCH + OUTPUTS + output];
      }
      if (bias != nullptr) y += widened(bias[first + output]);
      if (GATED) y = silu_times(y, up);
      out[(long long)row * num_outputs + first + output] = rounded(y);
    }
  }
}
