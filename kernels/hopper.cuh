// What the kernels of Hopper GPUs share: bulk tensor copies, their barriers, 16-bit numbers, and their products by mma m16n8k16.
// Constants of a compilation: HALF (fp16, else bf16), STAGES of shared memory.
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

__device__ __forceinline__ u32 address_in(u32 address, u32 block) {
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}

__device__ __forceinline__ void barrier_arrive_in_cluster(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void store_quad(u32 to, const float (&q)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(to), "f"(q[0]), "f"(q[1]), "f"(q[2]), "f"(q[3]) : "memory");
}

__device__ __forceinline__ void store_quad_in_cluster(u32 to, const float (&q)[4]) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(to), "f"(q[0]), "f"(q[1]), "f"(q[2]), "f"(q[3]) : "memory");
}

__device__ __forceinline__ void load_quad(float (&q)[4], u32 from) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(q[0]), "=f"(q[1]), "=f"(q[2]), "=f"(q[3]) : "r"(from) : "memory");
}

__device__ __forceinline__ float2 load_pair(u32 from) {
  float2 p;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(p.x), "=f"(p.y) : "r"(from) : "memory");
  return p;
}

// A stage, and the parity of its barriers' phase.
struct Turn {
  int stage = 0, parity = 0;

  __device__ __forceinline__ void skip(int count) {  // at most STAGES
    stage += count;
    if (stage >= STAGES) stage -= STAGES, parity ^= 1;
  }
};

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

// The first in the lower half.
__device__ __forceinline__ u32 rounded_pair(float first, float second) {
  u32 pair;
#if HALF
  asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(first), "f"(second));
#else
  asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(first), "f"(second));
#endif
  return pair;
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

__device__ __forceinline__ float2 widened_pair(u32 pair) {
#if HALF
  return {widened((u16)pair), widened((u16)(pair >> 16))};
#else
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000)};
#endif
}

// silu(gate) by an approximate division: 0 for gates below -87.
__device__ __forceinline__ float silu(float gate) {
  float share;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(1.0f + __expf(-gate)));
  return gate * share;
}

// silu(gate) * up of two, all rounded first, as torch's operators have them. Rounding is several times as fast in pairs.
__device__ __forceinline__ u32 silu_times(float gate, float other_gate, float up, float other_up) {
  const float2 gates = widened_pair(rounded_pair(gate, other_gate)), ups = widened_pair(rounded_pair(up, other_up));
  return rounded_pair(silu(gates.x) * ups.x, silu(gates.y) * ups.y);
}

__device__ __forceinline__ void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

__device__ __forceinline__ void load_tile_16(u32 (&a)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(from) : "memory");
}

__device__ __forceinline__ void load_tile_8(u32 (&b)[2], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(b[0]), "=r"(b[1]) : "r"(from) : "memory");
}

__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if HALF
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ u32 transposed(u32 pair) {
  u32 there;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(there) : "r"(pair));
  return there;
}

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The address of a 16-byte word of a line of 128 bytes, swizzled as tensor copies do.
__device__ __forceinline__ u32 word_at(u32 lines, int line, int word) { return lines + line * 128 + (word ^ line % 8) * 16; }
