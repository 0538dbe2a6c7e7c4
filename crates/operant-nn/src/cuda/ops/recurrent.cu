/* Layers that carry a state over the steps of a row, after mma.cu: LSTM and GRU, a launch for each step, and the scan of the minimal GRU.
   n: 0 steps, 1 features, 2 hidden numbers H, 3 kind (0 LSTM, 1 GRU), 4 the step, 5 whether a first state is given, 6 the input that
   says where episodes begin (0: none), 7 most rows.
   Gates are four blocks of H columns. Of an LSTM all of them have terms of the features and of the state; of a GRU the third has those of
   the features and the fourth those of the state, which are the third block of its weight's rows.
   What the way back reads lies step by step: gates [T, rows, 4·H], then h and c before each step and after the last, [T + 1, rows, H]
   each. The way back leaves gradients of the sums in the place of the gates. Without a way back h and c of two steps take turns in the
   scratch memory. */

struct Layer {
    uint32_t steps, features, hidden, gru, rows;
    float *gates, *h, *c; /* gates: none where nothing is kept */
    const float *resets;
};
FN Layer layer_of(const Args &a, uint32_t group, uint32_t rows) {
    Layer l;
    l.steps = a.n[0], l.features = a.n[1], l.hidden = a.n[2], l.gru = a.n[3], l.rows = rows;
    float *kept = Y(l.gru ? 2 : 3);
    const size_t state = (size_t)rows * l.hidden;
    l.gates = kept;
    l.h = kept ? kept + l.steps * GATES * state : SCRATCH;
    l.c = l.h + (kept ? l.steps + 1 : 2) * state;
    l.resets = a.n[6] ? X(a.n[6]) : nullptr;
    return l;
}
/* Where the state before a step begins. */
FN size_t slot(const Layer &l, uint32_t step) { return (size_t)(l.gates ? step : step % 2) * l.rows * l.hidden; }
/* 0 where an episode begins at that step. */
FN float keep(const Layer &l, uint32_t row, uint32_t step) {
    return l.resets && step < l.steps ? 1.0f - l.resets[row * l.steps + step] : 1.0f;
}
/* The state before the first step. */
FN float first_state(const Args &a, const Layer &l, const float *given, uint32_t row, uint32_t j) {
    return a.n[5] ? given[(size_t)row * l.hidden + j] * keep(l, row, 0) : 0.0f;
}

/* TILE rows against COLUMNS columns over all terms: numbers of the next terms are on their way while these are multiplied. `left(m, k)`
   and `right(n, k)` give numbers of row m and column n; with ACROSS those of neighbouring columns lie side by side, else of terms. */
template <int COLUMNS, int ACROSS, typename Left, typename Right> FN void tile_sums(uint32_t terms, float (*sums)[4], Left left, Right right) {
    __shared__ float rows_of[TILE * PITCH], columns_of[COLUMNS * PITCH];
    constexpr int ROWS_EACH = TILE / 8, COLUMNS_EACH = COLUMNS * TERMS / THREADS;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float l[ROWS_EACH], r[COLUMNS_EACH];
    for (uint32_t k0 = 0; k0 < terms + TERMS; k0 += TERMS) {
        if (k0) {
            __syncthreads();
#pragma unroll
            for (int i = 0; i < ROWS_EACH; ++i) rows_of[(warp + 8 * i) * PITCH + lane] = rounded(l[i]);
#pragma unroll
            for (int i = 0; i < COLUMNS_EACH; ++i) {
                const uint32_t at = threadIdx.x + i * THREADS, n = ACROSS ? at % COLUMNS : at / TERMS, k = ACROSS ? at / COLUMNS : at % TERMS;
                columns_of[n * PITCH + k] = rounded(r[i]);
            }
            __syncthreads();
        }
        if (k0 < terms) {
#pragma unroll
            for (int i = 0; i < ROWS_EACH; ++i) l[i] = k0 + lane < terms ? left(warp + 8 * i, k0 + lane) : 0.0f;
#pragma unroll
            for (int i = 0; i < COLUMNS_EACH; ++i) {
                const uint32_t at = threadIdx.x + i * THREADS, n = ACROSS ? at % COLUMNS : at / TERMS, k = k0 + (ACROSS ? at / COLUMNS : at % TERMS);
                r[i] = k < terms ? right(n, k) : 0.0f;
            }
        }
        if (k0) tile_product<COLUMNS>(rows_of, columns_of, (min(terms - (k0 - TERMS), (uint32_t)TERMS) + 7) / 8, sums);
    }
}

/* One step: HIDDEN numbers of the state of TILE rows a block, with all their gates. */
template <int HIDDEN> FN void step_forward(const Args &a) {
    BEGIN;
    constexpr int COLUMNS = GATES * HIDDEN, SIDES = HIDDEN / 8;
    const Layer l = layer_of(a, group, rows);
    const uint32_t hidden = l.hidden, features = l.features, terms = features + hidden, t = a.n[4];
    const uint32_t wide = (hidden + HIDDEN - 1) / HIDDEN, columns = block % wide * HIDDEN, first = block / wide * TILE;
    if (first >= rows) return;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float *x = X(0), *by_x = X(1), *by_h = X(2), *h0 = a.n[5] ? X(5) : nullptr, *c0 = a.n[5] && !l.gru ? X(6) : nullptr;
    const float *before = l.h + slot(l, t);
    float sums[COLUMNS / 8][4] = {};
    const auto left = [&](uint32_t m, uint32_t k) {
        const uint32_t row = first + m, of = k - features;
        if (row >= rows) return 0.0f;
        if (k < features) return x[((size_t)row * l.steps + t) * features + k];
        return t ? before[(size_t)row * hidden + of] : first_state(a, l, h0, row, of);
    };
    const auto right = [&](uint32_t n, uint32_t k) {
        const uint32_t gate = n / HIDDEN, j = columns + n % HIDDEN;
        const int fed = k < features;
        if (j >= hidden || (l.gru && gate == (fed ? 3 : 2))) return 0.0f;
        if (fed) return by_x[(size_t)(gate * hidden + j) * features + k];
        return by_h[((size_t)(l.gru && gate == 3 ? 2 : gate) * hidden + j) * hidden + k - features];
    };
    tile_sums<COLUMNS, 0>(terms, sums, left, right);
    const float *bias_x = X(3), *bias_h = X(4);
    float *y = Y(0), *last_h = Y(1), *last_c = l.gru ? nullptr : Y(2);
    const size_t next = slot(l, t + 1);
#pragma unroll
    for (int q = 0; q < SIDES; ++q)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t row = first + warp * 16 + lane / 4 + i / 2 * 8, j = columns + q * 8 + lane % 4 * 2 + i % 2;
            if (row >= rows || j >= hidden) continue;
            const size_t at = (size_t)row * hidden + j;
            float s[GATES];
#pragma unroll
            for (int gate = 0; gate < GATES; ++gate) {
                s[gate] = sums[gate * SIDES + q][i];
                if (!l.gru || gate != 3) s[gate] += bias_x[gate * hidden + j];
                if (!l.gru || gate != 2) s[gate] += bias_h[(l.gru && gate == 3 ? 2 : gate) * hidden + j];
            }
            const float h_before = t ? before[at] : first_state(a, l, h0, row, j);
            float h, c = 0.0f, c_before = 0.0f;
            if (l.gru) {
                s[0] = sigmoid(s[0]), s[1] = sigmoid(s[1]), s[2] = tanhf(fmaf(s[0], s[3], s[2]));
                h = fmaf(s[1], h_before - s[2], s[2]);
            } else {
                c_before = t ? l.c[slot(l, t) + at] : first_state(a, l, c0, row, j);
                s[0] = sigmoid(s[0]), s[1] = sigmoid(s[1]), s[2] = tanhf(s[2]), s[3] = sigmoid(s[3]);
                c = fmaf(s[1], c_before, s[0] * s[2]);
                h = s[3] * tanhf(c);
            }
            const float kept = keep(l, row, t + 1);
            if (y) y[((size_t)row * l.steps + t) * hidden + j] = h;
            /* The last step's state is nobody's where nothing is kept, and one step has no scratch memory. */
            if (l.gates || t + 1 < l.steps) {
                l.h[next + at] = h * kept;
                if (!l.gru) l.c[next + at] = c * kept;
            }
            if (l.gates) {
                float *gates = l.gates + ((size_t)t * rows + row) * GATES * hidden + j;
#pragma unroll
                for (int gate = 0; gate < GATES; ++gate) gates[gate * hidden] = s[gate];
                if (!t) {
                    l.h[at] = h_before;
                    if (!l.gru) l.c[at] = c_before;
                }
            }
            if (t + 1 == l.steps) {
                if (last_h) last_h[at] = h;
                if (last_c) last_c[at] = c;
            }
        }
}

/* The way back through step n4 - 1: what the state behind it has of the step after it, and from there gradients of its gates' sums. At 0
   the gradient of the first state. The scratch keeps what flows past the gates: [rows, H] of c, or of h of a GRU. */
template <int COLUMNS> FN void step_backward(const Args &a) {
    BEGIN;
    const Layer l = layer_of(a, group, rows);
    const uint32_t hidden = l.hidden, after = a.n[4], blocks = l.gru ? 3 : 4, terms = blocks * hidden;
    const uint32_t wide = (hidden + COLUMNS - 1) / COLUMNS, columns = block % wide * COLUMNS, first = block / wide * TILE;
    if (first >= rows) return;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float *by_h = X(2), *slopes = l.gates + (size_t)after * rows * GATES * hidden;
    float *past = SCRATCH, sums[COLUMNS / 8][4] = {};
    const auto left = [&](uint32_t m, uint32_t k) {
        const uint32_t column = l.gru && k >= 2 * hidden ? k + hidden : k;
        return first + m < rows ? slopes[(size_t)(first + m) * GATES * hidden + column] : 0.0f;
    };
    const auto right = [&](uint32_t n, uint32_t k) { return columns + n < hidden ? by_h[(size_t)k * hidden + columns + n] : 0.0f; };
    if (after < l.steps) tile_sums<COLUMNS, 1>(terms, sums, left, right);
    const float *dy = DY(0), *d_last_h = DY(1), *d_last_c = l.gru ? nullptr : DY(2);
    float *d_h0 = a.n[5] ? DX(5) : nullptr, *d_c0 = a.n[5] && !l.gru ? DX(6) : nullptr;
#pragma unroll
    for (int q = 0; q < COLUMNS / 8; ++q)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t row = first + warp * 16 + lane / 4 + i / 2 * 8, j = columns + q * 8 + lane % 4 * 2 + i % 2;
            if (row >= rows || j >= hidden) continue;
            const size_t at = (size_t)row * hidden + j;
            const float kept = keep(l, row, after);
            float by_state = sums[q][i], by_cell = 0.0f;
            if (after == l.steps) {
                by_state = d_last_h ? d_last_h[at] : 0.0f;
                by_cell = d_last_c ? d_last_c[at] : 0.0f;
            } else if (l.gru) {
                by_state += past[at];
            } else {
                by_cell = past[at];
            }
            if (!after) {
                if (d_h0) d_h0[at] = (a.add >> 5 & 1 ? d_h0[at] : 0.0f) + by_state * kept;
                if (d_c0) d_c0[at] = (a.add >> 6 & 1 ? d_c0[at] : 0.0f) + by_cell * kept;
                continue;
            }
            const uint32_t t = after - 1;
            float *gates = l.gates + ((size_t)t * rows + row) * GATES * hidden + j;
            const float dh = fmaf(by_state, kept, dy ? dy[((size_t)row * l.steps + t) * hidden + j] : 0.0f);
            const float s0 = gates[0], s1 = gates[hidden], s2 = gates[2 * hidden], s3 = gates[3 * hidden];
            if (l.gru) {
                const float before = l.h[slot(l, t) + at], to_z = dh * s1, to_n = dh - to_z, dn = to_n * (1.0f - s2 * s2);
                gates[0] = dn * s0 * s3 * (1.0f - s0);
                gates[hidden] = to_n * s1 * (before - s2);
                gates[2 * hidden] = dn;
                gates[3 * hidden] = dn * s0;
                past[at] = to_z;
            } else {
                const float before = l.c[slot(l, t) + at], bent = tanhf(fmaf(s1, before, s0 * s2)), through = dh * s3;
                const float dc = fmaf(by_cell, kept, through * (1.0f - bent * bent));
                gates[0] = dc * s2 * s0 * (1.0f - s0);
                gates[hidden] = dc * before * s1 * (1.0f - s1);
                gates[2 * hidden] = dc * s0 * (1.0f - s2 * s2);
                gates[3 * hidden] = through * bent * (1.0f - s3);
                past[at] = dc * s1;
            }
        }
}

/* Gradient of the features, of all steps at once. */
template <int COLUMNS> FN void layer_input(const Args &a) {
    BEGIN;
    const Layer l = layer_of(a, group, rows);
    const uint32_t hidden = l.hidden, features = l.features, terms = (l.gru ? 3 : 4) * hidden, count = rows * l.steps;
    const uint32_t wide = (features + COLUMNS - 1) / COLUMNS, columns = block % wide * COLUMNS, first = block / wide * TILE;
    if (first >= count) return;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float *by_x = X(1);
    float sums[COLUMNS / 8][4] = {};
    const auto left = [&](uint32_t m, uint32_t k) { return first + m < count ? l.gates[(size_t)(first + m) * GATES * hidden + k] : 0.0f; };
    const auto right = [&](uint32_t n, uint32_t k) { return columns + n < features ? by_x[(size_t)k * features + columns + n] : 0.0f; };
    tile_sums<COLUMNS, 1>(terms, sums, left, right);
    float *dx = DX(0);
#pragma unroll
    for (int q = 0; q < COLUMNS / 8; ++q)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t place = first + warp * 16 + lane / 4 + i / 2 * 8, c = columns + q * 8 + lane % 4 * 2 + i % 2;
            if (place >= count || c >= features) continue;
            float *to = &dx[((size_t)(place % rows) * l.steps + place / rows) * features + c];
            *to = a.add & 1 ? *to + sums[q][i] : sums[q][i];
        }
}

/* Gradients of weights and biases: 32 terms (features, then the state, then 1) × 32 gates, summed over a split of the places. The
   scratch gets [splits][terms][4·H] behind [most rows, H]. */
KERNEL(layer_weight) {
    BEGIN;
    constexpr int COLUMNS = WEIGHT_COLUMNS, WIDTH = WIDTH_OF(COLUMNS);
    __shared__ float left[TILE * PITCH], right[TILE * WIDTH];
    const Layer l = layer_of(a, group, rows);
    const uint32_t hidden = l.hidden, features = l.features, terms = features + hidden + 1, gates = GATES * hidden, count = rows * l.steps;
    const uint32_t wide = (gates + COLUMNS - 1) / COLUMNS, long_ = (terms + TERMS - 1) / TERMS;
    const uint32_t columns = block % wide * COLUMNS, k0 = block / wide % long_ * TERMS, split = block / (wide * long_);
    if (split * SPLIT >= count) return;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, end = min(count, (split + 1) * SPLIT);
    const uint32_t k = k0 + lane;
    const float *x = X(0);
    float sums[2][COLUMNS / 8][4] = {};
    for (uint32_t first = split * SPLIT; first < end; first += TILE) {
        __syncthreads();
#pragma unroll 8
        for (uint32_t m = warp; m < TILE; m += 8) {
            const uint32_t place = first + m;
            float value = 0.0f, slope = 0.0f;
            if (place < end) {
                if (k < features)
                    value = x[((size_t)(place % rows) * l.steps + place / rows) * features + k];
                else if (k < terms)
                    value = k + 1 < terms ? l.h[(size_t)place * hidden + k - features] : 1.0f;
                if (columns + lane < gates) slope = l.gates[(size_t)place * gates + columns + lane];
            }
            left[m * PITCH + lane] = rounded(value);
            right[m * WIDTH + lane] = rounded(slope);
        }
        __syncthreads();
        weight_product<COLUMNS>(left, right, sums);
    }
    float *total = left;
    add_warps<2, COLUMNS>(sums, total);
    float *to = SCRATCH + (size_t)a.n[7] * hidden + (size_t)split * terms * gates;
    for (uint32_t i = threadIdx.x; i < TERMS * COLUMNS; i += THREADS) {
        const uint32_t term = k0 + i / COLUMNS, column = columns + i % COLUMNS;
        if (term < terms && column < gates) to[(size_t)term * gates + column] = total[i];
    }
}
/* Adds those up. */
KERNEL(layer_collapse) {
    BEGIN;
    const uint32_t hidden = a.n[2], features = a.n[1], gru = a.n[3], terms = features + hidden + 1, gates = GATES * hidden, len = terms * gates;
    const uint32_t splits = (rows * a.n[0] + SPLIT - 1) / SPLIT;
    const float *from = SCRATCH + (size_t)a.n[7] * hidden;
    float *by_x = DX(1), *by_h = DX(2), *bias_x = DX(3), *bias_h = DX(4);
    EACH(i, len) {
        float sum = 0.0f;
        for (uint32_t s = 0; s < splits; ++s) sum += from[(size_t)s * len + i];
        const uint32_t term = i / gates, column = i % gates, gate = column / hidden;
        const int fed = !gru || gate != 3, recurs = !gru || gate != 2;
        const uint32_t row = gru && gate == 3 ? column - hidden : column;
        if (term < features) {
            if (fed && by_x) by_x[(size_t)column * features + term] += sum;
        } else if (term + 1 < terms) {
            if (recurs && by_h) by_h[(size_t)row * hidden + term - features] += sum;
        } else {
            if (fed && bias_x) bias_x[column] += sum;
            if (recurs && bias_h) bias_h[row] += sum;
        }
    }
}

KERNEL(step_forward_8) { step_forward<8>(a); }
KERNEL(step_forward_16) { step_forward<16>(a); }
KERNEL(step_backward_8) { step_backward<8>(a); }
KERNEL(step_backward_16) { step_backward<16>(a); }
KERNEL(step_backward_32) { step_backward<32>(a); }
KERNEL(layer_input_8) { layer_input<8>(a); }
KERNEL(layer_input_32) { layer_input<32>(a); }

/* ---- The minimal GRU: a thread for each number of a row's state. n: 0 steps, 1 H, 2 positive, 3 whether a first state is given,
   4 the input that says where episodes begin (0: none) ---- */

/* The candidate and its slope. */
FN float candidate(int positive, float v, float &slope) {
    const float s = sigmoid(v);
    slope = !positive || v >= 0.0f ? 1.0f : s * (1.0f - s);
    return !positive ? v : v >= 0.0f ? v + 0.5f : s;
}
KERNEL(min_gru_forward) {
    BEGIN;
    const uint32_t steps = a.n[0], hidden = a.n[1];
    const float *x = X(0), *h0 = a.n[3] ? X(1) : nullptr, *resets = a.n[4] ? X(a.n[4]) : nullptr;
    float *y = Y(0), *last = Y(1);
    EACH(i, rows * hidden) {
        const uint32_t row = i / hidden, j = i % hidden;
        float h = h0 ? h0[i] : 0.0f, slope;
        for (uint32_t at = row * steps; at < (row + 1) * steps; ++at) {
            const float *both = x + (size_t)at * 2 * hidden + j;
            if (resets) h *= 1.0f - resets[at];
            h = fmaf(sigmoid(both[hidden]), candidate(a.n[2], both[0], slope) - h, h);
            if (y) y[(size_t)at * hidden + j] = h;
        }
        if (last) last[i] = h;
    }
}
KERNEL(min_gru_backward) {
    BEGIN;
    const uint32_t steps = a.n[0], hidden = a.n[1];
    const float *x = X(0), *y = Y(0), *dy = DY(0), *d_last = DY(1), *h0 = a.n[3] ? X(1) : nullptr, *resets = a.n[4] ? X(a.n[4]) : nullptr;
    float *dx = DX(0), *d_h0 = a.n[3] ? DX(1) : nullptr;
    EACH(i, rows * hidden) {
        const uint32_t row = i / hidden, j = i % hidden;
        float carry = d_last ? d_last[i] : 0.0f;
        for (uint32_t t = steps; t-- > 0;) {
            const size_t at = (size_t)row * steps + t;
            const float *both = x + at * 2 * hidden + j;
            const float kept = resets ? 1.0f - resets[at] : 1.0f;
            const float before = kept * (t ? y[(at - 1) * hidden + j] : h0 ? h0[i] : 0.0f);
            float slope;
            const float z = sigmoid(both[hidden]), value = candidate(a.n[2], both[0], slope);
            const float dh = carry + (dy ? dy[at * hidden + j] : 0.0f), to_new = dh * z, to_before = dh - to_new;
            if (dx) {
                dx[at * 2 * hidden + j] = to_new * slope;
                dx[at * 2 * hidden + hidden + j] = to_before * z * (value - before);
            }
            carry = to_before * kept;
        }
        if (d_h0) d_h0[i] = carry;
    }
}
