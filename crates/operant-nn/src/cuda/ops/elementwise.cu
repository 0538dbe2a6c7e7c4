/* Ops that go nearly number by number: what is so alone has a formula (chain.cu). */

/* Runs of n[1] numbers in the output, of which input n[3] fills n[2] from n[4] on; n[0] runs a row. */
KERNEL(concat_forward) {
    BEGIN;
    const real *x = RX(a.n[3]);
    real *y = RY(0);
    EACH(i, rows * a.n[0] * a.n[2]) y[(size_t)(i / a.n[2]) * a.n[1] + a.n[4] + i % a.n[2]] = x[i];
}
KERNEL(concat_backward) {
    BEGIN;
    const real *dy = RDY(0);
    real *dx = RDX(a.n[3]);
    if (!dx) return;
    EACH(i, rows * a.n[0] * a.n[2]) {
        const float d = dy[(size_t)(i / a.n[2]) * a.n[1] + a.n[4] + i % a.n[2]];
        dx[i] = a.add >> a.n[3] & 1 ? dx[i] + d : d;
    }
}
/* Runs of n[1] numbers in the input, of which the output has n[2] from n[4] on. */
KERNEL(slice_forward) {
    BEGIN;
    const real *x = RX(0);
    real *y = RY(0);
    EACH(i, rows * a.n[0] * a.n[2]) y[i] = x[(size_t)(i / a.n[2]) * a.n[1] + a.n[4] + i % a.n[2]];
}
KERNEL(slice_backward) {
    BEGIN;
    const real *dy = RDY(0);
    real *dx = RDX(0);
    EACH(i, rows * a.n[0] * a.n[1]) {
        const int at = (int)(i % a.n[1]) - a.n[4];
        const float d = at >= 0 && at < a.n[2] ? dy[(size_t)(i / a.n[1]) * a.n[2] + at] : 0.0f;
        dx[i] = a.add & 1 ? dx[i] + d : d;
    }
}

/* A seed blended into its host: see blend.rs. n[0] is 0 for sums, 1 for products, 2 for a gate; α is the last input. */
KERNEL(blend_forward) {
    BEGIN;
    const int how = a.n[0];
    const real *h = RX(0), *s = RX(1), *from = how == 1 ? RX(2) : nullptr;
    const float *gate = how == 2 ? X(2) : nullptr, alpha = X(how ? 3 : 2)[0];
    real *y = RY(0);
    EACH(i, rows * a.n[1]) {
        const float t = how == 0 ? 0.0f : how == 1 ? (float)from[i] : gate[i / a.n[1]];
        y[i] = alpha == 0.0f ? h[i] : blended(how, h[i], s[i], t, alpha);
    }
}
/* A block per row: the gate's gradient is a sum over one. */
KERNEL(blend_backward) {
    BEGIN;
    __shared__ float sums[THREADS / 32];
    if (block >= rows) return;
    const int how = a.n[0];
    const size_t first = (size_t)block * a.n[1];
    const real *h = how ? RX(0) + first : nullptr, *s = how ? RX(1) + first : nullptr, *dy = RDY(0) + first;
    const real *from = how == 1 ? RX(2) + first : nullptr;
    const float gate = how == 2 ? X(2)[block] : 0.0f, alpha = X(how ? 3 : 2)[0];
    real *dh = RDX(0), *ds = RDX(1), *dx = how == 1 ? RDX(2) : nullptr;
    float *dt = how == 2 ? DX(2) : nullptr, sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.n[1]; i += THREADS) {
        const float t = how == 1 ? (float)from[i] : gate;
        const Parts d = unblended(how, how ? h[i] : 0.0f, how ? s[i] : 0.0f, t, alpha, dy[i]);
        if (dh) dh[first + i] = alpha == 0.0f ? dy[i] : d.host;
        if (ds) ds[first + i] = d.seed;
        if (dx) dx[first + i] = d.third;
        sum += d.third;
    }
    if (!dt) return;
    sum = over_row(THREADS, sum, sums);
    if (threadIdx.x == 0) dt[block] = sum;
}

KERNEL(graft_forward) {
    BEGIN;
    const Chosen c = chosen(a, X(3));
    const real *h = RX(0);
    real *y = RY(0);
    if (c.how < 0 || c.alpha == 0.0f) {
        EACH(i, rows * a.n[0]) y[i] = h[i];
        return;
    }
    const real *s = RX(4 + c.seed), *from = RX(1);
    const float *gate = X(2);
    EACH(i, rows * a.n[0]) y[i] = blended(c.how, h[i], s[i], c.how == 0 ? 0.0f : c.how == 1 ? (float)from[i] : gate[i / a.n[0]], c.alpha);
}
KERNEL(graft_backward) {
    BEGIN;
    __shared__ float sums[THREADS / 32];
    if (block >= rows) return;
    const Chosen c = chosen(a, X(3));
    const size_t first = (size_t)block * a.n[0];
    const real *h = RX(0) + first, *s = RX(4 + c.seed) + first, *from = RX(1) + first, *dy = RDY(0) + first;
    const float opened = c.how == 2 ? X(2)[block] : 0.0f;
    real *dh = RDX(0), *dx = RDX(1), *ds = RDX(4 + c.seed);
    float *gate = DX(2), sum = 0.0f;
    const int none = c.how < 0;
    for (uint32_t i = threadIdx.x; i < a.n[0]; i += THREADS) {
        const float t = c.how == 1 ? (float)from[i] : opened;
        const Parts d = none ? Parts{dy[i], 0.0f, 0.0f} : unblended(c.how, c.how ? h[i] : 0.0f, c.how ? s[i] : 0.0f, t, c.alpha, dy[i]);
        if (dh) dh[first + i] = none || c.alpha == 0.0f ? dy[i] : d.host;
        if (none && a.n[2]) continue;
        if (dx) dx[first + i] = c.how == 1 ? d.third : 0.0f;
        if (ds) ds[first + i] = d.seed;
        sum += d.third;
    }
    if (!a.n[2])
        for (int k = 0; k < a.n[1]; ++k) {
            real *other = k == c.seed ? nullptr : RDX(4 + k);
            if (other)
                for (uint32_t i = threadIdx.x; i < a.n[0]; i += THREADS) other[first + i] = 0.0f;
        }
    if (!gate || (c.how != 2 && a.n[2])) return;
    sum = over_row(THREADS, c.how == 2 ? sum : 0.0f, sums);
    if (threadIdx.x == 0) gate[block] = sum;
}

/* The same, and the largest of 2 × 2 behind it: see blending.cu. */
KERNEL(graft_pool_forward) {
    BEGIN;
    const Chosen c = chosen(a, X(3));
    const int heard = c.how >= 0 && c.alpha != 0.0f;
    const uint32_t each = a.n[3] * a.n[4] * a.n[5];
    const real *h = RX(0), *s = RX(4 + c.seed), *from = RX(1);
    const float *gate = X(2);
    real *y = RY(0);
    EACH(i, rows * each) {
        uint32_t at[4];
        four_of(a, i, at);
        float v[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            v[k] = h[at[k]];
            if (heard) v[k] = blended(c.how, v[k], s[at[k]], c.how == 0 ? 0.0f : c.how == 1 ? (float)from[at[k]] : gate[i / each], c.alpha);
        }
        const int which = largest(v);
        y[i] = which == 0 ? v[0] : which == 1 ? v[1] : which == 2 ? v[2] : v[3];
    }
}
KERNEL(graft_pool_backward) {
    BEGIN;
    __shared__ float sums[THREADS / 32];
    const uint32_t row = block * (THREADS / a.n[6]) + threadIdx.x / a.n[6], each = a.n[3] * a.n[4] * a.n[5];
    const Chosen c = chosen(a, X(3));
    const int none = c.how < 0, heard = !none && c.alpha != 0.0f;
    const real *h = RX(0), *s = RX(4 + c.seed), *from = RX(1), *dy = RDY(0);
    const float opened = c.how == 2 && row < rows ? X(2)[row] : 0.0f;
    real *dh = RDX(0), *dx = RDX(1), *ds = RDX(4 + c.seed);
    float *gate = DX(2), sum = 0.0f;
    for (uint32_t i = row * each + threadIdx.x % a.n[6], end = row < rows ? (row + 1) * each : 0; i < end; i += a.n[6]) {
        uint32_t at[4];
        four_of(a, i, at);
        float v[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            v[k] = h[at[k]];
            if (heard) v[k] = blended(c.how, v[k], s[at[k]], c.how == 1 ? (float)from[at[k]] : opened, c.alpha);
        }
        const int which = largest(v);
        const uint32_t here = at[which];
        const float d = dy[i], t = c.how == 1 ? (float)from[here] : opened;
        const Parts p = none ? Parts{d, 0.0f, 0.0f} : unblended(c.how, c.how ? h[here] : 0.0f, c.how ? s[here] : 0.0f, t, c.alpha, d);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float one = k == which ? 1.0f : 0.0f;
            if (dh) dh[at[k]] = k == which ? (heard ? p.host : d) : 0.0f;
            if (none && a.n[2]) continue;
            if (dx) dx[at[k]] = c.how == 1 ? p.third * one : 0.0f;
            if (ds) ds[at[k]] = p.seed * one;
            if (!a.n[2])
                for (int other = 0; other < a.n[1]; ++other)
                    if (other != c.seed && RDX(4 + other)) RDX(4 + other)[at[k]] = 0.0f;
        }
        sum += p.third;
    }
    sum = over_row(a.n[6], c.how == 2 ? sum : 0.0f, sums);
    if (gate && (c.how == 2 || !a.n[2]) && threadIdx.x % a.n[6] == 0 && row < rows) gate[row] = sum;
}

/* Goes on forward; back where X(1) is not 0. */
KERNEL(valve_forward) {
    BEGIN;
    const real *x = RX(0);
    real *y = RY(0);
    EACH(i, rows * a.n[1]) y[i] = x[i];
}
KERNEL(valve_backward) {
    BEGIN;
    const float open = X(1)[0];
    const real *dy = RDY(0);
    real *dx = RDX(0);
    if (a.add & 1 && open == 0.0f) return;
    EACH(i, rows * a.n[1]) dx[i] = a.add & 1 ? dx[i] + dy[i] * open : dy[i] * open;
}

/* Entries of a table of n2 entries of n1 numbers, by the n0 integers of a row, which n3 says are real numbers; with n4 their sum. */
FN int entry(const Args &a, const float *index, uint32_t i) { return a.n[3] ? (int)index[i] : __float_as_int(index[i]); }
KERNEL(embedding_forward) {
    BEGIN;
    const float *index = X(0), *table = X(1);
    real *y = RY(0);
    if (!a.n[4]) {
        EACH(i, rows * a.n[0] * a.n[1]) y[i] = table[(size_t)entry(a, index, i / a.n[1]) * a.n[1] + i % a.n[1]];
        return;
    }
    EACH(i, rows * a.n[1]) {
        float sum = 0.0f;
        for (int k = 0; k < a.n[0]; ++k) sum += table[(size_t)entry(a, index, i / a.n[1] * a.n[0] + k) * a.n[1] + i % a.n[1]];
        y[i] = sum;
    }
}
/* A warp per entry looks through all integers, and adds up in their order. */
KERNEL(embedding_backward) {
    BEGIN;
    const uint32_t mine = block * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, count = rows * a.n[0];
    if (mine >= a.n[2]) return;
    const float *index = X(0);
    const real *dy = RDY(0);
    float *table = DX(1) + (size_t)mine * a.n[1];
    for (uint32_t column = lane; column < a.n[1] + lane; column += 128) {
        float sums[4] = {};
        for (uint32_t first = 0; first < count; first += 32) {
            uint32_t found = __ballot_sync(FULL, first + lane < count && entry(a, index, first + lane) == (int)mine);
            for (; found; found &= found - 1) {
                const uint32_t at = first + __ffs(found) - 1, row = a.n[4] ? at / a.n[0] : at;
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    if (column + 32 * k < a.n[1]) sums[k] += dy[(size_t)row * a.n[1] + column + 32 * k];
            }
        }
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if (column + 32 * k < a.n[1]) table[column + 32 * k] += sums[k];
    }
}
/* Real numbers of entries have no gradient: zeros, n0 a row. */
KERNEL(embedding_nothing) {
    BEGIN;
    float *dx = DX(0);
    EACH(i, rows * a.n[0]) dx[i] = 0.0f;
}

/* Images of n0 lines, n1 columns and n2 channels, n3 times as large; with n4 bilinear between pixels' centres. */
struct Between {
    int first, second;
    float share;
};
FN Between between(const Args &a, int i, int size) {
    if (!a.n[4]) return {i / a.n[3], i / a.n[3], 0.0f};
    const float place = fmaxf(((float)i + 0.5f) / (float)a.n[3] - 0.5f, 0.0f);
    const int first = min((int)place, size - 1);
    return {first, min(first + 1, size - 1), place - (float)first};
}
KERNEL(upsample_forward) {
    BEGIN;
    const real *x = RX(0);
    real *y = RY(0);
    const uint32_t columns = a.n[1] * a.n[3], lines = a.n[0] * a.n[3], c = a.n[2];
    EACH(i, rows * lines * columns * c) {
        const uint32_t pixel = i / c, line = pixel / columns;
        const Between down = between(a, line % lines, a.n[0]), across = between(a, pixel % columns, a.n[1]);
        const real *image = x + (size_t)(line / lines) * a.n[0] * a.n[1] * c + i % c;
        const float upper = fmaf(across.share, image[(down.first * a.n[1] + across.second) * c], (1.0f - across.share) * image[(down.first * a.n[1] + across.first) * c]);
        const float lower = fmaf(across.share, image[(down.second * a.n[1] + across.second) * c], (1.0f - across.share) * image[(down.second * a.n[1] + across.first) * c]);
        y[i] = fmaf(down.share, lower, (1.0f - down.share) * upper);
    }
}
FN float part_of_pixel(const Between &b, int i) { return (b.first == i ? 1.0f - b.share : 0.0f) + (b.second == i ? b.share : 0.0f); }
KERNEL(upsample_backward) {
    BEGIN;
    const real *dy = RDY(0);
    real *dx = RDX(0);
    const int columns = a.n[1] * a.n[3], lines = a.n[0] * a.n[3], c = a.n[2];
    EACH(i, rows * a.n[0] * a.n[1] * c) {
        const uint32_t pixel = i / c;
        const int column = pixel % a.n[1], line = pixel / a.n[1] % a.n[0];
        const real *image = dy + (size_t)(pixel / (a.n[0] * a.n[1])) * lines * columns * c + i % c;
        float sum = 0.0f;
        for (int v = max(0, (line - 1) * a.n[3]); v < min(lines, (line + 2) * a.n[3]); ++v) {
            const float down = part_of_pixel(between(a, v, a.n[0]), line);
            for (int u = max(0, (column - 1) * a.n[3]); u < min(columns, (column + 2) * a.n[3]); ++u)
                sum = fmaf(down * part_of_pixel(between(a, u, a.n[1]), column), image[(v * columns + u) * c], sum);
        }
        dx[i] = sum;
    }
}

/* n0 numbers a row, of which each is 0 with probability n1 / 65,536 by the row's own key: see keyed_noise.rs. n2 is the layer; f0 is what
   others grow by. */
FN float kept(const Args &a, const float *keys, uint32_t i) {
    const uint32_t e = i % a.n[0], *key = (const uint32_t *)keys + (size_t)(i / a.n[0]) * 4;
    uint32_t c[4] = {e / 128 * 16 + e % 16, key[2], key[3], (uint32_t)a.n[2]}, k0 = key[0], k1 = key[1];
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint32_t high0 = __umulhi(c[0], 0xD2511F53u), low0 = c[0] * 0xD2511F53u, high1 = __umulhi(c[2], 0xCD9E8D57u), low1 = c[2] * 0xCD9E8D57u;
        c[0] = high1 ^ c[1] ^ k0, c[1] = low1, c[2] = high0 ^ c[3] ^ k1, c[3] = low0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    const uint32_t which = e / 32 % 4, word = which == 0 ? c[0] : which == 1 ? c[1] : which == 2 ? c[2] : c[3];
    return (e / 16 % 2 ? word >> 16 : word & 0xFFFFu) >= (uint32_t)a.n[1] ? a.f[0] : 0.0f;
}
KERNEL(keyed_dropout_forward) {
    BEGIN;
    const real *x = RX(0);
    real *y = RY(0);
    EACH(i, rows * a.n[0]) y[i] = x[i] * kept(a, X(1), i);
}
KERNEL(keyed_dropout_backward) {
    BEGIN;
    const real *dy = RDY(0);
    real *dx = RDX(0);
    if (!dx) return;
    EACH(i, rows * a.n[0]) dx[i] = dy[i] * kept(a, X(1), i);
}
