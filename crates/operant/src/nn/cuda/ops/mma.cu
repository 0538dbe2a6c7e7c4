/* Products of tiles on tensor cores: 128 places × 32 terms against some columns, TF32 operands with f32 sums. With EXACT operands are
   split into two parts, and three products give the accuracy of f32. */
#define TILE 128
#define TERMS 32
#define PITCH 40 /* of a tile's rows: no two lanes of a fragment meet in a bank */

FN uint32_t tf32(float x) {
    uint32_t y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}
FN void mma(float *c, const uint32_t *a, const uint32_t *b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* Numbers as tiles hold them: where each is one operand, already rounded. */
FN float rounded(float x) { return EXACT ? x : __uint_as_float(tf32(x)); }
/* A fragment as operands: its numbers, and what is left of them. */
template <int N> struct Operand {
    uint32_t high[N];
#if EXACT
    uint32_t low[N];
#endif
    __device__ __forceinline__ void set(int i, float x) {
#if EXACT
        high[i] = tf32(x);
        low[i] = tf32(x - __uint_as_float(high[i]));
#else
        high[i] = __float_as_uint(x);
#endif
    }
};
FN void multiply(float *c, const Operand<4> &a, const Operand<2> &b) {
#if EXACT
    mma(c, a.low, b.high);
    mma(c, a.high, b.low);
#endif
    mma(c, a.high, b.high);
}

/* The warp's 16 rows of a tile against its columns, of `steps`·8 terms. */
template <int COLUMNS> FN void tile_product(const float *left, const float *right, uint32_t steps, float (*sums)[4]) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    for (uint32_t step = 0; step < steps; ++step) {
        Operand<4> l;
        const float2 top = *(const float2 *)&left[(warp * 16 + g) * PITCH + step * 8 + 2 * t];
        const float2 bottom = *(const float2 *)&left[(warp * 16 + g + 8) * PITCH + step * 8 + 2 * t];
        l.set(0, top.x), l.set(2, top.y), l.set(1, bottom.x), l.set(3, bottom.y);
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; ++n) {
            Operand<2> r;
            const float2 pair = *(const float2 *)&right[(n * 8 + g) * PITCH + step * 8 + 2 * t];
            r.set(0, pair.x), r.set(1, pair.y);
            multiply(sums[n], l, r);
        }
    }
}
