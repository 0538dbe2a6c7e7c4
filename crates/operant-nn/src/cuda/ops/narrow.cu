/* What lies between products, for tensors of bf16 whose channels are whole octets: eight numbers at a time. After vectors.cu; numbers are
   those of the kernels for any shape, unless said. */

/* An input of f32 numbers as bf16: y from x, n0 numbers a row. */
KERNEL(narrowed) {
    BEGIN;
    if (a.n[0] % 4) {
        const float *x = X(0);
        real *y = RY(0);
        EACH(i, rows * a.n[0]) y[i] = x[i];
        return;
    }
    const float4 *x = (const float4 *)X(0);
    uint2 *y = (uint2 *)RY(0);
    EACH(i, rows * (a.n[0] / 4)) {
        const float4 v = x[i];
        y[i] = {packed(v.x, v.y), packed(v.z, v.w)};
    }
}
/* Pixels of n1 channels, n0 of a row, as four numbers each. */
KERNEL(narrowed_pixels) {
    BEGIN;
    const float *x = X(0);
    uint2 *y = (uint2 *)RY(0);
    EACH(i, rows * a.n[0]) {
        float v[4] = {};
#pragma unroll
        for (int c = 0; c < 4; ++c)
            if (c < a.n[1]) v[c] = x[(size_t)i * a.n[1] + c];
        y[i] = {packed(v[0], v[1]), packed(v[2], v[3])};
    }
}
KERNEL(valve_forward) {
    BEGIN;
    const uint4 *x = (const uint4 *)RX(0);
    uint4 *y = (uint4 *)RY(0);
    EACH(i, rows * (a.n[1] / 8)) y[i] = x[i];
}
KERNEL(valve_backward) {
    BEGIN;
    const float open = X(1)[0];
    const real *dy = RDY(0);
    real *dx = RDX(0);
    if (a.add & 1 && open == 0.0f) return;
    EACH(i, rows * (a.n[1] / 8)) {
        Eight d = eight(dy, i), before = {};
        if (a.add & 1) before = eight(dx, i);
#pragma unroll
        for (int k = 0; k < 8; ++k) d.v[k] = fmaf(d.v[k], open, before.v[k]);
        put(dx, i, d);
    }
}

/* A slot: see graft.rs and elementwise.cu. A block per row. */
KERNEL(graft_forward) {
    BEGIN;
    if (block >= rows) return;
    const Chosen c = chosen(a, X(3));
    const size_t first = (size_t)block * a.n[0];
    const uint32_t octets = a.n[0] / 8;
    const real *h = RX(0) + first;
    real *y = RY(0) + first;
    if (c.how < 0 || c.alpha == 0.0f) {
        for (uint32_t i = threadIdx.x; i < octets; i += THREADS) ((uint4 *)y)[i] = ((const uint4 *)h)[i];
        return;
    }
    const real *s = RX(4 + c.seed) + first, *from = RX(1) + first;
    const float gate = c.how == 2 ? X(2)[block] : 0.0f;
    for (uint32_t i = threadIdx.x; i < octets; i += THREADS) {
        Eight p = eight(h, i), third = {};
        const Eight q = eight(s, i);
        if (c.how == 1) third = eight(from, i);
#pragma unroll
        for (int k = 0; k < 8; ++k) p.v[k] = blended(c.how, p.v[k], q.v[k], c.how == 1 ? third.v[k] : gate, c.alpha);
        put(y, i, p);
    }
}
KERNEL(graft_backward) {
    BEGIN;
    __shared__ float sums[THREADS / 32];
    if (block >= rows) return;
    const Chosen c = chosen(a, X(3));
    const size_t first = (size_t)block * a.n[0];
    const uint32_t octets = a.n[0] / 8;
    const real *h = RX(0) + first, *s = RX(4 + c.seed) + first, *from = RX(1) + first, *dy = RDY(0) + first;
    real *dh = RDX(0), *dx = RDX(1), *ds = RDX(4 + c.seed);
    const float opened = c.how == 2 ? X(2)[block] : 0.0f;
    if (c.how < 0) {
        if (dh)
            for (uint32_t i = threadIdx.x; i < octets; i += THREADS) ((uint4 *)(dh + first))[i] = ((const uint4 *)dy)[i];
        return;
    }
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < octets; i += THREADS) {
        const Eight d = eight(dy, i);
        Eight host = {}, seed = {}, third = {}, p = {}, q = {}, r = {};
        if (c.how) p = eight(h, i), q = eight(s, i);
        if (c.how == 1) r = eight(from, i);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const Parts parts = unblended(c.how, p.v[k], q.v[k], c.how == 1 ? r.v[k] : opened, c.alpha, d.v[k]);
            host.v[k] = c.alpha == 0.0f ? d.v[k] : parts.host, seed.v[k] = parts.seed, third.v[k] = c.how == 1 ? parts.third : 0.0f;
            sum += parts.third;
        }
        if (dh) put(dh + first, i, host);
        if (dx) put(dx + first, i, third);
        if (ds) put(ds + first, i, seed);
    }
    float *gate = DX(2);
    if (!gate || c.how != 2) return;
    sum = over_row(THREADS, sum, sums);
    if (threadIdx.x == 0) gate[block] = sum;
}

/* The same, and the largest of 2 × 2 behind it, in units of octets: see blending.cu. */
struct Octet {
    uint32_t words[4];
    __device__ __forceinline__ float at(int k) const { return __uint_as_float(k % 2 ? words[k / 2] & 0xFFFF0000u : words[k / 2] << 16); }
};
FN Octet octet_at(const real *x, size_t i) {
    const uint4 p = ((const uint4 *)x)[i];
    return {{p.x, p.y, p.z, p.w}};
}
FN void put(real *y, size_t i, const Octet &o) { ((uint4 *)y)[i] = {o.words[0], o.words[1], o.words[2], o.words[3]}; }
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
        Octet p[4], q[4], r[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            p[k] = octet_at(h, at[k]);
            if (heard) q[k] = octet_at(s, at[k]);
            if (heard && c.how == 1) r[k] = octet_at(from, at[k]);
        }
        const float opened = heard && c.how == 2 ? gate[i / each] : 0.0f;
        Eight most;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            most.v[e] = p[0].at(e);
            if (heard) most.v[e] = blended(c.how, most.v[e], q[0].at(e), c.how == 1 ? r[0].at(e) : opened, c.alpha);
#pragma unroll
            for (int k = 1; k < 4; ++k) {
                float v = p[k].at(e);
                if (heard) v = blended(c.how, v, q[k].at(e), c.how == 1 ? r[k].at(e) : opened, c.alpha);
                most.v[e] = v > most.v[e] || v != v ? v : most.v[e];
            }
        }
        put(y, i, most);
    }
}
template <int HOW> FN float graft_pool_row(const Args &a, uint32_t group, uint32_t rows, uint32_t row, const Chosen &c) {
    const uint32_t each = a.n[3] * a.n[4] * a.n[5];
    const int heard = HOW >= 0 && c.alpha != 0.0f;
    const real *h = RX(0), *s = RX(4 + c.seed), *from = RX(1), *dy = RDY(0);
    real *dh = RDX(0), *dx = RDX(1), *ds = RDX(4 + c.seed);
    const float opened = HOW == 2 && row < rows ? X(2)[row] : 0.0f;
    float sum = 0.0f;
    for (uint32_t i = row * each + threadIdx.x % a.n[6], end = row < rows ? (row + 1) * each : 0; i < end; i += a.n[6]) {
        uint32_t at[4];
        four_of(a, i, at);
        Octet p[4], q[4] = {}, r[4] = {};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            p[k] = octet_at(h, at[k]);
            if (HOW > 0 || heard) q[k] = octet_at(s, at[k]);
            if (HOW == 1) r[k] = octet_at(from, at[k]);
        }
        const Octet d = octet_at(dy, i);
        Octet host[4], seed[4], third[4];
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            float hosts[4][2], seeds[4][2], thirds[4][2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int e = 2 * word + half;
                float v[4];
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    v[k] = heard ? blended(HOW, p[k].at(e), q[k].at(e), HOW == 1 ? r[k].at(e) : opened, c.alpha) : p[k].at(e);
                const int which = largest(v);
                float hw = p[0].at(e), sw = q[0].at(e), rw = r[0].at(e);
#pragma unroll
                for (int k = 1; k < 4; ++k)
                    if (which == k) hw = p[k].at(e), sw = q[k].at(e), rw = r[k].at(e);
                const Parts parts = HOW < 0 ? Parts{d.at(e), 0.0f, 0.0f} : unblended(HOW, hw, sw, HOW == 1 ? rw : opened, c.alpha, d.at(e));
                const float kept = heard ? parts.host : d.at(e);
                sum += parts.third;
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    hosts[k][half] = which == k ? kept : 0.0f;
                    seeds[k][half] = which == k ? parts.seed : 0.0f;
                    thirds[k][half] = which == k ? parts.third : 0.0f;
                }
            }
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                host[k].words[word] = packed(hosts[k][0], hosts[k][1]);
                if (HOW >= 0) seed[k].words[word] = packed(seeds[k][0], seeds[k][1]);
                if (HOW == 1) third[k].words[word] = packed(thirds[k][0], thirds[k][1]);
            }
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (dh) put(dh, at[k], host[k]);
            if (HOW >= 0 && ds) put(ds, at[k], seed[k]);
            if (HOW == 1 && dx) put(dx, at[k], third[k]);
            if ((HOW == 0 || HOW == 2) && dx) put(dx, at[k], Octet{});
        }
    }
    return sum;
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) graft_pool_backward(const __grid_constant__ Args a) {
    BEGIN;
    __shared__ float sums[THREADS / 32];
    const uint32_t row = block * (THREADS / a.n[6]) + threadIdx.x / a.n[6];
    const Chosen c = chosen(a, X(3));
    if (c.how < 0) graft_pool_row<-1>(a, group, rows, row, c);
    if (c.how == 0) graft_pool_row<0>(a, group, rows, row, c);
    if (c.how == 1) graft_pool_row<1>(a, group, rows, row, c);
    if (c.how != 2) return;
    const float sum = over_row(a.n[6], graft_pool_row<2>(a, group, rows, row, c), sums);
    float *gate = DX(2);
    if (gate && threadIdx.x % a.n[6] == 0 && row < rows) gate[row] = sum;
}

/* The largest of 2 × 2 that lie side by side, where h and w are even: a thread per window. */
struct Window {
    size_t first, down; /* octets: the upper left, and from line to line */
};
FN Window window_of(const Args &a, uint32_t i, uint32_t octets) {
    const uint32_t wo = a.n[4], c = i & (octets - 1), place = i / octets, line = place / wo, ox = place - line * wo;
    return {((size_t)line * 2 * a.n[1] + 2 * ox) * octets + c, (size_t)a.n[1] * octets};
}
KERNEL(windows_forward) {
    BEGIN;
    const uint32_t octets = a.n[2] / 8;
    const real *x = RX(0);
    real *y = RY(0);
    EACH(i, rows * a.n[3] * a.n[4] * octets) {
        const Window w = window_of(a, i, octets);
        Eight most = eight(x, w.first);
        const Eight others[3] = {eight(x, w.first + octets), eight(x, w.first + w.down), eight(x, w.first + w.down + octets)};
#pragma unroll
        for (int o = 0; o < 3; ++o)
#pragma unroll
            for (int k = 0; k < 8; ++k) most.v[k] = others[o].v[k] > most.v[k] || others[o].v[k] != others[o].v[k] ? others[o].v[k] : most.v[k];
        put(y, i, most);
    }
}
KERNEL(windows_backward) {
    BEGIN;
    const uint32_t octets = a.n[2] / 8;
    const real *x = RX(0), *y = RY(0), *dy = RDY(0);
    real *dx = RDX(0);
    EACH(i, rows * a.n[3] * a.n[4] * octets) {
        const Window w = window_of(a, i, octets);
        const size_t at[4] = {w.first, w.first + octets, w.first + w.down, w.first + w.down + octets};
        const Eight most = eight(y, i), d = eight(dy, i);
        const Eight seen[4] = {eight(x, at[0]), eight(x, at[1]), eight(x, at[2]), eight(x, at[3])};
        int open = 255;
#pragma unroll
        for (int o = 0; o < 4; ++o) {
            Eight e;
#pragma unroll
            for (int k = 0; k < 8; ++k) {
                const int mine = open >> k & 1 && seen[o].v[k] == most.v[k];
                e.v[k] = mine ? d.v[k] : 0.0f;
                open &= ~(mine << k);
            }
            put(dx, at[o], e);
        }
    }
}

/* WIDE threads share a row, and a block has as many rows as that allows. Sums over those of a row whose place among `octets` is the same,
   of N numbers each; each thread gets those of its own. octets is a power of two up to 32, or up to THREADS where WIDE is that; room
   has THREADS · N numbers. The order is fixed. */
template <int N, int WIDE> FN void over_octets(float *x, uint32_t octets, float *room) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp / (WIDE / 32) * (WIDE / 32), end = first + WIDE / 32;
    for (uint32_t other = 16; other >= octets && other > 0; other /= 2)
#pragma unroll
        for (int i = 0; i < N; ++i) x[i] += __shfl_xor_sync(FULL, x[i], other);
    const uint32_t wide = min(octets, 32u), groups = max(octets / 32, 1u);
    __syncthreads();
    if (lane < wide)
#pragma unroll
        for (int i = 0; i < N; ++i) room[(warp * 32 + lane) * N + i] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = 0.0f;
    for (uint32_t other = first + warp % groups; other < end; other += groups)
#pragma unroll
        for (int i = 0; i < N; ++i) x[i] += room[(other * 32 + lane % wide) * N + i];
}

/* The mean over n0 places of n1 channels: a block per row. */
KERNEL(mean_forward) {
    BEGIN;
    __shared__ float room[THREADS * 8];
    if (block >= rows) return;
    const uint32_t octets = a.n[1] / 8, all = a.n[0] * octets;
    const real *x = RX(0) + (size_t)block * all * 8;
    Eight sum = {};
    for (uint32_t i = threadIdx.x; i < all; i += THREADS) {
        const Eight e = eight(x, i);
#pragma unroll
        for (int k = 0; k < 8; ++k) sum.v[k] += e.v[k];
    }
    over_octets<8, THREADS>(sum.v, octets, room);
    if (threadIdx.x >= octets) return;
    float *y = Y(0) + (size_t)block * a.n[1] + threadIdx.x * 8;
#pragma unroll
    for (int k = 0; k < 8; ++k) y[k] = sum.v[k] / (float)a.n[0];
}
KERNEL(mean_backward) {
    BEGIN;
    if (block >= rows) return;
    const uint32_t octets = a.n[1] / 8, all = a.n[0] * octets;
    const float *dy = DY(0) + (size_t)block * a.n[1] + threadIdx.x % octets * 8, scale = 1.0f / (float)a.n[0];
    uint4 *dx = (uint4 *)(RDX(0) + (size_t)block * all * 8);
    Eight e;
#pragma unroll
    for (int k = 0; k < 8; ++k) e.v[k] = dy[k] * scale;
    const uint4 same = packed(e);
    for (uint32_t i = threadIdx.x; i < all; i += THREADS) {
        if (!(a.add & 1)) {
            dx[i] = same;
            continue;
        }
        Eight before = spread(dx[i]);
#pragma unroll
        for (int k = 0; k < 8; ++k) before.v[k] += e.v[k];
        dx[i] = packed(before);
    }
}

/* Group norm of groups of four channels, WIDE threads a row: n0 places, n1 channels, n3 whether there are a weight and a bias, n4
   whether the result is cut off at 0; f0 is added to variances. Up to KEPT octets of a thread stay in registers. */
struct Scale {
    float by[8], plus[8]; /* z = x·by + plus */
};
FN Scale scale_of(const Args &a, uint32_t group, uint32_t c, const float *mean, const float *rstd) {
    Scale s;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        s.by[k] = rstd[k / 4] * (a.n[3] ? X(1)[c + k] : 1.0f);
        s.plus[k] = fmaf(-mean[k / 4], s.by[k], a.n[3] ? X(2)[c + k] : 0.0f);
    }
    return s;
}
#define LINE_OF_NORM                                                                                                                \
    const uint32_t t = threadIdx.x % WIDE, line = block * (THREADS / WIDE) + threadIdx.x / WIDE, channels = a.n[1], octets = channels / 8; \
    const uint32_t row = min(line, rows - 1), all = line < rows ? a.n[0] * octets : 0, c = t % octets * 8;                          \
    const size_t at = (size_t)row * a.n[0] * octets
template <int KEPT, int WIDE> FN void norm_forward(const Args &a) {
    BEGIN;
    __shared__ float room[THREADS * 4];
    if (block * (THREADS / WIDE) >= rows) return;
    LINE_OF_NORM;
    const uint4 *x = (const uint4 *)RX(0) + at;
    uint4 kept[KEPT];
#pragma unroll
    for (int v = 0; v < KEPT; ++v) {
        const uint32_t i = t + v * WIDE;
        kept[v] = i < all ? x[i] : uint4{0, 0, 0, 0};
    }
    const float shift[2] = {RX(0)[at * 8 + c], RX(0)[at * 8 + c + 4]};
    float sums[4] = {};
#pragma unroll
    for (int v = 0; v < KEPT; ++v) {
        if (t + v * WIDE >= all) break;
        const Eight e = spread(kept[v]);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const float d = e.v[k] - shift[k / 4];
            sums[k / 4] += d;
            sums[2 + k / 4] = fmaf(d, d, sums[2 + k / 4]);
        }
    }
    over_octets<4, WIDE>(sums, octets, room);
    float mean[2], rstd[2];
#pragma unroll
    for (int of = 0; of < 2; ++of) {
        const float scale = 1.0f / (float)(a.n[0] * 4), offset = sums[of] * scale;
        mean[of] = shift[of] + offset;
        rstd[of] = 1.0f / sqrtf(fmaxf(sums[2 + of] * scale - offset * offset, 0.0f) + a.f[0]);
        if (t < octets && all && Y(1)) {
            Y(1)[(size_t)row * octets * 2 + c / 4 + of] = mean[of];
            Y(2)[(size_t)row * octets * 2 + c / 4 + of] = rstd[of];
        }
    }
    const Scale s = scale_of(a, group, c, mean, rstd);
    uint4 *y = (uint4 *)RY(0) + at;
#pragma unroll
    for (int v = 0; v < KEPT; ++v) {
        const uint32_t i = t + v * WIDE;
        if (i >= all) break;
        Eight e = spread(kept[v]);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const float z = fmaf(e.v[k], s.by[k], s.plus[k]);
            e.v[k] = a.n[4] ? fmaxf(z, 0.0f) : z;
        }
        y[i] = packed(e);
    }
}
/* dz of eight numbers, by x and dy. */
FN Eight through(const Args &a, const Scale &s, const Eight &x, Eight d) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        if (a.n[4] && fmaf(x.v[k], s.by[k], s.plus[k]) <= 0.0f) d.v[k] = 0.0f;
    }
    return d;
}
/* Sums over threads whose place among `octets` is the same, of sixteen numbers each, to total[octet][number]. Each step of a warp's sum
   halves what a thread has: where one bit of lanes differs, one takes the upper half of the numbers and one the lower. */
template <int WIDE> FN void sixteen_over_octets(float *x, uint32_t octets, float *room, float *total) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, begin = warp / (WIDE / 32) * (WIDE / 32), wide = min(octets, 32u), groups = max(octets / 32, 1u);
    uint32_t first = 0, left = 16;
#pragma unroll
    for (int step = 0; step < 5; ++step) {
        const uint32_t other = 16 >> step;
        if (other < octets) break;
        const int upper = (lane & other) != 0;
        if (step == 4) {
            x[0] += __shfl_xor_sync(FULL, x[0], other);
        } else {
            const int half = 8 >> step;
#pragma unroll
            for (int i = 0; i < half; ++i) {
                const float sent = upper ? x[i] : x[i + half], kept = upper ? x[i + half] : x[i];
                x[i] = kept + __shfl_xor_sync(FULL, sent, other);
            }
            first += upper ? half : 0, left = half;
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; ++i)
        if (i < left) room[(warp * 32 + lane % wide) * 16 + first + i] = x[i];
    __syncthreads();
    for (uint32_t i = threadIdx.x % WIDE; i < octets * 16; i += WIDE) {
        const uint32_t octet = i / 16;
        float sum = 0.0f;
        for (uint32_t other = begin + octet / 32; other < begin + WIDE / 32; other += groups) sum += room[(other * 32 + octet % wide) * 16 + i % 16];
        total[i] = sum;
    }
    __syncthreads();
}
/* As group_norm_backward; what a thread can't keep is read again, BATCH octets at a time. */
template <int KEPT, int WIDE, int BATCH> FN void norm_backward(const Args &a) {
    BEGIN;
    __shared__ float room[THREADS * 16], totals[THREADS / WIDE][512];
    if (block * (THREADS / WIDE) >= rows) return;
    LINE_OF_NORM;
    float *total = totals[threadIdx.x / WIDE];
    const uint4 *x = (const uint4 *)RX(0) + at, *dy = (const uint4 *)RDY(0) + at;
    const float *means = Y(1) + (size_t)row * octets * 2 + c / 4, *rstds = Y(2) + (size_t)row * octets * 2 + c / 4;
    const float mean[2] = {means[0], means[1]}, rstd[2] = {rstds[0], rstds[1]}, back[2] = {-mean[0] * rstd[0], -mean[1] * rstd[1]};
    uint4 kept_x[KEPT], kept_d[KEPT];
#pragma unroll
    for (int v = 0; v < KEPT; ++v) {
        const uint32_t i = t + v * WIDE;
        kept_x[v] = i < all ? x[i] : uint4{0, 0, 0, 0};
        kept_d[v] = i < all ? dy[i] : uint4{0, 0, 0, 0};
    }
    const Scale s = scale_of(a, group, c, mean, rstd);
    float sums[16] = {};
    const auto count = [&](const uint4 &px, const uint4 &pd) {
        const Eight e = spread(px), dz = through(a, s, e, spread(pd));
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            sums[k] += dz.v[k];
            sums[8 + k] = fmaf(dz.v[k], fmaf(e.v[k], rstd[k / 4], back[k / 4]), sums[8 + k]);
        }
    };
#pragma unroll
    for (int v = 0; v < KEPT; ++v) count(kept_x[v], kept_d[v]);
    uint4 px[BATCH], pd[BATCH];
    const auto again = [&](uint32_t i) {
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            const uint32_t j = min(i + b * WIDE, all - 1);
            px[b] = x[j], pd[b] = dy[j];
        }
    };
    for (uint32_t i = t + KEPT * WIDE; i < all; i += BATCH * WIDE) {
        again(i);
#pragma unroll
        for (int b = 0; b < BATCH; ++b)
            if (i + b * WIDE < all) count(px[b], pd[b]);
    }
    sixteen_over_octets<WIDE>(sums, octets, room, total);
    if (a.n[3] && all) {
        float *to = SCRATCH + (size_t)row * 2 * channels;
        for (uint32_t i = t; i < octets * 16; i += WIDE) to[(i / 8 % 2 ? 0 : channels) + i / 16 * 8 + i % 8] = total[i];
    }
    if (!RDX(0)) return;
    const float4 *mine = (const float4 *)&total[c * 2];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        const float4 v = mine[q];
        sums[4 * q] = v.x, sums[4 * q + 1] = v.y, sums[4 * q + 2] = v.z, sums[4 * q + 3] = v.w;
    }
    /* dx = rstd·(w·dz − mean(w·dz) − x̂·mean(w·dz·x̂)), and s.by is rstd·w. */
    float first[2] = {}, second[2] = {};
    const float share = 1.0f / (float)(a.n[0] * 4);
#pragma unroll
    for (int k = 0; k < 8; ++k) first[k / 4] = fmaf(s.by[k], sums[k], first[k / 4]), second[k / 4] = fmaf(s.by[k], sums[8 + k], second[k / 4]);
#pragma unroll
    for (int of = 0; of < 2; ++of) first[of] *= share, second[of] *= share;
    uint4 *dx = (uint4 *)RDX(0) + at;
    const auto end = [&](uint32_t i, const uint4 &px, const uint4 &pd) {
        const Eight e = spread(px);
        Eight dz = through(a, s, e, spread(pd));
#pragma unroll
        for (int k = 0; k < 8; ++k)
            dz.v[k] = fmaf(s.by[k], dz.v[k], -fmaf(fmaf(e.v[k], rstd[k / 4], back[k / 4]), second[k / 4], first[k / 4]));
        if (a.add & 1) {
            const Eight before = spread(dx[i]);
#pragma unroll
            for (int k = 0; k < 8; ++k) dz.v[k] += before.v[k];
        }
        dx[i] = packed(dz);
    };
#pragma unroll
    for (int v = 0; v < KEPT; ++v)
        if (t + v * WIDE < all) end(t + v * WIDE, kept_x[v], kept_d[v]);
    for (uint32_t i = t + KEPT * WIDE; i < all; i += BATCH * WIDE) {
        again(i);
#pragma unroll
        for (int b = 0; b < BATCH; ++b)
            if (i + b * WIDE < all) end(i + b * WIDE, px[b], pd[b]);
    }
}
#define NORM(kept, wide) KERNEL(norm_forward_##kept##_##wide) { norm_forward<kept, wide>(a); }
NORM(1, 64)
NORM(2, 64)
NORM(4, 64)
NORM(4, 128)
NORM(4, 256)
NORM(8, 256)
NORM(16, 256)
/* Octets that a thread keeps, those that it brings at once, and blocks on a multiprocessor: as many as registers allow. */
#define NORM_KEPT 2
#define NORM_BATCH 2
#define NORM_BLOCKS 3
#define NORM_BACK(wide)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, NORM_BLOCKS) norm_backward_##wide(const __grid_constant__ Args a) { \
        norm_backward<NORM_KEPT, wide, NORM_BATCH>(a);                                                                        \
    }
NORM_BACK(64)
NORM_BACK(128)
NORM_BACK(256)
