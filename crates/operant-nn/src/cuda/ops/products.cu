/* Convolutions and linear layers of any kind as products of tiles, after mma.cu.
   n: 0 h, 1 w, 2 channels, 3 outputs, 4 kh, 5 kw, 6 stride, 7 padding, 8 circular, 9 groups, 10 h', 11 w', 12 activation, 13 bias.
   A linear layer is a convolution of 1×1 over n0 places in one column. Weights are [outputs, channels/groups, kh, kw]. */
#define SPLIT 2048 /* places whose share of a weight's gradient one block adds up */

struct Place {
    int base, y, x, valid;
};
FN int wrapped(int i, int size) { return i < 0 ? i + size : i >= size ? i - size : i; }

/* What a place of the output sees of the input through tap (ky, kx). */
FN float seen(const Args &a, const real *x, const Place &place, int ky, int kx, int channel) {
    int y = place.y + ky, at = place.x + kx;
    if (a.n[8]) {
        y = wrapped(y, a.n[0]);
        at = wrapped(at, a.n[1]);
    }
    const int inside = place.valid && (uint32_t)y < (uint32_t)a.n[0] && (uint32_t)at < (uint32_t)a.n[1];
    return inside ? x[(size_t)place.base + (y * a.n[1] + at) * a.n[2] + channel] : 0.0f;
}
/* The place that output number m of a group has in the input. */
FN Place place_of(const Args &a, uint32_t m, int valid) {
    const uint32_t ox = m % a.n[11], oy = m / a.n[11] % a.n[10], row = m / (a.n[11] * a.n[10]);
    return {(int)(row * a.n[0] * a.n[1] * a.n[2]), (int)oy * a.n[6] - a.n[7], (int)ox * a.n[6] - a.n[7], valid};
}
/* Places of outputs from `first` on. */
FN void output_places(const Args &a, Place *places, uint32_t first, uint32_t count) {
    if (threadIdx.x < TILE) places[threadIdx.x] = place_of(a, first + threadIdx.x, first + threadIdx.x < count);
}
/* The gradient of a sum before its activation, whose result is y. */
FN float slope_at(const Args &a, const real *y, const real *dy, size_t at) { return y ? dy[at] * slope(a.n[12], 0.0f, y[at]) : (float)dy[at]; }

template <int COLUMNS> FN void product_forward(const Args &a) {
    BEGIN;
    __shared__ float left[TILE * PITCH], right[COLUMNS * PITCH];
    __shared__ Place places[TILE];
    const uint32_t cg = a.n[2] / a.n[9], og = a.n[3] / a.n[9], taps = a.n[4] * a.n[5], terms = taps * cg;
    const uint32_t wide = (og + COLUMNS - 1) / COLUMNS, count = rows * a.n[10] * a.n[11];
    const uint32_t columns = block % wide * COLUMNS, of = block / wide % a.n[9], first = block / (wide * a.n[9]) * TILE;
    if (first >= count) return;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const real *x = RX(0);
    const float *weight = X(1) + (size_t)of * og * terms;
    output_places(a, places, first, count);
    float sums[COLUMNS / 8][4] = {};
    for (uint32_t k0 = 0; k0 < terms; k0 += TERMS) {
        const uint32_t k = k0 + lane, tap = k / cg, c = k % cg;
        const int ky = tap / a.n[5], kx = tap % a.n[5];
        __syncthreads();
#pragma unroll 8
        for (uint32_t m = warp; m < TILE; m += 8)
            left[m * PITCH + lane] = k < terms ? rounded(seen(a, x, places[m], ky, kx, of * cg + c)) : 0.0f;
        for (uint32_t n = warp; n < COLUMNS; n += 8)
            right[n * PITCH + lane] = k < terms && columns + n < og ? rounded(weight[(size_t)(columns + n) * terms + c * taps + tap]) : 0.0f;
        __syncthreads();
        tile_product<COLUMNS>(left, right, (min(terms - k0, (uint32_t)TERMS) + 7) / 8, sums);
    }
    const float *bias = a.n[13] ? X(2) + of * og : nullptr;
    real *y = RY(0);
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t m = first + warp * 16 + lane / 4 + i / 2 * 8, column = columns + n * 8 + lane % 4 * 2 + i % 2;
            if (m < count && column < og)
                y[(size_t)m * a.n[3] + of * og + column] = activated(a.n[12], sums[n][i] + (bias ? bias[column] : 0.0f));
        }
}

/* Gradient of the input: each of its places asks the outputs that saw it, (tap, output) by (tap, output). A border that goes round
   has a place up to three times along an axis. */
template <int COLUMNS> FN void product_input(const Args &a) {
    BEGIN;
    __shared__ float left[TILE * PITCH], right[COLUMNS * PITCH];
    __shared__ Place places[TILE];
    const uint32_t cg = a.n[2] / a.n[9], og = a.n[3] / a.n[9], taps = a.n[4] * a.n[5], turns = a.n[8] ? 9 : 1, terms = turns * taps * og;
    const uint32_t wide = (cg + COLUMNS - 1) / COLUMNS, count = rows * a.n[0] * a.n[1];
    const uint32_t columns = block % wide * COLUMNS, of = block / wide % a.n[9], first = block / (wide * a.n[9]) * TILE;
    if (first >= count) return;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = threadIdx.x;
    const float *weight = X(1) + (size_t)of * og * cg * taps;
    const real *y = a.n[12] ? RY(0) : nullptr, *dy = RDY(0);
    if (t < TILE) {
        const uint32_t m = first + t, row = m / (a.n[0] * a.n[1]);
        places[t] = {(int)(row * a.n[10] * a.n[11] * a.n[3]), (int)(m / a.n[1] % a.n[0]) + a.n[7], (int)(m % a.n[1]) + a.n[7], m < count};
    }
    float sums[COLUMNS / 8][4] = {};
    for (uint32_t k0 = 0; k0 < terms; k0 += TERMS) {
        const uint32_t k = k0 + lane, o = k % og, tap = k / og % taps, turn = k / (og * taps);
        const int down = tap / a.n[5] - (a.n[8] ? ((int)(turn / 3) - 1) * a.n[0] : 0);
        const int along = tap % a.n[5] - (a.n[8] ? ((int)(turn % 3) - 1) * a.n[1] : 0);
        __syncthreads();
#pragma unroll 8
        for (uint32_t m = warp; m < TILE; m += 8) {
            const Place place = places[m];
            int oy = place.y - down, ox = place.x - along, inside = place.valid && k < terms && oy >= 0 && ox >= 0;
            if (a.n[6] > 1) {
                inside = inside && oy % a.n[6] == 0 && ox % a.n[6] == 0;
                oy /= a.n[6], ox /= a.n[6];
            }
            inside = inside && oy < a.n[10] && ox < a.n[11];
            float d = 0.0f;
            if (inside) {
                const size_t at = (size_t)place.base + (oy * a.n[11] + ox) * a.n[3] + of * og + o;
                d = slope_at(a, y, dy, at);
            }
            left[m * PITCH + lane] = rounded(d);
        }
        for (uint32_t n = warp; n < COLUMNS; n += 8)
            right[n * PITCH + lane] = k < terms && columns + n < cg ? rounded(weight[((size_t)o * cg + columns + n) * taps + tap]) : 0.0f;
        __syncthreads();
        tile_product<COLUMNS>(left, right, (min(terms - k0, (uint32_t)TERMS) + 7) / 8, sums);
    }
    real *dx = RDX(0);
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t m = first + warp * 16 + lane / 4 + i / 2 * 8, column = columns + n * 8 + lane % 4 * 2 + i % 2;
            if (m >= count || column >= cg) continue;
            real *to = &dx[(size_t)m * a.n[2] + of * cg + column];
            *to = a.add & 1 ? *to + sums[n][i] : sums[n][i];
        }
}

/* Gradient of weight and bias: 32 terms × some outputs, summed over a split of the places; the term behind the last is the bias.
   The scratch gets [splits][groups][terms + 1][outputs of a group]. */
template <int COLUMNS> FN void product_weight(const Args &a) {
    BEGIN;
    constexpr int WIDTH = WIDTH_OF(COLUMNS);
    __shared__ float left[TILE * PITCH], right[TILE * WIDTH];
    __shared__ Place places[TILE];
    const uint32_t cg = a.n[2] / a.n[9], og = a.n[3] / a.n[9], taps = a.n[4] * a.n[5], terms = taps * cg;
    const uint32_t wide = (og + COLUMNS - 1) / COLUMNS, long_ = (terms + 1 + TERMS - 1) / TERMS, count = rows * a.n[10] * a.n[11];
    const uint32_t columns = block % wide * COLUMNS, k0 = block / wide % long_ * TERMS;
    const uint32_t of = block / (wide * long_) % a.n[9], split = block / (wide * long_ * a.n[9]);
    if (split * SPLIT >= count) return;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, end = min(count, (split + 1) * SPLIT);
    const uint32_t k = k0 + lane, tap = k / cg, c = k % cg;
    const int ky = tap / a.n[5], kx = tap % a.n[5];
    const real *x = RX(0), *y = a.n[12] ? RY(0) : nullptr, *dy = RDY(0);
    float sums[2][COLUMNS / 8][4] = {};
    for (uint32_t first = split * SPLIT; first < end; first += TILE) {
        __syncthreads();
        output_places(a, places, first, end);
        for (uint32_t i = threadIdx.x; i < TILE * COLUMNS; i += THREADS) {
            const uint32_t m = first + i / COLUMNS, column = columns + i % COLUMNS;
            const size_t at = (size_t)m * a.n[3] + of * og + column;
            float d = 0.0f;
            if (m < end && column < og) d = slope_at(a, y, dy, at);
            right[i / COLUMNS * WIDTH + i % COLUMNS] = rounded(d);
        }
        __syncthreads();
#pragma unroll 8
        for (uint32_t m = warp; m < TILE; m += 8)
            left[m * PITCH + lane] = k < terms ? rounded(seen(a, x, places[m], ky, kx, of * cg + c)) : k == terms ? 1.0f : 0.0f;
        __syncthreads();
        weight_product<COLUMNS>(left, right, sums);
    }
    float *total = left;
    add_warps<2, COLUMNS>(sums, total);
    float *to = SCRATCH + ((size_t)split * a.n[9] + of) * (terms + 1) * og;
    for (uint32_t i = threadIdx.x; i < TERMS * COLUMNS; i += THREADS) {
        const uint32_t term = k0 + i / COLUMNS, column = columns + i % COLUMNS;
        if (term <= terms && column < og) to[(size_t)term * og + column] = total[i];
    }
}
KERNEL(product_collapse) {
    BEGIN;
    collapse_weight(a, group, block, (rows * a.n[10] * a.n[11] + SPLIT - 1) / SPLIT);
}

#define PRODUCTS(columns)                                            \
    KERNEL(product_forward_##columns) { product_forward<columns>(a); } \
    KERNEL(product_input_##columns) { product_input<columns>(a); }
PRODUCTS(8)
PRODUCTS(16)
PRODUCTS(32)
PRODUCTS(64)
KERNEL(product_weight_8) { product_weight<8>(a); }
KERNEL(product_weight_16) { product_weight<16>(a); }
KERNEL(product_weight_32) { product_weight<32>(a); }

/* ---- Each channel by itself ---- */

KERNEL(depthwise_forward) {
    BEGIN;
    const uint32_t channels = a.n[2], taps = a.n[4] * a.n[5];
    const real *x = RX(0);
    const float *weight = X(1), *bias = a.n[13] ? X(2) : nullptr;
    real *y = RY(0);
    EACH(i, rows * a.n[10] * a.n[11] * channels) {
        const uint32_t c = i % channels;
        const Place place = place_of(a, i / channels, 1);
        float sum = bias ? bias[c] : 0.0f;
        for (int ky = 0; ky < a.n[4]; ++ky)
            for (int kx = 0; kx < a.n[5]; ++kx) sum = fmaf(seen(a, x, place, ky, kx, c), weight[c * taps + ky * a.n[5] + kx], sum);
        y[i] = activated(a.n[12], sum);
    }
}
KERNEL(depthwise_input) {
    BEGIN;
    const uint32_t channels = a.n[2], taps = a.n[4] * a.n[5];
    const int turns = a.n[8] ? 1 : 0;
    const float *weight = X(1);
    const real *y = a.n[12] ? RY(0) : nullptr, *dy = RDY(0);
    real *dx = RDX(0);
    EACH(i, rows * a.n[0] * a.n[1] * channels) {
        const uint32_t c = i % channels, m = i / channels, row = m / (a.n[0] * a.n[1]);
        const int iy = m / a.n[1] % a.n[0] + a.n[7], ix = m % a.n[1] + a.n[7];
        float sum = 0.0f;
        for (int down = -turns; down <= turns; ++down)
            for (int ky = 0; ky < a.n[4]; ++ky) {
                const int oy = iy + down * a.n[0] - ky;
                if (oy < 0 || oy % a.n[6] || oy / a.n[6] >= a.n[10]) continue;
                for (int along = -turns; along <= turns; ++along)
                    for (int kx = 0; kx < a.n[5]; ++kx) {
                        const int ox = ix + along * a.n[1] - kx;
                        if (ox < 0 || ox % a.n[6] || ox / a.n[6] >= a.n[11]) continue;
                        const size_t at = ((size_t)(row * a.n[10] + oy / a.n[6]) * a.n[11] + ox / a.n[6]) * channels + c;
                        const float d = slope_at(a, y, dy, at);
                        sum = fmaf(d, weight[c * taps + ky * a.n[5] + kx], sum);
                    }
            }
        dx[i] = a.add & 1 ? dx[i] + sum : sum;
    }
}
/* A block per split and tap, the bias behind the last: the same scratch as for products. */
KERNEL(depthwise_weight) {
    BEGIN;
    __shared__ float room[THREADS];
    const uint32_t channels = a.n[2], taps = a.n[4] * a.n[5], count = rows * a.n[10] * a.n[11];
    const uint32_t tap = block % (taps + 1), split = block / (taps + 1);
    if (split * SPLIT >= count) return;
    const uint32_t end = min(count, (split + 1) * SPLIT);
    const real *x = RX(0), *y = a.n[12] ? RY(0) : nullptr, *dy = RDY(0);
    float *to = SCRATCH + (size_t)split * channels * (taps + 1);
    for (uint32_t first = 0; first < channels; first += THREADS) {
        const uint32_t width = min((uint32_t)THREADS, channels - first), sides = THREADS / width;
        const uint32_t c = first + threadIdx.x % width, side = threadIdx.x / width;
        float sum = 0.0f;
        if (side < sides)
            for (uint32_t m = split * SPLIT + side; m < end; m += sides) {
                const size_t at = (size_t)m * channels + c;
                const float d = slope_at(a, y, dy, at);
                const Place place = place_of(a, m, 1);
                sum = fmaf(d, tap == taps ? 1.0f : seen(a, x, place, tap / a.n[5], tap % a.n[5], c), sum);
            }
        sum = over_places(sum, width, sides, room);
        if (side == 0) to[(size_t)c * (taps + 1) + tap] = sum;
    }
}
