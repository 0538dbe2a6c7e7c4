/* Products of tiles on tensor cores: 128 places × 32 terms against some columns, TF32 operands with f32 sums. With EXACT operands are
   split into two parts, and three products give the accuracy of f32. */
#define TILE 128
#define TERMS 32
#define PITCH 40 /* of a tile's rows: no two lanes of a fragment meet in a bank */
#define WIDTH_OF(columns) ((columns) == 8 ? 8 : (columns) + 8) /* the same for rows of so many columns */

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

/* ---- Gradients of weights: sums over places, of which a warp has 16 of a tile ---- */

/* 32 terms of a tile's places against its columns. */
template <int COLUMNS> FN void weight_product(const float *left, const float *right, float (*sums)[COLUMNS / 8][4]) {
    constexpr int WIDTH = WIDTH_OF(COLUMNS);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
        const uint32_t p = warp * 16 + step * 8;
        Operand<4> l[2];
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int i = 0; i < 4; ++i) l[half].set(i, left[(p + t + i / 2 * 4) * PITCH + half * 16 + g + i % 2 * 8]);
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; ++n) {
            Operand<2> r;
            r.set(0, right[(p + t) * WIDTH + n * 8 + g]);
            r.set(1, right[(p + t + 4) * WIDTH + n * 8 + g]);
            multiply(sums[0][n], l[0], r);
            multiply(sums[1][n], l[1], r);
        }
    }
}
/* Warp after warp adds what it has of PARTS·16 terms to `total`, [terms][COLUMNS]. */
template <int PARTS, int COLUMNS> FN void add_warps(const float (*sums)[COLUMNS / 8][4], float *total) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    for (uint32_t turn = 0; turn < 8; ++turn) {
        __syncthreads();
        if (warp != turn) continue;
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float *to = &total[(part * 16 + g + i / 2 * 8) * COLUMNS + n * 8 + t * 2 + i % 2];
                    *to = turn ? *to + sums[part][n][i] : sums[part][n][i];
                }
    }
    __syncthreads();
}
/* Adds up the splits' sums of a layer with the numbers of products.cu: the scratch has [splits][groups][terms + 1][outputs of a group],
   the bias behind the last term. */
FN void collapse_weight(const Args &a, uint32_t group, uint32_t block, uint32_t splits) {
    __shared__ float parts[8][33];
    const uint32_t cg = a.n[2] / a.n[9], og = a.n[3] / a.n[9], taps = a.n[4] * a.n[5], terms = taps * cg, len = a.n[9] * (terms + 1) * og;
    const uint32_t side = threadIdx.x / 32, lane = threadIdx.x % 32, j = block * 32 + lane;
    const float *from = SCRATCH;
    float sum = 0.0f;
    if (j < len)
        for (uint32_t s = side; s < splits; s += 8) sum += from[(size_t)s * len + j];
    parts[side][lane] = sum;
    __syncthreads();
    if (side || j >= len) return;
    for (int other = 1; other < 8; ++other) sum += parts[other][lane];
    const uint32_t n = j % og, term = j / og % (terms + 1), of = j / (og * (terms + 1)), o = of * og + n;
    if (term == terms) {
        float *bias = a.n[13] ? DX(2) : nullptr;
        if (bias) bias[o] += sum;
    } else if (DX(1)) {
        DX(1)[(size_t)o * terms + term % cg * taps + term / cg] += sum;
    }
}
