/* Products of rows with a bfloat16 matrix on a processor with AVX512-BF16: out = x w^T + bias, sums in fp32, rounded once.
   Each element of out is one sum over the inputs in their order, however many rows there are and whichever thread has it:
   a row alone and the same row among others give the same bits.

   w is stored in panels of 64 outputs, [panel][inputs / 2][64][2], so that a thread reads one stream of memory. */

#include "rows.h"

enum { LANES = 16, WIDE = PANEL / LANES, ROWS = 6, DEEP = 2048 }; /* registers of a tile; inputs of a pass */

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>

typedef struct {
    Product product;
    int64_t chunk;
    int64_t next; /* the first panel that no thread has taken */
    int failed;
} Job;

/* `rows` rows and one panel over inputs [from, from + n): sums go on from `part` and end there, or in out. */
static inline __attribute__((always_inline)) void tile(const Product *of, int64_t panel, int64_t row, int64_t from,
                                                       int64_t n, float *part, const int rows) {
    const bf16 *x = of->x + row * of->stride_x + from, *w = of->w + (panel * of->inputs + from) * PANEL;
    __m512 sum[ROWS][WIDE];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int b = 0; b < WIDE; b++)
            sum[r][b] = from ? _mm512_loadu_ps(part + (row + r) * PANEL + b * LANES) : _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += 2, w += 2 * PANEL) {
        __m512bh weights[WIDE];
        /* The processor fetches ahead only to the end of a page of 4 KB. All layers of SmolLM2 take 4% less time with
           this; with as many lines for several rows as for one, 8% more. */
        if (i % 16 == 0)
            for (int k = 0; k < (rows == 1 ? 16 : 8); k++) __builtin_prefetch((const char *)w + 4096 + k * 64, 0, 2);
#pragma GCC unroll 4
        for (int b = 0; b < WIDE; b++) weights[b] = (__m512bh)_mm512_loadu_si512(w + 2 * b * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            int32_t pair;
            memcpy(&pair, x + r * of->stride_x + i, sizeof pair);
#pragma GCC unroll 4
            for (int b = 0; b < WIDE; b++)
                sum[r][b] = _mm512_dpbf16_ps(sum[r][b], weights[b], (__m512bh)_mm512_set1_epi32(pair));
        }
    }
    int is_last = from + n == of->inputs;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int b = 0; b < WIDE; b++) {
            int64_t first = panel * PANEL + b * LANES, left = of->outputs - first;
            if (!is_last) {
                _mm512_storeu_ps(part + (row + r) * PANEL + b * LANES, sum[r][b]);
            } else if (left > 0) {
                __mmask16 some = left < LANES ? (1 << left) - 1 : 0xffff;
                __m512 y = sum[r][b];
                if (of->bias) {
                    __m256i narrow = _mm256_maskz_loadu_epi16(some, of->bias + first);
                    y = _mm512_add_ps(y, (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
                }
                _mm256_mask_storeu_epi16(of->out + (row + r) * of->outputs + first, some, (__m256i)_mm512_cvtneps_pbh(y));
            }
        }
}

/* part [rows, PANEL]: room for sums of more than DEEP inputs */
void specbench_panel(const Product *of, int64_t panel, float *part) {
    for (int64_t from = 0; from < of->inputs; from += DEEP) {
        int64_t n = of->inputs - from < DEEP ? of->inputs - from : DEEP, taken;
        for (int64_t row = 0; row < of->rows; row += taken) {
            int64_t left = of->rows - row;
            taken = left <= ROWS ? left : left < 2 * ROWS ? (left + 1) / 2 : ROWS; /* no tile of a single row at the end */
            switch (taken) {
            case 1: tile(of, panel, row, from, n, part, 1); break;
            case 2: tile(of, panel, row, from, n, part, 2); break;
            case 3: tile(of, panel, row, from, n, part, 3); break;
            case 4: tile(of, panel, row, from, n, part, 4); break;
            case 5: tile(of, panel, row, from, n, part, 5); break;
            default: tile(of, panel, row, from, n, part, ROWS);
            }
        }
    }
}

/* Panels as long as there are any: a thread that is held up holds up nobody. */
static void work(void *given) {
    Job *job = given;
    int64_t panels = (job->product.outputs + PANEL - 1) / PANEL, at;
    float *part = job->product.inputs > DEEP ? malloc(job->product.rows * PANEL * sizeof(float)) : NULL;
    if (job->product.inputs > DEEP && !part) {
        __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    while ((at = __atomic_fetch_add(&job->next, job->chunk, __ATOMIC_RELAXED)) < panels)
        for (int64_t end = at + job->chunk; at < end && at < panels; at++) specbench_panel(&job->product, at, part);
    free(part);
}

/* x [rows, inputs], its rows `stride_x` apart; out [rows, outputs]; an even number of inputs. fork: NULL for one thread.
   Returns 0, or -1 where there is no memory for sums. */
int specbench_product(const bf16 *x, const bf16 *w, const bf16 *bias, bf16 *out, int64_t rows, int64_t inputs,
                      int64_t outputs, int64_t stride_x, Fork fork, int64_t threads) {
    int64_t panels = (outputs + PANEL - 1) / PANEL, chunk = panels / (4 * threads);
    Job job = {{x, w, bias, out, rows, inputs, outputs, stride_x}, chunk ? chunk : 1, 0, 0};
    if (fork && threads > 1 && panels > 1) fork(work, &job, threads, 0);
    else work(&job);
    return job.failed ? -1 : 0;
}

/* What follows attention in a decoder layer, in one call: residual += o(attn); y = down(silu(gate) * up) of its norm by
   post_norm. Then residual += y and out = its norm by next_norm; without a next_norm, out = residual + y. Each step is
   the function that does it alone. attn [rows, inputs], out [rows, hidden]. Returns 0, or -1 without memory. */
int specbench_after_attention(const bf16 *attn, bf16 *residual, const bf16 *o, const bf16 *post_norm, const bf16 *gate_up,
                              const bf16 *down, const bf16 *next_norm, bf16 *out, int64_t rows, int64_t inputs,
                              int64_t hidden, int64_t intermediate, int64_t stride_attn, int64_t stride_residual, float eps,
                              Fork fork, int64_t threads) {
    bf16 *x = malloc(rows * (2 * hidden + 3 * intermediate) * sizeof(bf16));
    if (!x) return -1;
    bf16 *normed = x + rows * hidden, *both = normed + rows * hidden, *acted = both + rows * 2 * intermediate;
    int failed = specbench_product(attn, o, NULL, x, rows, inputs, hidden, stride_attn, fork, threads);
    specbench_rms_norm(x, residual, post_norm, normed, rows, hidden, hidden, stride_residual, hidden, eps);
    failed |= specbench_product(normed, gate_up, NULL, both, rows, hidden, 2 * intermediate, hidden, fork, threads);
    specbench_silu_and_mul(both, acted, rows, intermediate, 2 * intermediate);
    failed |= specbench_product(acted, down, NULL, x, rows, intermediate, hidden, intermediate, fork, threads);
    if (next_norm) specbench_rms_norm(x, residual, next_norm, out, rows, hidden, hidden, stride_residual, hidden, eps);
    else specbench_add(x, residual, out, rows, hidden, stride_residual);
    free(x);
    return failed;
}

int specbench_product_panel(void) { return PANEL; }
#else
void specbench_panel(const Product *of, int64_t panel, float *part) {}

int specbench_product(const bf16 *x, const bf16 *w, const bf16 *bias, bf16 *out, int64_t rows, int64_t inputs,
                      int64_t outputs, int64_t stride_x, Fork fork, int64_t threads) {
    return -1;
}

int specbench_after_attention(const bf16 *attn, bf16 *residual, const bf16 *o, const bf16 *post_norm, const bf16 *gate_up,
                              const bf16 *down, const bf16 *next_norm, bf16 *out, int64_t rows, int64_t inputs,
                              int64_t hidden, int64_t intermediate, int64_t stride_attn, int64_t stride_residual, float eps,
                              Fork fork, int64_t threads) {
    return -1;
}

int specbench_product_panel(void) { return 0; }
#endif
