/* Log-probabilities, entropies and PPO's loss of actions, a thread for each place (a row, or a step of one).
   n: 0 places of a row, 1 logits or numbers of an action, 2 heads, 3 the input that masks choices (0: none), 4 the input with factors
   of clip and entropy (0: none), 5 whether values are clipped, 6 whether log standard deviations are one row for all, 7 whether the
   action has a gradient, 8 on: choices of each head. f: clip, weight of the value, weight of the entropy. */
#define HALF_LOG_TAU 0.9189385f
#define STATISTICS 6

/* ---- Choices ---- */

struct Head {
    float most, log_sum, log_prob, entropy;
};
FN Head head_of(const float *x, const float *mask, uint32_t count, int32_t action) {
    Head head = {-INFINITY, 0.0f, 0.0f, 0.0f};
    for (uint32_t k = 0; k < count; ++k)
        if (!mask || mask[k] > 0.0f) head.most = fmaxf(head.most, x[k]);
    float sum = 0.0f, weighted = 0.0f, chosen = 0.0f;
    for (uint32_t k = 0; k < count; ++k) {
        const float below = x[k] - head.most, power = !mask || mask[k] > 0.0f ? expf(below) : 0.0f;
        sum += power;
        if (power > 0.0f) weighted += power * below;
        if ((int32_t)k == action) chosen = below;
    }
    head.log_sum = logf(sum);
    head.log_prob = chosen - head.log_sum;
    head.entropy = head.log_sum - weighted / sum;
    return head;
}
FN void head_slopes(const Head &head, const float *x, const float *mask, uint32_t count, int32_t action, float d_log_prob, float d_entropy, float *dx) {
    for (uint32_t k = 0; k < count; ++k) {
        const float log_p = x[k] - head.most - head.log_sum, p = !mask || mask[k] > 0.0f ? expf(log_p) : 0.0f;
        const float spread = p > 0.0f ? fmaf(d_entropy, log_p + head.entropy, d_log_prob) * p : 0.0f;
        dx[k] = ((int32_t)k == action ? d_log_prob : 0.0f) - spread;
    }
}
/* All heads of a place. */
FN void heads_of(const Args &a, const float *x, const float *mask, const int32_t *action, float &log_prob, float &entropy) {
    log_prob = 0.0f, entropy = 0.0f;
    for (uint32_t h = 0, at = 0; h < a.n[2]; at += a.n[8 + h++]) {
        const Head head = head_of(x + at, mask ? mask + at : nullptr, a.n[8 + h], action[h]);
        log_prob += head.log_prob, entropy += head.entropy;
    }
}
FN void heads_slopes(const Args &a, const float *x, const float *mask, const int32_t *action, float d_log_prob, float d_entropy, float *dx) {
    for (uint32_t h = 0, at = 0; h < a.n[2]; at += a.n[8 + h++]) {
        const float *legal = mask ? mask + at : nullptr;
        const Head head = head_of(x + at, legal, a.n[8 + h], action[h]);
        head_slopes(head, x + at, legal, a.n[8 + h], action[h], d_log_prob, d_entropy, dx + at);
    }
}
#define CHOICES(actions)                                                                                      \
    const float *x = X(0) + (size_t)i * a.n[1], *mask = a.n[3] ? X(a.n[3]) + (size_t)i * a.n[1] : nullptr;      \
    const int32_t *action = (const int32_t *)X(actions) + (size_t)i * a.n[2]

KERNEL(categorical_forward) {
    BEGIN;
    float *log_probs = Y(0), *entropies = Y(1);
    EACH(i, rows * a.n[0]) {
        CHOICES(1);
        float log_prob, entropy;
        heads_of(a, x, mask, action, log_prob, entropy);
        if (log_probs) log_probs[i] = log_prob;
        if (entropies) entropies[i] = entropy;
    }
}
KERNEL(categorical_backward) {
    BEGIN;
    const float *d_log_prob = DY(0), *d_entropy = DY(1);
    EACH(i, rows * a.n[0]) {
        CHOICES(1);
        heads_slopes(a, x, mask, action, d_log_prob ? d_log_prob[i] : 0.0f, d_entropy ? d_entropy[i] : 0.0f, DX(0) + (size_t)i * a.n[1]);
    }
}

/* ---- Numbers ---- */

FN const float *log_stds(const Args &a, uint32_t group, uint32_t i) { return X(1) + (a.n[6] ? 0 : (size_t)i * a.n[1]); }
FN void numbers_of(const Args &a, const float *mean, const float *log_std, const float *action, float &log_prob, float &entropy) {
    log_prob = 0.0f, entropy = 0.0f;
    for (uint32_t k = 0; k < a.n[1]; ++k) {
        const float z = (action[k] - mean[k]) * expf(-log_std[k]);
        log_prob -= fmaf(0.5f, z * z, log_std[k] + HALF_LOG_TAU);
        entropy += log_std[k] + HALF_LOG_TAU + 0.5f;
    }
}
/* Gradients of a place's mean and log standard deviation; those of one row for all are added up by blocks, of which each has THREADS
   places. All threads of a block come here. */
FN void numbers_slopes(const Args &a, uint32_t group, uint32_t block, uint32_t i, int here, uint32_t input, float d_log_prob, float d_entropy) {
    __shared__ float sums[THREADS / 32];
    const uint32_t width = a.n[1], warp = threadIdx.x / 32;
    const size_t at = here ? (size_t)i * width : 0;
    const float *mean = X(0) + at, *action = X(input) + at, *log_std = log_stds(a, group, here ? i : 0);
    float *by_mean = DX(0), *by_log_std = DX(1), *by_action = a.n[7] ? DX(input) : nullptr;
    for (uint32_t k = 0; k < width; ++k) {
        const float inverse = expf(-log_std[k]), z = (action[k] - mean[k]) * inverse, slope = d_log_prob * z * inverse;
        float by_log = fmaf(d_log_prob, z * z - 1.0f, d_entropy);
        if (here && by_mean) by_mean[at + k] = slope;
        if (here && by_action) by_action[at + k] = -slope;
        if (!by_log_std) continue;
        if (!a.n[6]) {
            if (here) by_log_std[at + k] = by_log;
            continue;
        }
        by_log = warp_sum(here ? by_log : 0.0f);
        __syncthreads();
        if (threadIdx.x % 32 == 0) sums[warp] = by_log;
        __syncthreads();
        if (threadIdx.x) continue;
        for (int other = 1; other < THREADS / 32; ++other) by_log += sums[other];
        SCRATCH[(size_t)block * width + k] = by_log;
    }
}
KERNEL(gaussian_forward) {
    BEGIN;
    float *log_probs = Y(0), *entropies = Y(1);
    EACH(i, rows) {
        const size_t at = (size_t)i * a.n[1];
        float log_prob, entropy;
        numbers_of(a, X(0) + at, log_stds(a, group, i), X(2) + at, log_prob, entropy);
        if (log_probs) log_probs[i] = log_prob;
        if (entropies) entropies[i] = entropy;
    }
}
KERNEL(gaussian_backward) {
    BEGIN;
    const uint32_t i = block * THREADS + threadIdx.x;
    const float *d_log_prob = DY(0), *d_entropy = DY(1);
    if (block * THREADS >= rows) return;
    const int here = i < rows;
    numbers_slopes(a, group, block, i, here, 2, here && d_log_prob ? d_log_prob[i] : 0.0f, here && d_entropy ? d_entropy[i] : 0.0f);
}

/* ---- PPO's loss ---- */

struct Sample {
    float value, old_log_prob, advantage, returns, old_value, clip, entropy;
};
/* Inputs from `first` on: old log-probability, advantage, return, old value. */
FN Sample sample_of(const Args &a, uint32_t group, uint32_t i, uint32_t value, uint32_t first) {
    const float *factors = a.n[4] ? X(a.n[4]) : nullptr;
    return {X(value)[i], X(first)[i], X(first + 1)[i], X(first + 2)[i], X(first + 3)[i],
            a.f[0] * (factors ? factors[0] : 1.0f), a.f[2] * (factors ? factors[1] : 1.0f)};
}
FN float within(float x, float least, float most) { return fminf(fmaxf(x, least), most); }
FN void store_loss(const Args &a, uint32_t group, uint32_t i, const Sample &s, float log_prob, float entropy) {
    const float log_ratio = log_prob - s.old_log_prob, ratio = expf(log_ratio), clipped = within(ratio, 1.0f - s.clip, 1.0f + s.clip);
    const float policy = fmaxf(-s.advantage * ratio, -s.advantage * clipped), error = s.value - s.returns;
    float squared = error * error;
    if (a.n[5]) {
        const float near = s.old_value + within(s.value - s.old_value, -s.clip, s.clip) - s.returns;
        squared = fmaxf(squared, near * near);
    }
    const float value = 0.5f * squared;
    if (Y(0)) Y(0)[i] = policy - entropy * s.entropy + value * a.f[1];
    float *to = Y(1);
    if (!to) return;
    to += (size_t)i * STATISTICS;
    to[0] = policy, to[1] = value, to[2] = entropy, to[3] = -log_ratio, to[4] = ratio - 1.0f - log_ratio;
    to[5] = fabsf(ratio - 1.0f) > s.clip ? 1.0f : 0.0f;
}
/* Slopes by the log-probability and the value. */
FN void loss_slopes(const Args &a, const Sample &s, float log_prob, float &by_log_prob, float &by_value) {
    const float ratio = expf(log_prob - s.old_log_prob), clipped = within(ratio, 1.0f - s.clip, 1.0f + s.clip);
    const float free = -s.advantage * ratio, limited = -s.advantage * clipped, error = s.value - s.returns;
    by_log_prob = ratio == clipped || free > limited ? free : 0.0f;
    by_value = error * a.f[1];
    if (a.n[5]) {
        const float step = s.value - s.old_value, near = s.old_value + within(step, -s.clip, s.clip) - s.returns;
        if (!(fabsf(step) <= s.clip || error * error > near * near)) by_value = 0.0f;
    }
}
KERNEL(ppo_categorical_forward) {
    BEGIN;
    EACH(i, rows * a.n[0]) {
        CHOICES(2);
        float log_prob, entropy;
        heads_of(a, x, mask, action, log_prob, entropy);
        store_loss(a, group, i, sample_of(a, group, i, 1, 3), log_prob, entropy);
    }
}
KERNEL(ppo_categorical_backward) {
    BEGIN;
    EACH(i, rows * a.n[0]) {
        CHOICES(2);
        float log_prob, entropy, by_log_prob, by_value;
        heads_of(a, x, mask, action, log_prob, entropy);
        const Sample s = sample_of(a, group, i, 1, 3);
        const float dy = DY(0)[i];
        loss_slopes(a, s, log_prob, by_log_prob, by_value);
        if (DX(1)) DX(1)[i] = by_value * dy;
        if (DX(0)) heads_slopes(a, x, mask, action, by_log_prob * dy, -s.entropy * dy, DX(0) + (size_t)i * a.n[1]);
    }
}
KERNEL(ppo_gaussian_forward) {
    BEGIN;
    EACH(i, rows * a.n[0]) {
        const size_t at = (size_t)i * a.n[1];
        float log_prob, entropy;
        numbers_of(a, X(0) + at, log_stds(a, group, i), X(3) + at, log_prob, entropy);
        store_loss(a, group, i, sample_of(a, group, i, 2, 4), log_prob, entropy);
    }
}
KERNEL(ppo_gaussian_backward) {
    BEGIN;
    const uint32_t i = block * THREADS + threadIdx.x, count = rows * a.n[0];
    if (block * THREADS >= count) return;
    const int here = i < count;
    float by_log_prob = 0.0f, by_entropy = 0.0f;
    if (here) {
        const size_t at = (size_t)i * a.n[1];
        const Sample s = sample_of(a, group, i, 2, 4);
        const float dy = DY(0)[i];
        float log_prob, entropy, by_value;
        numbers_of(a, X(0) + at, log_stds(a, group, i), X(3) + at, log_prob, entropy);
        loss_slopes(a, s, log_prob, by_log_prob, by_value);
        by_log_prob *= dy, by_entropy = -s.entropy * dy;
        if (DX(2)) DX(2)[i] = by_value * dy;
    }
    numbers_slopes(a, group, block, i, here, 3, by_log_prob, by_entropy);
}
