// What the kernels of Hopper GPUs share: bulk tensor copies, their barriers, and 16-bit numbers.
// Constant of a compilation: HALF (fp16, else bf16).
#pragma once

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

struct alignas(64) TensorMap {
  char opaque[128];
};

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Blocks until the phase of this parity has ended. Its scope must stay the block's: a wider one costs 0.6 us each.
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;}" ::"r"(barrier), "r"(parity) : "memory");
}

// For what is read once.
__device__ __forceinline__ u64 evict_first() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ u16 rounded(float value) {
  u16 bits;
#if HALF
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#endif
  return bits;
}

__device__ __forceinline__ float widened(u16 bits) {
#if HALF
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  return __uint_as_float((u32)bits << 16);
#endif
}

// silu(gate) * up, both rounded first, as torch's operators have them.
__device__ __forceinline__ float silu_times(float gate, float up) {
  gate = widened(rounded(gate));
  return gate / (1.0f + __expf(-gate)) * widened(rounded(up));
}
