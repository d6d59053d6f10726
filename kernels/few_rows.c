/* The small operations of a decode round on a CPU, in bfloat16 except for the random numbers, on one thread: where
   torch needs ten operations of a few microseconds each, one call does the same. The semantics are those of the
   references beside the Python callers: sums in fp32, one rounding to bfloat16 at the end. Strides are in elements;
   last dimensions are dense. */

#include "rows.h"

/* Uniform numbers of the rows' (seed, position) as philox.py defines them, bit for bit: [rows, 4 * quads]. */
void specbench_uniform(const int64_t *seed, const int64_t *position, float *out, int64_t rows, int64_t quads,
                       int64_t purpose) {
    for (int64_t r = 0; r < rows; r++, out += 4 * quads)
        for (int64_t quad = 0; quad < quads; quad++) {
            uint32_t c0 = (uint32_t)quad, c1 = (uint32_t)position[r], c2 = (uint32_t)purpose, c3 = 0;
            uint32_t key_0 = (uint32_t)seed[r], key_1 = (uint32_t)((uint64_t)seed[r] >> 32);
            for (int round = 0; round < 10; round++, key_0 += 0x9E3779B9u, key_1 += 0xBB67AE85u) {
                uint64_t product_0 = (uint64_t)c0 * 0xD2511F53u, product_1 = (uint64_t)c2 * 0xCD9E8D57u;
                c0 = (uint32_t)(product_1 >> 32) ^ c1 ^ key_0;
                c1 = (uint32_t)product_1;
                c2 = (uint32_t)(product_0 >> 32) ^ c3 ^ key_1;
                c3 = (uint32_t)product_0;
            }
            uint32_t words[4] = {c0, c1, c2, c3};
            for (int i = 0; i < 4; i++) {
                float u = (float)words[i] * 0x1p-32f + 0x1p-33f;
                out[i * quads + quad] = u < 0x1.fffffep-1f ? u : 0x1.fffffep-1f;
            }
        }
}

/* residual += x where there is an x, then out = residual / rms(residual) * weight, row by row. */
void specbench_rms_norm(const bf16 *x, bf16 *residual, const bf16 *weight, bf16 *out, int64_t rows, int64_t hidden,
                        int64_t stride_x, int64_t stride_residual, int64_t stride_out, float eps) {
    for (int64_t t = 0; t < rows; t++, residual += stride_residual, out += stride_out) {
        float sum = 0;
        if (x) {
            for (int64_t i = 0; i < hidden; i++) residual[i] = narrow(wide(residual[i]) + wide(x[i]));
            x += stride_x;
        }
        for (int64_t i = 0; i < hidden; i++) sum += wide(residual[i]) * wide(residual[i]);
        float scale = 1.0f / sqrtf(sum / hidden + eps);
        for (int64_t i = 0; i < hidden; i++) out[i] = narrow(wide(residual[i]) * scale * wide(weight[i]));
    }
}

/* out = x + residual; only the rows of residual may lie apart */
void specbench_add(const bf16 *x, const bf16 *residual, bf16 *out, int64_t rows, int64_t n, int64_t stride_residual) {
    for (int64_t t = 0; t < rows; t++, x += n, out += n, residual += stride_residual)
        for (int64_t i = 0; i < n; i++) out[i] = narrow(wide(x[i]) + wide(residual[i]));
}

/* out = silu(gate) * up; rows of gate and of up lie `stride` apart */
void specbench_gate(const bf16 *gate, const bf16 *up, bf16 *out, int64_t rows, int64_t n, int64_t stride,
                    int64_t stride_out) {
    for (int64_t t = 0; t < rows; t++, gate += stride, up += stride, out += stride_out)
        for (int64_t i = 0; i < n; i++) {
            float x = wide(gate[i]);
            out[i] = narrow(x / (1.0f + fast_exp(-x)) * wide(up[i]));
        }
}

void specbench_silu_and_mul(const bf16 *gate_up, bf16 *out, int64_t rows, int64_t n, int64_t stride) {
    specbench_gate(gate_up, gate_up + n, out, rows, n, stride, n);
}

/* Rotates q and k of each row by the table's cosines and sines, and stores k and v at the row's slot: those of the key
   heads [first, end) and of the query heads that read them. head_norm [2, d]: weights of a norm of each query head and
   each KV head before it, where there is one. */
void specbench_rope_store_heads(const bf16 *qkv, const float *cos_sin, const int64_t *position, const int64_t *slot,
                                bf16 *k, bf16 *v, bf16 *q, const bf16 *head_norm, int64_t rows, int64_t hq, int64_t hkv,
                                int64_t d, int64_t stride, float eps, int64_t first, int64_t end) {
    int64_t half = d / 2, group = hq / hkv, first_q = first * group, num_q = (end - first) * group;
    for (int64_t t = 0; t < rows; t++, qkv += stride) {
        const float *cos = cos_sin + position[t] * d, *sin = cos + half;
        for (int64_t own = 0; own < num_q + end - first; own++) {
            int64_t h = own < num_q ? first_q + own : hq + first + own - num_q;
            const bf16 *from = qkv + h * d;
            bf16 *to = h < hq ? q + (t * hq + h) * d : k + (slot[t] * hkv + h - hq) * d;
            float head[WIDEST];
            for (int64_t i = 0; i < d; i++) head[i] = wide(from[i]);
            if (head_norm) {
                const bf16 *weight = head_norm + (h < hq ? 0 : d);
                float sum = 0;
                for (int64_t i = 0; i < d; i++) sum += head[i] * head[i];
                float scale = 1.0f / sqrtf(sum / d + eps);
                for (int64_t i = 0; i < d; i++) head[i] *= scale * wide(weight[i]);
            }
            for (int64_t i = 0; i < half; i++) {
                to[i] = narrow(head[i] * cos[i] - head[i + half] * sin[i]);
                to[i + half] = narrow(head[i + half] * cos[i] + head[i] * sin[i]);
            }
        }
        memcpy(v + (slot[t] * hkv + first) * d, qkv + (hq + hkv + first) * d, (end - first) * d * sizeof(bf16));
    }
}

void specbench_rope_store_kv(const bf16 *qkv, const float *cos_sin, const int64_t *position, const int64_t *slot,
                             bf16 *k, bf16 *v, bf16 *q, const bf16 *head_norm, int64_t rows, int64_t hq, int64_t hkv,
                             int64_t d, int64_t stride, float eps) {
    specbench_rope_store_heads(qkv, cos_sin, position, slot, k, v, q, head_norm, rows, hq, hkv, d, stride, eps, 0, hkv);
}
