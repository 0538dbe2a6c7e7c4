/* Minibatches of many networks that learn side by side, each in its own order of samples; at times cropped and mirrored, by the draws
   of augment.rs where lessons are made. After grown.cu. */
#define BORDER 4

struct Batch {
    const float *images;     /* [samples, height, width, channels]; of networks with samples of their own [groups, samples, …] */
    const int32_t *targets;  /* [samples], or [groups, samples] */
    const uint32_t *order;   /* [groups, count] */
    const uint32_t *steps;   /* [groups]: minibatches so far */
    const uint32_t *draws;   /* [groups, 3]: seed, epoch */
    float *to_images;        /* [groups, batch, height, width, channels]; or narrow, [groups, batch, height, width, 4] as bf16 */
    int32_t *to_targets;     /* [groups, batch] */
    const uint32_t *rows;    /* [groups] */
    uint32_t count, batch, own, augment, height, width, channels, narrow;
};
static_assert(sizeof(Batch) == BATCH_BYTES, "Batch");
/* Philox4x32-10, as lanes/rng.rs has it: the first three words of the stream 1 of a sample in an epoch. */
FN void draw(const uint32_t *of, uint32_t sample, uint32_t *words) {
    uint32_t c0 = 0, c1 = 1, c2 = of[2], c3 = sample, k0 = of[0], k1 = of[1];
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0, c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1, c3 = (uint32_t)a;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    words[0] = c0, words[1] = c1, words[2] = c2;
}
/* Two numbers as bf16. */
FN uint32_t two(float low, float high) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
/* A block per sample. */
extern "C" __global__ void __launch_bounds__(THREADS) gather(const Batch a) {
    const uint32_t group = blockIdx.x / a.batch, row = blockIdx.x % a.batch, pixels = a.height * a.width * a.channels;
    await();
    if (row >= a.rows[group]) return;
    const uint32_t first = a.steps[group] * a.batch;
    const uint32_t sample = a.order[(size_t)group * a.count + first + row];
    const size_t at = sample + (a.own ? (size_t)group * a.count : 0);
    const float *from = a.images + at * pixels;
    float *to = a.to_images + ((size_t)group * a.batch + row) * pixels;
    uint2 *narrow = (uint2 *)a.to_images + ((size_t)group * a.batch + row) * a.height * a.width;
    if (threadIdx.x == 0) a.to_targets[group * a.batch + row] = a.targets[at];
    int down = 0, right = 0, mirrored = 0;
    if (a.augment) {
        uint32_t words[3];
        draw(a.draws + 3 * group, sample, words);
        down = (int)__umulhi(words[0], 2 * BORDER + 1) - BORDER, right = (int)__umulhi(words[1], 2 * BORDER + 1) - BORDER;
        mirrored = words[2] >> 31;
    }
    if (a.narrow) {
        for (uint32_t place = threadIdx.x; place < a.height * a.width; place += THREADS) {
            const int column = place % a.width, y = place / (int)a.width + down, x = (mirrored ? (int)a.width - 1 - column : column) + right;
            const bool inside = y >= 0 && y < (int)a.height && x >= 0 && x < (int)a.width;
            float v[4] = {};
#pragma unroll
            for (int c = 0; c < 4; ++c)
                if (inside && c < a.channels) v[c] = from[(y * a.width + x) * a.channels + c];
            narrow[place] = {two(v[0], v[1]), two(v[2], v[3])};
        }
        return;
    }
    if (!a.augment) {
        for (uint32_t i = threadIdx.x; i < pixels; i += THREADS) to[i] = from[i];
        return;
    }
    for (uint32_t i = threadIdx.x; i < pixels; i += THREADS) {
        const int channel = i % a.channels, place = i / a.channels, column = place % a.width;
        const int y = place / (int)a.width + down, x = (mirrored ? (int)a.width - 1 - column : column) + right;
        const bool inside = y >= 0 && y < (int)a.height && x >= 0 && x < (int)a.width;
        to[i] = inside ? from[(y * a.width + x) * a.channels + channel] : 0.0f;
    }
}
