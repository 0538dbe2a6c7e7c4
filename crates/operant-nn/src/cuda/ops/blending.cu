/* How a seed is blended into its host: see blend.rs and graft.rs. */

/* how is 0 for sums, 1 for products, 2 for a gate. */
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

/* A slot: see graft.rs. n0 numbers a row, n1 seeds, n2 whether gradients of other seeds than the chosen one are left alone. */
struct Chosen {
    float alpha;
    int how, seed; /* how is −1 for none */
};
FN Chosen chosen(const Args &a, const float *control) {
    const int code = (int)(control[1] * 64.0f);
    return {control[0], code % 4 - 1, code / 4 % a.n[1]};
}

/* Where a slot is pooled: n3 lines and n4 columns of the result, n5 units of channels, n0 units of a row before the pool, n6 threads of a
   row on the way back. The four units of which one is unit i of the result. */
FN void four_of(const Args &a, uint32_t i, uint32_t *at) {
    const uint32_t units = a.n[5], columns = a.n[4], place = i / units, line = place / columns;
    at[0] = (line * columns * 4 + (place - line * columns) * 2) * units + (i - place * units);
    at[1] = at[0] + units, at[2] = at[0] + 2 * columns * units, at[3] = at[2] + units;
}
/* The first of the largest. */
FN int largest(const float *v) {
    int which = 0;
    float most = v[0];
#pragma unroll
    for (int k = 1; k < 4; ++k)
        if (v[k] > most || v[k] != v[k]) which = k, most = v[k];
    return which;
}
/* The sum over a row's threads, for the first of them. */
FN float over_row(uint32_t threads, float sum, float *sums) {
    const uint32_t warps = threads / 32, warp = threadIdx.x / 32;
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x % threads == 0)
        for (uint32_t other = 1; other < warps; ++other) sum += sums[warp + other];
    return sum;
}
