/* Eight neighbours of a tensor in bf16 at once: 16 bytes. */
struct Eight {
    float v[8];
};
FN Eight spread(const uint4 &p) {
    const uint32_t w[4] = {p.x, p.y, p.z, p.w};
    Eight e;
#pragma unroll
    for (int i = 0; i < 4; ++i) e.v[2 * i] = __uint_as_float(w[i] << 16), e.v[2 * i + 1] = __uint_as_float(w[i] & 0xFFFF0000u);
    return e;
}
FN uint32_t packed(float low, float high) {
    uint32_t w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
}
FN uint4 packed(const Eight &e) { return {packed(e.v[0], e.v[1]), packed(e.v[2], e.v[3]), packed(e.v[4], e.v[5]), packed(e.v[6], e.v[7])}; }
FN Eight eight(const real *x, size_t i) { return spread(((const uint4 *)x)[i]); }
FN void put(real *y, size_t i, const Eight &e) { ((uint4 *)y)[i] = packed(e); }

/* The standard normal's density at x, and how much of it lies below, within 2e-7 (Abramowitz and Stegun, 7.1.26): far more than bf16 tells. */
struct Below {
    float share, density;
};
FN Below below(float x) {
    const float t = __fdividef(1.0f, fmaf(fabsf(x), 0.3275911f * 0.70710678f, 1.0f)), e = __expf(-0.5f * x * x);
    const float above = 0.5f * e * t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f), 0.254829592f);
    return {x > 0.0f ? 1.0f - above : above, 0.39894228f * e};
}

/* Activations other than the most common ones are called: their text would be there for each of many numbers. */
static __device__ __noinline__ float activated_rarely(int act, float x) { return act == 4 ? x * below(x).share : activated(act, x); }
static __device__ __noinline__ float slope_rarely(int act, float x, float y) { return slope(act, x, y); }
FN float acted(int act, float x) { return act == 0 ? x : act == 1 ? fmaxf(x, 0.0f) : activated_rarely(act, x); }
FN float sloped(int act, float x, float y) { return act == 0 ? 1.0f : act == 1 ? (y > 0.0f ? 1.0f : 0.0f) : slope_rarely(act, x, y); }
