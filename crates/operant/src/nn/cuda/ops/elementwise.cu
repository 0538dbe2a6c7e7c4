/* Ops that go number by number. n[0] says which of a family, n[1] how many numbers a row has. */

KERNEL(activation_forward) {
    BEGIN;
    const real *x = RX(0);
    real *y = RY(0);
    EACH(i, rows * a.n[1]) y[i] = activated(a.n[0], x[i]);
}
KERNEL(activation_backward) {
    BEGIN;
    const real *x = RX(0), *y = RY(0), *dy = RDY(0);
    real *dx = RDX(0);
    EACH(i, rows * a.n[1]) dx[i] = dy[i] * slope(a.n[0], x ? x[i] : 0.0f, y ? y[i] : 0.0f);
}

/* 0 a + b, 1 a − b, 2 a·b, 3 max(a + b, 0). */
KERNEL(arithmetic_forward) {
    BEGIN;
    const real *x0 = RX(0), *x1 = RX(1);
    real *y = RY(0);
    EACH(i, rows * a.n[1]) {
        const float p = x0[i], q = x1[i];
        y[i] = a.n[0] == 0 ? p + q : a.n[0] == 1 ? p - q : a.n[0] == 2 ? p * q : fmaxf(p + q, 0.0f);
    }
}
KERNEL(arithmetic_backward) {
    BEGIN;
    const real *x[2] = {RX(0), RX(1)}, *y = RY(0), *dy = RDY(0);
    real *dx[2] = {RDX(0), RDX(1)};
    EACH(i, rows * a.n[1]) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            if (!dx[k]) continue;
            float d = dy[i];
            if (a.n[0] == 1 && k == 1) d = -d;
            if (a.n[0] == 2) d *= x[1 - k][i];
            if (a.n[0] == 3 && y[i] <= 0.0f) d = 0.0f;
            dx[k][i] = a.add >> k & 1 ? dx[k][i] + d : d;
        }
    }
}

/* x·f[0]: both ways. */
KERNEL(scale_forward) {
    BEGIN;
    const real *x = RX(0);
    real *y = RY(0);
    EACH(i, rows * a.n[1]) y[i] = x[i] * a.f[0];
}
KERNEL(scale_backward) {
    BEGIN;
    const real *dy = RDY(0);
    real *dx = RDX(0);
    EACH(i, rows * a.n[1]) dx[i] = dy[i] * a.f[0];
}

/* 0 exp, 1 log, 2 square, 3 abs, 4 sqrt, 5 −x, 6 ln(1 + eˣ). */
KERNEL(function_forward) {
    BEGIN;
    const real *x = RX(0);
    real *y = RY(0);
    EACH(i, rows * a.n[1]) {
        const float v = x[i];
        switch (a.n[0]) {
        case 0: y[i] = expf(v); break;
        case 1: y[i] = logf(v); break;
        case 2: y[i] = v * v; break;
        case 3: y[i] = fabsf(v); break;
        case 4: y[i] = sqrtf(v); break;
        case 5: y[i] = -v; break;
        default: y[i] = fmaxf(v, 0.0f) + log1pf(expf(-fabsf(v)));
        }
    }
}
KERNEL(function_backward) {
    BEGIN;
    const real *x = RX(0), *y = RY(0), *dy = RDY(0);
    real *dx = RDX(0);
    EACH(i, rows * a.n[1]) {
        float d = -1.0f;
        switch (a.n[0]) {
        case 0: d = y[i]; break;
        case 1: d = 1.0f / x[i]; break;
        case 2: d = 2.0f * x[i]; break;
        case 3: d = x[i] > 0.0f ? 1.0f : x[i] < 0.0f ? -1.0f : 0.0f; break;
        case 4: d = 0.5f / y[i]; break;
        case 5: break;
        default: d = sigmoid(x[i]);
        }
        dx[i] = dy[i] * d;
    }
}

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

/* Rows of n[1] numbers with a vector of n[2] at every place: n[0] is 0 for a sum, 1 for a product; n[3] whether all rows share
   the vector. */
KERNEL(vector_forward) {
    BEGIN;
    const real *x = RX(0);
    const float *v = X(1);
    real *y = RY(0);
    EACH(i, rows * a.n[1]) {
        const uint32_t c = i % a.n[2];
        const float w = v[a.n[3] ? c : i / a.n[1] * a.n[2] + c];
        y[i] = a.n[0] == 0 ? x[i] + w : x[i] * w;
    }
}
KERNEL(vector_backward) {
    BEGIN;
    const float *v = X(1);
    const real *dy = RDY(0);
    real *dx = RDX(0);
    EACH(i, rows * a.n[1]) {
        const float d = a.n[0] == 0 ? dy[i] : dy[i] * v[i / a.n[1] * a.n[2] + i % a.n[2]];
        dx[i] = a.add & 1 ? dx[i] + d : d;
    }
}
KERNEL(expand_forward) {
    BEGIN;
    const float *x = X(0);
    real *y = RY(0);
    EACH(i, rows * a.n[1]) y[i] = x[i % a.n[1]];
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
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int warp = 1; warp < THREADS / 32; ++warp) sum += sums[warp];
    dt[block] = sum;
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
    sum = warp_sum(c.how == 2 ? sum : 0.0f);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int warp = 1; warp < THREADS / 32; ++warp) sum += sums[warp];
    gate[block] = sum;
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
    sum = over_row(a, c.how == 2 ? sum : 0.0f, sums);
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
