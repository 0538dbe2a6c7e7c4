/* A tile by products of 16-bit numbers, after bf16.cu or f16.cu, which have those. The sums of one layer are, packed, the left operand
   of the next; movmatrix turns what sums over samples read. */

/* 8 by 8 numbers, a row over four lanes, become their transpose. */
FN uint32_t turn(uint32_t word) {
    uint32_t turned;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(word));
    return turned;
}
/* Minus what comes back to two numbers before their activation, which made `h` of them: h * h - 1 is one instruction. */
FN uint32_t minus_back(float c0, float c1, uint32_t h) {
    const uint32_t word = pack2(c0, c1);
#if RELU
    return (word ^ 0x80008000u) & ((h & 0x7fffu ? 0xffffu : 0u) | (h & 0x7fff0000u ? 0xffff0000u : 0u));
#else
    return fma2(word, fma2(h, h, ONES | 0x80008000u), 0x80008000u);
#endif
}

/* ---- Weights, in the order of fragments: an image of both networks that blocks copy to shared memory ---- */

struct ForwardWords {
    uint4 w2[NT * KS / 2 * 32]; /* x * W2^T */
    uint4 w3[KS / 2 * 32];
    uint32_t w1[NT * 32]; /* with b1 for the column of 1 */
    float4 b2[NT * 4];    /* as sums begin: two columns for two rows */
    float b3[8];
};
struct NetWords : ForwardWords {
    uint4 w2_back[NT * KS / 2 * 32]; /* dz * W2 */
    uint32_t w3_back[NT * 32];
};
/* Writes the words that a group's parameters are in. A pair is two columns of a row; pairs of rows take a neighbour's. */
FN void store_words(NetWords *net, int critic, int group, int lane, float w0, float w1, int counts) {
    const int g = lane / 4, t = lane % 4, odd = g % 2;
    const float other0 = __shfl_xor_sync(0xFFFFFFFFu, w0, 4), other1 = __shfl_xor_sync(0xFFFFFFFFu, w1, 4);
    const uint32_t rows = odd ? pack2(other1, w1) : pack2(w0, other0);
    const int column = 2 * t + odd, turned = column * 4 + g / 2;
    if (!counts) return;
    if (group < W2_GROUPS) {
        const int m = group / (NT * 2), n = group / 2 % NT, half = group % 2;
        ((uint32_t *)net->w2)[(((m * 2 + half) * (KS / 2) + n / 4) * 32 + lane) * 4 + n % 4] = pack2(w0, w1);
        ((uint32_t *)net->w2_back)[((n * (KS / 2) + m / 2) * 32 + turned) * 4 + m % 2 * 2 + half] = rows;
        return;
    }
    const int outputs = offsets_of(critic).outputs;
    const bool out0 = 2 * t >= FIRST_OUTPUT && 2 * t - FIRST_OUTPUT < outputs;
    const bool out1 = 2 * t + 1 >= FIRST_OUTPUT && 2 * t + 1 - FIRST_OUTPUT < outputs;
    if (group == GROUPS - 1) {
        if (g == 0) net->b3[2 * t] = out0 ? w0 : 0.0f, net->b3[2 * t + 1] = out1 ? w1 : 0.0f;
        return;
    }
    group -= W2_GROUPS;
    const int tile = group % (KS * 2);
    if (group < KS * 2) {
        const bool in0 = 2 * t < OBS || 2 * t == ONE_COLUMN, in1 = 2 * t + 1 < OBS || 2 * t + 1 == ONE_COLUMN;
        net->w1[tile * 32 + lane] = pack2(in0 ? w0 : 0.0f, in1 ? w1 : 0.0f);
    }
    if (group >= KS * 2 * (1 - SHARED_COLUMNS)) {
        const int m = tile / 2, half = tile % 2;
        const bool out = column >= FIRST_OUTPUT && column - FIRST_OUTPUT < outputs;
        ((uint32_t *)net->w3)[(m / 2 * 32 + turned) * 4 + m % 2 * 2 + half] = out ? rows : 0u;
        net->w3_back[tile * 32 + lane] = pack2(out0 ? w0 : 0.0f, out1 ? w1 : 0.0f);
        if (t == B2_COLUMN / 2) {
            float *begin = (float *)&net->b2[tile * 4 + g / 2] + odd;
            begin[0] = begin[2] = B2_COLUMN % 2 ? w1 : w0;
        }
    }
}

/* ---- A tile through a network ---- */

/* What the way back needs of the way there. */
struct Kept {
    uint32_t h1[KS * 4], h2[KS * 4];
};
#define KEPT_BYTES 0 /* of it that lie in shared memory, per warp */
FN Kept kept_in(unsigned char *) { return Kept(); }

/* One tile of columns, activated, as half of a left operand. */
FN void keep(uint32_t *h, int tile, const float *c) {
    h[tile / 2 * 4 + tile % 2 * 2] = pack2(activate(c[0]), activate(c[1]));
    h[tile / 2 * 4 + tile % 2 * 2 + 1] = pack2(activate(c[2]), activate(c[3]));
}

/* `y`: the sums of the last layer. */
template <bool KEEP> FN void forward(const ForwardWords *net, int lane, const uint32_t *x, Kept &kept, float *y) {
    const int t = lane % 4;
    uint32_t *h1 = kept.h1, *h2 = kept.h2;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        mma8(c, x[0], x[1], net->w1[n * 32 + lane]);
        keep(h1, n, c);
    }
#pragma unroll
    for (int first = 0; first < NT; first += COLUMNS) {
        float c[COLUMNS][4];
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            const float4 b = net->b2[(first + n) * 4 + t];
            c[n][0] = b.x, c[n][1] = b.y, c[n][2] = b.z, c[n][3] = b.w;
        }
#pragma unroll
        for (int j = 0; j < KS / 2; j++) {
            uint4 w[COLUMNS];
#pragma unroll
            for (int n = 0; n < COLUMNS; n++) w[n] = net->w2[((first + n) * (KS / 2) + j) * 32 + lane];
#pragma unroll
            for (int n = 0; n < COLUMNS; n++) mma16(c[n], h1 + 8 * j, w[n].x, w[n].y);
#pragma unroll
            for (int n = 0; n < COLUMNS; n++) mma16(c[n], h1 + 8 * j + 4, w[n].z, w[n].w);
        }
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) keep(h2, first + n, c[n]);
    }
    const float2 b = *(const float2 *)&net->b3[2 * t];
    float even[4] = {b.x, b.y, b.x, b.y}, odd[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < KS / 2; j++) {
        const uint4 w = net->w3[j * 32 + lane];
        mma16(even, h2 + 8 * j, w.x, w.y);
        mma16(odd, h2 + 8 * j + 4, w.z, w.w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) y[i] = even[i] + odd[i];
}

/* Of an observation as `collect` stages it, and of two rows of those or of a rollout's: the left operand. */
#define ROW_WORDS 4
#define X_WORDS 2
FN void pack_row(const float *padded, uint32_t *row) {
#pragma unroll
    for (int k = 0; k < 4; k++) row[k] = pack2(padded[2 * k], padded[2 * k + 1]);
}
FN void staged_operand(const uint32_t *upper, const uint32_t *lower, int t, uint32_t *x) { x[0] = upper[t], x[1] = lower[t]; }
FN uint32_t observed_half(const float *row, int t) {
    const float low = 2 * t < OBS ? row[2 * t] : 2 * t == ONE_COLUMN ? 1.0f : 0.0f;
    return pack2(low, 2 * t + 1 < OBS ? row[2 * t + 1] : 2 * t + 1 == ONE_COLUMN ? 1.0f : 0.0f);
}
FN void observed(const float *upper, const float *lower, int t, uint32_t *x) {
    x[0] = observed_half(upper, t), x[1] = observed_half(lower, t);
}

/* What a tile gives to W2's gradient, where a block makes that together: operands of sums over its samples. */
struct Samples {
    uint4 left[KS * 32];      /* dz, turned */
    uint4 right[NT / 2 * 32]; /* h1, turned */
};
#if TOGETHER
/* The rows and columns of W2 whose gradient is a warp's: 32 and half of all. */
FN int rows_of(int warp) { return warp / 2 * 2; }
FN int columns_of(int warp) { return warp % 2 * (NT / 2); }
#define SHARERS KS /* warps that have some */

FN void add_samples(const Samples *of, int warp, int lane, Gradients &d) {
    uint4 left[2];
#pragma unroll
    for (int m = 0; m < 2; m++) left[m] = of->left[(rows_of(warp) + m) * 32 + lane];
#pragma unroll
    for (int n = 0; n < NT / 2; n += 2) {
        const uint4 right = of->right[(columns_of(warp) + n) / 2 * 32 + lane];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const uint32_t a[4] = {left[m].x, left[m].y, left[m].z, left[m].w};
            mma16(d.w2[m][n], a, right.x, right.y);
            mma16(d.w2[m][n + 1], a, right.z, right.w);
        }
    }
}
#endif

/* The way back: from dy to the gradients of all weights; W2's are left to all warps, in `samples`, where those make it together. */
FN void backward(const NetWords *net, int lane, const TileData *, const uint32_t *x, const Kept &kept, const float *dy, Gradients &d,
                 Samples *samples) {
    const uint32_t *h1 = kept.h1, *h2 = kept.h2;
    /* Each `minus_back` turns the sign: it is turned before in dy, and in x beside the second one. */
    const uint32_t dy0 = pack_slopes(dy[0], dy[1]), dy1 = pack_slopes(dy[2], dy[3]), sign = 0x80008000u;
    d.b3[0] += dy[0] + dy[2];
    d.b3[1] += dy[1] + dy[3];
    const uint32_t ones = lane / 4 == B2_COLUMN ? ONES : 0u;
    uint32_t dz[KS * 4];
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        mma8(c, dy0 ^ sign, dy1 ^ sign, net->w3_back[n * 32 + lane]);
        const int at = n / 2 * 4 + n % 2 * 2;
        dz[at] = minus_back(c[0], c[1], h2[at]);
        dz[at + 1] = minus_back(c[2], c[3], h2[at + 1]);
    }
    {
        const uint32_t b0 = turn(dy0), b1 = turn(dy1);
#pragma unroll
        for (int m = 0; m < KS; m++) {
            const uint32_t left[4] = {turn(h2[4 * m]), turn(h2[4 * m + 2]), turn(h2[4 * m + 1]), turn(h2[4 * m + 3])};
            mma16(d.LAST[m], left, b0, b1);
        }
    }
    {
        const uint32_t b0 = turn(x[0] ^ sign), b1 = turn(x[1] ^ sign);
#pragma unroll
        for (int first = 0; first < NT; first += COLUMNS) {
            float c[COLUMNS][4] = {};
#pragma unroll
            for (int j = 0; j < KS / 2; j++) {
                uint4 w[COLUMNS];
#pragma unroll
                for (int n = 0; n < COLUMNS; n++) w[n] = net->w2_back[((first + n) * (KS / 2) + j) * 32 + lane];
#pragma unroll
                for (int n = 0; n < COLUMNS; n++) mma16(c[n], dz + 8 * j, w[n].x, w[n].y);
#pragma unroll
                for (int n = 0; n < COLUMNS; n++) mma16(c[n], dz + 8 * j + 4, w[n].z, w[n].w);
            }
#pragma unroll
            for (int k = 0; k < COLUMNS / 2; k++) {
                const float *even = c[2 * k], *odd = c[2 * k + 1];
                const int m = first / 2 + k;
                const uint32_t left[4] = {
                    turn(minus_back(even[0], even[1], h1[4 * m])), turn(minus_back(odd[0], odd[1], h1[4 * m + 2])),
                    turn(minus_back(even[2], even[3], h1[4 * m + 1])), turn(minus_back(odd[2], odd[3], h1[4 * m + 3]))};
                mma16(d.first[m], left, b0, b1);
            }
        }
    }
#if TOGETHER
#pragma unroll
    for (int m = 0; m < KS; m++) {
        const uint32_t left[4] = {turn(dz[4 * m]), turn(dz[4 * m + 2]), turn(dz[4 * m + 1]), turn(dz[4 * m + 3])};
        mma16(d.LAST[m], left, ones, ones);
        samples->left[m * 32 + lane] = make_uint4(left[0], left[1], left[2], left[3]);
        samples->right[m * 32 + lane] = make_uint4(turn(h1[4 * m]), turn(h1[4 * m + 1]), turn(h1[4 * m + 2]), turn(h1[4 * m + 3]));
    }
#else
    {
        uint32_t right[NT * 2];
#pragma unroll
        for (int n = 0; n < NT; n++) {
            right[2 * n] = turn(h1[n / 2 * 4 + n % 2 * 2]);
            right[2 * n + 1] = turn(h1[n / 2 * 4 + n % 2 * 2 + 1]);
        }
#pragma unroll
        for (int m = 0; m < KS; m++) {
            const uint32_t left[4] = {turn(dz[4 * m]), turn(dz[4 * m + 2]), turn(dz[4 * m + 1]), turn(dz[4 * m + 3])};
            mma16(d.LAST[m], left, ones, ones);
#pragma unroll
            for (int n = 0; n < NT; n++) mma16(d.w2[m][n], left, right[2 * n], right[2 * n + 1]);
        }
    }
#endif
}
