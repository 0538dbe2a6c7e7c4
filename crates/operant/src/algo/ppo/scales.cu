/* Mean and 1 / deviation of a minibatch's advantages, by a block of 1024 threads; `at` tells where sample number `place` of it lies. In
   f64: advantages that hardly differ have squares that hardly differ. Thread 0 has the result. */
template <typename At> FN float2 scale_of(const float *advantages, uint32_t count, uint32_t normalise, At at) {
    __shared__ double shared[2][32];
    double x = 0.0, y = 0.0;
    for (uint32_t place = threadIdx.x; normalise && place < count; place += 1024) {
        const double advantage = advantages[at(place)];
        x += advantage, y += advantage * advantage;
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) {
        x += __shfl_xor_sync(0xFFFFFFFFu, x, other);
        y += __shfl_xor_sync(0xFFFFFFFFu, y, other);
    }
    if (threadIdx.x % 32 == 0) shared[0][threadIdx.x / 32] = x, shared[1][threadIdx.x / 32] = y;
    __syncthreads();
    if (threadIdx.x != 0) return make_float2(0.0f, 0.0f);
    for (int warp = 1; warp < 32; warp++) x += shared[0][warp], y += shared[1][warp];
    const double samples = (double)count;
    const float deviation = sqrtf((float)fmax((y - x * x / samples) / (samples - 1.0), 0.0));
    return make_float2((float)(x / samples), normalise ? 1.0f / (deviation + 1e-8f) : 1.0f);
}
