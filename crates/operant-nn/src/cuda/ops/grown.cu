/* Around the plan of many networks that learn side by side: the optimiser, and what validation counts. Minibatches are in lessons.cu. After the prelude and early.cu; defined before this text: the sizes of the static_asserts. */
#define THREADS 256
#define NORM_BLOCKS 64
#define FULL 0xFFFFFFFFu

struct Sgd {
    float *values, *momentum;   /* [groups, len] */
    const float *sums;          /* [groups, stride]: gradients, and the loss at loss_at */
    const uint32_t *kinds;      /* of 16 numbers each: bit 0 whether they decay, bit 1 whether they learn, above the part plus 1, or 0 */
    const uint32_t *absent;     /* [parts, groups] */
    double *squares;            /* [groups, NORM_BLOCKS] */
    double *losses;             /* [groups]: sums over samples */
    uint32_t *broken;           /* [groups]: minibatches whose loss or gradient was not finite */
    uint32_t *steps;            /* [groups]: minibatches so far */
    uint32_t *rows;             /* [groups]: samples of the minibatch under way */
    uint32_t groups, len, stride, loss_at, blocks, count, batch, unused;
    float rate, keep, decay, longest;
};
static_assert(sizeof(Sgd) == SGD_BYTES, "Sgd");
FN double warp_sum(double x) {
#pragma unroll
    for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(FULL, x, other);
    return x;
}
extern "C" __global__ void __launch_bounds__(THREADS) squares(const Sgd a) {
    __shared__ double sums[THREADS / 32];
    const uint32_t group = blockIdx.x / NORM_BLOCKS, block = blockIdx.x % NORM_BLOCKS;
    const float *gradients = a.sums + (size_t)group * a.stride;
    double sum = 0.0;
    await();
    /* Tensors begin at multiples of 16. */
#pragma unroll 4
    for (uint32_t i = block * THREADS + threadIdx.x; i < a.len / 4; i += NORM_BLOCKS * THREADS) {
        const uint32_t kind = a.kinds[i / 4], part = kind >> 2;
        if (!(kind & 2) || (part && a.absent[(part - 1) * a.groups + group])) continue;
        const float4 g = ((const float4 *)gradients)[i];
        sum += (double)g.x * g.x + (double)g.y * g.y + (double)g.z * g.z + (double)g.w * g.w;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int warp = 1; warp < THREADS / 32; ++warp) sum += sums[warp];
    a.squares[blockIdx.x] = sum;
}
/* A gradient that is not finite changes nothing. Tells also how many samples come next: the plan's first kernels ask before they wait for
   the samples themselves. */
extern "C" __global__ void __launch_bounds__(THREADS) descend(const Sgd a) {
    __shared__ float factor;
    const uint32_t group = blockIdx.x / a.blocks, block = blockIdx.x % a.blocks;
    await();
    if (threadIdx.x < 32) {
        const double *of = a.squares + (size_t)group * NORM_BLOCKS;
        const double sum = warp_sum(of[threadIdx.x] + of[threadIdx.x + 32]);
        const float norm = (float)sqrt(sum);
        if (threadIdx.x == 0) {
            const int finite = fabsf(norm) < INFINITY;
            factor = finite ? (a.longest > 0.0f ? fminf(a.longest / (norm + 1e-6f), 1.0f) : 1.0f) : -1.0f;
            if (block == 0) {
                const float loss = a.sums[(size_t)group * a.stride + a.loss_at];
                const int fine = fabsf(loss) < INFINITY;
                if (fine) a.losses[group] += loss;
                a.broken[group] += !(fine && finite);
                const uint32_t next = ++a.steps[group];
                a.rows[group] = min(a.batch, a.count - min(next * a.batch, a.count));
            }
        }
    }
    __syncthreads();
    if (factor < 0.0f) return;
    const size_t first = (size_t)group * a.len;
    const float *gradients = a.sums + (size_t)group * a.stride;
    for (uint32_t i = block * THREADS + threadIdx.x; i < a.len / 4; i += a.blocks * THREADS) {
        const uint32_t kind = a.kinds[i / 4], part = kind >> 2;
        if (!(kind & 2) || (part && a.absent[(part - 1) * a.groups + group])) continue;
        float4 *values = (float4 *)(a.values + first) + i, *momentum = (float4 *)(a.momentum + first) + i;
        const float4 x = *values, m = *momentum, g = ((const float4 *)gradients)[i];
        const float decay = kind & 1 ? a.decay : 0.0f;
        const float4 b = {fmaf(m.x, a.keep, fmaf(x.x, decay, g.x * factor)), fmaf(m.y, a.keep, fmaf(x.y, decay, g.y * factor)),
                          fmaf(m.z, a.keep, fmaf(x.z, decay, g.z * factor)), fmaf(m.w, a.keep, fmaf(x.w, decay, g.w * factor))};
        *momentum = b;
        *values = {fmaf(b.x, -a.rate, x.x), fmaf(b.y, -a.rate, x.y), fmaf(b.z, -a.rate, x.z), fmaf(b.w, -a.rate, x.w)};
    }
}

/* Root of the mean square of the gradients of the host and of each slot's seed: kinds of owners in `owners`, of 16 numbers each. */
struct Sizes {
    const float *sums;
    const uint32_t *owners, *absent, *kinds;
    float *sizes;   /* [groups, owners] */
    uint32_t groups, len, stride, count;
};
static_assert(sizeof(Sizes) == SIZES_BYTES, "Sizes");
/* A block per group and owner. Padding counts for nothing: its gradients are 0, and `kinds` says how many of 16 are numbers. */
extern "C" __global__ void __launch_bounds__(THREADS) gradient_sizes(const Sizes a) {
    __shared__ double sums[THREADS / 32];
    __shared__ double counts[THREADS / 32];
    const uint32_t group = blockIdx.x / a.count, owner = blockIdx.x % a.count;
    const float *gradients = a.sums + (size_t)group * a.stride;
    double sum = 0.0, count = 0.0;
    for (uint32_t i = threadIdx.x; i < a.len; i += THREADS) {
        const uint32_t about = a.owners[i / 16], part = a.kinds[i / 16] >> 2;
        if ((about & 255) != owner || !(a.kinds[i / 16] & 2) || i % 16 >= about >> 8) continue;
        if (part && a.absent[(part - 1) * a.groups + group]) continue;
        sum += (double)gradients[i] * gradients[i];
        count += 1.0;
    }
    sum = warp_sum(sum), count = warp_sum(count);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum, counts[threadIdx.x / 32] = count;
    __syncthreads();
    if (threadIdx.x) return;
    for (int warp = 1; warp < THREADS / 32; ++warp) sum += sums[warp], count += counts[warp];
    a.sizes[blockIdx.x] = count > 0.0 ? (float)sqrt(sum / count) : 0.0f;
}

struct Judge {
    const float *logits;    /* of group 0 */
    const int32_t *targets; /* [samples] */
    const uint32_t *samples, *rows;
    double *losses;         /* [groups] */
    uint32_t *right;        /* [groups] */
    uint64_t stride;        /* of logits */
    uint32_t batch, classes;
};
static_assert(sizeof(Judge) == JUDGE_BYTES, "Judge");
/* A block per group: the sum of losses, and how many were right (the first of equals counts). */
extern "C" __global__ void __launch_bounds__(THREADS) judge(const Judge a) {
    __shared__ double sums[THREADS];
    __shared__ uint32_t counts[THREADS];
    const uint32_t group = blockIdx.x, rows = a.rows[group];
    double sum = 0.0;
    uint32_t right = 0;
    for (uint32_t row = threadIdx.x; row < rows; row += THREADS) {
        const float *x = a.logits + group * a.stride + (size_t)row * a.classes;
        const int target = a.targets[(size_t)a.samples[group] * a.batch + row];
        int best = 0;
        for (int k = 1; k < a.classes; ++k)
            if (x[k] > x[best]) best = k;
        double total = 0.0;
        for (int k = 0; k < a.classes; ++k) total += exp((double)x[k] - x[best]);
        sum += x[best] + log(total) - x[target];
        right += best == target;
    }
    sums[threadIdx.x] = sum;
    counts[threadIdx.x] = right;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
            counts[threadIdx.x] += counts[threadIdx.x + half];
        }
    }
    if (threadIdx.x) return;
    a.losses[group] = sums[0];
    a.right[group] = counts[0];
}
