/* What kernels are printed with that go number by number through the ops of a plan, several numbers at a time. Products and sums are
   rounded one by one: what a kernel does beside an op changes no bit of it. After vectors.cu; `real` is bf16 here. */
FN float plus(float a, float b) { return __fadd_rn(a, b); }
FN float minus(float a, float b) { return __fsub_rn(a, b); }
FN float times(float a, float b) { return __fmul_rn(a, b); }
/* As if it had been stored in bf16. */
FN float rounded(float x) {
    real r;
    r = x;
    return r;
}

template <int W> struct Some {
    float v[W];
};
template <int W> FN Some<W> take(const float *p, uint32_t i) {
    Some<W> s;
    if constexpr (W == 4) {
        const float4 f = ((const float4 *)p)[i];
        s = {f.x, f.y, f.z, f.w};
    } else
#pragma unroll
        for (int k = 0; k < W; ++k) s.v[k] = p[W * i + k];
    return s;
}
template <int W> FN Some<W> take(const real *p, uint32_t i) {
    Some<W> s;
    if constexpr (W == 8) {
        const Eight e = eight(p, i);
#pragma unroll
        for (int k = 0; k < W; ++k) s.v[k] = e.v[k];
    } else
#pragma unroll
        for (int k = 0; k < W; ++k) s.v[k] = p[W * i + k];
    return s;
}
template <int W> FN void give(float *p, uint32_t i, const Some<W> &s) {
    if constexpr (W == 4) ((float4 *)p)[i] = {s.v[0], s.v[1], s.v[2], s.v[3]};
    else
#pragma unroll
        for (int k = 0; k < W; ++k) p[W * i + k] = s.v[k];
}
template <int W> FN void give(real *p, uint32_t i, const Some<W> &s) {
    if constexpr (W == 8) {
        Eight e;
#pragma unroll
        for (int k = 0; k < W; ++k) e.v[k] = s.v[k];
        put(p, i, e);
    } else
#pragma unroll
        for (int k = 0; k < W; ++k) p[W * i + k] = s.v[k];
}

FN float logistic(float x) { return 1.0f / plus(1.0f, expf(-x)); }
FN float relu(float x) { return x > 0.0f ? x : (x == x ? 0.0f : x); }
FN float gelu(float x) { return times(times(0.5f, x), plus(1.0f, erff(times(x, 0.70710678f)))); }
FN float gelu_slope(float x) {
    const float density = times(0.39894228f, expf(times(times(-0.5f, x), x)));
    return fmaf(x, density, times(0.5f, plus(1.0f, erff(times(x, 0.70710678f)))));
}
/* As exact as bf16 tells. */
FN float narrow_gelu(float x) { return times(x, below(x).share); }
FN float narrow_gelu_slope(float x) {
    const Below b = below(x);
    return fmaf(x, b.density, b.share);
}
FN float silu(float x) { return times(x, logistic(x)); }
FN float silu_slope(float x) {
    const float s = logistic(x);
    return times(s, fmaf(x, minus(1.0f, s), 1.0f));
}
FN float softplus(float x) { return plus(fmaxf(x, 0.0f), log1pf(expf(-fabsf(x)))); }
FN float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }
/* Numbers that are not read one for one: W neighbours, and one W times. */
template <int W, typename T> FN Some<W> from(const T *p, uint32_t first) {
    Some<W> s;
#pragma unroll
    for (int k = 0; k < W; ++k) s.v[k] = p[first + k];
    return s;
}
template <int W, typename T> FN Some<W> same(const T *p, uint32_t at) {
    const float x = p[at];
    Some<W> s;
#pragma unroll
    for (int k = 0; k < W; ++k) s.v[k] = x;
    return s;
}

/* Random numbers of (seed, run, node, number), as on the CPU: dropout.rs. `draws` holds the seed and the run. */
FN float drawn(const uint32_t *draws, uint32_t node, uint32_t number, int normal) {
    uint32_t c[4] = {number / 64 * 16 + number % 16, draws[2], node, 0x64726f70u}, k0 = draws[0], k1 = draws[1];
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint32_t high0 = __umulhi(c[0], 0xD2511F53u), low0 = c[0] * 0xD2511F53u, high1 = __umulhi(c[2], 0xCD9E8D57u), low1 = c[2] * 0xCD9E8D57u;
        c[0] = high1 ^ c[1] ^ k0, c[1] = low1, c[2] = high0 ^ c[3] ^ k1, c[3] = low0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    const uint32_t word = number / 16 % 4, first = word < 2 ? c[0] : c[2], second = word < 2 ? c[1] : c[3];
    const float u = times((float)(first >> 8), 1.0f / 16777216.0f), v = times((float)(second >> 8), 1.0f / 16777216.0f);
    if (!normal) return word % 2 ? v : u;
    const float radius = sqrtf(times(-2.0f, logf(minus(1.0f, u)))), angle = times(v, 6.2831853f);
    return times(radius, word % 2 ? sinf(angle) : cosf(angle));
}
