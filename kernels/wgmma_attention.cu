// Attention of several rows of each request over its paged keys, by warpgroup matrix instructions. See attention/wgmma_attention.py.
//
// A block takes one request and KV head (an item) after another. One warp copies 64 keys with their values at a time through shared
// memory, by bulk tensor copies; those of earlier steps before it waits for the kernel that computes this step's rows (programmatic
// dependent launch). One warpgroup multiplies, with keys, and then dimensions, as first operand (wgmma m64nNk16): rows are padded to
// N, a multiple of 8. Weights go through shared memory between the two products.
//
// Constants of a compilation: D head dimension, Q rows of a request, HEADS of queries and KV_HEADS, PAGE keys, STAGES, BLOCKS of a
// multiprocessor, SHARED bytes, HALF (fp16, else bf16); the instructions MULTIPLY_KEYS and MULTIPLY_VALUES and their SUMS.

#include "warpgroup.cuh"

constexpr int WARPS = 4, THREADS = WARPS * 32;  // that multiply
constexpr int KEYS = 64;                        // of a stage
constexpr int BOX = 16;                         // keys of a copy
constexpr int LINE = 64;                        // dimensions: 128 bytes, whose 16-byte words are swizzled
constexpr int LINES = D / LINE, BOXES = KEYS / BOX;
constexpr int GROUP_HEADS = HEADS / KV_HEADS;
constexpr int ROWS = Q * GROUP_HEADS, TILES = (ROWS + 7) / 8, N = TILES * 8;
constexpr int OCTET = LINES * 1024;  // bytes of eight keys: [line][key][LINE]
constexpr int KEYS_BYTES = KEYS * D * 2, STAGE = 2 * KEYS_BYTES, BOX_BYTES = BOX * D * 2;
constexpr int WEIGHTS = N * KEYS * 2, Q_LINE = N * LINE * 2;  // bytes
constexpr float MASKED = -1.0e30f;  // a difference of two of them is 0, not NaN
constexpr float SLACK = 8;          // powers of two
static_assert(STAGES * (STAGE + 16) + LINES * Q_LINE + 2 * WEIGHTS + WARPS * N * 4 + 16 == SHARED, "as in Form");
static_assert(PAGE % BOX == 0 && D % LINE == 0, "boxes and lines must be whole");
static_assert(LINES <= 2, "outputs leave through the weights' two places");

// [octet][line][key][LINE]
__device__ __forceinline__ void copy_box(u32 to, const TensorMap& map, int slot, int head, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %2, %2, %3, %4}], [%5], %6;" ::"r"(to), "l"(&map), "r"(0), "r"(slot / 8), "r"(head), "r"(barrier), "l"(policy)
      : "memory");
}

// [row][head][LINE]
__device__ __forceinline__ void copy_q_line(u32 to, const TensorMap& map, int row, int head, int line, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(
          to), "l"(&map), "r"(0), "r"(head), "r"(row), "r"(line), "r"(barrier) : "memory");
}

// Scores of 64 keys: operands are N / 2 sums of a thread, keys, queries, and whether the product is added to the sums.
__device__ __forceinline__ void multiply_keys(float (&d)[N / 2], u64 keys, u64 queries, int adds) {
  asm volatile(MULTIPLY_KEYS : SUMS : "l"(keys), "l"(queries), "r"(adds));
}

// 64 dimensions of the values of 16 keys, which are its columns.
__device__ __forceinline__ void multiply_values(float (&d)[N / 2], u64 values, u64 weights) {
  asm volatile(MULTIPLY_VALUES : SUMS : "l"(values), "l"(weights), "r"(1));
}

__device__ __forceinline__ void meet() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }

__device__ __forceinline__ bool meet_and_ask(bool mine) {
  int any;
  asm volatile("{.reg .pred mine, any;\nsetp.ne.s32 mine, %1, 0;\nbar.red.or.pred any, 1, %2, mine;\nselp.s32 %0, 1, 0, any;}"
               : "=r"(any) : "r"((int)mine), "n"(THREADS) : "memory");
  return any;
}

// Over the lanes that hold other keys of the same rows.
template <typename F>
__device__ __forceinline__ float over_keys(float x, F of) {
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2) x = of(x, __shfl_xor_sync(~0u, x, distance));
  return x;
}

extern "C" __global__ void __launch_bounds__(THREADS + 32, BLOCKS)
    wgmma_attention(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                    const __grid_constant__ TensorMap v_map, u16* __restrict__ out, const int* __restrict__ kv_lens,
                    const int* __restrict__ table, int table_stride, int table_width, int num_items, float scale_log2) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const u32 stages = shared_address(shared), queries = stages + STAGES * STAGE, weights = queries + LINES * Q_LINE;
  float* sums = (float*)(shared + STAGES * STAGE + LINES * Q_LINE + 2 * WEIGHTS);  // [WARPS][N]
  const u32 full = shared_address(sums + WARPS * N), empty = full + STAGES * 8, q_full = empty + STAGES * 8, q_empty = q_full + 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) barrier_init(full + s * 8, 1), barrier_init(empty + s * 8, WARPS);
    barrier_init(q_full, 1), barrier_init(q_empty, WARPS);
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  auto length_of = [&](int item) { return item < num_items ? kv_lens[item / KV_HEADS] : 0; };
  Turn turn;
  int length = length_of(blockIdx.x), q_parity = 0;

  if (warp == WARPS) {
    const u64 policy = evict_first();
    auto page_of = [&](int item, int first_box) {  // of this lane's box; not after its length, which takes as long to come
      const int page = (first_box + lane) * BOX / PAGE;
      return item < num_items && page < table_width ? table[(long long)(item / KV_HEADS) * table_stride + page] : 0;
    };
    int pages = page_of(blockIdx.x, 0);
    bool is_first = true, wraps = false;  // wraps: stages must be waited for
    for (int item = blockIdx.x; item < num_items; item += gridDim.x, is_first = false, q_parity ^= 1) {
      const int b = item / KV_HEADS, head = item % KV_HEADS, num_boxes = (length + BOX - 1) / BOX;
      const int next_length = length_of(item + gridDim.x), next_pages = page_of(item + gridDim.x, 0);
      auto copy = [&](int step) {
        if (step * BOXES % 32 == 0 && step > 0) pages = page_of(item, step * BOXES);
        const int box = step * BOXES + lane, slot = __shfl_sync(~0u, pages, box % 32) * PAGE + box * BOX % PAGE;
        const u32 barrier = full + turn.stage * 8, at = stages + turn.stage * STAGE + lane * BOX_BYTES;
        if (wraps) barrier_wait(empty + turn.stage * 8, turn.parity ^ 1);
        if (lane == 0) barrier_expect(barrier, min(BOXES, num_boxes - step * BOXES) * 2 * BOX_BYTES);
        __syncwarp();
        if (lane < BOXES && box < num_boxes) {
          copy_box(at, k_map, slot, head, barrier, policy);
          copy_box(at + KEYS_BYTES, v_map, slot, head, barrier, policy);
        }
        turn.skip(1);
        wraps |= turn.stage == 0;
      };
      int step = 0;
      if (is_first) {
        for (const int num_old = (length - Q) / KEYS; step < num_old && step < STAGES; step++) copy(step);
        wait_for_kernel_before();
        // Not before: the next GEMM's blocks would fill the GPU while this step's rows are still computed.
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
      }
      // Keys come first: of the item before, the last are still being multiplied with its queries.
      for (; !is_first && step < STAGES - 1 && step * BOXES < num_boxes; step++) copy(step);
      if (lane == 0) {
        if (!is_first) barrier_wait(q_empty, q_parity ^ 1);
        barrier_expect(q_full, ROWS * D * 2);
        for (int line = 0; line < LINES; line++)
          copy_q_line(queries + line * Q_LINE, q_map, b * Q, head * GROUP_HEADS, line, q_full);
      }
      __syncwarp();
      for (; step * BOXES < num_boxes; step++) copy(step);
      length = next_length, pages = next_pages;
    }
    return;
  }

  for (int item = blockIdx.x; item < num_items; item += gridDim.x, q_parity ^= 1) {
    const int prefix = length - Q, num_steps = (length + KEYS - 1) / KEYS, next_length = length_of(item + gridDim.x);
    // A thread has scores of keys warp * 16 + lane / 4 and 8 further, of rows lane % 4 * 2 and the next of a tile.
    float acc[LINES][N / 2] = {}, peak[TILES][2], sum[TILES][2] = {};
#pragma unroll
    for (int t = 0; t < TILES; t++) peak[t][0] = peak[t][1] = MASKED;
    barrier_wait(q_full, q_parity);
    if (item >= gridDim.x) meet();  // the item before has left
    if (num_steps <= 0 && lane == 0) barrier_arrive(q_empty);
    for (int step = 0; step < num_steps; step++, turn.skip(1)) {
      const u32 keys = stages + turn.stage * STAGE, values = keys + KEYS_BYTES, of_step = weights + step % 2 * WEIGHTS;
      barrier_wait(full + turn.stage * 8, turn.parity);
      float score[N / 2];
      begin_products();
#pragma unroll
      for (int k = 0; k < D / 16; k++)
        multiply_keys(score, operand(keys, OCTET) + k / 4 * 64 + k % 4 * 2, operand(queries) + k / 4 * Q_LINE / 16 + k % 4 * 2, k);
      commit_products();
      wait_for_products<0>();
      from_here(score);
      if (step == num_steps - 1 && lane == 0) barrier_arrive(q_empty);
#pragma unroll
      for (int i = 0; i < N / 2; i++) score[i] *= scale_log2;
      if ((step + 1) * KEYS > prefix + 1) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
          const int key = step * KEYS + warp * 16 + lane / 4 + i % 4 / 2 * 8, row = i / 4 * 8 + lane % 4 * 2 + i % 2;
          if (key > prefix + row / GROUP_HEADS || key >= length) score[i] = MASKED;
        }
        // Stale values behind the last key: a weight of 0 would not silence a NaN.
        const int num_valid = length - step * KEYS;
        for (int i = threadIdx.x; i < (KEYS - num_valid) * (D / 8); i += THREADS) {
          const int key = num_valid + i / (D / 8), line = i / 8 % LINES;
          store_quad(values + key / 8 * OCTET + line * 1024 + key % 8 * 128 + i % 8 * 16, {0, 0, 0, 0});
        }
      }
      float weight[N / 2];
      auto weigh = [&] {
#pragma unroll
        for (int i = 0; i < N / 2; i++) weight[i] = exp2_of(score[i] - peak[i / 4][i % 2]);
        store_rows(of_step, weight);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // products read it, and zeros, once all have met
      };
      // A row's sums are relative to a peak that scores may exceed by a little: it seldom has to follow (FlashAttention-4).
      bool follows = step == 0;
      if (!follows) {
        bool exceeds = false;
#pragma unroll
        for (int i = 0; i < N / 2; i++)
          exceeds |= i / 4 * 8 + lane % 4 * 2 + i % 2 < ROWS && score[i] > peak[i / 4][i % 2] + SLACK;
        weigh();
        follows = meet_and_ask(exceeds);
      }
      if (follows) {
        float* maxima = (float*)(shared + (weights - stages) + (step + 1) % 2 * WEIGHTS);  // [WARPS][N]: free until the next step
#pragma unroll
        for (int i = 0; i < TILES * 2; i++) {
          const int t = i / 2, at = t * 4 + i % 2;
          const float most = over_keys(fmaxf(score[at], score[at + 2]), [](float x, float y) { return fmaxf(x, y); });
          if (lane < 4) maxima[warp * N + t * 8 + lane * 2 + i % 2] = most;
        }
        meet();
#pragma unroll
        for (int i = 0; i < TILES * 2; i++) {
          const int t = i / 2;
          float most = MASKED;
#pragma unroll
          for (int w = 0; w < WARPS; w++) most = fmaxf(most, maxima[w * N + t * 8 + lane % 4 * 2 + i % 2]);
          const float now = most > peak[t][i % 2] + SLACK ? most : peak[t][i % 2], shrink = exp2_of(peak[t][i % 2] - now);
          peak[t][i % 2] = now;
          sum[t][i % 2] *= shrink;
#pragma unroll
          for (int line = 0; line < LINES; line++) acc[line][t * 4 + i % 2] *= shrink, acc[line][t * 4 + i % 2 + 2] *= shrink;
        }
        weigh();
        meet();
      }
#pragma unroll
      for (int i = 0; i < N / 2; i++) sum[i / 4][i % 2] += weight[i];
      begin_products();
#pragma unroll
      for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
        for (int line = 0; line < LINES; line++)
          multiply_values(acc[line], operand(values, OCTET) + (k * 2 * OCTET + line * 1024) / 16, operand(of_step) + k * 2);
      commit_products();
      wait_for_products<0>();
#pragma unroll
      for (int line = 0; line < LINES; line++) from_here(acc[line]);
      if (lane == 0) barrier_arrive(empty + turn.stage * 8);
    }

#pragma unroll
    for (int i = 0; i < TILES * 2; i++) {
      const float total = over_keys(sum[i / 2][i % 2], [](float x, float y) { return x + y; });
      if (lane < 4) sums[warp * N + i / 2 * 8 + lane * 2 + i % 2] = total;
    }
    meet();
#pragma unroll
    for (int i = 0; i < TILES * 2; i++) {
      float total = 0;
#pragma unroll
      for (int w = 0; w < WARPS; w++) total += sums[w * N + i / 2 * 8 + lane % 4 * 2 + i % 2];
      const float scale = total > 0 ? 1 / total : 0;
#pragma unroll
      for (int line = 0; line < LINES; line++) acc[line][i / 2 * 4 + i % 2] *= scale, acc[line][i / 2 * 4 + i % 2 + 2] *= scale;
    }
#pragma unroll
    for (int line = 0; line < LINES; line++) store_rows(weights + line * WEIGHTS, acc[line]);  // whose products are done
    meet();
    for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
      const int row = i / (D / 8), word = i % (D / 8);
      u32 q[4];
      asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3])
                   : "r"(word_at(weights + word / 8 * WEIGHTS, row, word % 8)) : "memory");
      const long long q_row = (long long)(item / KV_HEADS) * Q + row / GROUP_HEADS;
      const int head = item % KV_HEADS * GROUP_HEADS + row % GROUP_HEADS;
      asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(out + (q_row * HEADS + head) * D + word * 8), "r"(q[0]), "r"(q[1]),
                   "r"(q[2]), "r"(q[3]) : "memory");
    }
    length = next_length;
  }
}
