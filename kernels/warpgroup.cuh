// Warpgroup products (wgmma) whose operands are in shared memory, as bulk tensor copies leave them.
#pragma once

#include "hopper.cuh"

// Of lines of 128 swizzled bytes, of which eight lie together; `pitch` bytes from eight to the next.
__device__ __forceinline__ u64 operand(u32 address, u32 pitch = 1024) {
  return (u64)((address & 0x3FFFF) >> 4) | (u64)1 << 16 | (u64)(pitch >> 4) << 32 | (u64)1 << 62;
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int PENDING>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps the compiler from reading sums before the products are done.
template <int COUNT>
__device__ __forceinline__ void from_here(float (&sums)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

// A thread's sums of 64 outputs by COUNT * 2 rows, rounded, to lines of rows: outputs of a warp are two words of a line.
template <int COUNT>
__device__ __forceinline__ void store_rows(u32 lines, const float (&d)[COUNT]) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
  for (int t = 0; t < COUNT / 4; t++)
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(
                     word_at(lines, t * 8 + lane % 8, warp * 2 + lane / 8 % 2)),
                 "r"(rounded_pair(d[t * 4], d[t * 4 + 1])), "r"(rounded_pair(d[t * 4 + 2], d[t * 4 + 3])) : "memory");
}
