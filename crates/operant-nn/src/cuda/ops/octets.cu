/* Convolutions of stride 1 and linear layers of bf16 numbers, by octets: eight channels of a pixel, 16 bytes. A tile's pixels with their
   border lie in shared memory once, all channels of them, and matrices of 8 pixels × 8 channels are read from there for every tap.
   After vectors.cu and tiles.cu. Numbers n0 to n17 are those of patches.cu; 18 tiles of a block, 19 channels of a block of weights'
   gradients, 20 outputs of a block, 21 bytes from where one tile lies to where the next is brought meanwhile, or 0. Channels are a power of two times eight; or up to four, when an octet is two neighbours of four
   channels, and the tile lies there twice, the second time one pixel on, so that any two neighbours are 16 bytes on their own. */
#define BORDERED 576 /* pixels of a tile with their border */
#define OCTETS 320   /* taps times octets of a pixel */

/* Weights and what follows from shapes are made ready while the kernel before ends. */
extern __shared__ uint4 memory[];

FN uint32_t address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
FN void matrices(uint32_t *r, uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
FN void two_matrices(uint32_t *r, uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
}
FN void turned(uint32_t *r, uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}
FN void two_turned(uint32_t *r, uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
}
FN void multiply(float *c, const uint32_t *a, const uint32_t *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* 16 bytes to shared memory, zeros where there is nothing. */
FN void copy(uint32_t to, const void *from, int there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0));
}
/* The same of 8 bytes. */
FN void copy_pixel(uint32_t to, const void *from, int there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(there ? 8 : 0));
}
FN void copied() { asm volatile("cp.async.wait_all;" ::: "memory"); }
FN void put_shared(uint32_t to, const uint4 &v) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

/* Bytes from pixel to pixel: eight neighbours' octets meet in no bank. */
FN int pitch_of(int octets) { return octets == 1 ? 16 : octets * 16 + 16; }
FN int log_of(int x) { return 31 - __clz(x); }
FN uint32_t by_taps(uint32_t x, uint32_t taps) { return taps == 9 ? x / 9 : taps == 1 ? x : x / taps; }

/* Pixels of few channels may have four numbers nevertheless: n22. */
template <int SMALL> FN Way way_by_pixels(const Args &a, int back) {
    Way s = way_of(a, back);
    if (SMALL && a.n[22]) s.channels = a.n[22];
    return s;
}
/* Where octets of a pixel's surroundings lie, relative to it. */
template <int SMALL> FN int octets_of(const Args &a, const Way &s, int channels) {
    return SMALL ? a.n[4] * ((a.n[5] + 1) / 2) : a.n[4] * a.n[5] * (channels / 8);
}
template <int SMALL> FN void lay(const Args &a, const Way &s, int channels, int pitch, int octets, int *offsets) {
    for (int q = threadIdx.x; q < octets + octets % 2; q += THREADS) {
        const int pairs = (a.n[5] + 1) / 2, tap = SMALL ? 0 : q / (channels / 8), c = SMALL ? 0 : q % (channels / 8);
        const int at = SMALL ? (q / pairs * s.wide / 2 + q % pairs) * 16 : (tap / a.n[5] * s.wide + tap % a.n[5]) * pitch + c * 16;
        offsets[q] = q < octets ? at : 0;
    }
}
/* Bytes from the first copy of few channels to the second: other banks. */
FN int second(int count) { return (count * 8 + 127) / 128 * 128 + 64; }
template <int SMALL> FN int at_pixel(const Args &a, const Way &s, int p, int pitch, int count) {
    const int near = nearby(a, s, p);
    return SMALL ? (near & 1 ? second(count) : 0) + near / 2 * 16 : near * pitch;
}
/* Channels from `first` on of all bordered pixels; with y, times the activation's slope. */
template <int SMALL>
FN void bring(const Args &a, const Way &s, const Tile &tile, const real *x, const real *y, const int2 *source, int count, int first, int octets,
              int pitch, uint32_t patch) {
    if (SMALL) {
        /* A tap that a pair has too many sees what lies behind: zeros, whose products are zeros. */
        for (int i = threadIdx.x; i < count + 2; i += THREADS) {
            const int at = i < count ? from(s, tile, source[i]) : -1;
            if (a.n[22]) {
                const real *pixel = x + max(at, 0);
                copy_pixel(patch + i * 8, pixel, at >= 0);
                if (i) copy_pixel(patch + second(count) + i * 8 - 8, pixel, at >= 0);
                continue;
            }
            uint32_t v[4] = {};
#pragma unroll
            for (int c = 0; c < 4; ++c)
                if (at >= 0 && c < s.channels) v[c] = x[at + c].bits;
            const uint32_t low = v[0] | v[1] << 16, high = v[2] | v[3] << 16;
            asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(patch + i * 8), "r"(low), "r"(high) : "memory");
            if (i) asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(patch + second(count) + i * 8 - 8), "r"(low), "r"(high) : "memory");
        }
        return;
    }
    const int shift = log_of(octets);
    for (int i = threadIdx.x; i < count << shift; i += THREADS) {
        const int pixel = i >> shift, octet = i & (octets - 1), at = from(s, tile, source[pixel]);
        const uint32_t to = patch + pixel * pitch + octet * 16;
        const size_t place = (size_t)max(at, 0) + first + octet * 8;
        if (!y) {
            copy(to, x + place, at >= 0);
            continue;
        }
        Eight d = {};
        if (at >= 0) {
            d = eight(x + place, 0);
            const Eight z = eight(y + place, 0);
#pragma unroll
            for (int c = 0; c < 8; ++c) d.v[c] *= sloped(a.n[12], 0.0f, z.v[c]);
        }
        put_shared(to, packed(d));
    }
}

/* NT·8 outputs of a block for all pixels of some tiles, and what is added to them. A thread's outputs lie side by side: row r = 8j + 2t + i of the weights is for
   output 2·NT·t + 2j + i. */
template <int NT, int BACK, int SMALL> FN void octet_product(const Args &a) {
    PLACE;
    __shared__ int2 source[BORDERED];
    __shared__ int offsets[OCTETS];
    const Way s = way_by_pixels<SMALL>(a, BACK);
    const uint32_t outputs = a.n[BACK ? 2 : 3], wide = outputs / (8 * NT), columns = block % wide * (8 * NT);
    const uint32_t begin = block / wide * a.n[18], end = min(begin + a.n[18], tiles_of(a, rows));
    if (begin >= end) return await();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int own = SMALL ? 1 : s.channels / 8, pitch = pitch_of(own), octets = octets_of<SMALL>(a, s, s.channels), steps = (octets + 1) / 2;
    const int apart = steps * 32 + 16, taps = a.n[4] * a.n[5];
    const uint32_t right = address(memory), patch = right + NT * 8 * apart;
    const int count = sources(a, s, source), pixels = pixels_of(a, s);
    lay<SMALL>(a, s, s.channels, pitch, octets, offsets);
    for (int i = threadIdx.x; i < NT * 8 * apart / 16; i += THREADS) memory[i] = uint4{0, 0, 0, 0};
    __syncthreads();
    {
        const float *weight = X(1);
        const uint32_t channels = a.n[2], inner = BACK ? NT * 8 : channels, all = (BACK ? (uint32_t)s.channels : NT * 8) * inner * taps;
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < all; i += THREADS) {
            const uint32_t pair = by_taps(i, taps), tap = i - pair * taps;
            const uint32_t out = SMALL ? pair / inner : pair >> log_of(inner), in = pair - out * inner;
            const float v = BACK ? weight[((size_t)out * channels + columns + in) * taps + tap] : weight[(size_t)columns * channels * taps + i];
            const uint32_t o = BACK ? in : out, c = BACK ? out : in;
            const uint32_t k = SMALL ? tap / a.n[5] * ((a.n[5] + 1) / 2 * 8) + tap % a.n[5] * 4 + c : (BACK ? taps - 1 - tap : tap) * s.channels + c;
            const uint32_t r = o % (2 * NT) / 2 * 8 + o / (2 * NT) * 2 + o % 2;
            *(real *)((char *)memory + r * apart + k * 2) = v;
        }
    }
    const real *x = BACK ? RDY(0) : RX(0), *y = BACK && a.n[12] ? RY(0) : nullptr;
    real *to = BACK ? RDX(0) : RY(0);
    const float *bias = !BACK && a.n[13] ? X(2) + columns + 2 * NT * t : nullptr;
    /* What is added to the result lies behind the op's own inputs. */
    const real *added = BACK ? nullptr : a.n[13] ? RX(3) : RX(2);
    const uint32_t upper = patch + at_pixel<SMALL>(a, s, warp * 32 + lane % 16, pitch, count);
    const uint32_t lower = patch + at_pixel<SMALL>(a, s, warp * 32 + 16 + lane % 16, pitch, count);
    const uint32_t weights = right + (NT == 1 ? lane % 8 : lane / 16 * 8 + lane % 8) * apart + lane / 8 % 2 * 16;
    const int other = a.n[21];
    Tile tile = tile_of(a, s, begin, rows);
    await();
    bring<SMALL>(a, s, tile, x, y, source, count, 0, own, pitch, patch);
    for (uint32_t number = begin; number < end; ++number) {
        copied();
        __syncthreads();
        const Tile next = tile_of(a, s, number + 1, rows);
        const int now = (number - begin) % 2 ? other : 0;
        if (other && number + 1 < end) bring<SMALL>(a, s, next, x, y, source, count, 0, own, pitch, patch + other - now);
        float sums[2][NT][4] = {};
#pragma unroll 2
        for (int step = 0; step < steps; ++step) {
            const int offset = offsets[2 * step + lane / 16];
            uint32_t l[2][4], r[NT][2];
            matrices(l[0], upper + now + offset);
            matrices(l[1], lower + now + offset);
            if (NT == 1) two_matrices(r[0], weights + step * 32);
#pragma unroll
            for (int n = 0; n + 1 < NT; n += 2) matrices(r[n], weights + n * 8 * apart + step * 32);
#pragma unroll
            for (int n = 0; n < NT; ++n) {
                multiply(sums[0][n], l[0], r[n]);
                multiply(sums[1][n], l[1], r[n]);
            }
        }
#pragma unroll
        for (int half = 0; half < 4; ++half) {
            const int p = warp * 32 + half * 8 + g, pixel = tile.pixel + p;
            if (p >= pixels || pixel >= tile.end) continue;
            const size_t here = (size_t)pixel * outputs + columns + 2 * NT * t;
            real *place = &to[here];
            uint32_t words[NT];
#pragma unroll
            for (int n = 0; n < NT; ++n) {
                float low = sums[half / 2][n][half % 2 * 2], high = sums[half / 2][n][half % 2 * 2 + 1];
                if (bias) low += bias[2 * n], high += bias[2 * n + 1];
                if (BACK && a.add & 1) low += place[2 * n], high += place[2 * n + 1];
                if (!BACK) low = acted(a.n[12], low), high = acted(a.n[12], high);
                if (!BACK && added) low += added[here + 2 * n], high += added[here + 2 * n + 1];
                words[n] = packed(low, high);
            }
            if (NT == 1) *(uint32_t *)place = words[0];
            if (NT == 2) *(uint2 *)place = {words[0], words[1]};
#pragma unroll
            for (int n = 0; n + 3 < NT; n += 4) *(uint4 *)(place + 2 * n) = {words[n], words[n + 1], words[n + 2], words[n + 3]};
        }
        tile = next;
        if (!other && number + 1 < end) {
            __syncthreads();
            bring<SMALL>(a, s, tile, x, y, source, count, 0, own, pitch, patch);
        }
    }
}

/* Gradient of weight and bias: n19 channels × n20 outputs over some tiles, [term][output] with pixels as what is summed over. A warp has
   MW·16 terms × NW·8 outputs of some of the pixels. The scratch gets [splits][weight, bias] laid out like these. */
template <int MW, int NW, int SMALL> FN void octet_weight(const Args &a) {
    PLACE;
    __shared__ int2 source[BORDERED];
    __shared__ int offsets[OCTETS];
    __shared__ int near_of[TILE];
    const Way s = way_by_pixels<SMALL>(a, 0);
    const int taps = a.n[4] * a.n[5], channels = a.n[2], outputs = a.n[3], some = a.n[19], few = a.n[20];
    const uint32_t wide = outputs / few, chunks = SMALL ? 1 : channels / some;
    const uint32_t columns = block % wide * few, chunk = block / wide % chunks, split = block / (wide * chunks), all = tiles_of(a, rows);
    if (split * a.n[18] >= all) return await();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, end = min(all, (split + 1) * a.n[18]);
    const int own = SMALL ? 1 : some / 8, pitch = pitch_of(own), octets = octets_of<SMALL>(a, s, some), high = ((octets + 1) / 2 + MW - 1) / MW;
    const int across = few / 8 / NW, parts = 8 / (high * across), turn = warp / (high * across);
    const int m0 = warp % high * MW, n0 = warp / high % across * NW, apart = pitch_of(few / 8), sum_bias = a.n[13] && chunk == 0 && m0 == 0;
    const int count = sources(a, s, source), pixels = pixels_of(a, s);
    const uint32_t right = address(memory), patch = right + TILE * apart;
    lay<SMALL>(a, s, some, pitch, octets, offsets);
    near_of[threadIdx.x] = at_pixel<SMALL>(a, s, threadIdx.x, pitch, count);
    __syncthreads();
    int taken[MW];
#pragma unroll
    for (int m = 0; m < MW; ++m) {
        const int q = 2 * (m0 + m) + lane / 8 % 2;
        taken[m] = q < octets ? offsets[q] : 0;
    }
    const real *x = RX(0), *y = a.n[12] ? RY(0) : nullptr, *dy = RDY(0);
    float sums[MW][NW][4] = {}, biases[NW][4] = {};
    /* A row of ones. */
    const uint32_t one = g == 0 ? 0x3F803F80u : 0, ones[4] = {one, 0, one, 0};
    const int shift = log_of(few / 8);
    const auto fetch = [&](const Tile &tile, uint32_t to_other) {
        bring<SMALL>(a, s, tile, x, nullptr, source, count, chunk * some, own, pitch, patch + to_other);
        for (int i = threadIdx.x; i < TILE << shift; i += THREADS) {
            const int p = i >> shift, octet = i & ((1 << shift) - 1), there = p < pixels && tile.pixel + p < tile.end;
            const size_t place = there ? (size_t)(tile.pixel + p) * outputs + columns + octet * 8 : 0;
            const uint32_t to = right + to_other + p * apart + octet * 16;
            if (!y) {
                copy(to, dy + place, there);
                continue;
            }
            Eight d = {};
            if (there) {
                d = eight(dy + place, 0);
                const Eight z = eight(y + place, 0);
#pragma unroll
                for (int c = 0; c < 8; ++c) d.v[c] *= sloped(a.n[12], 0.0f, z.v[c]);
            }
            put_shared(to, packed(d));
        }
    };
    const int other = a.n[21];
    await();
    fetch(tile_of(a, s, split * a.n[18], rows), 0);
    for (uint32_t number = split * a.n[18]; number < end; ++number) {
        copied();
        __syncthreads();
        const int now = (number - split * a.n[18]) % 2 ? other : 0;
        if (other && number + 1 < end) fetch(tile_of(a, s, number + 1, rows), other - now);
        for (int step = turn; step < TILE / 16; step += parts) {
            uint32_t r[NW][2];
            const uint32_t line = right + now + (step * 16 + lane % 16) * apart + n0 * 16;
            if (NW == 1) two_turned(r[0], line);
#pragma unroll
            for (int n = 0; n + 1 < NW; n += 2) turned(r[n], line + (n + lane / 16) * 16);
            const uint32_t here = patch + now + near_of[step * 16 + lane / 16 * 8 + lane % 8];
#pragma unroll
            for (int m = 0; m < MW; ++m) {
                uint32_t l[4];
                turned(l, here + taken[m]);
#pragma unroll
                for (int n = 0; n < NW; ++n) multiply(sums[m][n], l, r[n]);
            }
            if (sum_bias)
#pragma unroll
                for (int n = 0; n < NW; ++n) multiply(biases[n], ones, r[n]);
        }
        if (!other && number + 1 < end) {
            __syncthreads();
            fetch(tile_of(a, s, number + 1, rows), 0);
        }
    }
    /* Warps of other pixels add to what the first have: [tap][channel][output], spread over banks. */
    float *total = (float *)memory;
    const int line = few + 1, each = (SMALL ? 4 : some) * line + 4, bias_at = taps * each;
    for (int now = 0; now < parts; ++now) {
        __syncthreads();
        if (now != turn) continue;
#pragma unroll
        for (int m = 0; m < MW; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int term = (m0 + m) * 16 + i / 2 * 8 + g, pairs = (a.n[5] + 1) / 2;
                const int kx = term / 4 % (2 * pairs), tap = SMALL ? term / (8 * pairs) * a.n[5] + kx : term / some, c = SMALL ? term % 4 : term % some;
                if (SMALL ? kx >= a.n[5] || tap >= taps : tap >= taps) continue;
#pragma unroll
                for (int n = 0; n < NW; ++n) {
                    float *to = &total[tap * each + c * line + (n0 + n) * 8 + 2 * t + i % 2];
                    *to = now ? *to + sums[m][n][i] : sums[m][n][i];
                }
            }
        if (sum_bias && g == 0)
#pragma unroll
            for (int n = 0; n < NW; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float *to = &total[bias_at + (n0 + n) * 8 + 2 * t + i];
                    *to = now ? *to + biases[n][i] : biases[n][i];
                }
    }
    __syncthreads();
    const uint32_t here = SMALL ? channels : some;
    float *to = SCRATCH + (size_t)split * (channels * taps + 1) * outputs;
    for (uint32_t i = threadIdx.x; i < few * here * taps; i += THREADS) {
        const uint32_t pair = by_taps(i, taps), tap = i - pair * taps, o = SMALL ? pair / here : pair >> log_of(here), c = pair - o * here;
        to[((size_t)(columns + o) * channels + chunk * some + c) * taps + tap] = total[tap * each + c * line + o];
    }
    if (chunk == 0 && threadIdx.x < few) to[(size_t)channels * taps * outputs + columns + threadIdx.x] = a.n[13] ? total[bias_at + threadIdx.x] : 0.0f;
}

/* With so many blocks at once on a multiprocessor that registers allow it. */
#define AMONG(blocks, name) extern "C" __global__ void __launch_bounds__(THREADS, blocks) name(const __grid_constant__ Args a)
#define PRODUCTS(tiles, blocks)                                                      \
    AMONG(blocks, octet_forward_##tiles) { octet_product<tiles, 0, 0>(a); }          \
    AMONG(blocks, octet_few_##tiles) { octet_product<tiles, 0, 1>(a); }              \
    AMONG(blocks, octet_input_##tiles) { octet_product<tiles, 1, 0>(a); }
PRODUCTS(1, 4)
PRODUCTS(2, 4)
PRODUCTS(4, 3)
PRODUCTS(8, 2)
#define WEIGHTS(terms, blocks)                                                           \
    AMONG(blocks, octet_weight_##terms##_1) { octet_weight<terms, 1, 0>(a); }            \
    AMONG(blocks, octet_weight_##terms##_2) { octet_weight<terms, 2, 0>(a); }
WEIGHTS(1, 4)
WEIGHTS(5, 3)
WEIGHTS(9, 2)
AMONG(4, octet_few_weight_1) { octet_weight<3, 1, 1>(a); }
AMONG(3, octet_few_weight_2) { octet_weight<3, 2, 1>(a); }
