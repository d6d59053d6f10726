/* The layers of a decoder over few rows of a step, in one call: threads go through them together.

   A layer is five phases of independent items. Whoever has finished a phase's last item does what must come between it
   and the next, and opens that. A thread that waits for this has already taken its item and fetches its weights:
   memory, on whose speed a round depends, is idle as little as possible. What a thread that is held up has not taken,
   others do; a phase ends with its last item. */

#include <sched.h>

#include "rows.h"

typedef struct { /* weights, as kernels/layers.py lists them; products as kernels/product.py packs them */
    const bf16 *qkv, *qkv_bias, *head_norm, *o, *post_norm, *gate_up, *down, *next_norm;
} Layer;

typedef struct { /* where a layer of this step reads and writes */
    bf16 *k, *v, *kept; /* kept: gets the residual that leaves the layer; may be NULL */
} Place;

enum { QKV, ATTEND, O, GATE_UP, DOWN, PHASES };
enum { MOST_ROWS = 32, FETCHED = 1 << 18, LINE = 64, SPINS = 4000 };

typedef struct {
    int64_t taken, done, is_open; /* items; whether the next phase may begin */
    char apart[LINE - 3 * sizeof(int64_t)];
} Phase;

typedef struct {
    const Layer *layers;
    const Place *places;
    Phase *phases;
    const float *cos_sin;
    const int64_t *position, *slot;
    Step step; /* but for a layer's keys and values */
    bf16 *residual, *out, *normed, *qkv, *q, *y, *both, *acted;
    int64_t num_layers, hidden, intermediate, stride_kept, floats;
    float eps;
} Pass;

/* That of a phase; ATTEND has none, whatever is returned. */
static Product product_of(const Pass *pass, const Layer *layer, int kind) {
    const Step *s = &pass->step;
    int64_t rows = s->total_rows, attended = s->hq * s->d, mixed = attended + 2 * s->hkv * s->d, h = pass->hidden;
    switch (kind) {
    case QKV: return (Product){pass->normed, layer->qkv, layer->qkv_bias, pass->qkv, rows, h, mixed, h};
    case O: return (Product){s->out, layer->o, NULL, pass->y, rows, attended, h, attended};
    case GATE_UP: return (Product){pass->normed, layer->gate_up, NULL, pass->both, rows, h, 2 * pass->intermediate, h};
    default: return (Product){pass->acted, layer->down, NULL, pass->y, rows, pass->intermediate, h, pass->intermediate};
    }
}

static int64_t items_of(const Pass *pass, const Product *product, int kind) {
    if (kind == ATTEND) return pass->step.requests * pass->step.hkv;
    return kind == GATE_UP ? pass->intermediate / PANEL : (product->outputs + PANEL - 1) / PANEL;
}

static Step step_at(const Pass *pass, int64_t at) {
    Step s = pass->step;
    s.k = pass->places[at].k, s.v = pass->places[at].v;
    return s;
}

/* One KV head of one request: its rows' keys and values are stored, then its query heads attend. */
static void attend(const Pass *pass, int64_t at, int64_t item, float *room) {
    Step s = step_at(pass, at);
    int64_t b = item / s.hkv, head = item % s.hkv, first = s.cu_q[b], mixed = (s.hq + 2 * s.hkv) * s.d;
    specbench_rope_store_heads(pass->qkv + first * mixed, pass->cos_sin, pass->position + first, pass->slot + first,
                               pass->places[at].k, pass->places[at].v, pass->q + first * s.hq * s.d,
                               pass->layers[at].head_norm, s.cu_q[b + 1] - first, s.hq, s.hkv, s.d, mixed, pass->eps,
                               head, head + 1);
    specbench_attend_head(&s, b, head, room);
}

/* A panel of gate and the one of up that belongs to it */
static void gate_up(const Pass *pass, const Product *product, int64_t item, float *part) {
    int64_t i = pass->intermediate, from = item * PANEL;
    specbench_panel(product, item, part);
    specbench_panel(product, i / PANEL + item, part);
    specbench_gate(pass->both + from, pass->both + i + from, pass->acted + from, product->rows, PANEL, 2 * i, i);
}

/* What comes between a phase and the next. */
static void finish(const Pass *pass, int64_t at, int kind) {
    const Layer *layer = pass->layers + at;
    int64_t rows = pass->step.total_rows, h = pass->hidden, is_last = at == pass->num_layers - 1;
    if (kind != O && kind != DOWN) return;
    const bf16 *weight = kind == O ? layer->post_norm : layer->next_norm;
    bf16 *out = kind == DOWN && is_last ? pass->out : pass->normed;
    specbench_rms_norm(pass->y, pass->residual, weight, out, rows, h, h, h, h, pass->eps);
    bf16 *kept = pass->places[at].kept;
    if (kind == DOWN && kept)
        for (int64_t t = 0; t < rows; t++)
            memcpy(kept + t * pass->stride_kept, pass->residual + t * h, h * sizeof(bf16));
}

/* Until the phase is over; meanwhile fetches `bytes` from `next` on. */
static void wait_for(const Phase *phase, const char *next, int64_t bytes) {
    for (int64_t spins = 0; !__atomic_load_n(&phase->is_open, __ATOMIC_ACQUIRE);) {
        if (bytes > 0) {
            for (int i = 0; i < 4; i++) __builtin_prefetch(next + i * LINE, 0, 2);
            next += 4 * LINE, bytes -= 4 * LINE;
        } else if (++spins > SPINS) sched_yield();
    }
}

static void work(void *given) {
    const Pass *pass = given;
    float part[MOST_ROWS * PANEL];
    float *room = malloc(pass->floats * sizeof(float));
    if (!room) return; /* the others do its part */
    for (int64_t p = 0; p < pass->num_layers * PHASES; p++) {
        int64_t at = p / PHASES;
        int kind = p % PHASES;
        Phase *phase = pass->phases + p;
        Product product = product_of(pass, pass->layers + at, kind);
        int64_t items = items_of(pass, &product, kind), item = __atomic_fetch_add(&phase->taken, 1, __ATOMIC_RELAXED);
        if (p) {
            int64_t size = product.inputs * PANEL * sizeof(bf16), left = (items - item) * size;
            int fetches = item < items && kind != ATTEND;
            wait_for(phase - 1, (const char *)product.w + item * size, !fetches ? 0 : left < FETCHED ? left : FETCHED);
        }
        for (; item < items; item = __atomic_fetch_add(&phase->taken, 1, __ATOMIC_RELAXED)) {
            if (kind == QKV) { /* while memory is busy anyway: attention would wait for each of them */
                Step step = step_at(pass, at);
                specbench_fetch_keys(&step, item, items);
            }
            if (kind == ATTEND) attend(pass, at, item, room);
            else if (kind == GATE_UP) gate_up(pass, &product, item, part);
            else specbench_panel(&product, item, part);
            if (__atomic_add_fetch(&phase->done, 1, __ATOMIC_ACQ_REL) == items) {
                finish(pass, at, kind);
                __atomic_store_n(&phase->is_open, 1, __ATOMIC_RELEASE);
            }
        }
    }
    free(room);
}

/* All layers over the rows of a step: residual [rows, hidden] takes their sums in place, normed [rows, hidden] is its
   norm before the first layer and is overwritten, out [rows, hidden] its last norm. intermediate: a multiple of PANEL.
   Lengths, pages, mask and caches as in specbench_attention. Returns 0; -1 without memory; 1, with nothing done, for a
   request of fewer keys than rows or than m, for rows of no request and for more than MOST_ROWS. As many scores as
   there are: with keys fetched ahead and heads on all threads it is faster than torch's operations at any length. */
int specbench_layers(const int64_t *layers, const int64_t *places, bf16 *residual, bf16 *normed, bf16 *out,
                     const float *cos_sin, const int64_t *position, const int64_t *slot, const int32_t *cu_q,
                     const int32_t *kv_len, const int32_t *block_table, const uint8_t *mask, int64_t num_layers,
                     int64_t hidden, int64_t intermediate, int64_t stride_kept, int64_t table_stride, int64_t mask_rows,
                     int64_t m, int64_t requests, int64_t rows, int64_t hq, int64_t hkv, int64_t d, int64_t page_size,
                     int64_t page_stride, int64_t slot_stride, float scale, float eps, Fork fork, int64_t threads) {
    Step step = {NULL, NULL, NULL, NULL, cu_q, kv_len, block_table, mask, table_stride, mask_rows, m, requests, rows,
                 hq, hkv, d, page_size, page_stride, slot_stride, scale};
    if (rows > MOST_ROWS || cu_q[requests] != rows || !specbench_attends(&step, INT64_MAX)) return 1;
    int64_t attended = hq * d, mixed = attended + 2 * hkv * d, size = num_layers * PHASES * sizeof(Phase);
    char *room = calloc(1, size + rows * (mixed + 2 * attended + hidden + 3 * intermediate) * sizeof(bf16));
    if (!room) return -1;
    bf16 *qkv = (bf16 *)(room + size), *q = qkv + rows * mixed, *attn = q + rows * attended;
    bf16 *y = attn + rows * attended, *both = y + rows * hidden, *acted = both + rows * 2 * intermediate;
    step.q = q, step.out = attn;
    Pass pass = {(const Layer *)layers, (const Place *)places, (Phase *)room, cos_sin, position, slot, step,
                 residual, out, normed, qkv, q, y, both, acted, num_layers, hidden, intermediate, stride_kept, 0, eps};
    for (int64_t b = 0; b < requests; b++) {
        int64_t floats = specbench_attend_floats(&step, b);
        if (floats > pass.floats) pass.floats = floats;
    }
    int64_t most = 0; /* items of a phase: more threads would only wait */
    for (int kind = 0; kind < PHASES; kind++) {
        Product product = product_of(&pass, pass.layers, kind);
        int64_t items = items_of(&pass, &product, kind);
        if (items > most) most = items;
    }
    if (threads > most) threads = most;
    if (fork && threads > 1) fork(work, &pass, threads, 0);
    else work(&pass);
    int failed = !pass.phases[num_layers * PHASES - 1].is_open;
    free(room);
    return failed ? -1 : 0;
}
