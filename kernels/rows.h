/* What the compiled operations of a CPU round share: bfloat16 in fp32 registers, and each other's functions. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint16_t bf16;
typedef void (*Fork)(void (*)(void *), void *, unsigned threads, unsigned flags); /* GOMP_parallel of torch's OpenMP */

enum { WIDEST = 256, PANEL = 64 }; /* most elements of a head; outputs of a panel of weights */

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

/* few_rows.c */
void specbench_rms_norm(const bf16 *x, bf16 *residual, const bf16 *weight, bf16 *out, int64_t rows, int64_t hidden,
                        int64_t stride_x, int64_t stride_residual, int64_t stride_out, float eps);
void specbench_add(const bf16 *x, const bf16 *residual, bf16 *out, int64_t rows, int64_t n, int64_t stride_residual);
void specbench_gate(const bf16 *gate, const bf16 *up, bf16 *out, int64_t rows, int64_t n, int64_t stride,
                    int64_t stride_out);
void specbench_silu_and_mul(const bf16 *gate_up, bf16 *out, int64_t rows, int64_t n, int64_t stride);
void specbench_rope_store_heads(const bf16 *qkv, const float *cos_sin, const int64_t *position, const int64_t *slot,
                                bf16 *k, bf16 *v, bf16 *q, const bf16 *head_norm, int64_t rows, int64_t hq, int64_t hkv,
                                int64_t d, int64_t stride, float eps, int64_t first, int64_t end);

/* attend.c */
typedef struct { /* the rows and keys of one step */
    const bf16 *q, *k, *v;
    bf16 *out;
    const int32_t *cu_q, *kv_len, *block_table;
    const uint8_t *mask;
    int64_t table_stride, mask_rows, m, requests, total_rows, hq, hkv, d, page_size, page_stride, slot_stride;
    float scale;
} Step;

void specbench_fetch_keys(const Step *step, int64_t part, int64_t parts);
int specbench_attends(const Step *step, int64_t most);
int64_t specbench_attend_floats(const Step *step, int64_t b);
void specbench_attend_head(const Step *step, int64_t b, int64_t head, float *room);

/* products.c */
typedef struct {
    const bf16 *x, *w, *bias;
    bf16 *out;
    int64_t rows, inputs, outputs, stride_x;
} Product;

void specbench_panel(const Product *product, int64_t panel, float *part);
int specbench_product_panel(void);
