/* Softmax and its losses: a warp per row of n1 numbers, n0 rows of these a sample. */

FN float largest_of(const float *x, const float *mask, uint32_t len, uint32_t lane) {
    float most = -INFINITY;
    for (uint32_t i = lane; i < len; i += 32)
        if (!mask || mask[i] != 0.0f) most = fmaxf(most, x[i]);
    return warp_max(most);
}
FN float exponentials(const float *x, const float *mask, uint32_t len, uint32_t lane, float most) {
    float sum = 0.0f;
    for (uint32_t i = lane; i < len; i += 32)
        if (!mask || mask[i] != 0.0f) sum += expf(x[i] - most);
    return warp_sum(sum);
}
#define ROW                                                                                                             \
    const uint32_t at = block * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, len = a.n[1];               \
    if (at >= rows * a.n[0]) return;                                                                                    \
    const size_t first = (size_t)at * len

/* n2: logarithms; n3: a mask. */
KERNEL(softmax_forward) {
    BEGIN;
    ROW;
    const float *x = X(0) + first, *mask = a.n[3] ? X(1) + first : nullptr;
    float *y = Y(0) + first;
    const float most = largest_of(x, mask, len, lane), sum = exponentials(x, mask, len, lane, most), shift = most + logf(sum);
    for (uint32_t i = lane; i < len; i += 32) {
        const int legal = !mask || mask[i] != 0.0f;
        y[i] = a.n[2] ? (legal ? x[i] - shift : -INFINITY) : legal ? expf(x[i] - most) / sum : 0.0f;
    }
}
KERNEL(softmax_backward) {
    BEGIN;
    ROW;
    const float *mask = a.n[3] ? X(1) + first : nullptr, *y = Y(0) + first, *dy = DY(0) + first;
    float *dx = DX(0) + first, sum = 0.0f;
    for (uint32_t i = lane; i < len; i += 32)
        if (!mask || mask[i] != 0.0f) sum += a.n[2] ? dy[i] : y[i] * dy[i];
    sum = warp_sum(sum);
    for (uint32_t i = lane; i < len; i += 32) {
        const int legal = !mask || mask[i] != 0.0f;
        dx[i] = !legal ? 0.0f : a.n[2] ? dy[i] - expf(y[i]) * sum : y[i] * (dy[i] - sum);
    }
}

/* n2: targets are distributions; n3: a mask; f0: share of a target that is spread evenly. */
KERNEL(cross_entropy_forward) {
    BEGIN;
    ROW;
    const float *x = X(0) + first, *mask = a.n[3] ? X(2) + first : nullptr, *target = a.n[2] ? X(1) + first : nullptr;
    const float most = largest_of(x, mask, len, lane);
    const float log_sum = most + logf(exponentials(x, mask, len, lane, most));
    float total = 0.0f, sum = 0.0f, count = 0.0f;
    for (uint32_t i = lane; i < len; i += 32) {
        if (mask && mask[i] == 0.0f) continue;
        const float t = target ? target[i] : 1.0f;
        total += t;
        sum += t * x[i];
        count += 1.0f;
    }
    total = warp_sum(total), sum = warp_sum(sum), count = warp_sum(count);
    if (lane) return;
    if (target) {
        Y(0)[at] = total * log_sum - sum;
    } else {
        const float hard = (1.0f - a.f[0]) * (log_sum - x[((const int32_t *)X(1))[at]]);
        Y(0)[at] = a.f[0] > 0.0f ? hard + a.f[0] * (log_sum - sum / count) : hard;
    }
}
KERNEL(cross_entropy_backward) {
    BEGIN;
    ROW;
    const float *x = X(0) + first, *mask = a.n[3] ? X(2) + first : nullptr, *target = a.n[2] ? X(1) + first : nullptr;
    float *dx = DX(0) + first;
    const float dy = DY(0)[at], most = largest_of(x, mask, len, lane), sum = exponentials(x, mask, len, lane, most);
    float total = 0.0f, count = 0.0f;
    for (uint32_t i = lane; i < len; i += 32) {
        if (mask && mask[i] == 0.0f) continue;
        total += target ? target[i] : 0.0f;
        count += 1.0f;
    }
    total = target ? warp_sum(total) : 1.0f, count = warp_sum(count);
    const int hard = target ? -1 : ((const int32_t *)X(1))[at];
    for (uint32_t i = lane; i < len; i += 32) {
        float d = 0.0f;
        if (!mask || mask[i] != 0.0f) d = dy * (total * expf(x[i] - most) / sum - (target ? target[i] : a.f[0] / count));
        if ((int)i == hard) d -= dy * (1.0f - a.f[0]);
        dx[i] = d;
    }
}
