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
