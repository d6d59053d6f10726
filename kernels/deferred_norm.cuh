// The parts of a norm that the products before and after it do. See deferred_norm.py.
#pragma once

#include "hopper.cuh"

// Adds a pair of outputs to one of the residual. `outputs` becomes the sum times the norm's weights; its squares are added to
// `squares`.
__device__ __forceinline__ void add_to_residual(u32& outputs, u32& residual, u32 weights, float& squares) {
  const float2 a = widened_pair(outputs), b = widened_pair(residual), w = widened_pair(weights);
  residual = rounded_pair(a.x + b.x, a.y + b.y);
  const float2 r = widened_pair(residual);
  squares += r.x * r.x + r.y * r.y;
  outputs = rounded_pair(r.x * w.x, r.y * w.y);
}

// Writes 1 / sqrt(mean of squares + eps) of each row into shared memory; `warp` is one of NUM_WARPS. Eight lanes add up a row's
// NUM_PARTS parts, in an order that depends on their number only. As many loads are in flight at once as fit in REGISTERS: behind
// the copies of weights that are on their way a load takes about 5 us.
template <int NUM_PARTS, int NUM_WARPS, int MOST_ROWS, int REGISTERS>
__device__ __forceinline__ void scale_rows(u32 scales, const float* squares, float eps, int num_rows, int num_inputs, int warp) {
  constexpr int LANES = 8, TOGETHER = NUM_WARPS * 32 / LANES, TURNS = (MOST_ROWS + TOGETHER - 1) / TOGETHER;
  constexpr int QUADS = (NUM_PARTS / 4 + LANES - 1) / LANES, FITTING = REGISTERS / (4 * QUADS);
  constexpr int AT_ONCE = FITTING < 1 ? 1 : FITTING < TURNS ? FITTING : TURNS;
  static_assert(NUM_PARTS % 4 == 0, "they are read in fours");
  const int lane = threadIdx.x % LANES, first_row = warp * 32 / LANES + threadIdx.x % 32 / LANES;
#pragma unroll
  for (int first = 0; first < TURNS; first += AT_ONCE) {
    float4 parts[AT_ONCE][QUADS];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
      for (int q = 0; q < QUADS; q++) {
        const int row = first_row + (first + i) * TOGETHER, at = (q * LANES + lane) * 4;
        parts[i][q] = row < num_rows && at < NUM_PARTS ? *(const float4*)(squares + row * NUM_PARTS + at) : float4{};
      }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      float sum = 0;
#pragma unroll
      for (int q = 0; q < QUADS; q++) sum += parts[i][q].x + parts[i][q].y + (parts[i][q].z + parts[i][q].w);
      for (int other = LANES / 2; other; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
      const int row = first_row + (first + i) * TOGETHER;
      if (lane == 0 && row < num_rows)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(scales + row * 4), "f"(rsqrtf(sum / num_inputs + eps)) : "memory");
    }
  }
}

// Between the warps that scale and those that wait for them, THREADS in all.
template <int THREADS>
__device__ __forceinline__ void scales_are_there() {
  asm volatile("bar.arrive 2, %0;" ::"n"(THREADS) : "memory");
}

template <int THREADS>
__device__ __forceinline__ void wait_for_scales() {
  asm volatile("bar.sync 2, %0;" ::"n"(THREADS) : "memory");
}
