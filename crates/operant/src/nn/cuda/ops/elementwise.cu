/* Ops that go number by number. n[0] says which of a family, n[1] how many numbers a row has. */

KERNEL(activation_forward) {
    BEGIN;
    const float *x = X(0);
    float *y = Y(0);
    EACH(i, rows * a.n[1]) y[i] = activated(a.n[0], x[i]);
}
KERNEL(activation_backward) {
    BEGIN;
    const float *x = X(0), *y = Y(0), *dy = DY(0);
    float *dx = DX(0);
    EACH(i, rows * a.n[1]) dx[i] = dy[i] * slope(a.n[0], x ? x[i] : 0.0f, y ? y[i] : 0.0f);
}

/* 0 a + b, 1 a − b, 2 a·b, 3 max(a + b, 0). */
KERNEL(arithmetic_forward) {
    BEGIN;
    const float *x0 = X(0), *x1 = X(1);
    float *y = Y(0);
    EACH(i, rows * a.n[1]) {
        const float p = x0[i], q = x1[i];
        y[i] = a.n[0] == 0 ? p + q : a.n[0] == 1 ? p - q : a.n[0] == 2 ? p * q : fmaxf(p + q, 0.0f);
    }
}
KERNEL(arithmetic_backward) {
    BEGIN;
    const float *x[2] = {X(0), X(1)}, *y = Y(0), *dy = DY(0);
    float *dx[2] = {DX(0), DX(1)};
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
    const float *x = X(0);
    float *y = Y(0);
    EACH(i, rows * a.n[1]) y[i] = x[i] * a.f[0];
}
KERNEL(scale_backward) {
    BEGIN;
    const float *dy = DY(0);
    float *dx = DX(0);
    EACH(i, rows * a.n[1]) dx[i] = dy[i] * a.f[0];
}

/* 0 exp, 1 log, 2 square, 3 abs, 4 sqrt, 5 −x, 6 ln(1 + eˣ). */
KERNEL(function_forward) {
    BEGIN;
    const float *x = X(0);
    float *y = Y(0);
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
    const float *x = X(0), *y = Y(0), *dy = DY(0);
    float *dx = DX(0);
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
    const float *x = X(a.n[3]);
    float *y = Y(0);
    EACH(i, rows * a.n[0] * a.n[2]) y[(size_t)(i / a.n[2]) * a.n[1] + a.n[4] + i % a.n[2]] = x[i];
}
KERNEL(concat_backward) {
    BEGIN;
    const float *dy = DY(0);
    float *dx = DX(a.n[3]);
    if (!dx) return;
    EACH(i, rows * a.n[0] * a.n[2]) {
        const float d = dy[(size_t)(i / a.n[2]) * a.n[1] + a.n[4] + i % a.n[2]];
        dx[i] = a.add >> a.n[3] & 1 ? dx[i] + d : d;
    }
}
/* Runs of n[1] numbers in the input, of which the output has n[2] from n[4] on. */
KERNEL(slice_forward) {
    BEGIN;
    const float *x = X(0);
    float *y = Y(0);
    EACH(i, rows * a.n[0] * a.n[2]) y[i] = x[(size_t)(i / a.n[2]) * a.n[1] + a.n[4] + i % a.n[2]];
}
KERNEL(slice_backward) {
    BEGIN;
    const float *dy = DY(0);
    float *dx = DX(0);
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
    const float *x = X(0), *v = X(1);
    float *y = Y(0);
    EACH(i, rows * a.n[1]) {
        const uint32_t c = i % a.n[2];
        const float w = v[a.n[3] ? c : i / a.n[1] * a.n[2] + c];
        y[i] = a.n[0] == 0 ? x[i] + w : x[i] * w;
    }
}
KERNEL(vector_backward) {
    BEGIN;
    const float *v = X(1), *dy = DY(0);
    float *dx = DX(0);
    EACH(i, rows * a.n[1]) {
        const float d = a.n[0] == 0 ? dy[i] : dy[i] * v[i / a.n[1] * a.n[2] + i % a.n[2]];
        dx[i] = a.add & 1 ? dx[i] + d : d;
    }
}
KERNEL(expand_forward) {
    BEGIN;
    const float *x = X(0);
    float *y = Y(0);
    EACH(i, rows * a.n[1]) y[i] = x[i % a.n[1]];
}

/* A seed blended into its host: see blend.rs. n[0] is 0 for sums, 1 for products, 2 for a gate; α is the last input. */
FN float blended(int how, float h, float s, float third, float alpha) {
    if (how == 1) return h * (tanhf(s - third) * alpha + 1.0f);
    return fmaf(s - h, how == 2 ? alpha * third : alpha, h);
}
struct Parts {
    float host, seed, third;
};
/* Gradients, of which the gate's is one number's share. */
FN Parts unblended(int how, float h, float s, float third, float alpha, float dy) {
    const float learned = alpha == 0.0f ? 1.0f : alpha;
    if (how == 0) return {dy * (1.0f - alpha), dy * learned, 0.0f};
    if (how == 1) {
        const float t = tanhf(s - third), d = dy * h * (1.0f - t * t) * learned;
        return {dy * (t * alpha + 1.0f), d, -d};
    }
    return {dy * (1.0f - alpha * third), dy * learned * third, dy * (s - h) * learned};
}
KERNEL(blend_forward) {
    BEGIN;
    const int how = a.n[0];
    const float *h = X(0), *s = X(1), *third = how ? X(2) : nullptr, alpha = X(how ? 3 : 2)[0];
    float *y = Y(0);
    EACH(i, rows * a.n[1]) {
        const float t = how == 0 ? 0.0f : how == 1 ? third[i] : third[i / a.n[1]];
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
    const float *h = how ? X(0) + first : nullptr, *s = how ? X(1) + first : nullptr, *dy = DY(0) + first;
    const float *third = how == 0 ? nullptr : how == 1 ? X(2) + first : X(2) + block, alpha = X(how ? 3 : 2)[0];
    float *dh = DX(0), *ds = DX(1), *dt = how ? DX(2) : nullptr, sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.n[1]; i += THREADS) {
        const float t = how == 0 ? 0.0f : how == 1 ? third[i] : third[0];
        const Parts d = unblended(how, how ? h[i] : 0.0f, how ? s[i] : 0.0f, t, alpha, dy[i]);
        if (dh) dh[first + i] = alpha == 0.0f ? dy[i] : d.host;
        if (ds) ds[first + i] = d.seed;
        if (dt && how == 1) dt[first + i] = d.third;
        sum += d.third;
    }
    if (how != 2 || !dt) return;
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int warp = 1; warp < THREADS / 32; ++warp) sum += sums[warp];
    dt[block] = sum;
}

/* A slot: see graft.rs. n0 numbers a row, n1 seeds, n2 whether gradients of other seeds than the chosen one are left alone. */
struct Chosen {
    float alpha;
    int how, seed; /* how is −1 for none */
};
FN Chosen chosen(const Args &a, const float *control) {
    const int code = (int)(control[1] * 64.0f);
    return {control[0], code % 4 - 1, code / 4 % a.n[1]};
}
KERNEL(graft_forward) {
    BEGIN;
    const Chosen c = chosen(a, X(3));
    const float *h = X(0);
    float *y = Y(0);
    if (c.how < 0 || c.alpha == 0.0f) {
        EACH(i, rows * a.n[0]) y[i] = h[i];
        return;
    }
    const float *s = X(4 + c.seed), *third = c.how == 0 ? nullptr : X(c.how);
    EACH(i, rows * a.n[0]) y[i] = blended(c.how, h[i], s[i], c.how == 0 ? 0.0f : c.how == 1 ? third[i] : third[i / a.n[0]], c.alpha);
}
KERNEL(graft_backward) {
    BEGIN;
    __shared__ float sums[THREADS / 32];
    if (block >= rows) return;
    const Chosen c = chosen(a, X(3));
    const size_t first = (size_t)block * a.n[0];
    const float *h = X(0) + first, *s = X(4 + c.seed) + first, *dy = DY(0) + first;
    const float *third = c.how <= 0 ? nullptr : c.how == 1 ? X(1) + first : X(2) + block;
    float *dh = DX(0), *dx = DX(1), *gate = DX(2), *ds = DX(4 + c.seed), sum = 0.0f;
    const int none = c.how < 0;
    for (uint32_t i = threadIdx.x; i < a.n[0]; i += THREADS) {
        const float t = c.how <= 0 ? 0.0f : c.how == 1 ? third[i] : third[0];
        const Parts d = none ? Parts{dy[i], 0.0f, 0.0f} : unblended(c.how, c.how ? h[i] : 0.0f, c.how ? s[i] : 0.0f, t, c.alpha, dy[i]);
        if (dh) dh[first + i] = none || c.alpha == 0.0f ? dy[i] : d.host;
        if (none && a.n[2]) continue;
        if (dx) dx[first + i] = c.how == 1 ? d.third : 0.0f;
        if (ds) ds[first + i] = d.seed;
        sum += d.third;
    }
    if (!a.n[2])
        for (int k = 0; k < a.n[1]; ++k) {
            float *other = k == c.seed ? nullptr : DX(4 + k);
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

/* Goes on forward; back where X(1) is not 0. */
KERNEL(valve_forward) {
    BEGIN;
    const float *x = X(0);
    float *y = Y(0);
    EACH(i, rows * a.n[1]) y[i] = x[i];
}
KERNEL(valve_backward) {
    BEGIN;
    const float open = X(1)[0], *dy = DY(0);
    float *dx = DX(0);
    if (a.add & 1 && open == 0.0f) return;
    EACH(i, rows * a.n[1]) dx[i] = a.add & 1 ? dx[i] + dy[i] * open : dy[i] * open;
}
