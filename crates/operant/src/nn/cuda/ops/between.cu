/* What plans do between ops. */

/* Zeroes y[0], n[0] numbers whatever the rows. */
KERNEL(plan_clear) {
    BEGIN;
    float *y = Y(0);
    EACH(i, a.n[0]) y[i] = 0.0f;
}
/* y += x, n[0] numbers a row. */
KERNEL(plan_add) {
    BEGIN;
    const real *x = RX(0);
    real *y = RY(0);
    EACH(i, rows * a.n[0]) y[i] += x[i];
}
/* The gradient of a mean: f[0] / rows in every row. */
KERNEL(plan_seed) {
    BEGIN;
    float *y = Y(0);
    EACH(i, rows) y[i] = a.f[0] / (float)rows;
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
   n5 go to dx[n3], those behind to dx[n4]. */
FN void collapsed(const Args &a, uint32_t group, uint32_t j, float sum) {
    float *to = j < (uint32_t)a.n[5] ? DX(a.n[3]) : DX(a.n[4]);
    if (to) to[j < (uint32_t)a.n[5] ? j : j - a.n[5]] += sum;
}
KERNEL(plan_collapse) {
    BEGIN;
    __shared__ float sums[8][33];
    const uint32_t len = a.n[0], parts = (rows * a.n[1] + a.n[2] - 1) / a.n[2];
    const uint32_t side = threadIdx.x / 32, lane = threadIdx.x % 32, j = block * 32 + lane;
    const float *from = SCRATCH;
    float sum = 0.0f;
    if (j < len)
        for (uint32_t s = side; s < parts; s += 8) sum += from[(size_t)s * len + j];
    sums[side][lane] = sum;
    __syncthreads();
    if (side != 0 || j >= len) return;
    for (int other = 1; other < 8; ++other) sum += sums[other][lane];
    collapsed(a, group, j, sum);
}
/* The same by a thread for each number. */
KERNEL(plan_collapse_few) {
    BEGIN;
    const uint32_t len = a.n[0], parts = (rows * a.n[1] + a.n[2] - 1) / a.n[2], j = block * THREADS + threadIdx.x;
    if (j >= len) return;
    const float *from = SCRATCH + j;
    float sum = 0.0f;
#pragma unroll 8
    for (uint32_t s = 0; s < parts; ++s) sum += from[(size_t)s * len];
    collapsed(a, group, j, sum);
}
