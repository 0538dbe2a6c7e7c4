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

/* n1 numbers a row of prediction, target and, with n2, weights; n0 is 0 for squares, 1 for Huber's of width f0, 2 for binary
   cross-entropy. */
FN float cost(int how, float x, float t, float width) {
    const float d = fabsf(x - t);
    if (how == 0) return d * d;
    if (how == 1) return d < width ? 0.5f * d * d : (d - 0.5f * width) * width;
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))) - x * t;
}
FN float cost_slope(int how, float x, float t, float width) {
    if (how == 0) return 2.0f * (x - t);
    return how == 1 ? fminf(fmaxf(x - t, -width), width) : sigmoid(x) - t;
}
KERNEL(pointwise_forward) {
    BEGIN;
    const uint32_t at = block * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, len = a.n[1];
    if (at >= rows) return;
    const size_t first = (size_t)at * len;
    const float *x = X(0) + first, *t = X(1) + first, *weight = a.n[2] ? X(2) + first : nullptr;
    float sum = 0.0f;
    for (uint32_t i = lane; i < len; i += 32) sum += cost(a.n[0], x[i], t[i], a.f[0]) * (weight ? weight[i] : 1.0f);
    sum = warp_sum(sum);
    if (lane == 0) Y(0)[at] = sum / (float)len;
}
KERNEL(pointwise_backward) {
    BEGIN;
    const float *x = X(0), *t = X(1), *weight = a.n[2] ? X(2) : nullptr, *dy = DY(0), scale = 1.0f / (float)a.n[1];
    float *dx = DX(0);
    EACH(i, rows * a.n[1])
        dx[i] = cost_slope(a.n[0], x[i], t[i], a.f[0]) * (weight ? weight[i] : 1.0f) * (dy[i / a.n[1]] * scale);
}

/* Of p and q by their logits: ln p − ln q of number i is x0 − x1 + shift. */
struct Divergence {
    float most, sum, shift, other_most, other_sum, kl;
};
FN Divergence divergence(const float *p, const float *q, uint32_t len, uint32_t lane) {
    Divergence d;
    d.most = largest_of(p, nullptr, len, lane), d.sum = exponentials(p, nullptr, len, lane, d.most);
    d.other_most = largest_of(q, nullptr, len, lane), d.other_sum = exponentials(q, nullptr, len, lane, d.other_most);
    d.shift = d.other_most + logf(d.other_sum) - (d.most + logf(d.sum));
    float kl = 0.0f;
    for (uint32_t i = lane; i < len; i += 32) kl += expf(p[i] - d.most) / d.sum * (p[i] - q[i] + d.shift);
    d.kl = warp_sum(kl);
    return d;
}
KERNEL(divergence_forward) {
    BEGIN;
    ROW;
    const Divergence d = divergence(X(0) + first, X(1) + first, len, lane);
    if (lane == 0) Y(0)[at] = d.kl;
}
KERNEL(divergence_backward) {
    BEGIN;
    ROW;
    const float *p = X(0) + first, *q = X(1) + first, dy = DY(0)[at];
    const Divergence d = divergence(p, q, len, lane);
    float *to = DX(0), *other = DX(1);
    for (uint32_t i = lane; i < len; i += 32) {
        const float share = expf(p[i] - d.most) / d.sum;
        if (to) to[first + i] = share * (p[i] - q[i] + d.shift - d.kl) * dy;
        if (other) other[first + i] = (expf(q[i] - d.other_most) / d.other_sum - share) * dy;
    }
}

/* n0 quantiles and n1 targets a row, with n2 levels of the quantiles; f0 is where the parabola ends. */
FN float level_of(const Args &a, const float *levels, uint32_t i, uint32_t quantile) {
    return levels ? levels[i] : ((float)quantile + 0.5f) / (float)a.n[0];
}
KERNEL(quantile_forward) {
    BEGIN;
    const uint32_t at = block * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, count = a.n[0];
    if (at >= rows) return;
    const float *x = X(0), *t = X(1) + (size_t)at * a.n[1], *levels = a.n[2] ? X(2) : nullptr, kappa = a.f[0];
    float sum = 0.0f;
    for (uint32_t i = lane; i < count; i += 32) {
        const float theta = x[at * count + i], level = level_of(a, levels, at * count + i, i);
        for (int j = 0; j < a.n[1]; ++j) {
            const float d = t[j] - theta, size = fabsf(d);
            sum += (d < 0.0f ? 1.0f - level : level) * (size < kappa ? 0.5f * size * size : (size - 0.5f * kappa) * kappa);
        }
    }
    sum = warp_sum(sum);
    if (lane == 0) Y(0)[at] = sum / ((float)a.n[1] * kappa);
}
KERNEL(quantile_backward) {
    BEGIN;
    const float *x = X(0), *t = X(1), *levels = a.n[2] ? X(2) : nullptr, *dy = DY(0), kappa = a.f[0];
    float *dx = DX(0);
    EACH(i, rows * a.n[0]) {
        const uint32_t row = i / a.n[0];
        const float level = level_of(a, levels, i, i % a.n[0]);
        float slope = 0.0f;
        for (int j = 0; j < a.n[1]; ++j) {
            const float d = t[(size_t)row * a.n[1] + j] - x[i];
            slope += (d < 0.0f ? 1.0f - level : level) * fminf(fmaxf(d, -kappa), kappa);
        }
        dx[i] = -slope * dy[row] / ((float)a.n[1] * kappa);
    }
}

/* A value of n0 numbers and n1 times as many advantages a row. */
KERNEL(dueling_forward) {
    BEGIN;
    const float *value = X(0), *advantage = X(1);
    float *y = Y(0);
    EACH(i, rows * a.n[0]) {
        const size_t first = (size_t)(i / a.n[0]) * a.n[0] * a.n[1] + i % a.n[0];
        float sum = 0.0f;
        for (int k = 0; k < a.n[1]; ++k) sum += advantage[first + k * a.n[0]];
        const float shift = value[i] - sum / (float)a.n[1];
        for (int k = 0; k < a.n[1]; ++k) y[first + k * a.n[0]] = advantage[first + k * a.n[0]] + shift;
    }
}
KERNEL(dueling_backward) {
    BEGIN;
    const float *dy = DY(0);
    float *value = DX(0), *advantage = DX(1);
    EACH(i, rows * a.n[0]) {
        const size_t first = (size_t)(i / a.n[0]) * a.n[0] * a.n[1] + i % a.n[0];
        float sum = 0.0f;
        for (int k = 0; k < a.n[1]; ++k) sum += dy[first + k * a.n[0]];
        if (value) value[i] = sum;
        if (advantage)
            for (int k = 0; k < a.n[1]; ++k) advantage[first + k * a.n[0]] = dy[first + k * a.n[0]] - sum / (float)a.n[1];
    }
}

/* n1 of the n0 numbers of a row, by integers. */
KERNEL(gather_forward) {
    BEGIN;
    const float *x = X(0);
    const int32_t *index = (const int32_t *)X(1);
    float *y = Y(0);
    EACH(i, rows * a.n[1]) y[i] = x[(size_t)(i / a.n[1]) * a.n[0] + index[i]];
}
KERNEL(gather_backward) {
    BEGIN;
    const int32_t *index = (const int32_t *)X(1);
    const float *dy = DY(0);
    float *dx = DX(0);
    EACH(i, rows * a.n[0]) {
        const size_t first = (size_t)(i / a.n[0]) * a.n[1];
        float sum = a.add & 1 ? dx[i] : 0.0f;
        for (int k = 0; k < a.n[1]; ++k)
            if (index[first + k] == (int)(i % a.n[0])) sum += dy[first + k];
        dx[i] = sum;
    }
}
