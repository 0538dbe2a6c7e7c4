/* A tile by tf32 products, after network.cu. An operand's number is 19 bits of an f32, rounded; with PASSES 3 it is two such numbers
   and a product three, which leaves the error of f32. The sums of one layer are the left operand of the next, with columns 2t
   and 2t + 1 as the inner indices t and t + 4; what sums over samples read goes through shared memory. */
static_assert(!TOGETHER, "shapes that these products serve");
#define STRIDE (HID + 8) /* of a row of kept numbers: eight banks on from the one before */

FN uint32_t rounded(float x) {
    uint32_t word;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
    return word;
}
/* A number that products read: rounded once, or whole and taken apart there. */
FN float fit(float x) { return PASSES == 1 ? __uint_as_float(rounded(x)) : x; }
FN uint32_t high_of(float x) { return PASSES == 1 ? __float_as_uint(x) : rounded(x); }
FN uint32_t low_of(float x, uint32_t high) { return rounded(x - __uint_as_float(high)); }

struct Left {
    uint32_t high[4];
#if PASSES == 3
    uint32_t low[4];
#endif
};
FN Left left_of(float a0, float a1, float a2, float a3) {
    const float a[4] = {a0, a1, a2, a3};
    Left left;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        left.high[k] = high_of(a[k]);
#if PASSES == 3
        left.low[k] = low_of(a[k], left.high[k]);
#endif
    }
    return left;
}
FN void mma_tf32(float *c, const uint32_t *a, uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
FN void product(float *c, const Left &left, float b0, float b1) {
    const uint32_t high0 = high_of(b0), high1 = high_of(b1);
#if PASSES == 3
    mma_tf32(c, left.low, high0, high1);
    mma_tf32(c, left.high, low_of(b0, high0), low_of(b1, high1));
#endif
    mma_tf32(c, left.high, high0, high1);
}
FN float slope(float y) { return RELU ? (y > 0.0f ? 1.0f : 0.0f) : 1.0f - y * y; }

/* ---- Weights, in the order of fragments: an image of both networks that blocks copy to shared memory ---- */

struct ForwardWords {
    float4 w2[NT * NT / 2 * 32]; /* x * W2^T */
    float4 w3[NT / 2 * 32];
    float2 w1[NT * 32]; /* with b1 for the column of 1 */
    float4 b2[NT * 4];  /* as sums begin: two columns for two rows */
    float b3[8];
};
struct NetWords : ForwardWords {
    float4 w2_back[NT * NT / 2 * 32]; /* dz * W2 */
    float2 w3_back[NT * 32];
};

/* Writes the words that a group's parameters are in: a pair is two columns of a row. */
FN void store_words(NetWords *net, int critic, int group, int lane, float w0, float w1, int counts) {
    const int g = lane / 4, t = lane % 4, turned = 2 * t * 4 + g / 2;
    if (!counts) return;
    const float whole0 = w0, whole1 = w1;
    w0 = fit(w0), w1 = fit(w1);
    if (group < W2_GROUPS) {
        const int out = group / (NT * 2) * 2 + group % 2, in = group / 2 % NT;
        ((float2 *)&net->w2[(out * (NT / 2) + in / 2) * 32 + lane])[in % 2] = make_float2(w0, w1);
        float *back = (float *)&net->w2_back[(in * (NT / 2) + out / 2) * 32 + turned] + out % 2 * 2 + g % 2;
        back[0] = w0, back[16] = w1;
        return;
    }
    const int outputs = offsets_of(critic).outputs;
    const bool out0 = 2 * t >= FIRST_OUTPUT && 2 * t - FIRST_OUTPUT < outputs;
    const bool out1 = 2 * t + 1 >= FIRST_OUTPUT && 2 * t + 1 - FIRST_OUTPUT < outputs;
    if (group == GROUPS - 1) {
        if (g == 0) net->b3[2 * t] = out0 ? whole0 : 0.0f, net->b3[2 * t + 1] = out1 ? whole1 : 0.0f;
        return;
    }
    group -= W2_GROUPS;
    const int tile = group % (KS * 2);
    if (group < KS * 2) {
        const bool in0 = 2 * t < OBS || 2 * t == ONE_COLUMN, in1 = 2 * t + 1 < OBS || 2 * t + 1 == ONE_COLUMN;
        net->w1[tile * 32 + lane] = make_float2(in0 ? w0 : 0.0f, in1 ? w1 : 0.0f);
    }
    if (group >= KS * 2 * (1 - SHARED_COLUMNS)) {
        float *w3 = (float *)&net->w3[tile / 2 * 32 + turned] + tile % 2 * 2 + g % 2;
        w3[0] = out0 ? w0 : 0.0f, w3[16] = out1 ? w1 : 0.0f;
        net->w3_back[tile * 32 + lane] = make_float2(out0 ? w0 : 0.0f, out1 ? w1 : 0.0f);
        if (t == B2_COLUMN / 2) {
            float *begin = (float *)&net->b2[tile * 4 + g / 2] + g % 2;
            begin[0] = begin[2] = B2_COLUMN % 2 ? whole1 : whole0;
        }
    }
}

/* ---- A tile through a network ---- */

/* What the way back needs of the way there, in shared memory: rows of samples. */
struct Kept {
    float *h1, *h2, *dz; /* [16, STRIDE] */
    float *dy;           /* [16, 8] */
};
#define KEPT_BYTES ((3 * 16 * STRIDE + 16 * 8) * 4)
FN Kept kept_in(unsigned char *memory) {
    float *h1 = (float *)memory;
    return {h1, h1 + 16 * STRIDE, h1 + 2 * 16 * STRIDE, h1 + 3 * 16 * STRIDE};
}
/* One tile of columns in rows of samples, as products leave it. */
FN void store_tile(float *rows, int stride, int n, int lane, const float *c) {
    float *to = rows + lane / 4 * stride + n * 8 + lane % 4 * 2;
    *(float2 *)to = make_float2(c[0], c[1]);
    *(float2 *)(to + 8 * stride) = make_float2(c[2], c[3]);
}
FN void load_tile(const float *rows, int n, int lane, float *c) {
    const float *from = rows + lane / 4 * STRIDE + n * 8 + lane % 4 * 2;
    const float2 upper = *(const float2 *)from, lower = *(const float2 *)(from + 8 * STRIDE);
    c[0] = upper.x, c[1] = upper.y, c[2] = lower.x, c[3] = lower.y;
}
/* Sixteen columns of eight samples, as rows of a left operand. */
FN Left turned_left(const float *rows, int eight, int m, int lane) {
    const float *from = rows + (eight * 8 + lane % 4) * STRIDE + m * 16 + lane / 4;
    return left_of(from[0], from[8], from[4 * STRIDE], from[4 * STRIDE + 8]);
}

/* Columns that are summed side by side. */
#define CHAINS 4

/* `y`: the sums of the last layer. */
template <bool KEEP> FN void forward(const ForwardWords *net, int lane, const uint32_t *x, Kept &kept, float *y) {
    const int t = lane % 4;
    float h1[NT][4];
    const Left seen = left_of(__uint_as_float(x[0]), __uint_as_float(x[1]), __uint_as_float(x[2]), __uint_as_float(x[3]));
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        const float2 w = net->w1[n * 32 + lane];
        product(c, seen, w.x, w.y);
#pragma unroll
        for (int k = 0; k < 4; k++) h1[n][k] = fit(activate(c[k]));
        if (KEEP) store_tile(kept.h1, STRIDE, n, lane, h1[n]);
    }
    const float2 b = *(const float2 *)&net->b3[2 * t];
    y[0] = y[2] = b.x, y[1] = y[3] = b.y;
#pragma unroll
    for (int first = 0; first < NT; first += CHAINS) {
        float c[CHAINS][4];
#pragma unroll
        for (int n = 0; n < CHAINS; n++) {
            const float4 b = net->b2[(first + n) * 4 + t];
            c[n][0] = b.x, c[n][1] = b.y, c[n][2] = b.z, c[n][3] = b.w;
        }
#pragma unroll
        for (int j = 0; j < NT / 2; j++) {
            const float *even = h1[2 * j], *odd = h1[2 * j + 1];
            const Left left = left_of(even[0], even[2], even[1], even[3]), next = left_of(odd[0], odd[2], odd[1], odd[3]);
#pragma unroll
            for (int n = 0; n < CHAINS; n++) {
                const float4 w = net->w2[((first + n) * (NT / 2) + j) * 32 + lane];
                product(c[n], left, w.x, w.y);
                product(c[n], next, w.z, w.w);
            }
        }
#pragma unroll
        for (int n = 0; n < CHAINS; n++) {
            float h2[4];
#pragma unroll
            for (int k = 0; k < 4; k++) h2[k] = fit(activate(c[n][k]));
            if (KEEP) store_tile(kept.h2, STRIDE, first + n, lane, h2);
            const float2 w = ((const float2 *)&net->w3[(first + n) / 2 * 32 + lane])[n % 2];
            product(y, left_of(h2[0], h2[2], h2[1], h2[3]), w.x, w.y);
        }
    }
}

/* Of an observation as `collect` stages it, and of two rows of those or of a rollout's: the left operand. */
#define ROW_WORDS 8
#define X_WORDS 4
FN void pack_row(const float *padded, uint32_t *row) {
#pragma unroll
    for (int k = 0; k < 8; k++) row[k] = __float_as_uint(fit(padded[k]));
}
FN void staged_operand(const uint32_t *upper, const uint32_t *lower, int t, uint32_t *x) {
    x[0] = upper[2 * t], x[1] = lower[2 * t], x[2] = upper[2 * t + 1], x[3] = lower[2 * t + 1];
}
FN float seen_at(const float *row, int column) { return column < OBS ? fit(row[column]) : column == ONE_COLUMN ? 1.0f : 0.0f; }
FN void observed(const float *upper, const float *lower, int t, uint32_t *x) {
#pragma unroll
    for (int k = 0; k < 4; k++) x[k] = __float_as_uint(seen_at(k % 2 ? lower : upper, 2 * t + k / 2));
}

/* The way back: from dy to the gradients of all weights. */
struct Samples {}; /* what sixteen.cu has for larger networks */
FN void backward(const NetWords *net, int lane, const TileData *tile, const uint32_t *, const Kept &kept, const float *dy, Gradients &d,
                 Samples *) {
    const int g = lane / 4, t = lane % 4;
    d.b3[0] += dy[0] + dy[2];
    d.b3[1] += dy[1] + dy[3];
    const float slopes[4] = {fit(dy[0]), fit(dy[1]), fit(dy[2]), fit(dy[3])};
    store_tile(kept.dy, 8, 0, lane, slopes);
    float dz[NT][4];
    {
        const Left left = left_of(slopes[0], slopes[2], slopes[1], slopes[3]);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float c[4] = {0.0f, 0.0f, 0.0f, 0.0f}, h[4];
            const float2 w = net->w3_back[n * 32 + lane];
            product(c, left, w.x, w.y);
            load_tile(kept.h2, n, lane, h);
#pragma unroll
            for (int k = 0; k < 4; k++) dz[n][k] = fit(c[k] * slope(h[k]));
            store_tile(kept.dz, STRIDE, n, lane, dz[n]);
        }
    }
    __syncwarp();
#pragma unroll
    for (int eight = 0; eight < 2; eight++) {
        const float *from = kept.dy + (eight * 8 + t) * 8 + g;
#pragma unroll
        for (int m = 0; m < KS; m++) product(d.LAST[m], turned_left(kept.h2, eight, m, lane), from[0], from[4 * 8]);
    }
    __syncwarp();
    /* dh takes the place of h2. */
#pragma unroll
    for (int first = 0; first < NT; first += CHAINS) {
        float c[CHAINS][4] = {};
#pragma unroll
        for (int j = 0; j < NT / 2; j++) {
            const float *even = dz[2 * j], *odd = dz[2 * j + 1];
            const Left left = left_of(even[0], even[2], even[1], even[3]), next = left_of(odd[0], odd[2], odd[1], odd[3]);
#pragma unroll
            for (int n = 0; n < CHAINS; n++) {
                const float4 w = net->w2_back[((first + n) * (NT / 2) + j) * 32 + lane];
                product(c[n], left, w.x, w.y);
                product(c[n], next, w.z, w.w);
            }
        }
#pragma unroll
        for (int n = 0; n < CHAINS; n++) {
            float h[4];
            load_tile(kept.h1, first + n, lane, h);
#pragma unroll
            for (int k = 0; k < 4; k++) c[n][k] = fit(c[n][k] * slope(h[k]));
            store_tile(kept.h2, STRIDE, first + n, lane, c[n]);
        }
    }
    __syncwarp();
#pragma unroll
    for (int eight = 0; eight < 2; eight++) {
        const float *row = tile->obs + (eight * 8 + t) * OBS;
        const float x0 = seen_at(row, g), x1 = seen_at(row + 4 * OBS, g), one = g == B2_COLUMN ? 1.0f : 0.0f;
#pragma unroll
        for (int m = 0; m < KS; m++) product(d.first[m], turned_left(kept.h2, eight, m, lane), x0, x1);
        const float *from = kept.h1 + (eight * 8 + t) * STRIDE + g;
#pragma unroll
        for (int m = 0; m < KS; m++) {
            const Left left = turned_left(kept.dz, eight, m, lane);
            product(d.LAST[m], left, one, one);
#pragma unroll
            for (int n = 0; n < NT; n++) product(d.w2[m][n], left, from[n * 8], from[4 * STRIDE + n * 8]);
        }
    }
}
