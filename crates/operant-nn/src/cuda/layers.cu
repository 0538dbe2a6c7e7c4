/* What surrounds the matrix products of a stack of linear layers, after numbers.cu: biases with activations, their slopes with the
   sums that gradients of biases are, the gradient's norm, Adam. Defined before this text: ACT (0 tanh, 1 relu, 2 sigmoid), EXACT
   (whether tanh is exact), STRIP (rows of a block), MAX_SEGMENTS, NORM_BLOCKS, and the sizes of the last lines.
   Matrices are [nets, rows, pitch]: pitch is a multiple of 8, and columns beyond a layer's width are 0. All sums have a fixed order. */
#define THREADS 256
#define BATCH 4 /* loads under way before the first is used */

FN float activated(float x) {
#if ACT == 1
    return fmaxf(x, 0.0f);
#elif ACT == 2
    return __fdividef(1.0f, 1.0f + __expf(-x));
#elif EXACT
    return tanhf(x);
#else
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}
/* By the activation's result. */
FN float slope(float y) {
#if ACT == 1
    return y > 0.0f ? 1.0f : 0.0f;
#elif ACT == 2
    return y * (1.0f - y);
#else
    return fmaf(-y, y, 1.0f);
#endif
}

FN float warp_sum(float x) {
#pragma unroll
    for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, other);
    return x;
}

/* ---- Forward ---- */

struct EncodeArgs {
    const float *from; /* [rows, width] */
    Number *to;        /* [rows, pitch] */
    uint32_t rows, width, pitch, unused;
};
extern "C" __global__ void __launch_bounds__(THREADS) encode(const EncodeArgs a) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, row = i / a.pitch, column = i % a.pitch;
    if (row < a.rows) a.to[i] = column < a.width ? to_number(a.from[row * a.width + column]) : to_number(0.0f);
}

struct ActivateArgs {
    Number *z;         /* [nets, rows, pitch]: sums, which become the activation's results */
    const float *bias; /* [pitch] of the first net */
    uint64_t bias_stride;
    uint32_t rows, width, pitch, unused;
};
extern "C" __global__ void __launch_bounds__(THREADS) activate(const ActivateArgs a) {
    const uint32_t groups = a.pitch / 8, strips = (a.rows + STRIP - 1) / STRIP;
    const uint32_t net = blockIdx.x / strips, first = blockIdx.x % strips * STRIP;
    const uint32_t items = min(a.rows - first, STRIP) * groups;
    Number *z = a.z + ((size_t)net * a.rows + first) * a.pitch;
    const float *bias = a.bias + net * a.bias_stride;
    for (uint32_t i = threadIdx.x; i < items; i += BATCH * THREADS) {
        Eight eights[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) eights[b] = fetch8(z + (size_t)min(i + b * THREADS, items - 1) * 8);
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const uint32_t at = i + b * THREADS, column = at % groups * 8;
            if (at >= items) break;
            const float4 low = ((const float4 *)(bias + column))[0], high = ((const float4 *)(bias + column))[1];
            const float add[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            float x[8];
            unpack8(eights[b], x);
#pragma unroll
            for (int k = 0; k < 8; k++) x[k] = column + k < a.width ? activated(x[k] + add[k]) : 0.0f;
            store8(z + (size_t)at * 8, x);
        }
    }
}

struct OutputsArgs {
    const float *z; /* [rows, pitch] of one net: sums */
    const float *bias;
    float *to; /* [rows, width] */
    uint32_t rows, width, pitch, unused;
};
extern "C" __global__ void __launch_bounds__(THREADS) outputs(const OutputsArgs a) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, row = i / a.width, column = i % a.width;
    if (row < a.rows) a.to[i] = a.z[row * a.pitch + column] + a.bias[column];
}

/* ---- Backward ---- */

struct ErrorArgs {
    const float *z; /* [rows, pitch] of one net: sums */
    const float *bias;
    const float *target; /* [rows, width] */
    Number *d;           /* [rows, pitch]: gradients of squared errors, of their sum over rows and mean over columns */
    uint32_t rows, width, pitch, unused;
};
extern "C" __global__ void __launch_bounds__(THREADS) squared_error(const ErrorArgs a) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, row = i / a.pitch, column = i % a.pitch;
    if (row >= a.rows) return;
    float d = 0.0f;
    if (column < a.width) d = 2.0f * (a.z[i] + a.bias[column] - a.target[row * a.width + column]) / (float)a.width;
    a.d[i] = to_number(d);
}

struct SlopesArgs {
    Number *d;       /* [nets, rows, pitch]: gradients of activations, which become those of sums */
    const Number *h; /* the activations, or null: the gradients are those of sums already */
    float *sums;     /* [nets, most_strips, pitch] over the rows of a strip */
    uint32_t rows, pitch, most_strips, adds;
};
extern "C" __global__ void __launch_bounds__(THREADS) slopes(const SlopesArgs a) {
    __shared__ float4 shared[2 * THREADS];
    const uint32_t groups = a.pitch / 8, parts = (groups + THREADS - 1) / THREADS, strips = (a.rows + STRIP - 1) / STRIP;
    const uint32_t part = blockIdx.x % parts, strip = blockIdx.x / parts % strips, net = blockIdx.x / parts / strips;
    const uint32_t lanes = min(groups - part * THREADS, THREADS), beside = THREADS / lanes;
    const uint32_t lane = threadIdx.x % lanes, mine = threadIdx.x / lanes, rows = min(a.rows - strip * STRIP, STRIP);
    const uint32_t column = (part * THREADS + lane) * 8;
    const size_t begin = ((size_t)net * a.rows + strip * STRIP) * a.pitch + column;
    float sums[8] = {};
    if (mine < beside) {
        for (uint32_t row = mine; row < rows; row += BATCH * beside) {
            Eight d[BATCH], h[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                const size_t at = begin + (size_t)min(row + b * beside, rows - 1) * a.pitch;
                d[b] = fetch8(a.d + at);
                h[b] = a.h != nullptr ? fetch8(a.h + at) : d[b];
            }
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                if (row + b * beside >= rows) break;
                float x[8], y[8];
                unpack8(d[b], x);
                if (a.h != nullptr) {
                    unpack8(h[b], y);
#pragma unroll
                    for (int k = 0; k < 8; k++) x[k] *= slope(y[k]);
                    store8(a.d + begin + (size_t)(row + b * beside) * a.pitch, x);
                }
#pragma unroll
                for (int k = 0; k < 8; k++) sums[k] += x[k];
            }
        }
    }
    shared[2 * threadIdx.x] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    shared[2 * threadIdx.x + 1] = make_float4(sums[4], sums[5], sums[6], sums[7]);
    __syncthreads();
    float4 *to = (float4 *)(a.sums + ((size_t)net * a.most_strips + strip) * a.pitch + part * THREADS * 8);
    for (uint32_t i = threadIdx.x; i < 2 * lanes; i += THREADS) {
        float4 x = shared[i];
        for (uint32_t other = 1; other < beside; other++) {
            const float4 y = shared[other * 2 * lanes + i];
            x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
        }
        if (a.adds) x.x += to[i].x, x.y += to[i].y, x.z += to[i].z, x.w += to[i].w;
        to[i] = x;
    }
}

/* Rows of sums that become one. */
struct Segment {
    const float *from; /* [strips, pitch] */
    float *to;         /* [pitch] */
    uint32_t strips, pitch, first_block, unused;
};
struct CollapseArgs {
    Segment segments[MAX_SEGMENTS]; /* a block for 32 columns of one */
    uint32_t count, unused;
};
extern "C" __global__ void __launch_bounds__(THREADS) collapse(const CollapseArgs a) {
    __shared__ float shared[THREADS];
    uint32_t s = a.count - 1;
    while (a.segments[s].first_block > blockIdx.x) s--;
    const Segment &segment = a.segments[s];
    const uint32_t column = (blockIdx.x - segment.first_block) * 32 + threadIdx.x % 32;
    float x = 0.0f;
    if (column < segment.pitch) {
#pragma unroll 8
        for (uint32_t strip = threadIdx.x / 32; strip < segment.strips; strip += THREADS / 32)
            x += segment.from[(size_t)strip * segment.pitch + column];
    }
    shared[threadIdx.x] = x;
    __syncthreads();
    if (threadIdx.x >= 32 || column >= segment.pitch) return;
    for (int other = 1; other < THREADS / 32; other++) x += shared[other * 32 + threadIdx.x];
    segment.to[column] = x;
}

/* ---- Steps of the optimiser ---- */

struct NormArgs {
    const float *gradients;
    float *squares; /* [NORM_BLOCKS] */
    uint64_t len;   /* a multiple of 4 */
};
extern "C" __global__ void __launch_bounds__(THREADS) gradient_norm(const NormArgs a) {
    __shared__ float shared[THREADS / 32];
    const uint64_t fours = a.len / 4;
    float x = 0.0f;
#pragma unroll 4
    for (uint64_t i = blockIdx.x * THREADS + threadIdx.x; i < fours; i += NORM_BLOCKS * THREADS) {
        const float4 y = ((const float4 *)a.gradients)[i];
        x += y.x * y.x + y.y * y.y + (y.z * y.z + y.w * y.w);
    }
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < THREADS / 32; w++) x += shared[w];
        a.squares[blockIdx.x] = x;
    }
}

/* What the host decides before an iteration. Gradients are sums over samples, because half precision has no room for one sample's
   share of their mean; `share` makes means of them. */
struct Adam {
    float learning_rate, beta1, beta2, eps, max_norm, share; /* max_norm: 0 for no limit */
    uint32_t step;                                           /* steps before this iteration */
};
struct AdamArgs {
    const Adam *how;
    const float *gradients, *squares;
    float *params, *mean, *square;
    Number *image; /* the parameters as products read them, if that is not as they are */
    float *norm;   /* before clipping */
    uint64_t len;
    uint32_t update, unused; /* steps of this iteration before this one */
};
extern "C" __global__ void __launch_bounds__(THREADS) adam(const AdamArgs a) {
    __shared__ float shared;
    const uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    const Adam how = *a.how;
    if (threadIdx.x < 32) {
        float x = 0.0f;
        for (int k = threadIdx.x; k < NORM_BLOCKS; k += 32) x += a.squares[k];
        x = sqrtf(warp_sum(x)) * how.share;
        if (threadIdx.x == 0) shared = x;
        if (i == 0) *a.norm = x;
    }
    __syncthreads();
    if (i >= a.len / 4) return;
    const float length = shared, step = (float)(how.step + a.update + 1);
    const float shorter = how.max_norm > 0.0f && length > how.max_norm ? how.max_norm / (length + 1e-6f) : 1.0f;
    /* What makes up for the moments having begun as 0. */
    const float bias1 = -1.0f / expm1f(step * logf(how.beta1)), bias2 = -1.0f / expm1f(step * logf(how.beta2));
    const float4 g4 = ((const float4 *)a.gradients)[i];
    float4 p4 = ((float4 *)a.params)[i], m4 = ((float4 *)a.mean)[i], v4 = ((float4 *)a.square)[i];
    const float g[4] = {g4.x, g4.y, g4.z, g4.w};
    float p[4] = {p4.x, p4.y, p4.z, p4.w}, m[4] = {m4.x, m4.y, m4.z, m4.w}, v[4] = {v4.x, v4.y, v4.z, v4.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float gradient = g[k] * how.share * shorter;
        m[k] = how.beta1 * m[k] + (1.0f - how.beta1) * gradient;
        v[k] = how.beta2 * v[k] + (1.0f - how.beta2) * gradient * gradient;
        p[k] -= how.learning_rate * m[k] * bias1 / (sqrtf(v[k] * bias2) + how.eps);
    }
    ((float4 *)a.params)[i] = make_float4(p[0], p[1], p[2], p[3]);
    ((float4 *)a.mean)[i] = make_float4(m[0], m[1], m[2], m[3]);
    ((float4 *)a.square)[i] = make_float4(v[0], v[1], v[2], v[3]);
#if SIXTEEN
    ((uint2 *)a.image)[i] = make_uint2(two_numbers(p[0], p[1]), two_numbers(p[2], p[3]));
#endif
}

static_assert(sizeof(EncodeArgs) == ENCODE_BYTES && sizeof(ActivateArgs) == ACTIVATE_BYTES && sizeof(OutputsArgs) == OUTPUTS_BYTES && sizeof(ErrorArgs) == ERROR_BYTES &&
                  sizeof(SlopesArgs) == SLOPES_BYTES && sizeof(CollapseArgs) == COLLAPSE_BYTES && sizeof(NormArgs) == NORM_BYTES &&
                  sizeof(AdamArgs) == ADAM_ARGS_BYTES && sizeof(Adam) == ADAM_BYTES,
              "nn/cuda/layers.rs has the same structs");
