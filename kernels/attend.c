/* Attention of few rows over the keys of their requests, in bfloat16, one KV head of one request at a time:
   softmax(q k^T + mask) v in fp32, rounded once. A row's sums have the same order alone and among others. */

#include "rows.h"

enum { BLOCK = 16 }; /* keys that are widened together */

static inline int64_t padded(int64_t keys) { return (keys + BLOCK - 1) / BLOCK * BLOCK; }

/* Where each key of request b lies in a cache, without a division for each. */
static void locate(const Step *s, int64_t b, int64_t *at) {
    const int32_t *page = s->block_table + b * s->table_stride;
    for (int64_t key = 0; key < s->kv_len[b]; page++)
        for (int64_t i = 0; i < s->page_size && key < s->kv_len[b]; i++, key++)
            at[key] = *page * s->page_stride + i * s->slot_stride;
}

/* The weights have driven keys and values out of the caches since the last step, and rows of one head lie too far
   apart for the processor to guess the next. */
static inline void fetch(const bf16 *cache, const int64_t *at, int64_t n, int64_t d) {
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < d; i += 32) __builtin_prefetch(cache + at[j] + i);
}

/* `n` rows as fp32 [BLOCK, d], zeros behind them */
static inline __attribute__((always_inline)) void widen(float *restrict to, const bf16 *cache, const int64_t *at,
                                                        int64_t n, const int64_t d) {
    for (int64_t j = 0; j < n; j++) {
        const bf16 *row = cache + at[j];
        for (int64_t i = 0; i < d; i++) to[j * d + i] = wide(row[i]);
    }
    memset(to + n * d, 0, (BLOCK - n) * d * sizeof(float));
}

#ifdef __AVX512F__
#include <immintrin.h>

static inline __m512 folded(__m512 a, __m512 b) { /* [a0 + a2, a1 + a3, b0 + b2, b1 + b3] of their quarters */
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/* out[j] = the sum of all lanes of x[j]: each step adds the upper half of the lanes to the lower, of two vectors at
   once. For one vector after another that takes more operations than its products. */
static inline __attribute__((always_inline)) void sums(const __m512 *x, float *out) {
    __m512 quarter[4], two[2];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m512 a = folded(x[j], x[j + 4]), b = folded(x[j + 8], x[j + 12]);
        quarter[j] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        __m512d a = (__m512d)quarter[2 * j], b = (__m512d)quarter[2 * j + 1];
        two[j] = _mm512_add_ps((__m512)_mm512_unpacklo_pd(a, b), (__m512)_mm512_unpackhi_pd(a, b));
    }
    __m512 even = _mm512_shuffle_ps(two[0], two[1], 0x88), odd = _mm512_shuffle_ps(two[0], two[1], 0xdd);
    _mm512_storeu_ps(out, _mm512_add_ps(even, odd));
}
#endif

/* out[j] = q . block[j] */
static inline __attribute__((always_inline)) void dots(const float *q, const float *block, float *out,
                                                       const int64_t d) {
#ifdef __AVX512F__
    if (d % 32 == 0) {
        __m512 sum[BLOCK] = {0};
        for (int64_t i = 0; i < d; i += 32) {
            __m512 low = _mm512_loadu_ps(q + i), high = _mm512_loadu_ps(q + i + 16);
#pragma GCC unroll 16
            for (int j = 0; j < BLOCK; j++) {
                const float *mine = block + j * d + i;
                __m512 part = _mm512_mul_ps(high, _mm512_loadu_ps(mine + 16));
                part = _mm512_fmadd_ps(low, _mm512_loadu_ps(mine), part);
                sum[j] = _mm512_add_ps(sum[j], part);
            }
        }
        sums(sum, out);
        return;
    }
#endif
    for (int64_t j = 0; j < BLOCK; j++) {
        float sum = 0;
        for (int64_t i = 0; i < d; i++) sum += q[i] * block[j * d + i];
        out[j] = sum;
    }
}

static void softmax(float *p, int64_t keys) {
    float tops[BLOCK], top = -INFINITY, total = 0;
    int64_t whole = keys - keys % BLOCK;
    for (int64_t i = 0; i < BLOCK; i++) tops[i] = -INFINITY;
    for (int64_t key = 0; key < whole; key += BLOCK) /* a single maximum would be no vector instruction */
        for (int64_t i = 0; i < BLOCK; i++) tops[i] = p[key + i] > tops[i] ? p[key + i] : tops[i];
    for (int64_t i = 0; i < BLOCK; i++) top = tops[i] > top ? tops[i] : top;
    for (int64_t key = whole; key < keys; key++) top = p[key] > top ? p[key] : top;
    for (int64_t key = 0; key < keys; key++) p[key] = p[key] == -INFINITY ? 0 : fast_exp(p[key] - top);
    for (int64_t key = 0; key < keys; key++) total += p[key];
    for (int64_t key = 0; key < keys; key++) p[key] /= total;
}

typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias)); /* as wide as the processor has them */
enum { LANES = 16, TILE = 4 };

/* sum [d] += score [n] block, TILE vectors of it in registers at a time */
static inline __attribute__((always_inline)) void add_weighted(float *restrict sum, const float *score,
                                                               const float *block, int64_t n, const int64_t d) {
    int64_t i = 0;
    for (; i + TILE * LANES <= d; i += TILE * LANES) {
        Lanes mine[TILE];
#pragma GCC unroll 4
        for (int t = 0; t < TILE; t++) mine[t] = *(const Lanes *)(sum + i + t * LANES);
        for (int64_t j = 0; j < n; j++)
#pragma GCC unroll 4
            for (int t = 0; t < TILE; t++) mine[t] += score[j] * *(const Lanes *)(block + j * d + i + t * LANES);
#pragma GCC unroll 4
        for (int t = 0; t < TILE; t++) *(Lanes *)(sum + i + t * LANES) = mine[t];
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t e = i; e < d; e++) sum[e] += score[j] * block[j * d + e];
}

/* Fp32 numbers that `specbench_attend_head` needs of request b. */
int64_t specbench_attend_floats(const Step *s, int64_t b) {
    int64_t all = (s->cu_q[b + 1] - s->cu_q[b]) * (s->hq / s->hkv), keys = padded(s->kv_len[b]);
    return keys * sizeof(int64_t) / sizeof(float) + all * (keys + 2 * s->d) + BLOCK * s->d;
}

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline __attribute__((always_inline)) void attend(const Step *s, int64_t b, int64_t head, float *room,
                                                         const int64_t d) {
    int64_t group = s->hq / s->hkv, first = s->cu_q[b], rows = s->cu_q[b + 1] - first, keys = s->kv_len[b];
    int64_t all = rows * group, wide_keys = padded(keys), *at = (int64_t *)room;
    if (!rows) return;
    float *block = (float *)(at + wide_keys), *q = block + BLOCK * d, *sum = q + all * d, *score = sum + all * d;
    const bf16 *k = s->k + head * d, *v = s->v + head * d;
    locate(s, b, at);
    fetch(k, at, least(2 * BLOCK, keys), d);
    for (int64_t r = 0; r < all; r++) {
        const bf16 *mine = s->q + ((first + r / group) * s->hq + head * group + r % group) * d;
        for (int64_t i = 0; i < d; i++) q[r * d + i] = wide(mine[i]) * s->scale;
    }
    for (int64_t key = 0; key < keys; key += BLOCK) {
        int64_t n = least(BLOCK, keys - key);
        fetch(k, at + key + 2 * BLOCK, least(BLOCK, keys - key - 2 * BLOCK), d);
        fetch(v, at + key, n, d);
        widen(block, k, at + key, n, d);
        for (int64_t r = 0; r < all; r++) dots(q + r * d, block, score + r * wide_keys + key, d);
    }
    for (int64_t r = 0; r < all; r++) {
        float *p = score + r * wide_keys;
        const uint8_t *seen = s->mask + (b * s->mask_rows + r / group) * s->m;
        for (int64_t i = 0; i < s->m; i++)
            if (!seen[i]) p[keys - s->m + i] = -INFINITY;
        /* over its own keys only: the sum's order is then that of the row alone */
        int64_t own = s->m ? keys : keys - rows + 1 + r / group;
        softmax(p, own);
        for (int64_t key = own; key < keys; key++) p[key] = 0;
    }
    memset(sum, 0, all * d * sizeof(float));
    for (int64_t key = 0; key < keys; key += BLOCK) {
        int64_t n = least(BLOCK, keys - key);
        widen(block, v, at + key, n, d);
        for (int64_t r = 0; r < all; r++) add_weighted(sum + r * d, score + r * wide_keys + key, block, n, d);
    }
    for (int64_t r = 0; r < all; r++) {
        bf16 *to = s->out + ((first + r / group) * s->hq + head * group + r % group) * d;
        for (int64_t i = 0; i < d; i++) to[i] = narrow(sum[r * d + i]);
    }
}

/* Fetches part `part` of `parts` of the keys and values of all requests. */
void specbench_fetch_keys(const Step *s, int64_t part, int64_t parts) {
    for (int64_t b = 0; b < s->requests; b++) {
        const int32_t *pages = s->block_table + b * s->table_stride;
        int64_t end = s->kv_len[b] * (part + 1) / parts;
        for (int64_t key = s->kv_len[b] * part / parts; key < end; key++) {
            int64_t at = pages[key / s->page_size] * s->page_stride + key % s->page_size * s->slot_stride;
            for (int64_t i = 0; i < s->hkv * s->d; i += 32) {
                __builtin_prefetch(s->k + at + i, 0, 2);
                __builtin_prefetch(s->v + at + i, 0, 2);
            }
        }
    }
}

/* The query heads of KV head `head`, of the rows of request b; room: for `specbench_attend_floats`. */
void specbench_attend_head(const Step *s, int64_t b, int64_t head, float *room) {
    /* lengths that the compiler knows become straight vector code */
    if (s->d == 64) attend(s, b, head, room, 64);
    else if (s->d == 128) attend(s, b, head, room, 128);
    else attend(s, b, head, room, s->d);
}

/* Whether every request has the keys it needs, and all together no more than `most` scores of a KV head. */
int specbench_attends(const Step *s, int64_t most) {
    int64_t pairs = 0;
    for (int64_t b = 0; b < s->requests; b++) {
        int64_t rows = s->cu_q[b + 1] - s->cu_q[b], keys = s->kv_len[b];
        if (rows && (keys < rows || keys < s->m)) return 0;
        pairs += rows * keys;
    }
    return s->hq / s->hkv * pairs <= most;
}

/* Attention of the rows of each request; query head h reads KV head h / (hq / hkv). mask [requests, mask_rows, m] says
   which of the last m keys a row sees; without one, m is 0 and row j sees all but the last rows - 1 - j. Rows of no
   request become 0. Returns 0; -1 where there is no memory for the scores; 1, with nothing done, for more scores of a
   KV head than `most`, and for a request of fewer keys than rows or than m. */
int specbench_attention(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *out, const int32_t *cu_q,
                        const int32_t *kv_len, const int32_t *block_table, const uint8_t *mask, int64_t table_stride,
                        int64_t mask_rows, int64_t m, int64_t requests, int64_t total_rows, int64_t hq, int64_t hkv,
                        int64_t d, int64_t page_size, int64_t page_stride, int64_t slot_stride, float scale,
                        int64_t most) {
    Step step = {q, k, v, out, cu_q, kv_len, block_table, mask, table_stride, mask_rows, m, requests, total_rows, hq,
                 hkv, d, page_size, page_stride, slot_stride, scale};
    if (!specbench_attends(&step, most)) return 1;
    for (int64_t b = 0; b < requests; b++) {
        if (cu_q[b + 1] == cu_q[b]) continue;
        float *room = malloc(specbench_attend_floats(&step, b) * sizeof(float));
        if (!room) return -1;
        for (int64_t head = 0; head < hkv; head++) specbench_attend_head(&step, b, head, room);
        free(room);
    }
    memset(out + cu_q[requests] * hq * d, 0, (total_rows - cu_q[requests]) * hq * d * sizeof(bf16));
    return 0;
}
