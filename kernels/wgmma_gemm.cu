// Matrix products of tens of rows, y = x @ weight.T, by warpgroup matrix instructions. See wgmma_gemm.py.
//
// A block owns M outputs of up to ROWS rows at a time. One thread streams weights and rows through shared memory in stages of LINE
// inputs, by bulk tensor copies; weights before it waits for the kernel that computes x (programmatic dependent launch). GROUPS
// warpgroups multiply: the weights are the first operand (wgmma m64nROWSk16), so numbers of rows need not be multiples of 64.
//
// Blocks of a cluster, SPLIT of them, have the same outputs and a part of the inputs each. Their sums meet in shared memory in a
// fixed order, which does not depend on ROWS: a row's sums depend neither on ROWS nor on the other rows.
//
// Where inputs are not split and ROW_BLOCKS is even, two neighbouring blocks have the same outputs and other rows, and each copies
// half of the weights for both.
//
// Constants of a compilation: GROUPS of four warps, TILES of 64 outputs of each, ROW_BLOCKS of ROWS, STAGES, SPLIT, GATED (a
// warpgroup's first tile are gate outputs, its second up outputs), HALF; registers of a thread: REGISTERS at first, later
// COPY_REGISTERS or MULTIPLY_REGISTERS; the instruction MULTIPLY and its SUMS, see multiply().

#include "warpgroup.cuh"

constexpr int THREADS = GROUPS * 128;                         // that multiply
constexpr bool IN_PAIRS = SPLIT == 1 && ROW_BLOCKS % 2 == 0;  // of blocks: either copies half of the weights for both
constexpr int LINE = 64;                           // inputs: 128 bytes of a row, whose 16-byte words are swizzled
constexpr int M = GROUPS * TILES * 64, HALF_M = M / 2;
constexpr int OUTPUTS = GATED ? HALF_M : M;
constexpr int WEIGHT_STAGE = M * LINE * 2, STAGE = WEIGHT_STAGE + ROWS * LINE * 2;  // bytes
// Stages whose weights are copied before x is there. If the weights of all stages went first, the first rows would arrive late.
constexpr int EARLY = STAGES / 2;
constexpr int OCTETS = (ROWS / 8 + SPLIT - 1) / SPLIT;  // of rows that a block stores, at most
constexpr int PITCH = 48;                               // bytes of a row of 16 outputs in shared memory
constexpr int STAGING = 16 * PITCH;                     // bytes of a warp
static_assert(ROWS % 16 == 0, "rows must be whole");
static_assert(EARLY > 0, "a stage's rows are copied after its weights, so one stage of these comes first");
static_assert(!GATED || (TILES == 2 && GROUPS == 2), "gate and up belong together");

// A half of a stage's weights, for both blocks of a pair.
__device__ __forceinline__ void copy_weights(u32 at, const TensorMap& map, int input, int output, int part, u32 barrier,
                                             u64 policy) {
  if (IN_PAIRS)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(at), "l"(&map), "r"(input), "r"(output), "r"(part), "r"(barrier),
        "h"((u16)3), "l"(policy) : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(at), "l"(&map), "r"(input), "r"(output), "r"(part), "r"(barrier), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void copy_x(u32 at, const TensorMap& map, int input, int row, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(at),
      "l"(&map), "r"(input), "r"(row), "r"(barrier) : "memory");
}

// Operands of the instruction: its ROWS / 2 sums, both matrices, whether it adds to the sums.
__device__ __forceinline__ void multiply(float (&d)[ROWS / 2], u64 weights, u64 rows, int adds) {
  asm volatile(MULTIPLY : SUMS : "l"(weights), "l"(rows), "r"(adds));
}

// One stage after another, of one tile after another. Tiles of the same outputs, of ROW_BLOCKS blocks of rows, run side by side.
struct TileTurn : Turn {
  int tile, step, last_step;
  const int first_step, num_steps;

  __device__ __forceinline__ TileTurn(int part, int num_lines)
      : tile(blockIdx.x / SPLIT), first_step(num_lines * part / SPLIT),
        num_steps(num_lines * (part + 1) / SPLIT - num_lines * part / SPLIT) {
    step = first_step, last_step = first_step + num_steps;
  }
  __device__ __forceinline__ void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;  // skip(1) in fewer instructions
    if (++step == last_step) step = first_step, tile += gridDim.x / SPLIT;
  }
  __device__ __forceinline__ int output() const { return tile / ROW_BLOCKS * OUTPUTS; }
  __device__ __forceinline__ int row() const { return tile % ROW_BLOCKS * ROWS; }
};

// Adds up the sums of the blocks of a cluster, which have a part of the inputs each. Block i keeps the i-th part of the rows.
// Stages are overwritten: all blocks must be done with them.
__device__ __forceinline__ void meet(float (&kept)[TILES][OCTETS * 4], float (&all)[TILES][ROWS / 2], u32 stages, int part) {
  constexpr u32 QUAD = THREADS * 16, SLOT = TILES * OCTETS * QUAD;
  static_assert((SPLIT - 1) * SLOT <= STAGES * STAGE, "sums take the place of the stages");
  const u32 slots = stages + threadIdx.x * 16;
  cluster_sync();
#pragma unroll
  for (int to = 0; to < SPLIT; to++) {
    const u32 there = address_in(slots + (part < to ? part : part - 1) * SLOT, to);
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
      for (int i = 0; i < OCTETS * 4; i += 4) {
        if (to * OCTETS * 4 + i >= ROWS / 2) continue;
        const float* sum = &all[m][to * OCTETS * 4 + i];
        const float q[4] = {sum[0], sum[1], sum[2], sum[3]};
        if (to == part)
          for (int c = 0; c < 4; c++) kept[m][i + c] = q[c];
        else
          store_quad_in_cluster(there + (m * OCTETS + i / 4) * QUAD, q);
      }
  }
  cluster_sync();
#pragma unroll
  for (int m = 0; m < TILES; m++)
#pragma unroll
    for (int i = 0; i < OCTETS * 4; i += 4) {
      float total[4] = {};
#pragma unroll
      for (int from = 0; from < SPLIT; from++) {
        float q[4] = {kept[m][i], kept[m][i + 1], kept[m][i + 2], kept[m][i + 3]};
        if (from != part) load_quad(q, slots + (from < part ? from : from - 1) * SLOT + (m * OCTETS + i / 4) * QUAD);
#pragma unroll
        for (int c = 0; c < 4; c++) total[c] += q[c];
      }
#pragma unroll
      for (int c = 0; c < 4; c++) kept[m][i + c] = total[c];
    }
}

extern "C" __global__ void __maxnreg__(REGISTERS)
    wgmma_gemm(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map,
               const u16* __restrict__ bias, u16* __restrict__ out, int num_rows, int num_outputs, int num_lines) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const u32 stages = shared_address(shared), staging = stages + STAGES * STAGE;
  const u32 full = staging + THREADS / 32 * STAGING, empty = full + STAGES * 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int part = blockIdx.x % SPLIT, num_tiles = (num_outputs + OUTPUTS - 1) / OUTPUTS * ROW_BLOCKS;

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      barrier_init(full + s * 8, 1);
      barrier_init(empty + s * 8, IN_PAIRS ? 2 * GROUPS : GROUPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  }
  if (SPLIT == 1 && !IN_PAIRS)
    __syncthreads();
  else
    cluster_sync();

  if (warp >= THREADS / 32) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COPY_REGISTERS));
    if (threadIdx.x == THREADS) {
      const u64 policy = evict_first();  // blocks of other rows read the same weights at nearly the same time
      auto start_weights = [&](const TileTurn& turn) {
        const u32 barrier = full + turn.stage * 8;
        const int first = turn.output();
        barrier_expect(barrier, STAGE);
#pragma unroll
        for (int half = 0; half < 2; half++) {
          if (IN_PAIRS && half != blockIdx.x % 2) continue;  // the other block's
          copy_weights(stages + turn.stage * STAGE + half * (WEIGHT_STAGE / 2), weight_map, turn.step * LINE,
                       first + (GATED ? 0 : half * HALF_M), GATED ? half : 0, barrier, policy);
        }
      };
      auto start_x = [&](const TileTurn& turn) {
        copy_x(stages + turn.stage * STAGE + WEIGHT_STAGE, x_map, turn.step * LINE, turn.row(), full + turn.stage * 8);
      };
      TileTurn ahead(part, num_lines), behind(part, num_lines);
      while (ahead.stage < EARLY && ahead.tile < num_tiles) start_weights(ahead), ahead.next();
      wait_for_kernel_before();
      while (behind.parity == 0 && behind.tile < num_tiles) {
        start_x(behind), behind.next();
        if (ahead.parity == 0 && ahead.tile < num_tiles) start_weights(ahead), ahead.next();
      }
      for (; ahead.tile < num_tiles; ahead.next()) {
        barrier_wait(empty + ahead.stage * 8, ahead.parity ^ 1);
        start_weights(ahead);
        start_x(ahead);
      }
    }
    __syncwarp();
    if (SPLIT > 1) cluster_sync(), cluster_sync();  // as in meet()
    if (IN_PAIRS) cluster_sync();
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MULTIPLY_REGISTERS));
  const int group = warp / 4;
  auto release = [&](int stage) {
    if (threadIdx.x % 128 == 0) {
      if (IN_PAIRS)
        for (u32 block = 0; block < 2; block++) barrier_arrive_in_cluster(address_in(empty + stage * 8, block));
      else
        barrier_arrive(empty + stage * 8);
    }
  };
  float acc[TILES][ROWS / 2];
  TileTurn turn(part, num_lines);
  while (turn.tile < num_tiles) {
    const int first_output = turn.output(), first_row = turn.row() + part * OCTETS * 8;
    int before = -1;
    for (int i = 0; i < turn.num_steps; i++, turn.next()) {
      barrier_wait(full + turn.stage * 8, turn.parity);
      const u32 at = stages + turn.stage * STAGE;
      begin_products();
#pragma unroll
      for (int k = 0; k < LINE / 16; k++)  // of 32 bytes, two words of a descriptor's address
#pragma unroll
        for (int m = 0; m < TILES; m++) {
          const int first = GATED ? m * HALF_M + group * 64 : (group * TILES + m) * 64;
          multiply(acc[m], operand(at + first * LINE * 2) + k * 2, operand(at + WEIGHT_STAGE) + k * 2, i > 0 || k > 0);
        }
      commit_products();
      wait_for_products<1>();
      if (before >= 0) release(before);
      before = turn.stage;
    }
    wait_for_products<0>();
#pragma unroll
    for (int m = 0; m < TILES; m++) from_here(acc[m]);
    release(before);
    // The next kernel's launch hides behind what is left. Before its last tile this would let the next kernel's blocks crowd on
    // the multiprocessors that have none of these.
    if (turn.tile >= num_tiles) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");

#if SPLIT > 1
    float sums[TILES][OCTETS * 4] = {};
    meet(sums, acc, stages, part);
#else
    float(&sums)[TILES][OCTETS * 4] = acc;
#endif
    // A thread's sums are of two outputs and pairs of rows; 16 outputs of a row leave together, through shared memory.
    const u32 staged = staging + warp * STAGING;
#pragma unroll
    for (int m = 0; m < (GATED ? 1 : TILES); m++) {
      const int output = first_output + (GATED ? group : group * TILES + m) * 64 + warp % 4 * 16;
      float added[2] = {};
      for (int h = 0; h < 2; h++) {
        const int at = output + lane / 4 + h * 8;
        if (bias != nullptr && at < num_outputs) added[h] = widened(bias[at]);
      }
#pragma unroll
      for (int octet = 0; octet < OCTETS; octet += 2) {
        u32 packed[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
          if (octet + i / 2 >= OCTETS) continue;
          const int first = (octet + i / 2) * 4 + i % 2 * 2;
          const float *gate = &sums[m][first], *up = &sums[TILES - 1][first];
          packed[i] = GATED ? silu_times(gate[0], gate[1], up[0], up[1])
                            : rounded_pair(sums[m][first] + added[i % 2], sums[m][first + 1] + added[i % 2]);
        }
        __syncwarp();
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                         staged + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 16),
                     "r"(packed[0]), "r"(packed[1]), "r"(packed[2]), "r"(packed[3]) : "memory");
        __syncwarp();
        u32 q[4];
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3])
                     : "r"(staged + lane / 2 * PITCH + lane % 2 * 16) : "memory");
        const int row = octet * 8 + lane / 2, at = output + lane % 2 * 8;
        if (row < OCTETS * 8 && part * OCTETS * 8 + row < ROWS && first_row + row < num_rows && at < num_outputs)
          asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(out + (long long)(first_row + row) * num_outputs + at),
                       "r"(q[0]), "r"(q[1]), "r"(q[2]), "r"(q[3]) : "memory");
      }
    }
  }
  if (IN_PAIRS) cluster_sync();  // the other block arrives at this one's barriers and copies into its stages
}
