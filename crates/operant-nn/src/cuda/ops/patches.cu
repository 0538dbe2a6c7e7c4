/* Convolutions of stride 1 and linear layers: a tile's pixels with their border lie in shared memory once, and operands are read from
   there for every tap. After mma.cu and tiles.cu; numbers n0 to n13
   are those of products.cu; further 14 images of a tile (or 0), 15 lines of a tile of
   part of an image, 16 tiles of an image, 17 places a row where pixels do not see each other (h = 1, w = 128; else 0), and for sums
   18 tiles of a split; 19 tiles of a block. */
#define NEARBY 16    /* channels at once */
#define SPREAD 20    /* from pixel to pixel: fragments of neighbours meet in no bank */
#define BORDERED 288 /* pixels of a tile with their border */
#define BATCH 4      /* loads under way before the first is used */
#define PAIRS 256    /* of terms of one round of channels */
#define KEPT 5376    /* numbers of weights that stay for all tiles of a block */

/* Channels from `first` on of all bordered pixels; with y, times the activation's slope. `wide` channels, a multiple of 4. */
FN void bring(const Args &a, const Way &s, const Tile &tile, const float *x, const float *y, const int2 *source, int count, int first, int wide,
              float *patch) {
    const int shift = (wide > 8 ? 2 : wide > 4 ? 1 : 0) + (s.channels % 4 ? 2 : 0), all = count << shift;
    if (s.channels % 4) {
        for (int begin = threadIdx.x; begin < all; begin += BATCH * THREADS) {
            float v[BATCH];
#pragma unroll
            for (int u = 0; u < BATCH; ++u) {
                const int i = begin + u * THREADS, pixel = i >> shift, c = first + i - (pixel << shift);
                const int at = i < all ? from(s, tile, source[pixel]) : -1;
                v[u] = at >= 0 && c < s.channels ? x[at + c] : 0.0f;
                if (y && at >= 0 && c < s.channels) v[u] *= slope(a.n[12], 0.0f, y[at + c]);
            }
#pragma unroll
            for (int u = 0; u < BATCH; ++u) {
                const int i = begin + u * THREADS, pixel = i >> shift, c = i - (pixel << shift);
                if (i < all && c < wide) patch[pixel * SPREAD + c] = rounded(v[u]);
            }
        }
        return;
    }
    for (int begin = threadIdx.x; begin < all; begin += BATCH * THREADS) {
        float4 v[BATCH];
#pragma unroll
        for (int u = 0; u < BATCH; ++u) {
            const int i = begin + u * THREADS, pixel = i >> shift, c = 4 * (i - (pixel << shift));
            const int at = i < all && c < wide ? from(s, tile, source[pixel]) : -1;
            v[u] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (at < 0) continue;
            v[u] = *(const float4 *)&x[at + first + c];
            if (y) {
                const float4 z = *(const float4 *)&y[at + first + c];
                v[u].x *= slope(a.n[12], 0.0f, z.x), v[u].y *= slope(a.n[12], 0.0f, z.y);
                v[u].z *= slope(a.n[12], 0.0f, z.z), v[u].w *= slope(a.n[12], 0.0f, z.w);
            }
        }
#pragma unroll
        for (int u = 0; u < BATCH; ++u) {
            const int i = begin + u * THREADS, pixel = i >> shift, c = 4 * (i - (pixel << shift));
            if (i < all && c < wide)
                *(float4 *)&patch[pixel * SPREAD + c] = {rounded(v[u].x), rounded(v[u].y), rounded(v[u].z), rounded(v[u].w)};
        }
    }
}
FN int round_of(const Way &s, int first) { return min(NEARBY, (s.channels - first + 3) / 4 * 4); }

/* Weights of terms k0 to k0 + count of a round of channels, [column][pitch]. */
template <int COLUMNS, int BACK>
FN void weights(const Args &a, const Way &s, const float *weight, uint32_t columns, uint32_t outputs, int first, int near, int k0, int count, int pitch,
                float *to) {
    const int lane = threadIdx.x % 32, taps = a.n[4] * a.n[5];
    for (int k = lane; k < count; k += 32) {
        const int tap = (k0 + k) / near, c = first + (k0 + k) % near;
        for (uint32_t n = threadIdx.x / 32; n < COLUMNS; n += 8) {
            const uint32_t column = columns + n;
            float v = 0.0f;
            if (tap < taps && c < s.channels && column < outputs)
                v = BACK ? weight[((size_t)c * a.n[2] + column) * taps + taps - 1 - tap] : weight[((size_t)column * a.n[2] + c) * taps + tap];
            to[n * pitch + k] = rounded(v);
        }
    }
}

template <int COLUMNS, int BACK> FN void patch_product(const Args &a) {
    BEGIN;
    __shared__ float4 memory[BORDERED * SPREAD / 4];
    __shared__ float right[KEPT];
    __shared__ int2 source[BORDERED];
    __shared__ int pairs[PAIRS];
    float *patch = (float *)memory;
    const Way s = way_of(a, BACK);
    const uint32_t outputs = a.n[BACK ? 2 : 3], wide = (outputs + COLUMNS - 1) / COLUMNS, columns = block % wide * COLUMNS;
    const uint32_t begin = block / wide * a.n[19], end = min(begin + a.n[19], tiles_of(a, rows));
    if (begin >= end) return;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int taps = a.n[4] * a.n[5], all = taps * round_of(s, 0), whole = (all + 7) / 8 * 8, pitch = whole + (40 - whole % 32) % 32;
    const int keep = s.channels <= NEARBY && COLUMNS * pitch <= KEPT;
    const float *x = BACK ? DY(0) : X(0), *y = BACK && a.n[12] ? Y(0) : nullptr, *weight = X(1);
    const float *bias = !BACK && a.n[13] ? X(2) : nullptr;
    float *to = BACK ? DX(0) : Y(0);
    const int count = sources(a, s, source), pixels = pixels_of(a, s), row = warp * 16 + g;
    const int top = nearby(a, s, row) * SPREAD, bottom = nearby(a, s, row + 8) * SPREAD;
    if (keep) weights<COLUMNS, BACK>(a, s, weight, columns, outputs, 0, round_of(s, 0), 0, whole, pitch, right);
    for (uint32_t number = begin; number < end; ++number) {
        const Tile tile = tile_of(a, s, number, rows);
        float sums[COLUMNS / 8][4] = {};
        for (int first = 0; first < s.channels; first += NEARBY) {
            const int near = round_of(s, first), terms = taps * near;
            __syncthreads();
            bring(a, s, tile, x, y, source, count, first, near, patch);
            if (number == begin || !keep)
                for (int i = threadIdx.x; i < (terms + 7) / 8 * 4; i += THREADS) {
                    const int tap = 2 * i / near;
                    pairs[i] = tap < taps ? (tap / a.n[5] * s.wide + tap % a.n[5]) * SPREAD + 2 * i % near : 0;
                }
            for (int k0 = 0; k0 < terms; k0 += keep ? terms : TERMS) {
                const int steps = ((keep ? terms : min(terms - k0, TERMS)) + 7) / 8, apart = keep ? pitch : PITCH;
                __syncthreads();
                if (!keep) {
                    weights<COLUMNS, BACK>(a, s, weight, columns, outputs, first, near, k0, TERMS, PITCH, right);
                    __syncthreads();
                }
                for (int step = 0; step < steps; ++step) {
                    const int offset = pairs[k0 / 2 + step * 4 + t];
                    const float2 p = *(const float2 *)&patch[top + offset], q = *(const float2 *)&patch[bottom + offset];
                    Operand<4> l;
                    l.set(0, p.x), l.set(2, p.y), l.set(1, q.x), l.set(3, q.y);
#pragma unroll
                    for (int n = 0; n < COLUMNS / 8; ++n) {
                        Operand<2> r;
                        const float2 pair = *(const float2 *)&right[(n * 8 + g) * apart + step * 8 + 2 * t];
                        r.set(0, pair.x), r.set(1, pair.y);
                        multiply(sums[n], l, r);
                    }
                }
            }
        }
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int p = row + i / 2 * 8, pixel = tile.pixel + p;
                const uint32_t column = columns + n * 8 + t * 2 + i % 2;
                if (p >= pixels || pixel >= tile.end || column >= outputs) continue;
                float *place = &to[(size_t)pixel * outputs + column];
                if (BACK)
                    *place = a.add & 1 ? *place + sums[n][i] : sums[n][i];
                else
                    *place = activated(a.n[12], sums[n][i] + (bias ? bias[column] : 0.0f));
            }
    }
}

/* Gradient of weight and bias: PARTS·16 terms of one round of channels × some outputs, over a split of the tiles. The scratch gets
   [splits][terms + 1][outputs], with the bias behind the last term. */
template <int PARTS, int COLUMNS> FN void patch_weight(const Args &a) {
    BEGIN;
    constexpr int WIDTH = WIDTH_OF(COLUMNS);
    __shared__ float4 memory[BORDERED * SPREAD / 4];
    __shared__ float right[TILE * WIDTH];
    __shared__ int2 source[BORDERED];
    __shared__ int near_of[TILE];
    float *patch = (float *)memory;
    const Way s = way_of(a, 0);
    const int taps = a.n[4] * a.n[5], outputs = a.n[3];
    const uint32_t wide = (outputs + COLUMNS - 1) / COLUMNS, rounds = (s.channels + NEARBY - 1) / NEARBY;
    const uint32_t chunks = (taps * min(NEARBY, (s.channels + 3) / 4 * 4) + PARTS * 16 - 1) / (PARTS * 16);
    const uint32_t columns = block % wide * COLUMNS, chunk = block / wide % chunks, round = block / (wide * chunks) % rounds;
    const uint32_t split = block / (wide * chunks * rounds), all = tiles_of(a, rows);
    if (split * a.n[18] >= all) return;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, end = min(all, (split + 1) * a.n[18]);
    const int first = round * NEARBY, near = round_of(s, first), terms = taps * near;
    const float *x = X(0), *y = a.n[12] ? Y(0) : nullptr, *dy = DY(0);
    int offsets[PARTS][2];
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int k = (chunk * PARTS + part) * 16 + half * 8 + g, tap = k / near;
            offsets[part][half] = tap < taps ? (tap / a.n[5] * s.wide + tap % a.n[5]) * SPREAD + k % near : 0;
        }
    float sums[PARTS][COLUMNS / 8][4] = {}, bias = 0.0f;
    const int count = sources(a, s, source), pixels = pixels_of(a, s);
    if (threadIdx.x < TILE) near_of[threadIdx.x] = nearby(a, s, threadIdx.x) * SPREAD;
    for (uint32_t number = split * a.n[18]; number < end; ++number) {
        const Tile tile = tile_of(a, s, number, rows);
        __syncthreads();
        bring(a, s, tile, x, nullptr, source, count, first, near, patch);
#pragma unroll 4
        for (int i = threadIdx.x; i < TILE * COLUMNS; i += THREADS) {
            const int p = i / COLUMNS, pixel = tile.pixel + p, column = columns + i % COLUMNS;
            const size_t at = (size_t)pixel * outputs + column;
            float d = 0.0f;
            if (p < pixels && pixel < tile.end && column < outputs) d = y ? dy[at] * slope(a.n[12], 0.0f, y[at]) : dy[at];
            right[p * WIDTH + i % COLUMNS] = rounded(d);
            bias += d;
        }
        __syncthreads();
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            const int p = warp * 16 + step * 8 + t, here = near_of[p], there = near_of[p + 4];
            Operand<2> r[COLUMNS / 8];
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; ++n) {
                r[n].set(0, right[p * WIDTH + n * 8 + g]);
                r[n].set(1, right[(p + 4) * WIDTH + n * 8 + g]);
            }
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                Operand<4> l;
                l.set(0, patch[here + offsets[part][0]]), l.set(1, patch[here + offsets[part][1]]);
                l.set(2, patch[there + offsets[part][0]]), l.set(3, patch[there + offsets[part][1]]);
#pragma unroll
                for (int n = 0; n < COLUMNS / 8; ++n) multiply(sums[part][n], l, r[n]);
            }
        }
    }
    float *to = SCRATCH + (size_t)split * (taps * s.channels + 1) * outputs;
    float *total = patch;
    add_warps<PARTS, COLUMNS>(sums, total);
    for (uint32_t i = threadIdx.x; i < PARTS * 16 * COLUMNS; i += THREADS) {
        const int k = chunk * PARTS * 16 + i / COLUMNS, tap = k / near, c = first + k % near, column = columns + i % COLUMNS;
        if (k < terms && c < s.channels && column < outputs) to[((size_t)tap * s.channels + c) * outputs + column] = total[i];
    }
    if (chunk || round) return;
    right[threadIdx.x] = bias;
    __syncthreads();
    if (threadIdx.x >= COLUMNS || columns + threadIdx.x >= outputs) return;
    for (int i = threadIdx.x + COLUMNS; i < THREADS; i += COLUMNS) bias += right[i];
    to[(size_t)taps * s.channels * outputs + columns + threadIdx.x] = bias;
}
KERNEL(patch_collapse) {
    BEGIN;
    collapse_weight(a, group, block, (tiles_of(a, rows) + a.n[18] - 1) / a.n[18]);
}

#define PATCHES(columns)                                               \
    KERNEL(patch_forward_##columns) { patch_product<columns, 0>(a); }  \
    KERNEL(patch_input_##columns) { patch_product<columns, 1>(a); }
PATCHES(8)
PATCHES(16)
PATCHES(32)
PATCHES(64)
#define PATCH_WEIGHTS(columns)                                             \
    KERNEL(patch_weight_3_##columns) { patch_weight<3, columns>(a); }      \
    KERNEL(patch_weight_5_##columns) { patch_weight<5, columns>(a); }
PATCH_WEIGHTS(8)
PATCH_WEIGHTS(16)
PATCH_WEIGHTS(32)
