/* Norms: n0 places, n1 channels, n2 groups of channels, n3 whether there are a weight and a bias, n4 the activation; f0 is added to
   variances. */

/* A block per row; at most THREADS channels. Sums of differences from one of the numbers lose fewer digits to a large mean. */
KERNEL(group_norm_forward) {
    BEGIN;
    __shared__ float room[THREADS], means[THREADS], rstds[THREADS];
    if (block >= rows) return;
    const uint32_t places = a.n[0], channels = a.n[1], groups = a.n[2], size = channels / groups, t = threadIdx.x;
    const uint32_t sides = THREADS / channels, side = t / channels, c = t % channels, of = c / size;
    const size_t at = (size_t)block * places * channels;
    const real *x = RX(0) + at;
    const float shift = x[of * size], scale = 1.0f / (float)(places * size);
    float sum = 0.0f, square = 0.0f;
    if (side < sides)
        for (uint32_t p = side; p < places; p += sides) {
            const float d = x[p * channels + c] - shift;
            sum += d;
            square += d * d;
        }
    sum = over_places(sum, channels, sides, room);
    means[t] = sum;
    square = over_places(square, channels, sides, room);
    rstds[t] = square;
    __syncthreads();
    float total = 0.0f, squares = 0.0f;
    for (uint32_t k = 0; k < size; ++k) {
        total += means[of * size + k];
        squares += rstds[of * size + k];
    }
    const float offset = total * scale, variance = fmaxf(squares * scale - offset * offset, 0.0f);
    const float mean = shift + offset, rstd = 1.0f / sqrtf(variance + a.f[0]);
    if (t < channels && c % size == 0 && Y(1)) {
        Y(1)[(size_t)block * groups + of] = mean;
        Y(2)[(size_t)block * groups + of] = rstd;
    }
    if (side >= sides) return;
    const float weight = a.n[3] ? X(1)[c] : 1.0f, bias = a.n[3] ? X(2)[c] : 0.0f;
    real *y = RY(0) + at;
    for (uint32_t p = side; p < places; p += sides)
        y[p * channels + c] = activated(a.n[4], fmaf((x[p * channels + c] - mean) * rstd, weight, bias));
}
/* dx = rstd·(w·dz − mean(w·dz) − x̂·mean(w·dz·x̂)); the scratch gets [rows][2·channels] for weight and bias. */
KERNEL(group_norm_backward) {
    BEGIN;
    __shared__ float room[THREADS], products[THREADS], sums[THREADS];
    if (block >= rows) return;
    const uint32_t places = a.n[0], channels = a.n[1], groups = a.n[2], size = channels / groups, t = threadIdx.x;
    const uint32_t sides = THREADS / channels, side = t / channels, c = t % channels, of = c / size;
    const size_t at = (size_t)block * places * channels;
    const real *x = RX(0) + at, *dy = RDY(0) + at;
    const float mean = Y(1)[(size_t)block * groups + of], rstd = Y(2)[(size_t)block * groups + of];
    const float weight = a.n[3] ? X(1)[c] : 1.0f, bias = a.n[3] ? X(2)[c] : 0.0f;
    float sum = 0.0f, product = 0.0f;
    if (side < sides)
        for (uint32_t p = side; p < places; p += sides) {
            const float scaled = (x[p * channels + c] - mean) * rstd, z = fmaf(scaled, weight, bias);
            const float dz = dy[p * channels + c] * slope(a.n[4], z, activated(a.n[4], z));
            sum += dz;
            product += dz * scaled;
        }
    sum = over_places(sum, channels, sides, room);
    product = over_places(product, channels, sides, room);
    if (t < channels) {
        if (a.n[3]) {
            float *to = SCRATCH + (size_t)block * 2 * channels;
            to[c] = product;
            to[channels + c] = sum;
        }
        products[t] = product * weight;
        sums[t] = sum * weight;
    }
    __syncthreads();
    real *dx = RDX(0);
    if (!dx || side >= sides) return;
    float first = 0.0f, second = 0.0f;
    for (uint32_t k = 0; k < size; ++k) {
        first += sums[of * size + k];
        second += products[of * size + k];
    }
    const float scale = 1.0f / (float)(places * size);
    first *= scale;
    second *= scale;
    dx += at;
    for (uint32_t p = side; p < places; p += sides) {
        const float scaled = (x[p * channels + c] - mean) * rstd, z = fmaf(scaled, weight, bias);
        const float dz = dy[p * channels + c] * slope(a.n[4], z, activated(a.n[4], z));
        dx[p * channels + c] = rstd * (weight * dz - first - scaled * second);
    }
}

/* A warp per place. */
KERNEL(layer_norm_forward) {
    BEGIN;
    const uint32_t at = block * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, channels = a.n[1];
    if (at >= rows * a.n[0]) return;
    const real *x = RX(0) + (size_t)at * channels;
    const float *weight = a.n[3] ? X(1) : nullptr, *bias = a.n[3] ? X(2) : nullptr;
    real *y = RY(0) + (size_t)at * channels;
    float sum = 0.0f, square = 0.0f;
    for (uint32_t c = lane; c < channels; c += 32) sum += x[c];
    const float mean = warp_sum(sum) / (float)channels;
    for (uint32_t c = lane; c < channels; c += 32) square += (x[c] - mean) * (x[c] - mean);
    const float rstd = 1.0f / sqrtf(warp_sum(square) / (float)channels + a.f[0]);
    if (lane == 0 && Y(1)) {
        Y(1)[at] = mean;
        Y(2)[at] = rstd;
    }
    for (uint32_t c = lane; c < channels; c += 32)
        y[c] = activated(a.n[4], fmaf((x[c] - mean) * rstd, weight ? weight[c] : 1.0f, bias ? bias[c] : 0.0f));
}
KERNEL(layer_norm_backward) {
    BEGIN;
    const uint32_t at = block * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, channels = a.n[1];
    if (at >= rows * a.n[0]) return;
    const real *x = RX(0) + (size_t)at * channels, *dy = RDY(0) + (size_t)at * channels;
    const float *weight = a.n[3] ? X(1) : nullptr, *bias = a.n[3] ? X(2) : nullptr, mean = Y(1)[at], rstd = Y(2)[at];
    real *dx = RDX(0) + (size_t)at * channels;
    float first = 0.0f, second = 0.0f;
    for (int pass = 0; pass < 2; ++pass) {
        for (uint32_t c = lane; c < channels; c += 32) {
            const float w = weight ? weight[c] : 1.0f, scaled = (x[c] - mean) * rstd, z = fmaf(scaled, w, bias ? bias[c] : 0.0f);
            const float dz = dy[c] * slope(a.n[4], z, activated(a.n[4], z)) * w;
            if (pass == 0) {
                first += dz;
                second += dz * scaled;
            } else {
                dx[c] = (dz - first - scaled * second) * rstd;
            }
        }
        if (pass == 0) {
            first = warp_sum(first) / (float)channels;
            second = warp_sum(second) / (float)channels;
        }
    }
}
/* Gradients of weight and bias: n5 places a block, to the scratch [blocks][2·channels]. */
KERNEL(layer_norm_weight) {
    BEGIN;
    __shared__ float room[THREADS];
    const uint32_t count = rows * a.n[0], channels = a.n[1], begin = block * a.n[5];
    if (begin >= count) return;
    const uint32_t end = min(begin + a.n[5], count);
    const real *x = RX(0), *dy = RDY(0);
    const float *means = Y(1), *rstds = Y(2), *weight = X(1), *bias = X(2);
    float *to = SCRATCH + (size_t)block * 2 * channels;
    for (uint32_t from = 0; from < channels; from += THREADS) {
        const uint32_t width = min((uint32_t)THREADS, channels - from), sides = THREADS / width;
        const uint32_t c = from + threadIdx.x % width, side = threadIdx.x / width;
        float sum = 0.0f, product = 0.0f;
        if (side < sides)
            for (uint32_t p = begin + side; p < end; p += sides) {
                const size_t i = (size_t)p * channels + c;
                const float scaled = (x[i] - means[p]) * rstds[p], z = fmaf(scaled, weight[c], bias[c]);
                const float dz = dy[i] * slope(a.n[4], z, activated(a.n[4], z));
                sum += dz;
                product += dz * scaled;
            }
        sum = over_places(sum, width, sides, room);
        product = over_places(product, width, sides, room);
        if (side == 0) {
            to[c] = product;
            to[channels + c] = sum;
        }
    }
}

/* Batch norm: n0 places of n1 channels a row, n2 a weight and a bias, n3 the activation, n4 places of all rows that a block adds up; f0 is
   eps. Inputs are x, sums over the batch (or none: running statistics), running mean and variance, weight, bias. */
struct Channel {
    float mean, rstd, weight, bias;
};
FN Channel channel_of(const Args &a, uint32_t group, uint32_t rows, uint32_t c) {
    const float *sums = X(1), *mean = X(2);
    const float weight = a.n[2] ? X(4)[c] : 1.0f, bias = a.n[2] ? X(5)[c] : 0.0f;
    if (!sums) return {mean[c], 1.0f / sqrtf(X(3)[c] + a.f[0]), weight, bias};
    const float scale = 1.0f / ((float)rows * (float)a.n[0]), offset = sums[c] * scale;
    const float variance = fmaxf(sums[a.n[1] + c] * scale - offset * offset, 0.0f);
    return {mean[c] + offset, 1.0f / sqrtf(variance + a.f[0]), weight, bias};
}
KERNEL(batch_norm_forward) {
    BEGIN;
    const real *x = RX(0);
    real *y = RY(0);
    EACH(i, rows * a.n[0] * a.n[1]) {
        const Channel c = channel_of(a, group, rows, i % a.n[1]);
        y[i] = activated(a.n[3], fmaf((x[i] - c.mean) * c.rstd, c.weight, c.bias));
    }
}
/* A block has 32 channels and n4 places: [parts][2][channels] of the scratch, which another adds up. */
#define SIDES (THREADS / 32)
FN void part_of_sums(const Args &a, float *scratch, uint32_t part, uint32_t c, float first, float second) {
    __shared__ float sums[2][SIDES][33];
    const uint32_t side = threadIdx.x / 32, lane = threadIdx.x % 32;
    sums[0][side][lane] = first, sums[1][side][lane] = second;
    __syncthreads();
    if (side > 1 || c >= a.n[1]) return;
    float sum = 0.0f;
    for (int other = 0; other < SIDES; ++other) sum += sums[side][other][lane];
    scratch[((size_t)part * 2 + side) * a.n[1] + c] = sum;
}
FN float sum_of_parts(const Args &a, const float *scratch, uint32_t rows, uint32_t j) {
    const uint32_t parts = (rows * a.n[0] + a.n[4] - 1) / a.n[4];
    float sum = 0.0f;
    for (uint32_t part = 0; part < parts; ++part) sum += scratch[(size_t)part * 2 * a.n[1] + j];
    return sum;
}
#define PART_OF_BATCH                                                                                                   \
    const uint32_t wide = (a.n[1] + 31) / 32, chunk = block / wide, c = block % wide * 32 + threadIdx.x % 32;            \
    const uint32_t places = rows * a.n[0], end = min(places, (chunk + 1) * a.n[4]);                                      \
    if (chunk * a.n[4] >= places) return
KERNEL(batch_statistics_parts) {
    BEGIN;
    PART_OF_BATCH;
    const real *x = RX(0);
    const float shift = c < a.n[1] ? X(1)[c] : 0.0f;
    float sum = 0.0f, squares = 0.0f;
    if (c < a.n[1])
        for (uint32_t place = chunk * a.n[4] + threadIdx.x / 32; place < end; place += SIDES) {
            const float d = x[(size_t)place * a.n[1] + c] - shift;
            sum += d, squares = fmaf(d, d, squares);
        }
    part_of_sums(a, SCRATCH, chunk, c, sum, squares);
}
KERNEL(batch_statistics_forward) {
    BEGIN;
    float *y = Y(0);
    EACH(j, 2 * a.n[1]) y[j] += sum_of_parts(a, SCRATCH, rows, j);
}
KERNEL(batch_statistics_backward) {
    BEGIN;
    const real *x = RX(0);
    const float *shift = X(1), *dy = DY(0);
    real *dx = RDX(0);
    EACH(i, rows * a.n[0] * a.n[1]) {
        const uint32_t c = i % a.n[1];
        const float d = fmaf(2.0f * dy[a.n[1] + c], x[i] - shift[c], dy[c]);
        dx[i] = a.add & 1 ? dx[i] + d : d;
    }
}
KERNEL(batch_norm_parts) {
    BEGIN;
    PART_OF_BATCH;
    const real *x = RX(0), *dy = RDY(0);
    real *dx = RDX(0);
    const Channel k = channel_of(a, group, rows, min(c, a.n[1] - 1));
    float sum = 0.0f, products = 0.0f;
    if (c < a.n[1])
        for (uint32_t place = chunk * a.n[4] + threadIdx.x / 32; place < end; place += SIDES) {
            const size_t i = (size_t)place * a.n[1] + c;
            const float normal = (x[i] - k.mean) * k.rstd, before = fmaf(normal, k.weight, k.bias);
            const float d = dy[i] * slope(a.n[3], before, activated(a.n[3], before));
            if (dx) dx[i] = d * k.weight * k.rstd;
            sum += d, products = fmaf(d, normal, products);
        }
    part_of_sums(a, SCRATCH, chunk, c, sum, products);
}
KERNEL(batch_norm_backward) {
    BEGIN;
    float *sums = DX(1), *weight = a.n[2] ? DX(4) : nullptr, *bias = a.n[2] ? DX(5) : nullptr;
    EACH(c, a.n[1]) {
        const float sum = sum_of_parts(a, SCRATCH, rows, c), products = sum_of_parts(a, SCRATCH, rows, a.n[1] + c);
        if (weight) weight[c] += products;
        if (bias) bias[c] += sum;
        if (!sums) continue;
        /* mean = shift + S/n and variance = Q/n − (S/n)², of the sums S and Q. */
        const Channel k = channel_of(a, group, rows, c);
        const float scale = 1.0f / ((float)rows * (float)a.n[0]), variance = -0.5f * k.weight * k.rstd * k.rstd * products;
        sums[a.n[1] + c] += variance * scale;
        sums[c] += (-k.weight * k.rstd * sum - 2.0f * (k.mean - X(2)[c]) * variance) * scale;
    }
}
