// Attention of a few rows of each request over its paged keys, at the speed of reading them. See attention/bulk_attention.py.
//
// A block takes one request and KV head (an item) after another. One warp copies boxes of 16 keys and values through shared
// memory by bulk tensor copies; those of earlier steps before it waits for the kernel that computes this step's rows (programmatic
// dependent launch). The others form GROUPS, whose warps have a part of the values' dimensions each. A group takes every GROUPS-th
// box of an item and has a maximum and sums of its own (Flash-Decoding, Dao et al. 2023, within a block), which meet in shared memory
// in a fixed order: a row's result depends on nothing but its own keys.
//
// Products by tensor cores (mma m16n8k16) have keys, and then dimensions, as first operand: rows are padded to TILES of 8.
//
// Constants of a compilation: D head dimension, Q rows of a request, HEADS of queries and KV_HEADS, PAGE keys, GROUPS, STAGES,
// BLOCKS of a multiprocessor, SHARED bytes, HALF (fp16, else bf16).

#include "hopper.cuh"

constexpr int WARPS = 4;   // that multiply
constexpr int BOX = 16;    // keys
constexpr int LINE = 64;   // dimensions: 128 bytes, whose 16-byte words are swizzled
constexpr int LINES = D / LINE;
constexpr int PARTS = WARPS / GROUPS, PART = D / PARTS;  // of the values, each for a warp: so many dimensions
constexpr int GROUP_HEADS = HEADS / KV_HEADS;
constexpr int ROWS = Q * GROUP_HEADS, TILES = (ROWS + 7) / 8;
constexpr int KEYS_BYTES = BOX * D * 2, STAGE = 2 * KEYS_BYTES;
constexpr int Q_BYTES = (((LINES - 1) * ROWS + TILES * 8) * 128 + 1023) / 1024 * 1024;
constexpr int PITCH = PART + 4, WIDE = D / 32;  // floats; dimensions of a lane when groups meet
constexpr float MASKED = -1.0e30f;  // a difference of two of them is 0, not NaN
constexpr float SLACK = 8;          // powers of two
static_assert(STAGES * (STAGE + 16) + Q_BYTES + WARPS * ROWS * PITCH * 4 + GROUPS * ROWS * 8 + 16 == SHARED, "as in Sizes");
static_assert(PAGE % BOX == 0 && PART % LINE == 0, "boxes and lines must be whole");
static_assert(STAGES % GROUPS == 0, "a stage is always the same group's: waiting for one phase, it has seen all before");

// [line][key][LINE]
__device__ __forceinline__ void copy_box(u32 to, const TensorMap& map, int slot, int head, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %2, %4}], [%5], %6;" ::"r"(to), "l"(&map), "r"(0), "r"(slot), "r"(head), "r"(barrier), "l"(policy)
      : "memory");
}

// [line][row][head][LINE]
__device__ __forceinline__ void copy_q(u32 to, const TensorMap& map, int row, int head, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %2}], [%5];" ::"r"(
          to), "l"(&map), "r"(0), "r"(head), "r"(row), "r"(barrier) : "memory");
}

// Over the lanes that hold other keys of the same rows.
template <typename F>
__device__ __forceinline__ float over_keys(float x, F of) {
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2) x = of(x, __shfl_xor_sync(~0u, x, distance));
  return x;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32 + 32, BLOCKS)
    bulk_attention(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                   const __grid_constant__ TensorMap v_map, u16* __restrict__ out, const int* __restrict__ kv_lens,
                   const int* __restrict__ table, int table_stride, int table_width, int num_items, float scale_log2) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const u32 stages = shared_address(shared), queries = stages + STAGES * STAGE;
  float* sums = (float*)(shared + STAGES * STAGE + Q_BYTES);  // [WARPS][ROWS][PITCH]
  float2* peaks = (float2*)(sums + WARPS * ROWS * PITCH);      // [GROUPS][ROWS]: a maximum, and the sum relative to it
  const u32 full = shared_address(peaks + GROUPS * ROWS), empty = full + STAGES * 8;
  const u32 q_full = empty + STAGES * 8, q_empty = q_full + 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) barrier_init(full + s * 8, 1), barrier_init(empty + s * 8, PARTS);
    barrier_init(q_full, 1), barrier_init(q_empty, WARPS);
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  auto length_of = [&](int item) { return item < num_items ? kv_lens[item / KV_HEADS] : 0; };

  if (warp == WARPS) {
    const u64 policy = evict_first();
    auto page_of = [&](int item, int first_box) {  // of this lane's box; not after its length, which takes as long to come
      const int page = (first_box + lane) * BOX / PAGE;
      return item < num_items && page < table_width ? table[(long long)(item / KV_HEADS) * table_stride + page] : 0;
    };
    Turn turn;
    int length = length_of(blockIdx.x), pages = page_of(blockIdx.x, 0), q_parity = 0;
    bool is_first = true, wraps = false;  // wraps: stages must be waited for
    for (int item = blockIdx.x; item < num_items; item += gridDim.x, is_first = false, q_parity ^= 1) {
      const int b = item / KV_HEADS, head = item % KV_HEADS, num_boxes = (length + BOX - 1) / BOX;
      const int next_length = length_of(item + gridDim.x), next_pages = page_of(item + gridDim.x, 0);
      auto copy = [&](int box) {
        if (box % 32 == 0 && box > 0) pages = page_of(item, box);
        const int slot = __shfl_sync(~0u, pages, box % 32) * PAGE + box * BOX % PAGE;
        if (lane == 0) {
          const u32 barrier = full + turn.stage * 8, at = stages + turn.stage * STAGE;
          if (wraps) barrier_wait(empty + turn.stage * 8, turn.parity ^ 1);
          barrier_expect(barrier, STAGE);
          copy_box(at, k_map, slot, head, barrier, policy);
          copy_box(at + KEYS_BYTES, v_map, slot, head, barrier, policy);
        }
        turn.skip(1);
        wraps |= turn.stage == 0;
      };
      int box = 0;
      if (is_first) {
        for (const int num_old = (length - Q) / BOX; box < num_old && box < STAGES; box++) copy(box);
        wait_for_kernel_before();
        // Not before: the next GEMM's blocks would fill the GPU while this step's rows are still computed.
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
      }
      if (lane == 0) {
        if (!is_first) barrier_wait(q_empty, q_parity ^ 1);
        barrier_expect(q_full, ROWS * D * 2);
        copy_q(queries, q_map, b * Q, head * GROUP_HEADS, q_full);
      }
      for (; box < num_boxes; box++) copy(box);
      length = next_length, pages = next_pages;
    }
    return;
  }

  const int group = warp / PARTS, part = warp % PARTS;
  auto meet = [] { asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory"); };
  Turn turn{group};
  int first = 0, length = length_of(blockIdx.x), q_parity = 0;  // first: the group that has an item's first box
  for (int item = blockIdx.x; item < num_items; item += gridDim.x, q_parity ^= 1) {
    const int b = item / KV_HEADS, head = item % KV_HEADS, num_boxes = (length + BOX - 1) / BOX, prefix = length - Q;
    const int next_length = length_of(item + gridDim.x);
    u32 query[TILES][D / 16][2];
    barrier_wait(q_full, q_parity);
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
      for (int step = 0; step < D / 16; step++)
        load_tile_8(query[t][step], word_at(queries, step / 4 * ROWS + t * 8 + lane % 8, step % 4 * 2 + lane / 8 % 2));
    __syncwarp();
    if (lane == 0) barrier_arrive(q_empty);

    float acc[TILES][PART / 16][4] = {}, peak[TILES][2], sum[TILES][2] = {};  // of rows lane % 4 * 2 and the next of a tile
#pragma unroll
    for (int t = 0; t < TILES; t++) peak[t][0] = peak[t][1] = MASKED;
    for (int box = (group - first + GROUPS) % GROUPS; box < num_boxes; box += GROUPS, turn.skip(GROUPS)) {
      barrier_wait(full + turn.stage * 8, turn.parity);
      const u32 keys = stages + turn.stage * STAGE, values = keys + KEYS_BYTES + part * (PART / LINE * BOX * 128);
      float score[TILES][4] = {}, odd[TILES][4] = {};  // of keys lane / 4, then 8 further, of these rows; two short chains
#pragma unroll
      for (int step = 0; step < D / 16; step++) {
        u32 a[4];
        load_tile_16(a, word_at(keys + step / 4 * (BOX * 128), lane % 16, step % 4 * 2 + lane / 16));
#pragma unroll
        for (int t = 0; t < TILES; t++) multiply(step % 2 ? odd[t] : score[t], a, query[t][step]);
      }
#pragma unroll
      for (int i = 0; i < TILES * 4; i++) score[i / 4][i % 4] += odd[i / 4][i % 4];
      if ((box + 1) * BOX > prefix + 1) {
#pragma unroll
        for (int i = 0; i < TILES * 4; i++) {
          const int key = box * BOX + lane / 4 + i % 4 / 2 * 8, row = (i / 4 * 8 + lane % 4 * 2 + i % 2) / GROUP_HEADS;
          if (key > prefix + row || key >= length) score[i / 4][i % 4] = MASKED / scale_log2;
        }
        // Stale values behind the last key: a weight of 0 would not silence a NaN.
        const int num_valid = length - box * BOX;
        for (int i = lane; i < (BOX - num_valid) * (PART / 8); i += 32) {
          const u32 line = values + i % (PART / 8) / 8 * (BOX * 128);
          asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(word_at(line, i / (PART / 8) + num_valid, i % 8)), "r"(0)
                       : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // before a copy overwrites them
        __syncwarp();
      }
      // A row's sums are relative to a peak that scores may exceed by a little: it seldom has to follow (FlashAttention-4).
      bool exceeds = false;
#pragma unroll
      for (int i = 0; i < TILES * 4; i++) {
        float& x = score[i / 4][i % 4];
        x *= scale_log2;
        exceeds |= i / 4 * 8 + lane % 4 * 2 + i % 2 < ROWS && x > peak[i / 4][i % 2] + SLACK;
      }
      if (__any_sync(~0u, exceeds)) {
#pragma unroll
        for (int t = 0; t < TILES; t++) {
          float shrink[2];
#pragma unroll
          for (int i = 0; i < 2; i++) {
            const float most = over_keys(fmaxf(score[t][i], score[t][i + 2]), [](float x, float y) { return fmaxf(x, y); });
            const float now = most > peak[t][i] + SLACK ? most : peak[t][i];
            shrink[i] = exp2_of(peak[t][i] - now);
            sum[t][i] *= shrink[i];
            peak[t][i] = now;
          }
#pragma unroll
          for (int step = 0; step < PART / 16; step++)
#pragma unroll
            for (int i = 0; i < 4; i++) acc[t][step][i] *= shrink[i % 2];
        }
      }
      u32 weight[TILES][2];
#pragma unroll
      for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const float p = exp2_of(score[t][2 * h] - peak[t][0]), q = exp2_of(score[t][2 * h + 1] - peak[t][1]);
          sum[t][0] += p, sum[t][1] += q;
          weight[t][h] = transposed(rounded_pair(p, q));
        }
#pragma unroll
      for (int step = 0; step < PART / 16; step++) {  // of 16 dimensions
        u32 a[4];
        load_tile_16_transposed(a, word_at(values + step / 4 * (BOX * 128), lane / 16 * 8 + lane % 8, step % 4 * 2 + lane / 8 % 2));
#pragma unroll
        for (int t = 0; t < TILES; t++) multiply(acc[t][step], a, weight[t]);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(empty + turn.stage * 8);
    }

    if (item >= gridDim.x) meet();  // the sums of the item before have been read
#pragma unroll
    for (int i = 0; i < TILES * 2; i++) {
      const int t = i / 2, row = t * 8 + lane % 4 * 2 + i % 2;
      const float total = over_keys(sum[t][i % 2], [](float x, float y) { return x + y; });
      if (row >= ROWS) continue;
      if (part == 0 && lane < 4) peaks[group * ROWS + row] = make_float2(peak[t][i % 2], total);
#pragma unroll
      for (int step = 0; step < PART / 16; step++)
#pragma unroll
        for (int h = 0; h < 2; h++) sums[(warp * ROWS + row) * PITCH + step * 16 + lane / 4 + h * 8] = acc[t][step][i % 2 + h * 2];
    }
    meet();
#pragma unroll
    for (int i = 0; i < (ROWS + WARPS - 1) / WARPS; i++) {
      const int row = i * WARPS + warp;
      if (ROWS % WARPS > 0 && row >= ROWS) break;
      float most = MASKED, total = 0, y[WIDE] = {};
#pragma unroll
      for (int g = 0; g < GROUPS; g++) most = fmaxf(most, peaks[g * ROWS + row].x);
#pragma unroll
      for (int g = 0; g < GROUPS; g++) {
        const int from = (first + g) % GROUPS;
        const float2 of = peaks[from * ROWS + row];
        const float2* z = (const float2*)&sums[((from * PARTS + lane * WIDE / PART) * ROWS + row) * PITCH + lane * WIDE % PART];
        const float weight = exp2_of(of.x - most);
        total += weight * of.y;
#pragma unroll
        for (int j = 0; j < WIDE; j += 2) y[j] += weight * z[j / 2].x, y[j + 1] += weight * z[j / 2].y;
      }
      const float scale = total > 0 ? 1 / total : 0;
      const long long head_at = ((long long)b * Q + row / GROUP_HEADS) * HEADS + head * GROUP_HEADS + row % GROUP_HEADS;
#pragma unroll
      for (int j = 0; j < WIDE; j += 2) *(u32*)(out + head_at * D + lane * WIDE + j) = rounded_pair(y[j] * scale, y[j + 1] * scale);
    }
    first = (first + num_boxes) % GROUPS;
    length = next_length;
  }
}
