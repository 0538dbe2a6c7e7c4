/* After early.cu, what every kernel of a plan begins with: its tensors, of which each group (a network on its rows) has its own, and the way to
   them. Defined before this text: ARGS_BYTES, INPUTS, EXACT (products with the accuracy of f32 instead of TF32), NARROW (tensors of
   more than one axis beside the rows hold bf16; others, statistics, parameters and sums hold f32 whatever it is). */
#define THREADS 256
#define FULL 0xFFFFFFFFu

/* Group g's part begins at + index[of][g]·stride: by its own number, by its network's, by its samples', or by that of the group it follows. */
struct Tensor {
    float *at;
    uint32_t stride, of;
};
struct Args {
    Tensor x[INPUTS], y[4], dy[4], dx[INPUTS], scratch;
    const uint32_t *index[4];
    const uint32_t *rows; /* [groups] */
    const uint32_t *skip; /* [groups]: groups without this op; or none */
    uint32_t blocks;      /* of a group */
    uint32_t add;         /* bit i: add to dx[i] */
    int32_t n[24];
    float f[4];
};
static_assert(sizeof(Args) == ARGS_BYTES, "Args");

#define KERNEL(name) extern "C" __global__ void __launch_bounds__(THREADS) name(const __grid_constant__ Args a)
#define PLACE                                                                                    \
    const uint32_t group = blockIdx.x / a.blocks, block = blockIdx.x % a.blocks;                 \
    if (a.skip && a.skip[group]) return await();                                                 \
    const uint32_t rows = a.rows[group];                                                         \
    (void)block, (void)rows
#define BEGIN                                                                                    \
    await();                                                                                     \
    PLACE
FN float *part(const Args &a, const Tensor &t, uint32_t group) {
    return t.at ? t.at + (size_t)a.index[t.of][group] * t.stride : nullptr;
}
#define X(i) ((const float *)part(a, a.x[i], group))
#define Y(i) part(a, a.y[i], group)
#define DY(i) ((const float *)part(a, a.dy[i], group))
#define DX(i) part(a, a.dx[i], group)
#define SCRATCH part(a, a.scratch, group)
/* The same of tensors of several axes. */
#define RX(i) ((const real *)part(a, a.x[i], group))
#define RY(i) ((real *)part(a, a.y[i], group))
#define RDY(i) ((const real *)part(a, a.dy[i], group))
#define RDX(i) ((real *)part(a, a.dx[i], group))
#define EACH(i, count) for (uint32_t i = block * THREADS + threadIdx.x, i##_end = (count); i < i##_end; i += a.blocks * THREADS)

#if NARROW
struct real {
    uint16_t bits;
    __device__ __forceinline__ operator float() const { return __uint_as_float((uint32_t)bits << 16); }
    __device__ __forceinline__ real &operator=(float x) {
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
        return *this;
    }
    __device__ __forceinline__ real &operator+=(float x) { return *this = (float)*this + x; }
};
#else
typedef float real;
#endif

FN float warp_sum(float x) {
#pragma unroll
    for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(FULL, x, other);
    return x;
}
FN float warp_max(float x) {
#pragma unroll
    for (int other = 16; other > 0; other /= 2) x = fmaxf(x, __shfl_xor_sync(FULL, x, other));
    return x;
}
FN uint32_t warp_min(uint32_t x) {
#pragma unroll
    for (int other = 16; other > 0; other /= 2) x = min(x, __shfl_xor_sync(FULL, x, other));
    return x;
}

/* Activations by number: none, relu, tanh, sigmoid, gelu, silu. */
FN float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
FN float activated(int act, float x) {
    switch (act) {
    case 1: return x > 0.0f ? x : (x == x ? 0.0f : x);
    case 2: return tanhf(x);
    case 3: return sigmoid(x);
    case 4: return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case 5: return x * sigmoid(x);
    default: return x;
    }
}
/* By the result where that suffices, by x for the last two. */
FN float slope(int act, float x, float y) {
    switch (act) {
    case 1: return y > 0.0f ? 1.0f : 0.0f;
    case 2: return 1.0f - y * y;
    case 3: return y * (1.0f - y);
    case 4: return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
    case 5: {
        const float s = sigmoid(x);
        return s * (1.0f + x * (1.0f - s));
    }
    default: return 1.0f;
    }
}

/* A block has `width` channels side by side, and `sides` places at once. Sums over these of what each thread has, in a fixed order;
   thread c < width gets channel c's. */
FN float over_places(float x, uint32_t width, uint32_t sides, float *room) {
    const uint32_t t = threadIdx.x, side = t / width;
    __syncthreads();
    room[t] = x;
    for (uint32_t n = sides; n > 1;) {
        const uint32_t half = (n + 1) / 2;
        __syncthreads();
        if (side + half < n) room[t] += room[t + half * width];
        n = half;
    }
    __syncthreads();
    return room[t];
}

