/* What plans do between ops. */

/* Zeroes y[0], n[0] numbers whatever the rows. */
KERNEL(plan_clear) {
    BEGIN;
    float *y = Y(0);
    EACH(i, a.n[0]) y[i] = 0.0f;
}
/* The next run, of which y[0] holds the number behind the seed. */
KERNEL(plan_next_run) {
    await();
    if (blockIdx.x == 0 && threadIdx.x == 0) ++((uint32_t *)a.y[0].at)[2];
}
/* y[j] += the sum over rows of x[j], of n[0] numbers; a block each. */
KERNEL(plan_total) {
    BEGIN;
    __shared__ float sums[THREADS];
    const float *x = X(0);
    float sum = 0.0f;
    for (uint32_t row = threadIdx.x; row < rows; row += THREADS) sum += x[row * a.n[0] + block];
    sums[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) Y(0)[block] += sums[0];
}
/* Adds up parts [parts][n0] of the scratch, of which there are as many as chunks of n2 units among n1 units a row. Numbers before
   n5 go to dx[n3], those behind to dx[n4]. Where parts are few (n6) a thread adds up each number by itself. */
struct Sums {
    const float *from;
    float *first, *second;
    const uint32_t *skip;
    uint32_t len, places, chunk, before, few, unused;
};
FN void collapsed(const Sums &s, uint32_t rows, uint32_t block, float (*sums)[33]) {
    const uint32_t parts = (rows * s.places + s.chunk - 1) / s.chunk;
    const uint32_t side = threadIdx.x / 32, lane = threadIdx.x % 32, j = s.few ? block * THREADS + threadIdx.x : block * 32 + lane;
    float sum = 0.0f;
    if (s.few) {
        if (j >= s.len) return;
#pragma unroll 8
        for (uint32_t part = 0; part < parts; ++part) sum += s.from[(size_t)part * s.len + j];
    } else {
        if (j < s.len)
#pragma unroll 4
            for (uint32_t part = side; part < parts; part += 8) sum += s.from[(size_t)part * s.len + j];
        sums[side][lane] = sum;
        __syncthreads();
        if (side != 0 || j >= s.len) return;
        for (int other = 1; other < 8; ++other) sum += sums[other][lane];
    }
    float *to = j < s.before ? s.first : s.second;
    if (to) to[j < s.before ? j : j - s.before] += sum;
}
KERNEL(plan_collapse) {
    BEGIN;
    __shared__ float sums[8][33];
    const uint32_t n[6] = {(uint32_t)a.n[0], (uint32_t)a.n[1], (uint32_t)a.n[2], (uint32_t)a.n[5], (uint32_t)a.n[6], 0};
    collapsed({SCRATCH, DX(a.n[3]), DX(a.n[4]), nullptr, n[0], n[1], n[2], n[3], n[4], n[5]}, rows, block, sums);
}
/* Many of them at once: x[0] holds what each adds up for group 0, whose scratch and sums the strides of y[0] and dy[0] part from other
   groups'. Each of n: a number among these, and from bit 12 on its blocks; or 0. */
KERNEL(plan_collapse_all) {
    await();
    __shared__ float sums[8][33];
    const uint32_t group = blockIdx.x / a.blocks;
    uint32_t block = blockIdx.x % a.blocks, i = 0;
    while (block >= (uint32_t)a.n[i] >> 12) block -= (uint32_t)a.n[i++] >> 12;
    Sums s = ((const Sums *)a.x[0].at)[a.n[i] & 4095];
    if (s.skip && s.skip[group]) return;
    s.from += (size_t)group * a.y[0].stride;
    if (s.first) s.first += (size_t)group * a.dy[0].stride;
    if (s.second) s.second += (size_t)group * a.dy[0].stride;
    collapsed(s, a.rows[group], block, sums);
}
