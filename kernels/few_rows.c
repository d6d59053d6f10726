/* The small operations of a decode round on a CPU, in bfloat16 except for the random numbers, on one thread: where torch
   needs ten operations of a few
   microseconds each, one call does the same. The semantics are those of the references beside the Python callers:
   sums in fp32, one rounding to bfloat16 at the end. Strides are in elements; last dimensions are dense. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint16_t bf16;

enum { BLOCK = 16, WIDEST = 256 }; /* keys that are widened together; most elements of a head */

static inline float wide(bf16 x) {
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static inline bf16 narrow(float x) { /* to nearest, ties to even */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return 0x7fc0;
    return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* exp(x) to 2e-7 relative: 2^n * 2^f with a polynomial for f in [0, 1); a loop over it becomes vector instructions. */
static inline float fast_exp(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float t = x * 1.44269504f, n = floorf(t), f = t - n, scale;
    float p = 1.87757667e-3f;
    p = p * f + 8.98934009e-3f;
    p = p * f + 5.58263180e-2f;
    p = p * f + 2.40153617e-1f;
    p = p * f + 6.93153073e-1f;
    p = p * f + 9.99999994e-1f;
    int32_t bits = ((int32_t)n + 127) << 23;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

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

void specbench_silu_and_mul(const bf16 *gate_up, bf16 *out, int64_t rows, int64_t n, int64_t stride) {
    for (int64_t t = 0; t < rows; t++, gate_up += stride, out += n)
        for (int64_t i = 0; i < n; i++) {
            float gate = wide(gate_up[i]);
            out[i] = narrow(gate / (1.0f + fast_exp(-gate)) * wide(gate_up[n + i]));
        }
}

/* Rotates q and k of each row by the table's cosines and sines, and stores k and v at the row's slot. head_norm [2, d]:
   weights of a norm of each query head and each key head before it, where there is one. */
void specbench_rope_store_kv(const bf16 *qkv, const float *cos_sin, const int64_t *position, const int64_t *slot,
                             bf16 *k, bf16 *v, bf16 *q, const bf16 *head_norm, int64_t rows, int64_t hq, int64_t hkv,
                             int64_t d, int64_t stride, float eps) {
    int64_t half = d / 2;
    for (int64_t t = 0; t < rows; t++, qkv += stride) {
        const float *cos = cos_sin + position[t] * d, *sin = cos + half;
        for (int64_t h = 0; h < hq + hkv; h++) {
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
        memcpy(v + slot[t] * hkv * d, qkv + (hq + hkv) * d, hkv * d * sizeof(bf16));
    }
}

static void softmax(float *p, int64_t keys) {
    float top = -INFINITY, total = 0;
    for (int64_t key = 0; key < keys; key++) top = p[key] > top ? p[key] : top;
    for (int64_t key = 0; key < keys; key++) p[key] = p[key] == -INFINITY ? 0 : fast_exp(p[key] - top);
    for (int64_t key = 0; key < keys; key++) total += p[key];
    for (int64_t key = 0; key < keys; key++) p[key] /= total;
}

typedef struct { /* where the keys or values of one request lie: those of all heads of a key side by side */
    const bf16 *cache;
    const int32_t *pages;
    int64_t page_size, page_stride, slot_stride, width;
} Rows;

/* `n` keys from `key` on, [n, width] as fp32. They are read in the order in which they lie, all heads at once: the
   weights have driven them out of the caches since the last step, and the processor fetches such a stream ahead. */
static inline void widen(float *to, const Rows *from, int64_t key, int64_t n) {
    for (int64_t j = key; j < key + n; j++, to += from->width) {
        const bf16 *row = from->cache + from->pages[j / from->page_size] * from->page_stride +
                          (j % from->page_size) * from->slot_stride;
        for (int64_t i = 0; i < from->width; i++) to[i] = wide(row[i]);
    }
}

/* score [all, keys] = q k^T of one request, all = rows * hq */
static inline __attribute__((always_inline)) void scores(const float *q, const Rows *k, float *restrict score,
                                                         float *restrict block, int64_t all, int64_t keys, int64_t hq,
                                                         int64_t group, const int64_t d) {
    for (int64_t key = 0; key < keys; key += BLOCK) {
        int64_t n = keys - key < BLOCK ? keys - key : BLOCK;
        widen(block, k, key, n);
        for (int64_t r = 0; r < all; r++)
            for (int64_t j = 0; j < n; j++) {
                const float *mine = block + j * k->width + r % hq / group * d;
                float sum = 0;
                for (int64_t i = 0; i < d; i++) sum += q[r * d + i] * mine[i];
                score[r * keys + key + j] = sum;
            }
    }
}

/* sum [all, d] += score v */
static inline __attribute__((always_inline)) void weighted(const float *score, const Rows *v, float *restrict sum,
                                                           float *restrict block, int64_t all, int64_t keys, int64_t hq,
                                                           int64_t group, const int64_t d) {
    for (int64_t key = 0; key < keys; key += BLOCK) {
        int64_t n = keys - key < BLOCK ? keys - key : BLOCK;
        widen(block, v, key, n);
        for (int64_t r = 0; r < all; r++) {
            float mine[WIDEST];
            for (int64_t i = 0; i < d; i++) mine[i] = sum[r * d + i];
            for (int64_t j = 0; j < n; j++) {
                const float weight = score[r * keys + key + j], *value = block + j * v->width + r % hq / group * d;
                for (int64_t i = 0; i < d; i++) mine[i] += weight * value[i];
            }
            for (int64_t i = 0; i < d; i++) sum[r * d + i] = mine[i];
        }
    }
}

/* Attention of the rows of each request: softmax(q k^T + mask) v in fp32; query head h reads key head h / (hq / hkv).
   mask [requests, mask_rows, m] says which of the last m keys a row sees; without one, m is 0 and row j sees all but
   the last rows - 1 - j. Rows of no request become 0. Returns 0; -1 where there is no memory for the scores; 1, with
   nothing done, for more scores of a key head than `most`, and for a request of fewer keys than rows or than m. */
int specbench_attention(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *out, const int32_t *cu_q,
                        const int32_t *kv_len, const int32_t *block_table, const uint8_t *mask, int64_t table_stride,
                        int64_t mask_rows, int64_t m, int64_t requests, int64_t total_rows, int64_t hq, int64_t hkv,
                        int64_t d, int64_t page_size, int64_t page_stride, int64_t slot_stride, float scale,
                        int64_t most) {
    int64_t group = hq / hkv, width = hkv * d, pairs = 0;
    for (int64_t b = 0; b < requests; b++) {
        int64_t rows = cu_q[b + 1] - cu_q[b], keys = kv_len[b];
        if (rows && (keys < rows || keys < m)) return 1;
        pairs += rows * keys;
    }
    if (group * pairs > most) return 1;
    for (int64_t b = 0; b < requests; b++) {
        int64_t first = cu_q[b], rows = cu_q[b + 1] - first, keys = kv_len[b], all = rows * hq;
        Rows of_k = {k, block_table + b * table_stride, page_size, page_stride, slot_stride, width}, of_v = of_k;
        of_v.cache = v;
        if (!rows) continue;
        float *score = malloc((all * (keys + 2 * d) + BLOCK * width) * sizeof(float));
        if (!score) return -1;
        float *wide_q = score + all * keys, *sum = wide_q + all * d, *block = sum + all * d;
        for (int64_t i = 0; i < all * d; i++) wide_q[i] = wide(q[first * hq * d + i]) * scale;
        /* lengths that the compiler knows become straight vector code */
        if (d == 64) scores(wide_q, &of_k, score, block, all, keys, hq, group, 64);
        else if (d == 128) scores(wide_q, &of_k, score, block, all, keys, hq, group, 128);
        else scores(wide_q, &of_k, score, block, all, keys, hq, group, d);
        for (int64_t r = 0; r < all; r++) {
            float *p = score + r * keys;
            const uint8_t *seen = mask + (b * mask_rows + r / hq) * m;
            for (int64_t i = 0; i < m; i++)
                if (!seen[i]) p[keys - m + i] = -INFINITY;
            /* over its own keys only: the sum's order is then that of the row alone */
            int64_t own = m ? keys : keys - rows + 1 + r / hq;
            softmax(p, own);
            for (int64_t key = own; key < keys; key++) p[key] = 0;
        }
        memset(sum, 0, all * d * sizeof(float));
        if (d == 64) weighted(score, &of_v, sum, block, all, keys, hq, group, 64);
        else if (d == 128) weighted(score, &of_v, sum, block, all, keys, hq, group, 128);
        else weighted(score, &of_v, sum, block, all, keys, hq, group, d);
        for (int64_t i = 0; i < all * d; i++) out[first * hq * d + i] = narrow(sum[i]);
        free(score);
    }
    memset(out + cu_q[requests] * hq * d, 0, (total_rows - cu_q[requests]) * hq * d * sizeof(bf16));
    return 0;
}
